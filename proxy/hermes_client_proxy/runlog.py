"""The bounded, numbered log of one run's events, and the readers of it. Pure but for the futures
that wake a reader.

An event's id is its number and a checksum over every event up to it. A browser that comes back
with an id gets what follows only if the log still says the same up to there; an id from another
life of this server can therefore never hide an event.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable

from . import sse

_ID = re.compile(r"(\d{1,15})-([0-9a-f]{8})")
_TRIM = 512


def number_of(event_id: str | None) -> int | None:
    """The number in an event id, None if it is none."""
    found = _ID.fullmatch(event_id) if event_id else None
    return None if found is None else int(found[1])


class RunLog:
    """Events are encoded once, for all readers. *max_bytes* bounds what is kept; the last event is
    kept whatever its size."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._blocks: list[bytes] = []
        self._sums: list[int] = []
        self._gone = 0  # dropped blocks still in the lists
        self._bytes = 0
        self._base_sum = 0  # the checksum before the first block that is kept
        self._sum = 0
        self.first = 0
        """The number of the oldest event kept."""
        self.next = 0
        """The number that the next event will get."""
        self.ended = False
        self._told = 0  # the number up to which the readers were told
        self.readers: dict[Reader, None] = {}

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._bytes

    def append(self, data: bytes) -> None:
        """Adds one event (a line of JSON); ``notify`` tells the readers."""
        checksum = self._sum = zlib.crc32(data, self._sum)
        block = b"id: %d-%08x\ndata: %s\n\n" % (self.next, checksum, data)
        self._blocks.append(block)
        self._sums.append(checksum)
        self._bytes += len(block)
        self.next += 1
        while (
            self.next - self.first > self._max_events or self._bytes > self._max_bytes
        ) and self.first < self.next - 1:
            self._drop_first()

    def notify(self) -> None:
        """Gives the readers what is new, or wakes them."""
        start, self._told = self._told, self.next
        if self.ended or start < self.first:
            for reader in self.readers:
                reader.wake()
        elif start < self.next:
            new = b"".join(self._blocks[start - self.next :])
            for reader in self.readers:
                if reader.position != start or not reader.idle or not reader.push(new):
                    reader.wake()
                else:
                    reader.position = self.next
                    reader.sent += len(new)

    def end(self) -> None:
        """No more events will come."""
        self.ended = True
        self.notify()

    def _drop_first(self) -> None:
        self._bytes -= len(self._blocks[self._gone])
        self._base_sum = self._sums[self._gone]
        self._blocks[self._gone] = b""
        self._gone += 1
        self.first += 1
        if self._gone >= _TRIM:
            del self._blocks[: self._gone]
            del self._sums[: self._gone]
            self._gone = 0

    def id_of(self, number: int) -> str | None:
        """The id of event *number*, or of the last one dropped; None if it is not known."""
        if self.first <= number < self.next:
            return f"{number}-{self._sums[number - self.first + self._gone]:08x}"
        if number == self.first - 1:
            return f"{number}-{self._base_sum:08x}"
        return None

    def after(self, last_event_id: str | None) -> int:
        """The number of the first event that a reader with *last_event_id* has not seen: 0 unless
        the id is one of this log."""
        number = number_of(last_event_id)
        if number is None:
            return 0
        return number + 1 if self.id_of(number) == last_event_id else 0

    def blocks(self, start: int, max_bytes: int) -> tuple[list[bytes], int]:
        """Encoded events from *start* (not below ``first``) up to about *max_bytes*, and the
        number after them."""
        out: list[bytes] = []
        size = 0
        at = start
        while at < self.next and (not out or size < max_bytes):
            block = self._blocks[at - self.first + self._gone]
            out.append(block)
            size += len(block)
            at += 1
        return out, at


class Reader:
    """One browser's place in a log. *truncated* encodes the event that tells from which number on
    the log is whole."""

    __slots__ = (
        "_log",
        "_truncated",
        "_waiter",
        "closing",
        "idle",
        "outcome",
        "position",
        "push",
        "sent",
    )

    def __init__(self, log: RunLog, position: int, truncated: Callable[[int], bytes]) -> None:
        self._log = log
        self._truncated = truncated
        self._waiter: asyncio.Future[None] | None = None
        self.position = position
        self.closing = False
        self.outcome = "left"
        """How its stream ended: ended, left, closing or slow."""
        self.sent = 0
        """Bytes of events taken."""
        self.push: Callable[[bytes], bool] = _not_at_once
        """Sends what is new without waking anyone; False if that cannot be done now."""
        self.idle = False
        """Whether it has taken everything up to its position and waits for more."""
        log.readers[self] = None

    def take(self, max_bytes: int) -> bytes:
        """What this reader has not seen yet, about *max_bytes* of it at most."""
        log = self._log
        head = b""
        if self.position < log.first:
            head = sse.encode(self._truncated(log.first), id=log.id_of(log.first - 1))
            self.position = log.first
        blocks, self.position = log.blocks(self.position, max_bytes)
        taken = blocks[0] if not head and len(blocks) == 1 else head + b"".join(blocks)
        self.sent += len(taken)
        return taken

    @property
    def behind(self) -> int:
        """Events not taken yet."""
        return self._log.next - max(self.position, self._log.first)

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more to come."""
        return self._log.ended and self.position >= self._log.next

    @property
    def last_id(self) -> str | None:
        """The id of the last event taken."""
        return self._log.id_of(self.position - 1) if self.position else None

    def wait(self) -> asyncio.Future[None]:
        """A future that resolves at the next event, end or wake."""
        self._waiter = asyncio.get_running_loop().create_future()
        self.idle = True
        return self._waiter

    def wake(self) -> None:
        """Resolves the future that ``wait`` gave."""
        self.idle = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Leaves the log."""
        self._log.readers.pop(self, None)


def _not_at_once(new: bytes) -> bool:
    return False
