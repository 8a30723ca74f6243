"""Multi-part media of one device, with its limits.

Parts arrive in any order. What arrives in order is appended at once, what comes early waits: at no
time does a file exist twice in memory. Reference, section "Memory limits of uploads".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from .protocol import (
    MAX_MEDIA_BYTES,
    MAX_MEDIA_PARTS,
    MAX_OPEN_UPLOADS,
    MAX_UPLOAD_BUFFER_BYTES,
    ProtocolError,
)

# Ids of dropped uploads whose late parts must not open them anew.
_REMEMBERED_DROPS = 64


@dataclass(slots=True)
class Upload:
    """One open file. `size` counts decoded bytes of all parts received."""

    kind: str
    parts: int
    mime: str
    filename: str
    caption: str
    size: int = 0
    _joined: bytearray = field(default_factory=bytearray)
    _next: int = 0
    _early: dict[int, bytes] = field(default_factory=dict)

    @property
    def came(self) -> int:
        """The parts that came, as bits."""
        return sum(1 << part for part in self._early) | (1 << self._next) - 1

    def has(self, part: int) -> bool:
        """Whether this part was received already."""
        return part < self._next or part in self._early

    def add(self, part: int, data: bytes) -> None:
        """Take a part that is not there yet."""
        self.size += len(data)
        self._early[part] = data
        while (following := self._early.pop(self._next, None)) is not None:
            self._joined += following
            self._next += 1

    def whole(self) -> bytearray | None:
        """The file, once every part is there."""
        return self._joined if self._next == self.parts else None


class Uploads:
    """The open uploads of one device."""

    def __init__(self) -> None:
        self.open: dict[str, Upload] = {}
        self.dropped = 0
        # Which parts came of each, as bits: one that comes again begins the upload anew.
        self._dropped: OrderedDict[str, int] = OrderedDict()

    @property
    def size(self) -> int:
        """Decoded bytes held in all open uploads together."""
        return sum(upload.size for upload in self.open.values())

    def forget(self, upload_id: str) -> None:
        """Free the upload of this id, if there is one: its file came another way."""
        self.open.pop(upload_id, None)

    def clear(self) -> None:
        """Free everything: the device has gone."""
        self.open.clear()
        self.dropped = 0
        self._dropped.clear()

    def receive(
        self,
        upload_id: str,
        *,
        kind: str,
        mime: str,
        filename: str,
        caption: str,
        part: int,
        parts: int,
        size: int,
        decode: Callable[[], bytes],
    ) -> tuple[Upload, bytearray] | None:
        """Take one part; the upload and its bytes once it is whole, else None.

        `size` is the part's decoded size in bytes, known before `decode()` spends the memory.
        Raises `ProtocolError`: `bad_frame` for parts that cannot be or that disagree with the open
        upload of the same id (it stays open), `too_big` beyond a limit (only this upload is
        dropped), and whatever `decode` raises.
        """
        check_parts(part, parts, upload_id)
        upload = self.open.get(upload_id)
        if upload is not None:
            if (upload.kind, upload.parts) != (kind, parts):
                raise ProtocolError(
                    "bad_frame",
                    f"this part says {kind} in {parts} parts, the open upload of the same id is "
                    f"{upload.kind} in {upload.parts}: give every file an id of its own",
                    frame_id=upload_id,
                )
            if upload.has(part):
                decode()  # a broken repeat is still a broken frame
                return None
        elif self._is_late(upload_id, part):
            raise ProtocolError(
                "too_big", "this upload was dropped: send all of it again", frame_id=upload_id
            )
        elif len(self.open) >= MAX_OPEN_UPLOADS:
            self.drop(upload_id, part)
            raise ProtocolError(
                "too_big",
                f"{MAX_OPEN_UPLOADS} uploads are open already: finish one first",
                frame_id=upload_id,
            )
        held = self.size
        if held + size > MAX_UPLOAD_BUFFER_BYTES:
            self.drop(upload_id, part)
            raise ProtocolError(
                "too_big",
                f"the open uploads would hold {held + size} bytes, the limit is "
                f"{MAX_UPLOAD_BUFFER_BYTES} (and {MAX_MEDIA_BYTES} a file): this one is dropped",
                frame_id=upload_id,
            )
        data = decode()
        if upload is None:
            self._dropped.pop(upload_id, None)
            upload = self.open[upload_id] = Upload(kind, parts, mime, filename, caption)
        else:
            # Any part may carry what describes the file; the first that says it counts.
            upload.mime = upload.mime or mime
            upload.filename = upload.filename or filename
            upload.caption = upload.caption or caption
        upload.add(part, data)
        whole = upload.whole()
        if whole is None:
            return None
        del self.open[upload_id]
        return upload, whole

    def drop(self, upload_id: str, part: int) -> None:
        """Free an upload at once for its part `part`, whether it is open or not.

        Its late parts open nothing anew; a part that comes a second time does.
        """
        upload = self.open.pop(upload_id, None)
        self.dropped += 1
        self._dropped[upload_id] = (upload.came if upload is not None else 0) | 1 << part
        if len(self._dropped) > _REMEMBERED_DROPS:
            self._dropped.popitem(last=False)

    def _is_late(self, upload_id: str, part: int) -> bool:
        """Whether this part was still on its way when its upload was dropped."""
        came = self._dropped.get(upload_id)
        if came is None or came >> part & 1:
            return False
        self._dropped[upload_id] = came | 1 << part
        return True


def check_parts(part: int, parts: int, frame_id: str) -> None:
    """Raises `bad_frame` for a part number or count outside the reference's range."""
    if not 1 <= parts <= MAX_MEDIA_PARTS:
        raise ProtocolError(
            "bad_frame", f"`parts` is {parts}, it must be 1 to {MAX_MEDIA_PARTS}", frame_id=frame_id
        )
    if not 0 <= part < parts:
        raise ProtocolError(
            "bad_frame", f"`part` is {part}, it must be 0 to {parts - 1}", frame_id=frame_id
        )
