"""Asynchronous client for a Hermes Agent's device door (Hermes Mobile, protocol v1).

One file, one class. A first program::

    import asyncio, os
    from hermes_client import HermesClient, Message

    async def main() -> None:
        async with HermesClient(
            "ws://127.0.0.1:8787/ws", token=os.environ["MOBILE_TOKEN"], device="laptop"
        ) as client:
            await client.send_text("Good morning!")
            async for event in client:
                if isinstance(event, Message) and event.final:
                    print(event.text)
                    break

    asyncio.run(main())

What the client does by itself:

* It keeps the connection. Every drop is followed by another try after a growing, jittered pause,
  except where the server says to stay away (`AuthFailed`, `Forbidden`, `Replaced`) or speaks
  another version of the protocol (`UnsupportedVersion`); then sending and iterating raise that
  error.
* It keeps what was handed to it. A message goes out again, under the same id, until the server says
  the agent has it (extension ``accepted``); a server without the extension is sent only what had
  not been written yet.
* It puts messages and files together. `Message.text` is the whole text so far, whatever came as
  chunks and edits; files go to disk piece by piece and appear under their name when they are whole.

Errors::

    HermesError
    ├── ClosedError          the client is not open (any more)
    ├── ConnectError         no `ready` within `connect_timeout`
    ├── StoppedError         to come back would change nothing
    │   ├── AuthFailed
    │   ├── Forbidden
    │   ├── Replaced
    │   └── UnsupportedVersion
    ├── RejectedError        the server refused this message
    ├── UnconfirmedError     an answer was sent and its outcome never came
    └── FileTooBig           refused before sending (also a ValueError)
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import mimetypes
import os
import random
import re
import ssl as ssl_module
import threading
import time
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    InvalidStatus,
    WebSocketException,
)
from websockets.protocol import State

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "AuthFailed",
    "Avatar",
    "Capabilities",
    "ClosedError",
    "ConnectError",
    "Device",
    "Disconnected",
    "Event",
    "FileTooBig",
    "Forbidden",
    "HermesClient",
    "HermesError",
    "Media",
    "MediaFailed",
    "MediaProgress",
    "Message",
    "Option",
    "Pong",
    "Prompt",
    "PromptDone",
    "Ready",
    "RejectedError",
    "Replaced",
    "ServerError",
    "StoppedError",
    "Typing",
    "UnconfirmedError",
    "Unknown",
    "UnsupportedVersion",
    "User",
]

PROTOCOL_VERSION = 1

# Limits of protocol v1.
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_TEXT_CHARS = 12_000
MAX_MEDIA_BYTES = 8 * 1024 * 1024
MEDIA_CHUNK_BYTES = 3 * 1024 * 1024
MAX_MEDIA_PARTS = 2048
MAX_OPEN_UPLOADS = 8
MAX_ID_CHARS = 128

# Close code of a connection that a newer one of the same device has taken over.
CLOSE_REPLACED = 4001
CLOSE_ABNORMAL = 1006
CLOSE_POLICY = 1008
CLOSE_TOO_BIG = 1009
CLOSE_TRY_LATER = 1013

_SUPPORTS = ("accepted", "partial_edits")
# Control and format characters, line and paragraph separators: the server takes none in an id.
_NOT_IN_IDS = ("Cc", "Cf", "Zl", "Zp")
_READY_TIMEOUT = 25.0  # the server may hold a hello back for up to 5 s
_CLOSE_TIMEOUT = 2.0
_LAG_EVENTS = 256  # from here on an unread revision is replaced by its newer one
_MAX_EVENTS = 10_000
_MAX_DRAFTS = 256
_MAX_DRAFT_CHARS = 4_000_000
_MAX_DOWNLOADS = 32
_HOLE_TIMEOUT = 10.0  # seconds between the final part and giving up on one that is missing

_log = logging.getLogger("hermes_client")

# The WebSocket library writes whole frames to its logger at level DEBUG, and the first one holds
# the token: it gets a logger that belongs to no hierarchy and so never listens at that level.
_wire_log = logging.Logger("hermes_client.wire", level=logging.CRITICAL)
_wire_log.addHandler(logging.NullHandler())

Frame: TypeAlias = dict[str, Any]
FileKind: TypeAlias = Literal["image", "video", "document", "audio"]
_FAMILIES: dict[str, FileKind] = {"image": "image", "video": "video", "audio": "audio"}
Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes sent so far and the total; starts again at 0 when a drop made the upload
start again."""


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


class HermesError(Exception):
    """Whatever this client raises on purpose.

    Example::

        try:
            await client.send_text("hello")
        except HermesError as problem:
            print(f"not sent: {problem}")
    """


class ClosedError(HermesError):
    """The client is not open: it was never entered, or has been closed.

    Example::

        await client.close()
        await client.send_text("too late")  # raises ClosedError
    """


class ConnectError(HermesError):
    """The server did not let us in within `connect_timeout`; the text names the last reason.

    Example::

        try:
            async with HermesClient(url, token=token, connect_timeout=5) as client:
                ...
        except ConnectError as problem:
            print(problem)
    """


class StoppedError(HermesError):
    """The server said not to come back, or cannot be talked with: the client does not try again.

    `code` is the word for it (``auth_failed``, ``forbidden``, ``replaced``,
    ``unsupported_version``), `message` the server's own sentence.

    Example::

        try:
            async for event in client:
                ...
        except StoppedError as stop:
            print(stop.code, stop.message)
    """

    code = "stopped"
    _meaning = "the server ended the session for good"

    def __init__(self, message: str = "") -> None:
        self.message = message
        super().__init__(f"{self._meaning} ({message})" if message else self._meaning)


class AuthFailed(StoppedError):
    """The token is wrong, was revoked, or may not be used by this device.

    Example::

        except AuthFailed:
            token = getpass("Token: ")
    """

    code = "auth_failed"
    _meaning = "the server refused the token; check the token and the list of allowed devices"


class Forbidden(StoppedError):
    """The device id belongs to another token.

    Example::

        except Forbidden:
            print("Choose another device id, or use the token this device came with first.")
    """

    code = "forbidden"
    _meaning = "the server refused this device id for this token"


class Replaced(StoppedError):
    """The same device connected somewhere else, and that connection is the living one now.

    Example::

        except Replaced:
            print("This device is in use in another window.")
    """

    code = "replaced"
    _meaning = "the same device connected from another place"


class UnsupportedVersion(StoppedError):
    """The server speaks another version of the protocol (`ready.v`); nothing was sent to it.

    Example::

        except UnsupportedVersion as stop:
            print(stop)  # names both versions
    """

    code = "unsupported_version"
    _meaning = "the server speaks another version of the protocol"


class RejectedError(HermesError):
    """The server refused one message; the connection lives on.

    `code` is the protocol's error code. ``internal_error`` means that the agent did not take it:
    the same id may be sent again later.

    Example::

        try:
            await client.send_text("hello", id="m-1")
        except RejectedError as refusal:
            if refusal.code == "internal_error":
                await client.send_text("hello", id="m-1")
    """

    def __init__(self, code: str, message: str, id: str | None = None) -> None:
        self.code = code
        self.message = message
        self.id = id
        super().__init__(f"{code}: {message}" if message else code)


class UnconfirmedError(HermesError):
    """The answer to a card was sent, and the card's time ran out without a word about what became
    of it.

    Example::

        except UnconfirmedError:
            print("The agent may or may not have seen the answer.")
    """


