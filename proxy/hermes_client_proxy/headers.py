"""Reading raw request headers."""

from __future__ import annotations

from collections.abc import Iterable

Headers = Iterable[tuple[bytes, bytes]]


def values(headers: Headers, name: bytes) -> list[str]:
    """All values of the header *name* (lower case), in order."""
    # Optional white space is a space or a tab (RFC 9110 section 5.6.3); strip() knows many more.
    return [value.decode("latin-1").strip(" \t") for key, value in headers if key.lower() == name]
