"""Bytes to server-sent events and back. Pure and incremental.

The decoder gives the same events however the bytes are split, inside a character, a line end or
the byte order mark.
"""

from __future__ import annotations

import re

import msgspec

_BOM = b"\xef\xbb\xbf"
_WHOLE = re.compile(rb"(?:id: (\d+)\n)?data: (.*)\n\n")
_SHORT = 8192


class EventTooLarge(Exception):
    """One event of the stream is larger than the reader accepts."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """``id`` is None where the block set none; ``data`` is the joined data lines, undecoded."""

    event: str
    data: bytes
    id: str | None


class Decoder:
    """Feed it bytes, get whole events. What is incomplete at the end of the stream is no event.

    *limit* is the greatest size in bytes of one event, its names and line ends included.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._short = min(limit, _SHORT)
        self._fresh = False  # whether the next byte is the first of an event
        self._head: bytes | None = b""
        self._skip_line_feed = False
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._in_event = False
        self._event_size = 0
        self._data: list[bytes] = []
        self._event = b""
        self._id: bytes | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that *chunk* completes. Raises EventTooLarge, after which it is of no use."""
        # What nearly every chunk is: one short event, whole.
        if self._fresh and len(chunk) <= self._short and (whole := _WHOLE.fullmatch(chunk)):
            id, data = whole.groups()
            if b"\r" not in data:
                return [ServerSentEvent("", data, None if id is None else id.decode())]
        self._fresh = False
        if self._head is not None:
            chunk = self._head + chunk
            if len(chunk) < 3 and _BOM.startswith(chunk):
                self._head = chunk
                return []
            self._head = None
            if chunk.startswith(_BOM):
                chunk = chunk[3:]
        if not chunk:
            return []
        if self._skip_line_feed:
            self._skip_line_feed = False
            if chunk[0] == 10:
                chunk = chunk[1:]
                if not chunk:
                    return []
        if b"\r" in chunk:
            self._skip_line_feed = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        self._partial.append(lines[0])
        if len(lines) == 1:
            self._partial_size += len(chunk)
            self._check_size()
            return []
        lines[0] = b"".join(self._partial)
        rest = lines.pop()
        self._partial = [rest] if rest else []
        self._partial_size = 0
        events = []
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        self._partial_size = len(rest)
        self._check_size()
        self._fresh = not (rest or self._in_event or self._skip_line_feed)
        return events

    def _check_size(self) -> None:
        if self._partial_size + self._event_size > self._limit:
            raise EventTooLarge

    def _field(self, line: bytes) -> None:
        self._in_event = True
        self._event_size += len(line)
        self._check_size()
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value

    def _dispatch(self) -> ServerSentEvent | None:
        event = None
        if self._data:
            event = ServerSentEvent(
                self._event.decode("utf-8", "replace"),
                self._data[0] if len(self._data) == 1 else b"\n".join(self._data),
                None if self._id is None else self._id.decode("utf-8", "replace"),
            )
        self._data = []
        self._event = b""
        self._id = None
        self._in_event = False
        self._event_size = 0
        return event


def encode(data: bytes, *, id: str | None = None, event: str | None = None) -> bytes:
    """One event. *data* is one line (JSON); *id* and *event* hold no line ends."""
    head = b""
    if id is not None:
        head = b"id: %s\n" % id.encode()
    if event is not None:
        head += b"event: %s\n" % event.encode()
    return b"%sdata: %s\n\n" % (head, data)


def comment(text: str) -> bytes:
    """A comment, which a browser reads over."""
    return b": %s\n\n" % text.encode()


def retry(milliseconds: int) -> bytes:
    """The time after which a browser comes back."""
    return b"retry: %d\n\n" % milliseconds