class FileTooBig(HermesError, ValueError):
    """A file is larger than one message may be; nothing was sent.

    Example::

        try:
            await client.send_file("holiday.mp4")
        except FileTooBig as problem:
            print(problem)
    """


# ── who and what ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Device:
    """This device, as the agent shall see it. `id` never changes; it is part of the session's
    address.

    Example::

        Device("kitchen-tablet", name="Kitchen", platform="linux", app_version="1.2.0")
    """

    id: str | None = None
    name: str | None = None
    platform: str | None = "python"
    app_version: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """The person at the device, as Hermes shall see them.

    Example::

        HermesClient(url, token=token, device="tablet", user=User("u-1", "Ada"))
    """

    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the server says it can do (`Ready.capabilities`); `max_media_bytes` is in bytes.

    Example::

        if "video" in client.capabilities.media_in:
            await client.send_file("clip.mp4")
    """

    media_in: tuple[str, ...] = ()
    media_out: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    avatar_states: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    edit: bool = False
    max_media_bytes: int = MAX_MEDIA_BYTES
    max_text_chars: int = MAX_TEXT_CHARS


@dataclass(frozen=True, slots=True)
class Option:
    """One button of a card; `style` is ``primary``, ``danger`` or empty.

    Example::

        for number, option in enumerate(prompt.options, 1):
            print(number, option.label)
    """

    id: str
    label: str
    style: str = ""


# ── events ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    # The frame as it came (a file's data left out), so that fields this version does not know can
    # be read.
    frame: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Ready(_Event):
    """The server let us in. Comes again after every reconnect.

    Example::

        case Ready(session=session):
            print("deliveries reach me at", session)
    """

    session: str
    device_id: str
    device_name: str
    avatar_url: str
    version: int
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class Disconnected(_Event):
    """The connection is gone; the next try starts in `retry_in` seconds.

    Example::

        case Disconnected(reason=reason, retry_in=pause):
            status(f"{reason}; again in {pause:.0f} s")
    """

    reason: str
    code: int | None
    retry_in: float


@dataclass(frozen=True, slots=True)
class Message(_Event):
    """A message of the agent, put together: `text` is the whole text so far.

    The same `id` comes again with every chunk and every edit. `complete` is true when no chunk is
    missing, `final` when the agent has also finished the message; `edit` marks a revision of text
    shown before. If the reader is more than 256 events behind, an unread revision is replaced by
    the newer one.

    Example::

        case Message(id=id, text=text, final=final):
            bubbles[id].show(text, finished=final)
    """

    id: str
    text: str
    final: bool
    complete: bool
    edit: bool


@dataclass(frozen=True, slots=True)
class MediaProgress(_Event):
    """A file of the agent is on its way: `received` of `size` bytes are on disk.

    Example::

        case MediaProgress(filename=name, received=received, size=size):
            print(f"{name}: {received}/{size}")
    """

    id: str
    filename: str
    received: int
    size: int


@dataclass(frozen=True, slots=True)
class Media(_Event):
    """A file of the agent is whole: it lies at `path`, or is to be fetched from `url` (one of both
    is set).

    `filename` is the agent's name for it made harmless; the name at `path` may carry a number to
    keep an older file. Do not open what came from elsewhere without asking the user.

    Example::

        case Media(kind="image", path=path) if path:
            show_picture(path)
    """

    id: str
    kind: str
    mime: str
    filename: str
    path: Path | None
    url: str | None
    size: int
    caption: str | None
    reply_to: str | None


@dataclass(frozen=True, slots=True)
class MediaFailed(_Event):
    """A file of the agent could not be received; nothing of it was kept.

    Example::

        case MediaFailed(filename=name, reason=reason):
            print(f"{name} was not saved: {reason}")
    """

    id: str
    filename: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prompt(_Event):
    """A card with buttons; answer it with `HermesClient.answer`. Open cards come again after a
    reconnect.

    `kind` is ``exec_approval`` (show `command` exactly as it is beside the buttons),
    ``slash_confirm`` or ``clarify``. `timeout_seconds` is what is left when the card arrives.

    Example::

        case Prompt(id=id, kind="exec_approval", command=command):
            allowed = await ask_the_user(command)
            await client.answer(id, "once" if allowed else "deny")
    """

    id: str
    kind: str
    text: str
    options: tuple[Option, ...]
    command: str | None
    description: str | None
    session: str
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class PromptDone(_Event):
    """A card is closed: `option_id` is what was applied, which may differ from what was sent.

    Example::

        case PromptDone(id=id, expired=True):
            cards[id].show("Too late")
    """

    id: str
    option_id: str | None
    expired: bool


@dataclass(frozen=True, slots=True)
class Avatar(_Event):
    """The agent's face: ``idle``, ``thinking`` or ``speaking``.

    Example::

        case Avatar(state=state):
            face.play(state)
    """

    state: str


@dataclass(frozen=True, slots=True)
class Typing(_Event):
    """The agent works (`active`), or stopped working.

    Example::

        case Typing(active=active):
            dots.visible = active
    """

    active: bool


@dataclass(frozen=True, slots=True)
class Accepted(_Event):
    """The agent has the message with this id (extension ``accepted``).

    Example::

        case Accepted(id=id):
            bubbles[id].tick()
    """

    id: str


@dataclass(frozen=True, slots=True)
class ServerError(_Event):
    """The server complains; `id` names the message it is about, where the server says so.

    Example::

        case ServerError(code=code, message=message):
            print(f"{code}: {message}")
    """

    code: str
    message: str
    fatal: bool
    id: str | None


@dataclass(frozen=True, slots=True)
class Pong(_Event):
    """The echo of a heartbeat; `round_trip` is in seconds, where it could be measured.

    Example::

        case Pong(round_trip=seconds) if seconds is not None:
            print(f"{seconds * 1000:.0f} ms")
    """

    ts: Any
    round_trip: float | None


@dataclass(frozen=True, slots=True)
class Unknown(_Event):
    """A frame this version does not know, or one whose fields are not what the protocol says.
    `frame` is all of it.

    Example::

        case Unknown(t="weather", frame=frame):
            print(frame.get("forecast"))
    """

    t: str


Event: TypeAlias = (
    Ready
    | Disconnected
    | Message
    | MediaProgress
    | Media
    | MediaFailed
    | Prompt
    | PromptDone
    | Avatar
    | Typing
    | Accepted
    | ServerError
    | Pong
    | Unknown
)


# ── the wire ──────────────────────────────────────────────────────────────────────────────────────


class _Socket(ClientConnection):
    """A connection that counts what arrives: a slow link may hold the answer to a heartbeat back
    behind a large frame, and every byte of that frame is a sign of life."""

    bytes_in = 0

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        super().data_received(data)

    async def send_text(self, text: str) -> None:
        """Send one frame. Raises ConnectionClosed, also for what the event loop makes of writing to
        a socket that has just gone."""
        try:
            await self.send(text)
        except ConnectionClosed:
            raise
        except Exception as error:
            if self.state is State.OPEN:
                raise
            raise ConnectionClosedError(None, None) from error

    def abort(self) -> None:
        """Cut the connection now, if it is not gone yet."""
        # A transport that has told of its end has forgotten its loop (asyncio of Python 3.11).
        with contextlib.suppress(AttributeError):
            self.transport.abort()


class _Connect(connect):
    """Follows no redirect: the token goes to the address the user gave, and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(slots=True, eq=False)
