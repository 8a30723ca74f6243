"""A hub with a steerable clock and devices on it: no socket, no sleep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_mobile.commands import receive
from hermes_mobile.effects import Close, Effect, Submit, Tell
from hermes_mobile.hub import Hub
from hermes_mobile.settings import Settings
from hermes_mobile.tokens import Peer

SETTINGS = Settings(
    token="main",
    extra_tokens=((None, "second"), ("tab", "bound")),
    deliver_tokens=("deliver",),
    home_device="tel",
)


def drained(hub: Hub) -> Iterator[Effect]:
    """What the hub wants done, also what follows while it is being done."""
    while hub.effects:
        yield hub.effects.popleft()


def next_frame(hub: Hub, conn: int, now: float) -> bytes | None:
    """One frame at a time; None when nothing waits."""
    frames = hub.next_frames(conn, now, 1)
    return frames[0] if frames else None


class House:
    """A hub and what happened to it."""

    def __init__(self, settings: Settings = SETTINGS, secret: str = "") -> None:
        self.hub = Hub(settings, deliver_secret=secret)
        self.now = 1000.0
        self.effects: list[Effect] = []
        self._last = 0

    def open(self, address: str = "10.0.0.1", *, owner_machine: bool = False) -> int:
        """A socket that has not said hello."""
        self._last += 1
        self.hub.opened(self._last, Peer(address, owner_machine), self.now)
        self.settle()
        return self._last

    def join(self, device: str | None = "tel", token: str = "main", **hello: Any) -> int:
        """A device that is ready; what it was greeted with is taken."""
        conn = self.open()
        who = {"id": device} if device is not None else None
        self.send(conn, t="hello", token=token, device=who, **hello)
        frames = self.frames(conn)
        assert frames and frames[0]["t"] == "ready", self.closes()
        return conn

    def send(self, conn: int, **frame: Any) -> None:
        self.raw(conn, json.dumps(frame).encode())

    def raw(self, conn: int, raw: bytes) -> None:
        receive(self.hub, conn, raw, self.now)
        self.settle()

    def settle(self) -> None:
        self.effects.extend(drained(self.hub))

    def frames(self, conn: int) -> list[dict[str, Any]]:
        """Everything that waits for this connection."""
        taken = []
        while (frame := next_frame(self.hub, conn, self.now)) is not None:
            taken.append(json.loads(frame))
        return taken

    def kinds(self, conn: int) -> list[str]:
        return [frame["t"] for frame in self.frames(conn)]

    def wait(self, seconds: float) -> None:
        """Let time pass, with the timer."""
        until = self.now + seconds
        while (at := self.hub.due) is not None and at <= until:
            self.now = max(self.now, at)
            self.hub.tick(self.now)
            self.settle()
        self.now = until

    def close(self, conn: int) -> None:
        self.hub.closed(conn, self.now)
        self.settle()

    def closes(self) -> list[tuple[int, int, str]]:
        return [(e.conn, e.code, e.reason) for e in self.effects if isinstance(e, Close)]

    def last_frame(self, conn: int) -> dict[str, Any]:
        """What a connection was told before it was closed."""
        (last,) = [e.last for e in self.effects if isinstance(e, Close) and e.conn == conn]
        assert last is not None
        frame: dict[str, Any] = json.loads(last)
        return frame

    def submits(self) -> list[Submit]:
        """Messages for the agent since the last call."""
        found = [e for e in self.effects if isinstance(e, Submit)]
        self.effects = [e for e in self.effects if not isinstance(e, Submit)]
        return found

    def tells(self) -> list[Tell]:
        """Answers for the agent since the last call."""
        found = [e for e in self.effects if isinstance(e, Tell)]
        self.effects = [e for e in self.effects if not isinstance(e, Tell)]
        return found

    def take_all(self) -> None:
        """The agent takes what waits for it."""
        for submit in self.submits():
            self.hub.taken(submit.incoming, self.now)
        self.settle()
