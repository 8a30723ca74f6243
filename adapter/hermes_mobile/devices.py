"""Connections and devices: what the core knows of each, and nothing that decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from .outbox import Answer, Outbox
from .tokens import Grant, Peer
from .uploads import Uploads

ConnId = int

# What was written this many seconds before a connection ended may not have arrived.
UNSURE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device says of itself in `hello`."""

    id: str
    name: str = ""
    platform: str = ""
    app_version: str = ""
    user_id: str = ""
    user_name: str = ""


@dataclass(slots=True, eq=False)
class Connection:
    """One WebSocket. Without a grant it has not said hello."""

    id: ConnId
    peer: Peer
    opened: float
    box: Outbox
    grant: Grant | None = None
    device: Device | None = None
    sender: str = ""  # whose deliveries these are, for the dedup of `deliver`
    extensions: tuple[str, ...] = ()
    accepted: bool = False  # this client knows `accepted`
    partial: bool = False  # this client knows `partial_edits`
    woken: bool = False  # its `Wake` was given out, and `next_frames` was not called since
    refused: bool = False  # an error is on its way, nothing more is read
    ended: str = ""  # why this side ended it, one of the reasons this door knows
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0

    @property
    def may_deliver(self) -> bool:
        """A deliver token always may; a process of the owner on this machine may."""
        return self.grant is not None and (self.grant.deliver or self.peer.owner_machine)


@dataclass(slots=True, eq=False)
class Device:
    """One app, connected or away."""

    id: str
    info: DeviceInfo
    box: Outbox = field(default_factory=Outbox)
    conn: Connection | None = None
    uploads: Uploads = field(default_factory=Uploads)
    answers: dict[str, Answer] = field(default_factory=dict)
    in_turn: bool = False
    turn_began: float = 0.0
    words_at: float | None = None  # the turn's first words
    # Since its last turn, for that turn's log line; what is written now counts in the connection.
    messages: int = 0
    last_message: str = ""
    said: int = 0
    files: int = 0
    cards: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    speaking: bool = False
    idle_at: float | None = None  # the pause after words outside of a turn
    # What the device was last told of avatar state and typing, and when; None: that is not sure.
    told: tuple[str, bool] | None = ("idle", False)
    told_at: float = -UNSURE_SECONDS
    under_way: int = 0
    under_way_bytes: int = 0

    @property
    def state(self) -> tuple[str, bool]:
        """Avatar state and typing as they are."""
        return (
            "speaking" if self.speaking else "thinking" if self.in_turn else "idle"
        ), self.in_turn

    @property
    def forgettable(self) -> bool:
        """Nothing of this device needs to be remembered."""
        return not (self.conn or self.box or self.answers or self.in_turn or self.under_way)