class _Outgoing:
    """One thing to be sent until it is confirmed."""

    id: str
    frames: Callable[[], Iterator[tuple[str, int]]]  # encoded frame, bytes of the file it completes
    done: asyncio.Future[Any]
    confirmed_by: Literal["accepted", "prompt_done"]
    total: int = 0
    parts: int = 1
    urgent: bool = False
    progress: Progress | None = None
    written: bool = False  # on the connection of now


def _encode(frame: Any) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def _checked_text(what: str, text: str, limit: int | None = None) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a character (a lone surrogate)") from None
    if limit is not None and len(text) > limit:
        raise ValueError(f"{what} has {len(text)} characters, the server takes {limit}")
    return text


def _checked_id(id: str | None) -> str:
    if id is None:
        return uuid.uuid4().hex
    if not 1 <= len(id) <= MAX_ID_CHARS:
        raise ValueError(f"a message id has 1 to {MAX_ID_CHARS} characters, this one has {len(id)}")
    return _checked_text("the message id", id)


# Names of parameters under which people put secrets into addresses.
_SECRET_NAME = re.compile(r"token|secret|passw(or)?d|api[_-]?key", re.IGNORECASE)


def _websocket_url(url: str) -> str:
    """The address to connect to: http(s) becomes ws(s), and a bare host gets the door's usual
    path."""
    try:
        split = urlsplit(url.strip())
        usable = bool(split.hostname) and (split.port is None or split.port > 0)
    except ValueError:  # brackets that do not close, a port that is no number
        usable = False
    scheme = {"http": "ws", "https": "wss"}.get(split.scheme, split.scheme) if usable else ""
    if scheme not in ("ws", "wss"):
        raise ValueError("the address must look like ws://HOST:PORT/ws or wss://HOST/ws")
    names = (name for name, _ in parse_qsl(split.query, keep_blank_values=True))
    if any(_SECRET_NAME.search(name) for name in names):
        raise ValueError(
            "the address carries a token; addresses end up in logs, so give it as token=… instead"
        )
    path = "/ws" if split.path in ("", "/") else split.path
    return urlunsplit((scheme, split.netloc, path, split.query, ""))


def _shown_url(url: str) -> str:
    split = urlsplit(url)
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


def _default_backoff(attempt: int) -> float:
    """Seconds before the next try: full jitter over a doubling span, half a second to half a
    minute."""
    return random.uniform(0.05, min(30.0, 0.5 * 2.0 ** min(attempt, 10)))


def _text_of(frame: Frame, name: str) -> str | None:
    value = frame.get(name)
    return value if isinstance(value, str) else None


def _int_of(frame: Frame, name: str) -> int | None:
    value = frame.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _names_of(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _capabilities_of(value: Any) -> Capabilities:
    table = value if isinstance(value, dict) else {}
    return Capabilities(
        media_in=_names_of(table.get("media_in")),
        media_out=_names_of(table.get("media_out")),
        prompts=_names_of(table.get("prompts")),
        avatar_states=_names_of(table.get("avatar_states")),
        extensions=_names_of(table.get("extensions")),
        edit=table.get("edit") is True,
        max_media_bytes=_int_of(table, "max_media_bytes") or MAX_MEDIA_BYTES,
        max_text_chars=_int_of(table, "max_text_chars") or MAX_TEXT_CHARS,
    )


# ── putting together ──────────────────────────────────────────────────────────────────────────────


class _Draft:
    """One message of the agent while its chunks and revisions arrive."""

    __slots__ = ("chunks", "final", "shown", "total")

    def __init__(self) -> None:
        self.chunks: dict[int, str] = {}
        self.total = 1
        self.final = False
        self.shown: tuple[str, bool, bool] | None = None

    def take(self, index: int, total: int, text: str, final: bool) -> None:
        if total < self.total:
            for gone in [known for known in self.chunks if known >= total]:
                del self.chunks[gone]
        # What fills a hole, or says again what is known, belongs to the revision already final.
        same_revision = total == self.total and self.chunks.get(index, text) == text
        self.total = total
        self.chunks[index] = text
        self.final = final or (self.final and same_revision)

    @property
    def complete(self) -> bool:
        return len(self.chunks) == self.total

    def text(self) -> str:
        joined = []
        for index in range(self.total):
            if index not in self.chunks:
                break
            joined.append(self.chunks[index])
        return "".join(joined)

    def __len__(self) -> int:
        return sum(map(len, self.chunks.values()))


_NOT_IN_NAMES = re.compile(r'[<>:"|?*]')
_DEVICE_NAMES = {"con", "prn", "aux", "nul"} | {
    f"{stem}{n}" for stem in ("com", "lpt") for n in "0123456789¹²³"
}


def _safe_filename(name: str, mime: str = "") -> str:
    """A harmless last path component made of what the server calls a file, its extension kept."""
    name = name.replace("\\", "/").rpartition("/")[2]
    # Control, format (which could turn the text round and hide an extension), surrogate and
    # unassigned characters.
    name = "".join(c for c in name if unicodedata.category(c)[0] != "C")
    name = _NOT_IN_NAMES.sub("_", unicodedata.normalize("NFC", name)).strip(" .")
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension.encode()) > 20:
        stem, extension = name, ""
    suffix = f".{extension}" if extension else ""
    # File systems count bytes: 255 of them at most, with room for a number.
    stem = stem.encode()[: 200 - len(suffix.encode())].decode(errors="ignore").rstrip(" .")
    if not stem:
        stem, suffix = "file", suffix or mimetypes.guess_extension(mime) or ""
    if stem.partition(".")[0].strip().lower() in _DEVICE_NAMES:
        stem = f"_{stem}"
    return stem + suffix


