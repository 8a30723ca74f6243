"""What the door counts: plain numbers, written on the way and read when somebody asks.

The core writes them as it works, an attribute and an addition each; `metrics` reads them at a
scrape. Nothing here knows a clock, a lock or a metrics library. Every key comes from a list that is
closed in the code, never from a client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field

# Upper bounds in seconds.
TURN_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
FIRST_WORDS_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
CONNECTION_BOUNDS = (1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0)

# A frame of ours begins with `{"t":"…`. The difference of these two of its bytes is another one for
# each type, and finding it is as cheap as it gets; `metrics` knows which is whose.
FIRST, SECOND = 8, 12


class Spread:
    """How many values lay at or below each of `bounds`, how many above all, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True, eq=False)
class Counters:
    """Everything since the door was made. What is open right now is read from the hub itself."""

    # Frames by the struct of their type (from clients) and by that difference (to clients).
    received: defaultdict[object, int] = field(default_factory=lambda: defaultdict(int))
    sent: list[int] = field(default_factory=lambda: [0] * 512)
    unread: int = 0  # no frame at all
    # Of connections that have ended; the living ones count for themselves.
    bytes_in: int = 0
    bytes_out: int = 0
    opened: int = 0
    closed: Counter[str] = field(default_factory=Counter)  # by why
    hellos: Counter[str] = field(default_factory=Counter)  # by outcome
    errors: Counter[str] = field(default_factory=Counter)  # error frames by code
    refused_requests: Counter[int] = field(default_factory=Counter)  # HTTP, by status
    cut: int = 0
    not_kept: int = 0
    taken: Counter[str] = field(default_factory=Counter)  # messages by kind
    not_taken: int = 0
    repeats: int = 0
    delivery_repeats: int = 0
    deliveries: int = 0
    files: int = 0
    file_bytes: int = 0
    uploads_dropped: int = 0
    uploads_abandoned: int = 0
    cards: Counter[str] = field(default_factory=Counter)  # by kind
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and outcome
    turns: Spread = field(default_factory=lambda: Spread(TURN_BOUNDS))
    first_words: Spread = field(default_factory=lambda: Spread(FIRST_WORDS_BOUNDS))
    connections: Spread = field(default_factory=lambda: Spread(CONNECTION_BOUNDS))
