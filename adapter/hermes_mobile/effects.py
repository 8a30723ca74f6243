"""What the core wants done, to be carried out in the order in which it was decided."""

from __future__ import annotations

import msgspec

from .devices import ConnId, DeviceInfo
from .prompts import Card


class Incoming(msgspec.Struct, frozen=True):
    """One whole message for the agent.

    `kind`: text, voice, image, video, document or audio. `text`: the message, the transcript or the
    caption, "" when there is none. `data`: the file, empty for text. `format`: wav or ogg of voice.
    """

    chat: str
    id: str
    kind: str
    text: str
    device: DeviceInfo
    data: bytes | bytearray = b""
    mime: str = ""
    filename: str = ""
    format: str = ""


class Wake(msgspec.Struct, frozen=True):
    """There are frames for this connection: take them with `next_frames`, now or later.

    It comes once, until that was called.
    """

    conn: ConnId


class Close(msgspec.Struct, frozen=True):
    """Write `last` if there is one, ahead of what waits, then close."""

    conn: ConnId
    code: int
    reason: str
    last: bytes | None = None


class Submit(msgspec.Struct, frozen=True):
    """Hand over to the agent; answer with `taken` or `refused`."""

    incoming: Incoming


class Tell(msgspec.Struct, frozen=True):
    """Tell the agent the answer to a card; answer with `Cards.answered` or `answer_failed`."""

    card_id: str
    card: Card
    option_id: str
    text: str | None


class Expired(msgspec.Struct, frozen=True):
    """Tell the agent that the time of a card is over."""

    card: Card


Effect = Wake | Close | Submit | Tell | Expired