class _Download:
    """One file of the agent on its way to disk. The methods block: they run in a thread."""

    def __init__(self, folder: Path, frame: Frame, size: int, parts: int) -> None:
        self.size = size
        self.parts = parts
        self.frame = {name: value for name, value in frame.items() if name != "data"}
        self.filename = _safe_filename(
            _text_of(frame, "filename") or "", _text_of(frame, "mime") or ""
        )
        self.received = 0
        self.timer: asyncio.TimerHandle | None = None
        self._folder = folder
        self._places: dict[int, tuple[int, int]] = {}  # part -> offset and length in the file
        self._lock = threading.Lock()  # closing must wait for a write under way
        self._discarded = False
        self._part_path: Path | None = None
        self._descriptor: int | None = None

    @property
    def whole(self) -> bool:
        return len(self._places) == self.parts

    def missing(self) -> int:
        return next((part for part in range(self.parts) if part not in self._places), 0)

    def write(self, part: int, encoded: str) -> None:
        """Keep one part; a part that is there already changes nothing.

        Raises ValueError when the data is no base64 or the file grows over its announced size,
        OSError from the disk.
        """
        with self._lock:
            if part not in self._places and not self._discarded:
                self._append(part, encoded)

    def _append(self, part: int, encoded: str) -> None:
        # Three of four characters carry data, so a lie about the size shows before it is decoded.
        if len(encoded) // 4 * 3 - 2 > self.size - self.received:
            raise ValueError(f"it is larger than the announced {self.size} bytes")
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"part {part} is not base64") from None
        if self.received + len(data) > self.size:
            raise ValueError(f"it is larger than the announced {self.size} bytes")
        if self._descriptor is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f".{uuid.uuid4().hex}.part"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(path, flags, 0o600)
            self._part_path = path
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._places[part] = (self.received, len(data))
        self.received += len(data)

    def finish(self) -> Path:
        """Give the whole file its name, beside any older file of that name.

        Raises ValueError when bytes are missing, OSError from the disk.
        """
        with self._lock:
            if self.received != self.size:
                raise ValueError(f"{self.size} bytes were announced, {self.received} came")
            return self._name_it()

    def _name_it(self) -> Path:
        assert self._descriptor is not None and self._part_path is not None
        if list(self._places) != sorted(self._places):
            self._put_in_order(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None
        target = self._reserve()
        os.replace(self._part_path, target)
        self._part_path = None
        return target.absolute()

    def _put_in_order(self, descriptor: int) -> None:
        pieces = []
        for part in sorted(self._places):
            offset, length = self._places[part]
            os.lseek(descriptor, offset, os.SEEK_SET)
            pieces.append(os.read(descriptor, length))
        os.lseek(descriptor, 0, os.SEEK_SET)
        view = memoryview(b"".join(pieces))
        while view:
            view = view[os.write(descriptor, view) :]

    def _reserve(self) -> Path:
        stem, dot, extension = self.filename.rpartition(".")
        if not stem:
            stem, dot, extension = self.filename, "", ""
        for number in range(1, 10_000):
            tag = "" if number == 1 else f" ({number})"
            target = self._folder / f"{stem}{tag}{dot}{extension}"
            with contextlib.suppress(FileExistsError):
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return target
        raise ValueError(f"there are too many files called {self.filename}")

    def discard(self) -> None:
        """Remove what there is; after `finish` there is nothing to remove."""
        if self.timer is not None:
            self.timer.cancel()
        with self._lock:
            self._discarded = True
            if self._descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = None
            if self._part_path is not None:
                with contextlib.suppress(OSError):
                    self._part_path.unlink()
                self._part_path = None


class _Recent:
    """The last ids of a kind, so that what a server repeats after a reconnect is not shown
    twice."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, id: str) -> None:
        self._ids[id] = None
        while len(self._ids) > self._limit:
            self._ids.popitem(last=False)

    def __contains__(self, id: str) -> bool:
        return id in self._ids


# ── the client ────────────────────────────────────────────────────────────────────────────────────


class HermesClient:
    """A device's connection to a Hermes Agent.

    Args:
        url: ``ws://HOST:PORT/ws`` or ``wss://HOST/ws``. A bare host gets the path ``/ws``. Never a
            token in it.
        token: the app token; it goes into the first frame only, and never into a log, an error or a
            `repr`.
        device: a `Device`, or just its id. Without an id the server chooses one, which is kept
            until the client is closed. Always give one to keep the conversation over restarts.
        user: who sits at the device.
        downloads: the folder for the agent's files, made when the first one comes.
        connect_timeout: seconds that entering may take; None waits for ever.
        heartbeat: seconds between signs of life; twice that long without a single byte ends the
            connection.
        backoff: number of failed tries (from 0) to seconds before the next one.
        max_download_bytes: a larger file of the agent is refused.
        ssl: a context for ``wss`` with certificates of your own.
        proxy: None for a direct connection, an address, or True for what the environment says.

    Raises:
        ValueError: the address, the token or the device id cannot be right.

    Example::

        async with HermesClient("wss://agent.example.com", token=token, device="tablet") as client:
            await client.send_text("hello")
            async for event in client:
                print(event)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        device: Device | str | None = None,
        user: User | None = None,
        downloads: str | os.PathLike[str] = "hermes-downloads",
        connect_timeout: float | None = 30.0,
        heartbeat: float = 15.0,
        backoff: Callable[[int], float] = _default_backoff,
        max_download_bytes: int = MAX_MEDIA_BYTES,
        ssl: ssl_module.SSLContext | None = None,
        proxy: str | Literal[True] | None = True,
    ) -> None:
        self._url = _websocket_url(url)
        if not isinstance(token, str) or not token.strip():
            raise ValueError("the token is empty; it is the MOBILE_TOKEN of the server")
        self._token = _checked_text("the token", token)
        self._device = Device(device) if isinstance(device, str) else device or Device()
        self._check_device(self._device)
        self._user = user
        self._folder = Path(downloads)
        self._connect_timeout = connect_timeout
        self._interval = heartbeat
        self._backoff = backoff
        self._max_download = max_download_bytes
        self._ssl = ssl
        self._proxy = proxy

        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._stop: HermesError | None = None
        self._trouble = "no answer yet"
        self._ready: Ready | None = None
        self._socket: _Socket | None = None  # set between ready and the end of a connection
        self._entered = asyncio.Event()
        self._fatal: ServerError | None = None
        self._progressed = False

        self._outbox: list[_Outgoing] = []
        self._wake = asyncio.Event()
        self._writing: _Outgoing | None = None
        self._writes = 0
        self._withdrawn: list[int] = []  # bytes of half-sent files, on the connection of now
        self._card_ends: OrderedDict[str, float] = OrderedDict()

        self._events: OrderedDict[int, Event] = OrderedDict()
        self._queued: dict[tuple[str, str], int] = {}
        self._sequence = 0
        self._arrived = asyncio.Event()
        self._dropped = 0

        self._drafts: OrderedDict[str, _Draft] = OrderedDict()
        self._draft_chars = 0
        self._downloads: OrderedDict[str, _Download] = OrderedDict()
        self._settled_media = _Recent(1024)

    @staticmethod
    def _check_device(device: Device) -> None:
        for name in ("id", "name", "platform", "app_version"):
            value = getattr(device, name)
            if value is not None:
                _checked_text(f"the device's {name}", value)
        if device.id is not None and (
            not device.id.strip()
            or len(device.id) > 120
            or any(c in ":/" or unicodedata.category(c) in _NOT_IN_IDS for c in device.id)
        ):
            raise ValueError(
                "a device id has 1 to 120 characters, none of them ':', '/', a control character or"
                " an invisible one"
            )

    def __repr__(self) -> str:
        state = (
            "closed" if self._closed else "stopped" if self._stop else
            "connected" if self._socket else "connecting" if self._task else "new"
        )  # fmt: skip
        return f"<HermesClient {_shown_url(self._url)} device={self._device.id!r} {state}>"

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> HermesClient:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and wait for the server's `ready`; `async with` does this by itself.

        Raises:
            StoppedError: the server does not want this token or device.
            ConnectError: no `ready` within `connect_timeout`.

        Example::

            client = HermesClient(url, token=token, device="tablet")
            await client.open()
            try:
                await client.send_text("hello")
            finally:
                await client.close()
        """
        if self._task is not None or self._closed:
            raise ClosedError("a HermesClient is opened once; make a new one")
        self._task = asyncio.create_task(self._live(), name="hermes-client")
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._entered.wait()
        except TimeoutError:
            await self.close()
            raise ConnectError(
                f"{_shown_url(self._url)} did not let us in within {self._connect_timeout:g} s:"
                f" {self._trouble}"
            ) from None
        except BaseException:
            await self.close()
            raise
        if self._stop is not None:
            stop = self._stop
            await self.close()
            raise stop

    async def close(self) -> None:
        """Leave. What has not been confirmed fails with `ClosedError`; files half received are
        removed.

        Example::

            await client.close()
        """
        self._closed = True
        task, self._task = self._task, None
        self._fail_outbox(ClosedError("the client was closed before the server confirmed this"))
        self._arrived.set()
        try:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        finally:
            for download in self._downloads.values():
                download.discard()
            self._downloads.clear()

    @property
    def connected(self) -> bool:
        """Whether the server listens to us right now.

        Example::

            light.colour = "green" if client.connected else "grey"
        """
        return self._socket is not None

    @property
    def session(self) -> str | None:
        """The session's name and delivery address (``mobile:<device id>``), as the last `ready`
        said.

        Example::

            print(f"hermes send --to {client.session} 'dinner is ready'")
        """
        return self._ready.session if self._ready else None

    @property
    def capabilities(self) -> Capabilities:
        """What the server said it can do in the last `ready`.

        Example::

            limit = client.capabilities.max_text_chars
        """
        return self._ready.capabilities if self._ready else Capabilities()

    @property
    def stopped(self) -> HermesError | None:
        """Why the client will not connect again, if it will not.

        Example::

            if isinstance(client.stopped, Replaced):
                print("in use elsewhere")
        """
        return self._stop

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def send_text(self, text: str, *, id: str | None = None) -> str:
        """Send a text; return its id once the agent has it (or, with a plain server, once it was
        written).

        Waits through drops. Messages keep the order in which they were handed over. Cancelling
        withdraws what has not gone out.

        Raises:
            ValueError: the text is blank or longer than the server takes.
            RejectedError: the server or the agent refused it.
            StoppedError, ClosedError: there is no connection to wait for.

        Example::

            await client.send_text("What is the weather like?")
        """
        _checked_text("the text", text, self.capabilities.max_text_chars)
        if not text.strip():
            raise ValueError("the text is blank")
        id = _checked_id(id)
        frame = _encode({"t": "text", "id": id, "text": text})
        await self._post(id, lambda: iter([(frame, 0)]))
        return id

    async def send_voice(
        self,
        recording: bytes | str | os.PathLike[str],
        *,
        text: str | None = None,
        id: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Send a voice recording, WAV or OGG, as bytes or as a path; `text` is what was said, if
        the app knows.

        Returns and raises as `send_text`; FileTooBig over the server's limit.

        Example::

            await client.send_voice("question.ogg", text="What is the weather like?")
        """
        data, _ = await self._load(recording)
        if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
            sound = "wav"
        elif data[:4] == b"OggS":
            sound = "ogg"
        else:
            raise ValueError("a voice recording is WAV or OGG; send_file takes other audio")
        if text is not None:
            _checked_text("the transcript", text, self.capabilities.max_text_chars)
        id = _checked_id(id)

        def frames() -> Iterator[tuple[str, int]]:
            frame: Frame = {"t": "audio", "id": id, "format": sound}
            if text:
                frame["text"] = text
            frame["data"] = base64.b64encode(data).decode()
            yield _encode(frame), len(data)

        await self._post(id, frames, total=len(data), progress=progress)
        return id

    async def send_file(
        self,
        file: bytes | str | os.PathLike[str],
        *,
        kind: FileKind | None = None,
        mime: str | None = None,
        filename: str | None = None,
        caption: str | None = None,
        id: str | None = None,
        progress: Progress | None = None,
        chunk_bytes: int = MEDIA_CHUNK_BYTES,
    ) -> str:
        """Send a file, as bytes or as a path, in chunks of `chunk_bytes`.

        What is left out is told by the name: `mime` by the extension, `kind` by `mime`. `progress`
        is called with the bytes sent and the total, and starts again at 0 when a drop made the
        upload start again.

        Returns and raises as `send_text`; FileTooBig over the server's limit (8 MiB), OSError if it
        cannot be read.

        Example::

            await client.send_file("plan.pdf", caption="Please check", progress=print)
        """
        data, name = await self._load(file)
        filename = filename or name
        if filename is not None:
            _checked_text("the filename", filename)
        if mime is None and filename is not None:
            mime = mimetypes.guess_type(filename)[0]
        if kind is None:
            kind = _FAMILIES.get((mime or "").partition("/")[0], "document")
        if caption is not None:
            _checked_text("the caption", caption, self.capabilities.max_text_chars)
        # The protocol allows 2,048 parts of a file, so a chunk has a lower bound as well.
        chunk = min(max(chunk_bytes, 4096, -(-len(data) // MAX_MEDIA_PARTS)), MEDIA_CHUNK_BYTES)
        parts = -(-len(data) // chunk)
        id = _checked_id(id)

        def frames() -> Iterator[tuple[str, int]]:
            for part in range(parts):
                frame: Frame = {"t": "media", "id": id, "kind": kind, "part": part, "parts": parts}
                for field_name, value in (
                    ("mime", mime),
                    ("filename", filename),
                    ("caption", caption),
                ):
                    if value:
                        frame[field_name] = value
                end = min((part + 1) * chunk, len(data))
                frame["data"] = base64.b64encode(data[part * chunk : end]).decode()
                yield _encode(frame), end

        await self._post(id, frames, total=len(data), progress=progress, parts=parts)
        return id

    async def _load(self, source: bytes | str | os.PathLike[str]) -> tuple[bytes, str | None]:
        """The file's bytes and its name. They are kept until confirmed: a file changed on disk
        meanwhile would otherwise arrive as a mixture."""
        limit = min(self.capabilities.max_media_bytes, MAX_MEDIA_BYTES)
        if isinstance(source, (bytes, bytearray, memoryview)):
            data, name, shown = bytes(source), None, "the file"
        else:
            path = Path(source)
            shown = name = path.name

            def read() -> bytes:
                if path.exists() and not path.is_file():
                    raise ValueError(f"{name} is not a file")
                with path.open("rb") as stream:
                    return stream.read(limit + 1)

            data = await asyncio.to_thread(read)
        if len(data) > limit:
            raise FileTooBig(f"{shown} is larger than {limit:,} bytes, the most the server takes")
        if not data:
            raise ValueError(f"{shown} is empty")
        return data, name

    async def answer(
        self, prompt_id: str, option_id: str | None = None, *, text: str | None = None
    ) -> PromptDone:
        """Answer a card and return what was applied.

        Give one of the card's option ids, or `text` for an answer of one's own to a ``clarify``
        card. The option ``other`` without a text tells the agent that the next text message is the
        answer.

        Raises:
            ValueError: neither an option nor a text.
            RejectedError: the card was shown to another device.
            UnconfirmedError: the card's time ran out before the server said anything.
            StoppedError, ClosedError: there is no connection to wait for.

        Example::

            done = await client.answer(prompt.id, "once")
            print("too late" if done.expired else done.option_id)
        """
        if not option_id and not (text and text.strip()):
            raise ValueError("an answer needs an option or a text")
        frame: Frame = {"t": "prompt", "prompt_id": prompt_id}
        if option_id:
            frame["option_id"] = _checked_text("the option", option_id)
        if text:
            frame["text"] = _checked_text("the answer", text, self.capabilities.max_text_chars)
        encoded = _encode(frame)
        # An answer must not wait behind a long upload, the card has a deadline. Only "other" on its
        # own keeps its place: the text that comes after it is the answer, and none that was handed
        # over before.
        urgent = not (option_id == "other" and not text)
        end = self._card_ends.get(prompt_id)
        try:
            async with asyncio.timeout(
                None if end is None else max(0.0, end - time.monotonic()) + 15
            ):
                done = await self._post(
                    prompt_id,
                    lambda: iter([(encoded, 0)]),
                    confirmed_by="prompt_done",
                    urgent=urgent,
                )
        except TimeoutError:
            raise UnconfirmedError(
                "the card's time ran out before the answer was confirmed"
            ) from None
        assert isinstance(done, PromptDone)
        return done

    async def typing(self) -> None:
        """Tell the agent that the user types. Does nothing while there is no connection.

        Example::

            await client.typing()
        """
        await self._now({"t": "typing"})

    async def ack(self, id: str) -> None:
        """Tell the server that a message was shown or played. Does nothing while there is no
        connection.

        Example::

            await client.ack(message.id)
        """
        await self._now({"t": "ack", "id": id})

    async def _now(self, frame: Frame) -> None:
        self._check_open()
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send_text(_encode(frame))

    def _check_open(self) -> None:
        if self._stop is not None:
            raise self._stop
        if self._closed or self._task is None:
            raise ClosedError(
                "the client is not open; use it inside `async with HermesClient(...)`"
            )

    async def _post(
        self,
        id: str,
        frames: Callable[[], Iterator[tuple[str, int]]],
        *,
        confirmed_by: Literal["accepted", "prompt_done"] = "accepted",
        total: int = 0,
        parts: int = 1,
        urgent: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        self._check_open()
        item = _Outgoing(
            id=id,
            frames=frames,
            done=asyncio.get_running_loop().create_future(),
            confirmed_by=confirmed_by,
            total=total,
            parts=parts,
            urgent=urgent,
            progress=progress,
        )
        self._outbox.append(item)
        self._wake.set()
        try:
            return await item.done
        finally:
            with contextlib.suppress(ValueError):
                self._outbox.remove(item)

    def _confirm(self, by: str, id: str, value: Any) -> None:
        for item in self._outbox:
            if item.confirmed_by == by and item.id == id and not item.done.done():
                item.done.set_result(value)

    def _refuse(self, error: ServerError) -> None:
        """Fail what an error is about, by its id; a server that gives none is understood where it
        is certain."""
        item: _Outgoing | None
        if error.id is not None:
            about = [item for item in self._outbox if item.id == error.id]
        elif error.code == "forbidden":
            # Without an id this can only be the oldest answer: nothing else of ours can be
            # forbidden after ready.
            about = [i for i in self._outbox if i.confirmed_by == "prompt_done" and i.written][:1]
        elif error.fatal and self._ready is not None and self._writing is not None:
            # The frame under way ended the connection; sent again it would do so for ever.
            about = [self._writing]
        else:
            about = []
        for item in about:
            if not item.done.done():
                item.done.set_exception(RejectedError(error.code, error.message, item.id))

    def _fail_outbox(self, error: HermesError) -> None:
        for item in list(self._outbox):
            if not item.done.done():
                item.done.set_exception(error)

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events, oldest first. One reader at a time.

        Ends when the client is closed, and raises the `StoppedError` when the server said to stay
        away.

        Example::

            async for event in client:
                match event:
                    case Message(text=text, final=True):
                        print(text)
                    case Prompt(id=id):
                        await client.answer(id, "deny")
        """
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._stop is not None:
                raise self._stop
            if self._closed:
                raise StopAsyncIteration
            if self._task is None:
                raise ClosedError(
                    "the client is not open; use it inside `async with HermesClient(...)`"
                )
            self._arrived.clear()
            await self._arrived.wait()
        _, event = self._events.popitem(last=False)
        return event

    def _emit(self, event: Event) -> None:
        key = (
            (type(event).__name__, event.id) if isinstance(event, Message | MediaProgress) else None
        )
        if key is not None and len(self._events) >= _LAG_EVENTS:
            place = self._queued.get(key)
            if place is not None and place in self._events:
                self._events[place] = event
                return
        self._sequence += 1
        self._events[self._sequence] = event
        if key is not None:
            self._queued[key] = self._sequence
            if len(self._queued) > 2 * _MAX_EVENTS:
                self._queued = {k: n for k, n in self._queued.items() if n in self._events}
        if len(self._events) > _MAX_EVENTS:
            self._events.popitem(last=False)
            if not self._dropped:
                _log.warning("nobody reads the events; the oldest of %d are dropped", _MAX_EVENTS)
            self._dropped += 1
        self._arrived.set()

    # ── the connection ────────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        attempt = 0
        try:
            while True:
                self._progressed = False
                code, reason = await self._one_connection()
                attempt = 0 if self._progressed and code != CLOSE_TRY_LATER else attempt + 1
                pause = max(0.0, self._backoff(max(0, attempt - 1)))
                self._trouble = reason
                _log.info("connection lost (%s); next try in %.1f s", reason, pause)
                self._emit(Disconnected(reason, code, pause))
                await asyncio.sleep(pause)
        except HermesError as stop:
            self._end(stop)
        except Exception as error:
            # A mistake in this file must not leave its user waiting.
            failure = HermesError(f"the client failed inside ({type(error).__name__})")
            failure.__cause__ = error
            self._end(failure)

    def _end(self, stop: HermesError) -> None:
        self._stop = stop
        self._fail_outbox(stop)
        self._entered.set()
        self._arrived.set()

    async def _one_connection(self) -> tuple[int | None, str]:
        """Connect, talk until it ends, and tell the close code and why. Raises StoppedError for the
        ends for good."""
        self._fatal = None
        shown = _shown_url(self._url)
        options: dict[str, Any] = {} if self._ssl is None else {"ssl": self._ssl}
        try:
            socket = await _Connect(
                self._url,
                create_connection=_Socket,
                compression=None,
                max_size=MAX_FRAME_BYTES,
                max_queue=8,
                open_timeout=10,
                close_timeout=_CLOSE_TIMEOUT,
                ping_interval=None,  # the heartbeat below counts every byte, not only pongs
                proxy=self._proxy,
                logger=_wire_log,
                **options,
            )
        except InvalidStatus as error:
            return (
                None,
                f"{shown} answered HTTP {error.response.status_code} instead of a WebSocket",
            )
        except TimeoutError:
            return None, f"{shown} did not answer in time"
        except (OSError, WebSocketException) as error:
            return None, f"cannot reach {shown}: {error}"
        assert isinstance(socket, _Socket)

        self._withdrawn.clear()
        for item in self._outbox:
            item.written = False
        tasks: list[asyncio.Task[str | None]] = []
        reason: str | None = None
        try:
            await socket.send_text(_encode(self._hello()))
            async with asyncio.timeout(_READY_TIMEOUT):
                while self._socket is None and self._fatal is None:
                    await self._take(await socket.recv(), socket)
            if self._fatal is None:
                tasks = [
                    asyncio.create_task(self._read(socket)),
                    asyncio.create_task(self._write(socket)),
                    asyncio.create_task(self._beat(socket)),
                ]
                finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                # Several may end at once; the one that knows the reason is the one to believe.
                told = [task.result() for task in finished if task.exception() is None]
                reason = next((text for text in told if text), None)
                for task in finished:
                    if reason is None:
                        task.result()
        except ConnectionClosed:
            pass
        except TimeoutError:
            reason = f"{shown} did not greet us in time"
        finally:
            self._socket = None
            for task in tasks:
                task.cancel()
            await self._hang_up(socket)
            # Their exceptions are the connection's end, told above.
            await asyncio.gather(*tasks, return_exceptions=True)
        code = None if socket.close_code is None else int(socket.close_code)
        self._judge(socket)
        if code == CLOSE_TOO_BIG and self._writing is not None and not self._writing.done.done():
            self._writing.done.set_exception(
                RejectedError(
                    "too_big", "the server cut the connection at this frame", self._writing.id
                )
            )
        self._writing = None
        if reason is None:
            said = f": {socket.close_reason}" if socket.close_reason else ""
            lost = code in (None, CLOSE_ABNORMAL)
            reason = "the connection was lost" if lost else f"closed by the server ({code}{said})"
        return code, reason

    def _hello(self) -> Frame:
        device = {
            name: value
            for name in ("id", "name", "platform", "app_version")
            if (value := getattr(self._device, name))
        }
        if self._device.id is None and self._ready is not None:
            device["id"] = self._ready.device_id
        frame: Frame = {
            "t": "hello",
            "token": self._token,
            "device": device,
            "supports": list(_SUPPORTS),
        }
        if self._user is not None:
            user = {"id": self._user.id, "name": self._user.name}
            frame["user"] = {name: value for name, value in user.items() if value}
        return frame

    def _judge(self, socket: _Socket) -> None:
        """Raise the StoppedError if this end is one for good. Every other end is passing."""
        code, said = socket.close_code, socket.close_reason or ""
        if code == CLOSE_REPLACED:
            raise Replaced(said if said != "replaced" else "")
        if self._fatal is not None:
            why, message = self._fatal.code, self._fatal.message
        elif code == CLOSE_POLICY:
            why, message = said, ""
        else:
            return
        if why == AuthFailed.code:
            raise AuthFailed(message)
        if why == Forbidden.code:
            raise Forbidden(message)

    async def _hang_up(self, socket: _Socket) -> None:
        """Close politely where the peer still reads; a writer stuck behind a large frame is cut at
        once."""
        try:
            if socket.transport.get_write_buffer_size():
                socket.abort()
            await socket.close()
        except BaseException:
            socket.abort()
            raise

    async def _read(self, socket: _Socket) -> str | None:
        while self._fatal is None:
            await self._take(await socket.recv(), socket)
        return f"{self._fatal.code}: {self._fatal.message}"

    async def _write(self, socket: _Socket) -> str | None:
        while True:
            item = self._next(urgent=True) or self._next(urgent=False)
            if item is not None and self._needs_room(item):
                self._progressed = True
                return "making room on the server after withdrawn uploads"
            if item is not None:
                await self._write_one(socket, item)
                continue
            self._wake.clear()
            await self._wake.wait()

    def _next(self, *, urgent: bool) -> _Outgoing | None:
        for item in self._outbox:
            if item.urgent is urgent and not item.written and not item.done.done():
                return item
        return None

    async def _write_one(self, socket: _Socket, item: _Outgoing) -> None:
        self._writing = item
        sent = 0
        try:
            if item.progress is not None:
                item.progress(0, item.total)
            for number, (frame, end) in enumerate(item.frames()):
                # Cards have deadlines: their answers pass between two parts of a file.
                while number and (answer := self._next(urgent=True)) is not None:
                    await self._write_one(socket, answer)
                    self._writing = item
                if item.done.done():
                    break
                await socket.send_text(frame)
                sent = end
                self._writes += 1
                if item.progress is not None:
                    item.progress(sent, item.total)
                await asyncio.sleep(
                    0
                )  # the reader's turn, also when the socket never makes us wait
        except ConnectionClosed:
            raise
        except (
            Exception
        ) as error:  # the caller's progress callback, or a file that cannot be encoded
            if not item.done.done():
                item.done.set_exception(error)
        if item.parts > 1 and 0 < sent < item.total:
            self._withdrawn.append(sent)
        item.written = True
        if item.confirmed_by == "accepted" and "accepted" not in self.capabilities.extensions:
            self._progressed = True
            if not item.done.done():
                item.done.set_result(None)

    def _needs_room(self, item: _Outgoing) -> bool:
        """Whether the server, which keeps the parts of withdrawn uploads until we disconnect, would
        refuse this file for them."""
        return item.parts > 1 and (
            len(self._withdrawn) >= MAX_OPEN_UPLOADS
            or sum(self._withdrawn) + item.total > MAX_MEDIA_BYTES
        )

    async def _beat(self, socket: _Socket) -> str | None:
        silent = 0
        while silent < 2:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await socket.send_text(
                        _encode({"t": "ping", "ts": time.monotonic_ns() // 1_000_000})
                    )
            before = (socket.bytes_in, self._writes)
            waiting = socket.transport.get_write_buffer_size()
            await asyncio.sleep(self._interval)
            # A link that still takes our bytes is alive, however long the answers are held up
            # behind them.
            moved = socket.transport.get_write_buffer_size() < waiting
            silent = 0 if moved or (socket.bytes_in, self._writes) != before else silent + 1
        socket.abort()
        return f"no sign of life for {2 * self._interval:g} s"

    # ── frames in ─────────────────────────────────────────────────────────────────────────────────

    async def _take(self, raw: str | bytes, socket: _Socket) -> None:
        try:
            frame = json.loads(raw)
        except (ValueError, RecursionError):
            _log.debug("a message that is no JSON was ignored (%d bytes)", len(raw))
            return
        if not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
            _log.debug("a message without a type was ignored (%d bytes)", len(raw))
            return
        t = frame["t"].lower()
        if t == "media":
            await self._take_media(frame)
            return
        reader = self._READERS.get(t)
        event = reader(self, frame) if reader is not None else Unknown(t, frame=frame)
        if isinstance(event, Ready):
            self._socket = socket
            self._entered.set()
            self._wake.set()
        elif not isinstance(event, Avatar | Typing | ServerError | None):
            self._progressed = True
        if event is not None:
            self._emit(event)

    def _take_ready(self, frame: Frame) -> Event | None:
        version = frame.get("v")
        if version is None:  # the first version; a later one has to say which it is
            version = PROTOCOL_VERSION
        elif type(version) is not int or version != PROTOCOL_VERSION:
            raise UnsupportedVersion(
                f"it says version {_encode(version)[:40]}, this client speaks version"
                f" {PROTOCOL_VERSION}; update the older of the two"
            )
        device = frame.get("device")
        table: Frame = device if isinstance(device, dict) else {}
        self._ready = Ready(
            session=_text_of(frame, "session") or "",
            device_id=_text_of(table, "id") or self._device.id or "",
            device_name=_text_of(table, "name") or "",
            avatar_url=_text_of(frame, "avatar_url") or "",
            version=version,
            capabilities=_capabilities_of(frame.get("capabilities")),
            frame=frame,
        )
        return self._ready

    def _take_message(self, frame: Frame) -> Event | None:
        id, text = _text_of(frame, "id"), _text_of(frame, "text")
        chunk = frame.get("chunk")
        place: Frame = chunk if isinstance(chunk, dict) else {"index": 0, "total": 1}
        index, total = _int_of(place, "index"), _int_of(place, "total")
        if id is None or text is None or index is None or total is None or not 0 <= index < total:
            return Unknown("message", frame=frame)
        draft = self._drafts.setdefault(id, _Draft())
        self._drafts.move_to_end(id)
        self._draft_chars -= len(draft)
        draft.take(index, total, text, frame.get("final") is True)
        self._draft_chars += len(draft)
        whole, complete = draft.text(), draft.complete
        now = (whole, complete, draft.final and complete)
        before, draft.shown = draft.shown, now
        self._forget_old_drafts()
        if before == now:
            return None  # said again after a reconnect
        edit = frame.get("edit") is True
        return Message(id, whole, final=now[2], complete=complete, edit=edit, frame=frame)

    def _forget_old_drafts(self) -> None:
        while len(self._drafts) > 1 and (
            len(self._drafts) > _MAX_DRAFTS or self._draft_chars > _MAX_DRAFT_CHARS
        ):
            _, oldest = self._drafts.popitem(last=False)
            self._draft_chars -= len(oldest)

    def _take_prompt(self, frame: Frame) -> Event | None:
        id, kind, text = _text_of(frame, "id"), _text_of(frame, "kind"), _text_of(frame, "text")
        listed = frame.get("options")
        if id is None or kind is None or text is None or not isinstance(listed, list):
            return Unknown("prompt", frame=frame)
        options = tuple(
            Option(
                option["id"],
                _text_of(option, "label") or option["id"],
                _text_of(option, "style") or "",
            )
            for option in listed
            if isinstance(option, dict) and isinstance(option.get("id"), str)
        )
        seconds = max(0, _int_of(frame, "timeout_seconds") or 0)
        self._card_ends[id] = time.monotonic() + seconds
        while len(self._card_ends) > 256:
            self._card_ends.popitem(last=False)
        return Prompt(
            id=id,
            kind=kind,
            text=text,
            options=options,
            command=_text_of(frame, "command"),
            description=_text_of(frame, "description"),
            session=_text_of(frame, "session") or "",
            timeout_seconds=seconds,
            frame=frame,
        )

    def _take_prompt_done(self, frame: Frame) -> Event | None:
        id = _text_of(frame, "id")
        if id is None:
            return Unknown("prompt_done", frame=frame)
        done = PromptDone(
            id, _text_of(frame, "option_id"), frame.get("expired") is True, frame=frame
        )
        self._confirm("prompt_done", id, done)
        return done

    def _take_accepted(self, frame: Frame) -> Event | None:
        id = _text_of(frame, "id")
        if id is None:
            return Unknown("accepted", frame=frame)
        self._confirm("accepted", id, None)
        return Accepted(id, frame=frame)

    def _take_error(self, frame: Frame) -> Event | None:
        error = ServerError(
            code=_text_of(frame, "code") or "internal_error",
            message=_text_of(frame, "message") or "",
            fatal=frame.get("fatal") is True,
            id=_text_of(frame, "id"),
            frame=frame,
        )
        self._refuse(error)
        if error.fatal:
            self._fatal = error
        return error

    def _take_avatar(self, frame: Frame) -> Event | None:
        state = _text_of(frame, "state")
        return Unknown("avatar", frame=frame) if state is None else Avatar(state, frame=frame)

    def _take_typing(self, frame: Frame) -> Event | None:
        return Typing(frame.get("stop") is not True, frame=frame)

    def _take_pong(self, frame: Frame) -> Event | None:
        ts = frame.get("ts")
        now = time.monotonic_ns() // 1_000_000
        sent = _int_of(frame, "ts")
        ours = sent is not None and 0 <= now - sent < 3_600_000
        return Pong(ts, (now - sent) / 1000 if ours and sent is not None else None, frame=frame)

    _READERS: dict[str, Callable[[HermesClient, Frame], Event | None]] = {
        "ready": _take_ready,
        "message": _take_message,
        "prompt": _take_prompt,
        "prompt_done": _take_prompt_done,
        "accepted": _take_accepted,
        "error": _take_error,
        "avatar": _take_avatar,
        "typing": _take_typing,
        "pong": _take_pong,
    }

    # ── files in ──────────────────────────────────────────────────────────────────────────────────

    async def _take_media(self, frame: Frame) -> None:
        self._progressed = True
        id, kind = _text_of(frame, "id"), _text_of(frame, "kind")
        if id is None or kind is None:
            self._emit(Unknown("media", frame=frame))
            return
        if id in self._settled_media:
            return  # said again after a reconnect, or the rest of a file that was refused
        data, url = _text_of(frame, "data"), _text_of(frame, "url")
        if data is None and url is not None:
            self._settled_media.add(id)
            self._emit(self._media(frame, None, _int_of(frame, "size") or 0))
            return
        part, parts = _int_of(frame, "part"), _int_of(frame, "parts")
        part, parts = part if part is not None else 0, parts if parts is not None else 1
        size = _int_of(frame, "size")
        try:
            if data is None:
                raise ValueError("it came without data and without a link")
            if not 1 <= parts <= MAX_MEDIA_PARTS or not 0 <= part < parts:
                raise ValueError(f"part {part} of {parts} cannot be")
            if size is None or size < 0:
                raise ValueError("its size was not said")
            if size > self._max_download:
                raise ValueError(
                    f"it has {size:,} bytes, more than the {self._max_download:,} allowed"
                )
            download = self._download(id, frame, size, parts)
            await asyncio.to_thread(download.write, part, data)
            if not download.whole:
                self._watch(id, download, ended=frame.get("final") is True)
                self._emit(
                    MediaProgress(
                        id, download.filename, download.received, size, frame=download.frame
                    )
                )
                return
            path = await asyncio.to_thread(download.finish)
        except ValueError as error:
            self._fail_media(id, frame, str(error))
            return
        except OSError as error:
            self._fail_media(id, frame, f"it could not be written: {error.strerror or error}")
            return
        del self._downloads[id]
        download.discard()
        self._settled_media.add(id)
        self._emit(self._media(frame, path, size))

    def _download(self, id: str, frame: Frame, size: int, parts: int) -> _Download:
        download = self._downloads.get(id)
        if download is not None and (download.size, download.parts) != (size, parts):
            download.discard()  # the server started over with something else
            download = None
        if download is None:
            download = self._downloads[id] = _Download(self._folder, frame, size, parts)
            if len(self._downloads) > _MAX_DOWNLOADS:
                oldest = next(iter(self._downloads))
                self._fail_media(
                    oldest, self._downloads[oldest].frame, "too many files came at once"
                )
        return download

    def _watch(self, id: str, download: _Download, *, ended: bool) -> None:
        """After the part called final the others must be there; one that a drop swallowed is not
        coming."""
        if download.timer is not None:
            download.timer.cancel()
            ended = True
        if ended:
            download.timer = asyncio.get_running_loop().call_later(
                _HOLE_TIMEOUT,
                lambda: self._fail_media(
                    id, download.frame, f"part {download.missing()} of {download.parts} never came"
                ),
            )

    def _fail_media(self, id: str, frame: Mapping[str, Any], reason: str) -> None:
        download = self._downloads.pop(id, None)
        if download is not None:
            download.discard()
        self._settled_media.add(id)
        name, mime = frame.get("filename"), frame.get("mime")
        filename = _safe_filename(
            name if isinstance(name, str) else "", mime if isinstance(mime, str) else ""
        )
        known = {key: value for key, value in frame.items() if key != "data"}
        self._emit(MediaFailed(id, filename, reason, frame=known))

    def _media(self, frame: Frame, path: Path | None, size: int) -> Media:
        mime = _text_of(frame, "mime") or "application/octet-stream"
        return Media(
            id=frame["id"],
            kind=frame["kind"],
            mime=mime,
            filename=_safe_filename(_text_of(frame, "filename") or "", mime),
            path=path,
            url=_text_of(frame, "url"),
            size=size,
            caption=_text_of(frame, "caption"),
            reply_to=_text_of(frame, "reply_to"),
            frame={name: value for name, value in frame.items() if name != "data"},
        )
