"""The window of seen (chat, id): a message that was sent twice reaches the agent once.

An id is reserved before the hand-over, kept once the agent has the message, and released when the
hand-over failed, so that the retry is not eaten. Reference, section "Idempotency by id".
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

WINDOW_SECONDS = 600.0
MAX_ENTRIES = 4000


class Seen(Enum):
    """What is known of an id."""

    NEW = "new"
    RESERVED = "reserved"  # being handed over
    TAKEN = "taken"  # the agent has it


class Dedup:
    """Ids with the time they were reserved or taken. Time is an argument, in seconds.

    Bounded: past `entries` the oldest taken id is forgotten. Reserved ids are never forgotten;
    their number is bounded by what a device may have under way.
    """

    def __init__(self, window: float = WINDOW_SECONDS, entries: int = MAX_ENTRIES) -> None:
        self._window = window
        self._entries = entries
        self._reserved: set[str] = set()
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._nothing_before = float("-inf")  # until then no taken id is too old

    def __len__(self) -> int:
        return len(self._reserved) + len(self._taken)

    def look(self, key: str, now: float) -> Seen:
        """What is known of `key`, changing nothing that still counts."""
        if now >= self._nothing_before:
            self._forget(now)
        if key in self._reserved:
            return Seen.RESERVED
        return Seen.TAKEN if key in self._taken else Seen.NEW

    def reserve(self, key: str, now: float) -> Seen:
        """As `look`, and a new id is reserved: after NEW call `keep` or `release`."""
        if now < self._nothing_before and key not in self._reserved and key not in self._taken:
            self._reserved.add(key)  # the usual case, without another call
            return Seen.NEW
        seen = self.look(key, now)
        if seen is Seen.NEW:
            self._reserved.add(key)
        return seen

    def keep(self, key: str, now: float) -> None:
        """The agent has the message: repeats are dropped for the window from now on."""
        self._reserved.discard(key)
        self._taken[key] = now
        self._taken.move_to_end(key)
        if len(self._taken) > self._entries:
            self._taken.popitem(last=False)

    def release(self, key: str) -> None:
        """The hand-over failed: the same id may come again."""
        self._reserved.discard(key)

    def _forget(self, now: float) -> None:
        """Let go of what is too old, and note when to look again."""
        while self._taken:
            key, since = next(iter(self._taken.items()))
            if now - since < self._window:
                self._nothing_before = since + self._window
                return
            del self._taken[key]
        self._nothing_before = now + self._window
