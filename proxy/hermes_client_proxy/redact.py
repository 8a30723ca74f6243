"""Known secrets out of everything that leaves. Pure.

The upstream may print the key that it was called with anywhere: in an error text, a header, the
answer of the agent, or cut over several deltas. Whatever way it comes, the browser gets
``[redacted]`` in its place.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

MASK = "[redacted]"
MIN_SECRET = 6
"""A shorter secret is not looked for: it would match everywhere and protect nothing."""

SHORT_PREFIX = 3
"""So many characters that could begin a secret go out at once (fewer of a short one): holding
them back would delay the end of many a word."""


def _spellings(secret: str) -> set[str]:
    """The forms in which a secret may appear in text."""
    forms = {secret, quote(secret, safe=""), html.escape(secret), repr(secret)[1:-1]}
    for escaped in (msgspec.json.encode(secret).decode()[1:-1],):
        forms.add(escaped)
    raw = secret.encode()
    # Base64 of the secret alone or after "user:"; the last quantum depends on what follows.
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            whole = encode(b"\0" * shift + raw).decode()
            inner = whole[(0, 2, 3)[shift] :].rstrip("=")
            if (len(raw) + shift) % 3:
                inner = inner[:-1]
            if len(inner) >= 12:
                forms.add(inner)
    return {form for form in forms if len(form) >= MIN_SECRET}


def _as_far(text: str) -> str:
    """Matches the longest beginning of *text* that is there, or nothing.

    Each character is optional within the one before it. A nest as deep as a long secret is more
    than the pattern compiler bears, so pieces of the text are nested, and characters in a piece.
    """
    size = max(16, math.isqrt(len(text)))
    pattern = ""
    for start in reversed(range(0, len(text), size)):
        piece = text[start : start + size]
        part = ""
        for character in reversed(piece[:-1]):
            part = f"(?:{re.escape(character)}{part})?"
        pattern = f"(?:{re.escape(piece)}{pattern}|{part})"
    return pattern


def _beginning(form: str) -> str:
    """Matches every proper beginning of *form*."""
    return re.escape(form[0]) + _as_far(form[1:-1])


def _least(form: str) -> int:
    """How many characters of a cut-off *form* are taken for it."""
    return min(len(form), max(16, (len(form) * 3 + 3) // 4))


def _pattern(form: str) -> str:
    """Matches *form* and, for a long one, a cut-off form of at least three quarters of it."""
    least = _least(form)
    return re.escape(form[:least]) + _as_far(form[least:])


def _ends(forms: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The last few characters of every proper beginning of a form, by the very last one."""
    found: dict[str, set[str]] = {}
    for form in forms:
        for end in range(1, len(form)):
            found.setdefault(form[end - 1], set()).add(form[max(0, end - 8) : end])
    return {last: tuple(ends) for last, ends in found.items()}


class Redactor:
    """Finds every known secret, in the spellings in which text carries it."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if secret and len(secret) >= MIN_SECRET:
                forms |= _spellings(secret)
        self.forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        # Looking for plain needles first is many times cheaper than running the pattern.
        self._text_needles = tuple({form[: _least(form)] for form in self.forms})
        self._needles = tuple(needle.encode() for needle in self._text_needles)
        if self.forms:
            joined = "|".join(_pattern(form) for form in self.forms)
            self._text = re.compile(joined)
            self._bytes = re.compile(joined.encode())
        shortest = min((len(form) for form in self.forms), default=0)
        self.short_prefix = min(SHORT_PREFIX, shortest // 4)
        self.longest = max((len(form) for form in self.forms), default=0)
        # Finds the longest end of a text that begins a secret; a whole secret is none.
        begins = "|".join(_beginning(form) + r"\Z" for form in self.forms)
        self._begin = re.compile(begins) if self.forms else None
        self._ends = _ends(self.forms)

    def found(self, data: bytes) -> bool:
        """Whether *data* holds a secret."""
        for needle in self._needles:
            if needle in data:
                return True
        return False

    def found_in(self, text: str) -> bool:
        """Whether *text* holds a secret."""
        for needle in self._text_needles:
            if needle in text:
                return True
        return False

    def text(self, text: str) -> str:
        """*text* with every secret masked."""
        return text if self._text is None else self._text.sub(MASK, text)

    def data(self, data: bytes) -> bytes:
        """*data* with every secret masked."""
        if self._bytes is None or not self.found(data):
            return data
        return self._bytes.sub(MASK.encode(), data)

    def value(self, value: Any) -> Any:
        """A JSON value with every secret masked, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in *text* secrets are."""
        if self._text is None or not self.found_in(text):
            return []
        return [found.span() for found in self._text.finditer(text)]

    def clean(self, text: str) -> bool:
        """Whether it is plain that *text* holds no secret and ends with the beginning of none."""
        for needle in self._text_needles:
            if needle in text:
                return False
        ends = self._ends.get(text[-1:])
        return ends is None or not text.endswith(ends)

    def open_tail(self, text: str) -> int:
        """How many characters at the end of *text* could be the beginning of a secret."""
        if self._begin is None:
            return 0
        found = self._begin.search(text, max(0, len(text) - self.longest + 1))
        return 0 if found is None else len(text) - found.start()


class TextStream:
    """A text that comes in pieces, of which no secret may leave, not even over several pieces.

    A piece whose end could begin a secret is held back there, until the next piece decides.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._sent = ""  # the end of what left already, while it could still begin a secret
        self._held = ""

    def push(self, piece: str) -> str:
        """What may leave after *piece* came; may be empty."""
        redactor = self._redactor
        if not (self._held or self._sent) and redactor.clean(piece):
            return piece
        text = self._sent + self._held + piece
        if not text:
            return ""
        tail = redactor.open_tail(text)
        spans = redactor.spans(text) if len(text) >= MIN_SECRET else []
        while tail and spans and spans[-1][1] > len(text) - tail:
            if spans[-1][0] < len(text) - tail:
                # A whole secret whose last characters look like the beginning of another one.
                tail = redactor.open_tail(text[spans[-1][1] :])
            else:
                spans.pop()  # inside what is held back; the next piece decides
        begins = len(text) - tail
        until = max(len(self._sent), begins + min(tail, redactor.short_prefix))
        out = _masked(text, spans, len(self._sent), until)
        self._sent = text[begins:until]
        self._held = text[until:]
        return out

    def close(self) -> str:
        """What is left at the end of the text."""
        text, start = self._sent + self._held, len(self._sent)
        self._sent = self._held = ""
        return _masked(text, self._redactor.spans(text), start, len(text))


def _masked(text: str, spans: list[tuple[int, int]], start: int, end: int) -> str:
    """``text[start:end]`` with *spans* masked; a span that began before *start* counts too."""
    out = []
    at = start
    for begin, stop in spans:
        if stop <= start or begin >= end:
            continue
        if begin > at:
            out.append(text[at:begin])
        out.append(MASK)
        at = max(at, stop)
    if at < end:
        out.append(text[at:end])
    return "".join(out)
