"""What is on its way to one device: ordered, bounded, rendered when it leaves.

An answer is kept as its newest text, not as frames: a revision that has not left yet is replaced by
the newer one, and only what changed since the last frame on this connection need be sent. Nothing
here knows a socket; whoever drains the box calls `next_frames` while the device can take more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pybase64

from .protocol import (
    DEFAULT_CHUNK_LIMIT,
    MEDIA_CHUNK_BYTES,
    Chunk,
    MediaKind,
    MediaOut,
    Message,
    encode,
)
from .textsplit import split

# One device may have this much under way or waiting for its return.
MAX_OUTBOX_FRAMES = 2048
MAX_OUTBOX_BYTES = 64 * 1024 * 1024
_WHOLE = Chunk(0, 1)


class OutboxFull(Exception):
    """The device takes nothing and its box is full: this answer is not kept."""

    def __init__(self) -> None:
        super().__init__("the device takes nothing and no more is kept for it")


@dataclass(frozen=True, slots=True)
class OutgoingMedia:
    """A file for a device: its bytes, or a `url` the app fetches itself."""

    kind: MediaKind
    mime: str
    filename: str
    data: bytes | bytearray = b""
    url: str | None = None
    caption: str | None = None
    reply_to: str | None = None


class Item:
    """Something that leaves as frames: about `weight` bytes in about `number` frames."""

    __slots__ = ("number", "weight")
    # Lives and dies with the connection it was made for.
    of_connection = False

    def frames(self, conn: int, partial: bool, now: float) -> list[bytes] | Iterator[bytes]:
        """The frames for connection `conn`; an iterator renders its `number` as they leave."""
        raise NotImplementedError

    def __init__(self, weight: int, number: int = 1) -> None:
        self.weight = weight
        self.number = number


class Ready(Item):
    """Frames that are made already: one `frame` each."""

    __slots__ = ("frame",)
    of_connection = True

    def __init__(self, frame: bytes) -> None:
        super().__init__(len(frame))
        self.frame = frame

    def frames(self, conn: int, partial: bool, now: float) -> list[bytes]:
        return [self.frame]


class Kept(Ready):
    """A made frame that also a later connection of the device must get."""

    __slots__ = ()
    of_connection = False


class State(Ready):
    """An avatar or typing frame: a newer one of the same `name` takes its place."""

    __slots__ = ("name",)

    def __init__(self, name: str, frame: bytes) -> None:
        super().__init__(frame)
        self.name = name


class Deferred(Item):
    """A frame that is rendered at the moment it leaves, or not at all (None)."""

    __slots__ = ("render",)

    def __init__(self, render: Callable[[float], bytes | None]) -> None:
        super().__init__(1024)
        self.render = render

    def frames(self, conn: int, partial: bool, now: float) -> list[bytes]:
        frame = self.render(now)
        return [] if frame is None else [frame]


class Again(Deferred):
    """What an earlier connection was shown, for this one alone: the next is told anew."""

    __slots__ = ()
    of_connection = True


class Answer(Item):
    """A text of the agent under one id, in its newest form.

    `among`: where it is kept by its id until its final form leaves. `shown`: a device has seen an
    earlier revision, so the next one is an edit.
    """

    __slots__ = (
        "among",
        "final",
        "id",
        "sent",
        "sent_final",
        "sent_to",
        "shown",
        "text",
        "waiting",
    )

    def __init__(
        self,
        id: str,
        text: str,
        final: bool,
        among: dict[str, Answer] | None = None,
        *,
        shown: bool = False,
    ) -> None:
        self.id = id
        self.text = text
        self.final = final
        self.among = among
        self.shown = shown
        self.waiting = False  # stands in the box and has not begun to leave
        # What the current connection was last sent, so that only changes need be sent again.
        self.sent: Sequence[str] = ()
        self.sent_to = -1
        self.sent_final = False

    def weigh(self) -> None:
        """Take note of what the text weighs now."""
        size = len(self.text)
        self.weight = (size if self.text.isascii() else 4 * size) + 128
        self.number = 1 + size // DEFAULT_CHUNK_LIMIT

    def frames(self, conn: int, partial: bool, now: float) -> list[bytes]:
        text, final, edit = self.text, self.final, self.shown
        before = self.sent if self.sent_to == conn else ()
        if len(text) <= DEFAULT_CHUNK_LIMIT:
            chunks: Sequence[str] = (text,)
        else:
            chunks = split(text, previous=self.sent)
        if before == chunks and self.sent_final == final:
            return []
        self.sent, self.sent_to, self.sent_final, self.shown = chunks, conn, final, True
        if final and self.among is not None and self.among.get(self.id) is self:
            del self.among[self.id]
        last = len(chunks) - 1
        if not last:
            return [encode(Message(self.id, text, _WHOLE, final, edit))]
        indexes: Sequence[int] = range(len(chunks))
        if partial and before:
            changed = [i for i in indexes if i >= len(before) or before[i] != chunks[i]]
            if final or len(before) != len(chunks):
                # The final revision shows itself by its last frame, a new total by any.
                changed = [*(i for i in changed if i != last), last]
            indexes = changed
        return [
            encode(Message(self.id, chunks[i], Chunk(i, last + 1), final and i == last, edit))
            for i in indexes
        ]


class File(Item):
    """A file in parts of 3 MiB, or its address."""

    __slots__ = ("id", "media")

    def __init__(self, id: str, media: OutgoingMedia) -> None:
        parts = max(1, -(-len(media.data) // MEDIA_CHUNK_BYTES))
        super().__init__((len(media.data) + 2) // 3 * 4 + 512, parts)
        self.id = id
        self.media = media

    def frames(self, conn: int, partial: bool, now: float) -> Iterator[bytes]:
        media, parts = self.media, self.number
        whole = memoryview(media.data)
        for part in range(parts):
            piece = whole[part * MEDIA_CHUNK_BYTES : (part + 1) * MEDIA_CHUNK_BYTES]
            has_data = media.url is None or bool(media.data)
            final = part == parts - 1
            frame = MediaOut(
                id=self.id,
                kind=media.kind,
                mime=media.mime,
                filename=media.filename,
                part=part,
                parts=parts,
                final=final,
                size=len(media.data),
                caption=media.caption,
                data=pybase64.b64encode_as_string(piece) if has_data else None,
                url=media.url,
                reply_to=media.reply_to,
            )
            yield encode(frame)


class Outbox:
    """The ordered box of one connection or device."""

    __slots__ = ("_items", "_leaving", "bytes", "frames")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        # What has left in part: the item, its other frames, how many they are, and what it
        # weighs: an answer may have a newer text by now.
        self._leaving: tuple[Item, Iterator[bytes], int, tuple[int, int]] | None = None
        self.bytes = 0
        self.frames = 0

    def __bool__(self) -> bool:
        return bool(self._items) or self._leaving is not None

    def __len__(self) -> int:
        return len(self._items) + (self._leaving is not None)

    @property
    def full(self) -> bool:
        """Whether a bound is passed."""
        return self.frames > MAX_OUTBOX_FRAMES or self.bytes > MAX_OUTBOX_BYTES

    def put(self, item: Item) -> None:
        """Add at the end. A state replaces an older one of its name that still waits."""
        if isinstance(item, State):
            for waiting in self._items:
                if isinstance(waiting, State) and waiting.name == item.name:
                    self.discard(waiting)
                    break
        self._items.append(item)
        self._count(item, 1)

    def put_first(self, item: Item) -> None:
        """Add before everything that waits."""
        self._items.appendleft(item)
        self._count(item, 1)

    def keep(self, item: Item) -> None:
        """Add, or raise `OutboxFull` when it does not fit: what waits already is never dropped.

        An empty box takes an item of any size.
        """
        if self.frames and (
            self.frames + item.number > MAX_OUTBOX_FRAMES
            or self.bytes + item.weight > MAX_OUTBOX_BYTES
        ):
            raise OutboxFull
        self._items.append(item)
        self.frames += item.number
        self.bytes += item.weight

    def has_room(self, *items: Item) -> bool:
        """Whether all these fit together."""
        frames = sum(item.number for item in items)
        weight = sum(item.weight for item in items)
        return self.frames + frames <= MAX_OUTBOX_FRAMES and self.bytes + weight <= MAX_OUTBOX_BYTES

    def revise(self, answer: Answer) -> None:
        """Put the newest form of `answer`, in the place of an older one that has not left yet."""
        if answer.waiting:  # it grew where it stands: count what it weighs now
            self._count(answer, -1)
            answer.weigh()
            self._count(answer, 1)
        else:
            answer.weigh()
            self.keep(answer)
            answer.waiting = True

    def restate(self, answer: Answer) -> None:
        """Put an answer that was shown before everything that waits: a new connection sees it."""
        if not answer.waiting:
            answer.weigh()
            self.put_first(answer)
            answer.waiting = True

    def discard(self, item: Item) -> None:
        """Take back what still waits; what has begun to leave goes on."""
        if item in self._items:
            self._items.remove(item)
            self._count(item, -1)

    def next_frames(self, conn: int, partial: bool, now: float, room: int) -> list[bytes]:
        """The next frames for connection `conn`, as many as begin within `room` bytes.

        `partial`: the client knows `partial_edits`. The frames count as sent.
        """
        taken: list[bytes] = []
        while room > 0:
            if self._leaving is None:
                if not self._items:
                    break
                item = self._items.popleft()
                if type(item) is Answer:
                    item.waiting = False
                frames = item.frames(conn, partial, now)
                if type(frames) is not list or len(frames) > 1:
                    number = len(frames) if isinstance(frames, list) else item.number
                    self._leaving = (item, iter(frames), number, (item.number, item.weight))
                    continue
                self.frames -= item.number
                self.bytes -= item.weight
                if not frames:
                    continue
                frame = frames[0]
            else:
                item, rest, left, weight = self._leaving
                self._leaving = (item, rest, left - 1, weight) if left > 1 else None
                if left == 1:
                    self._left(weight)
                frame = next(rest)
            taken.append(frame)
            room -= len(frame)
        return taken

    def connection_gone(self) -> bool:
        """Forget what was for that connection; what had half left waits again, whole.

        The answer tells whether a state was among what is forgotten.
        """
        if self._leaving is not None:
            item, _, _, weight = self._leaving
            self._leaving = None
            if type(item) is not Answer:
                self._items.appendleft(item)
            else:
                item.sent_to = -1
                if item.waiting:  # a newer form does so already
                    self._left(weight)
                else:
                    self._items.appendleft(item)
                    item.waiting = True
        forgotten = [item for item in self._items if item.of_connection]
        for item in forgotten:
            self.discard(item)
        return any(isinstance(item, State) for item in forgotten)

    def _left(self, weight: tuple[int, int]) -> None:
        self.frames -= weight[0]
        self.bytes -= weight[1]

    def _count(self, item: Item, sign: int) -> None:
        self.frames += sign * item.number
        self.bytes += sign * item.weight
