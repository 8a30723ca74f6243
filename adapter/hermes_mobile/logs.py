"""Log lines: `key=value` through the logger `hermes_mobile`, which Hermes writes to its own files.

A line holds ids, codes, counts and durations. It never holds what a person or an agent wrote, a
secret, the name of a file, or the text of an exception, which may quote any of them.
"""

from __future__ import annotations

import json
import logging
import re
import traceback

log = logging.getLogger("hermes_mobile")

_PLAIN = re.compile(r"[!#-<>-~]+")


def shown(text: str) -> str:
    """`text`, an id, as the value of one field: quoted where it would look like more than that.

    Ids come from clients; a space, `=` or a line break in one must not forge a field or a line.
    """
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def seconds(duration: float | None) -> str:
    """A duration for a field, in seconds; `-` for none."""
    return "-" if duration is None else f"{max(0.0, duration):.3f}"


def trace(error: BaseException | None) -> str:
    """The kind of `error` and the calls that led to it, without its text."""
    lines = []
    seen = error
    for _ in range(8):
        if seen is None:
            break
        lines.append(f"{type(seen).__module__}.{type(seen).__qualname__}, from:\n")
        lines += traceback.format_tb(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    return "".join(lines).rstrip()
