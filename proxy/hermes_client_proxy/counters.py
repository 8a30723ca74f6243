"""What the proxy counts: plain numbers, written on the way and read when somebody asks.

``metrics`` reads them at a scrape. Every key comes from a list that is closed in the code, never
from a request or from Hermes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

REQUEST_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
RUN_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
STREAM_BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
"""Upper bounds in seconds."""

ROUTES = (
    "sessions",
    "session",
    "runs",
    "events",
    "abort",
    "approval",
    "models",
    "tools",
    "health",
    "login",
    "metrics",
    "legacy",
    "other",
)
OPERATIONS = (
    "capabilities",
    "models",
    "toolsets",
    "start",
    "run",
    "stop",
    "approval",
    "events",
    "sessions",
    "session",
    "messages",
    "title",
    "other",
)
"""What Hermes is asked."""
TIMED = tuple(name for name in OPERATIONS if name != "events")
"""What is answered at once; an event stream lasts as long as its run."""

_NAMED = {
    ("v1", "capabilities"): "capabilities",
    ("v1", "models"): "models",
    ("v1", "toolsets"): "toolsets",
    ("v1", "runs"): "start",
    ("v1", "runs", "*"): "run",
    ("v1", "runs", "*", "stop"): "stop",
    ("v1", "runs", "*", "approval"): "approval",
    ("v1", "runs", "*", "events"): "events",
    ("api", "sessions"): "sessions",
    ("api", "sessions", "*"): "session",
    ("api", "sessions", "*", "messages"): "messages",
}


def operation(method: str, path: str) -> str:
    """What a request to Hermes asks for: one of OPERATIONS."""
    parts = path.strip("/").split("/")
    if len(parts) > 2:
        parts[2] = "*"
    name = _NAMED.get(tuple(parts), "other")
    return "title" if name == "session" and method == "PATCH" else name


def status_class(status: int) -> str:
    """2xx and so on; "none" where no answer was given."""
    return f"{status // 100}xx" if 100 <= status <= 599 else "none"


class Spread:
    """How many values lay at or below each of ``bounds``, how many above all, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def _spreads(names: tuple[str, ...]) -> dict[str, Spread]:
    return {name: Spread(REQUEST_BOUNDS) for name in names}


@dataclass(slots=True)
class Spent:
    """How long one request of a browser waited for Hermes, in seconds."""

    upstream: float = 0.0


@dataclass(slots=True, eq=False)
class Counters:
    """Everything since the proxy was made. What is open right now is read from the runs."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By route and class of status."""
    request_seconds: dict[str, Spread] = field(default_factory=lambda: _spreads(ROUTES))
    """By route; of an event stream until its head is sent."""
    errors: Counter[str] = field(default_factory=Counter)
    """By code of the contract."""
    refused: Counter[str] = field(default_factory=Counter)
    """Who was not let in: origin, session, document, login, metrics."""
    body_bytes_in: int = 0
    body_bytes_out: int = 0

    upstream: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By operation, and by class of status or unreachable, slow, broken."""
    upstream_seconds: dict[str, Spread] = field(default_factory=lambda: _spreads(TIMED))
    upstream_streams: int = 0
    """Open now."""
    upstream_lost: Counter[str] = field(default_factory=Counter)
    """Event streams of Hermes that ended before their run: refused, none, broke."""

    runs: Counter[str] = field(default_factory=Counter)
    """started, attached (found again), repeated (asked for again: nothing was started)."""
    runs_ended: Counter[str] = field(default_factory=Counter)
    run_seconds: Spread = field(default_factory=lambda: Spread(RUN_BOUNDS))
    events: int = 0
    """Of runs that have ended."""
    approvals: Counter[str] = field(default_factory=Counter)
    """Answers by choice; failed: not taken."""

    streams: Counter[str] = field(default_factory=Counter)
    """Ended streams by why: ended, left, closing, slow."""
    stream_seconds: Spread = field(default_factory=lambda: Spread(STREAM_BOUNDS))
    stream_bytes: int = 0
    """Of streams that have ended."""
    replays: Counter[str] = field(default_factory=Counter)
    """Readers that came back: hit, miss (from the start), ended (nothing is left)."""
