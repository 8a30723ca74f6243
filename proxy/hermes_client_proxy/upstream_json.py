"""JSON as Hermes writes it, which may hold what strict JSON does not. Pure.

Python writes NaN, Infinity and halves of surrogate pairs, and text that was cut may end inside a
character. One such value must not cost a whole event, or all messages of a session.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

_strict = msgspec.json.Decoder().decode


def read(raw: bytes) -> Any:
    """The value of *raw*: what is no character becomes U+FFFD, what is no number null.

    Raises ValueError for what is no JSON at all, or is nested too deeply.
    """
    try:
        return _strict(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = raw.decode("utf-8", "replace")
        return _whole(json.loads(text, parse_constant=lambda _: None, parse_float=_finite))
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
