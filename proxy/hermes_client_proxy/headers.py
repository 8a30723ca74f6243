"""Reading raw request headers."""

from __future__ import annotations

from collections.abc import Iterable

Headers = Iterable[tuple[bytes, bytes]]


def values(headers: Headers, name: bytes) -> list[str]:
    """All values of the header *name* (lower case), in order."""
    return [value.decode("latin-1").strip() for key, value in headers if key.lower() == name]
