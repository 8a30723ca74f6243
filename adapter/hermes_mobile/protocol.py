"""WebSocket protocol v1: limits, frames, error codes, decoding and encoding.

One JSON object is one frame. This module knows the wire and nothing else: no socket, no clock, no
device. Everything a client can send wrong leaves `decode` as one exception, `ProtocolError`, which
carries the code of the reference's error table and the sentence for the app's author.

Source: protocol v1 reference, `docs/protocol.md`. Section names in docstrings are that document's.
"""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import pybase64

# Limits of the reference, under its names (section "Limits").
PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_TEXT_CHARS: Final = 12_000
MAX_AUDIO_BYTES: Final = 8 * 1024 * 1024
MAX_MEDIA_BYTES: Final = 8 * 1024 * 1024
MEDIA_CHUNK_BYTES: Final = 3 * 1024 * 1024
MIN_MEDIA_CHUNK_BYTES: Final = 4 * 1024
MAX_MEDIA_PARTS: Final = 2048
DEFAULT_CHUNK_LIMIT: Final = 3500
DEFAULT_PROMPT_TTL: Final = 300
MAX_OPEN_UPLOADS: Final = 8
MAX_UPLOAD_BUFFER_BYTES: Final = 8 * 1024 * 1024
HELLO_TIMEOUT: Final = 15.0
TYPING_IDLE: Final = 3.0

MAX_ID_CHARS: Final = 128
MAX_DEVICE_CHARS: Final = 120
MAX_FILENAME_CHARS: Final = 200
# `ping.ts` is echoed as it came; this bounds what an echo may cost.
MAX_TS_BYTES: Final = 1024
# Before `ready` a client has only `hello` to say (section "Handshake").
MAX_HELLO_BYTES: Final = 64 * 1024

# Close codes (section "Closing").
CLOSE_POLICY: Final = 1008
CLOSE_TOO_BIG: Final = 1009
CLOSE_TRY_LATER: Final = 1013
CLOSE_REPLACED: Final = 4001

MEDIA_IN: Final = ("image", "video", "document", "audio")
MEDIA_OUT: Final = ("image", "voice", "video", "document", "animation")
AUDIO_FORMATS: Final = ("wav", "ogg")
PROMPT_KINDS: Final = ("exec_approval", "slash_confirm", "clarify")
AVATAR_STATES: Final = ("idle", "thinking", "speaking")
EXTENSIONS: Final = ("accepted", "partial_edits")

Code = Literal[
    "bad_frame",
    "auth_failed",
    "forbidden",
    "unsupported_frame",
    "too_big",
    "device_offline",
    "auth_required",
    "internal_error",
]
MediaKind = Literal["image", "voice", "video", "document", "animation"]


class ProtocolError(Exception):
    """A client's mistake, or a refusal: becomes one `error` frame (section "Error codes").

    `code` is one of the reference's codes, `message` the sentence for the app's author,
    `frame_id` the id of the frame at fault where it could be read, `fatal` whether the connection
    closes with 1008 and the code as its reason.
    """

    def __init__(
        self, code: Code, message: str, *, frame_id: str | None = None, fatal: bool = False
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Code = code
        self.message = message
        self.frame_id = frame_id[:MAX_ID_CHARS] if frame_id else None
        self.fatal = fatal


# --------------------------------------------------------------------------------------------------
# Frames from the client. `None` in an optional field is absence, as is JSON null.


class HelloDevice(msgspec.Struct, frozen=True):
    """`hello.device`: every string is cut to 120 characters."""

    id: str | None = None
    name: str | None = None
    platform: str | None = None
    app_version: str | None = None


class HelloUser(msgspec.Struct, frozen=True):
    """`hello.user`: how Hermes sees the person."""

    id: str | None = None
    name: str | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="t", tag="hello"):
    """First frame of every connection. `supports` names the additions the client understands."""

    token: str | None = None
    device: HelloDevice | None = None
    user: HelloUser | None = None
    supports: list[str] | None = None


class Text(msgspec.Struct, frozen=True, tag_field="t", tag="text"):
    """A typed message: `text` of 1 to 12,000 characters."""

    id: str | None = None
    text: str | None = None


class Audio(msgspec.Struct, frozen=True, tag_field="t", tag="audio"):
    """A voice recording: `data` in base64, at most 8 MiB decoded; `text` is its transcript."""

    id: str | None = None
    format: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    text: str | None = None


class Media(msgspec.Struct, frozen=True, tag_field="t", tag="media"):
    """One part of one file: part `part` (from 0) of `parts`."""

    id: str | None = None
    kind: str | None = None
    mime: str | None = None
    filename: str | None = None
    caption: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    part: int | None = None
    parts: int | None = None


class Prompt(msgspec.Struct, frozen=True, tag_field="t", tag="prompt"):
    """The answer to a card: an option, a text, or both."""

    prompt_id: str | None = None
    option_id: str | None = None
    text: str | None = None


class Typing(msgspec.Struct, frozen=True, tag_field="t", tag="typing"):
    """The person is typing."""


class Ping(msgspec.Struct, frozen=True, tag_field="t", tag="ping"):
    """Liveness check; `ts` comes back exactly as it was written."""

    ts: msgspec.Raw = msgspec.Raw()


class Ack(msgspec.Struct, frozen=True, tag_field="t", tag="ack"):
    """A receipt of the app; ignored, whatever it holds."""


class DeliverMedia(msgspec.Struct, frozen=True):
    """`deliver.media`: one whole file."""

    kind: str | None = None
    mime: str | None = None
    filename: str | None = None
    caption: str | None = None
    data: msgspec.Raw = msgspec.Raw()


class Deliver(msgspec.Struct, frozen=True, tag_field="t", tag="deliver"):
    """A service delivery (cron, `hermes send`) to `target`, or to the home device."""

    id: str | None = None
    target: str | None = None
    text: str | None = None
    media: DeliverMedia | None = None


ClientFrame = Hello | Text | Audio | Media | Prompt | Typing | Ping | Ack | Deliver

_CLIENT_TYPES: Final[tuple[type[Any], ...]] = (
    Hello, Text, Audio, Media, Prompt, Typing, Ping, Ack, Deliver,
)  # fmt: skip


class _Head(msgspec.Struct):
    """What can be said of a frame whose fields are wrong: its type and its id."""

    t: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    prompt_id: msgspec.Raw = msgspec.Raw()


_decoder: Final = msgspec.json.Decoder(ClientFrame)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_string_decoder: Final = msgspec.json.Decoder(str)
_any_decoder: Final = msgspec.json.Decoder()


def _untagged(frame_type: type[Any]) -> tuple[type[Any], msgspec.json.Decoder[Any]]:
    twin = type(frame_type.__name__, (frame_type,), {}, tag=False, frozen=True)
    return frame_type, msgspec.json.Decoder(twin)


# `t` is case-insensitive, msgspec's tags are not: frames with an unusual spelling of `t` are read
# a second time by the twin of their struct that has no tag.
_by_name: Final = {t.__struct_config__.tag: _untagged(t) for t in _CLIENT_TYPES}


def decode(raw: bytes | bytearray | memoryview | str) -> ClientFrame | None:
    """Read one client frame. None: a frame of an unknown type, to be ignored.

    `raw` is a whole message of at most `MAX_FRAME_BYTES`; a `memoryview` is not copied, and the
    `Raw` fields of the answer point into it: they are valid as long as it is.

    Raises `ProtocolError("bad_frame")` for what is no JSON object in UTF-8, holds a lone surrogate,
    nests too deeply, lacks a string `t`, or has a field of a wrong type.
    """
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError:
        return _decode_unusual(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ProtocolError(
            "bad_frame", f"the frame is not a JSON object in UTF-8: {error}"
        ) from None
    except RecursionError:
        raise ProtocolError("bad_frame", "the frame nests too deeply") from None


def _decode_unusual(raw: bytes | bytearray | memoryview | str) -> ClientFrame | None:
    try:
        head = _head_decoder.decode(raw)
        name = _any_decoder.decode(head.t) if bytes(head.t) else None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ProtocolError(
            "bad_frame", f"the frame is not a JSON object in UTF-8: {error}"
        ) from None
    except RecursionError:
        raise ProtocolError("bad_frame", "the frame nests too deeply") from None
    if not isinstance(name, str):
        raise ProtocolError(
            "bad_frame",
            "the frame has no `t`: a string that names its type",
            frame_id=_readable_id(head.id),
        )
    entry = _by_name.get(name.lower())
    if entry is None:
        return None
    frame_type, twin = entry
    try:
        return frame_type(*msgspec.structs.astuple(twin.decode(raw)))  # type: ignore[no-any-return]
    except msgspec.DecodeError as field_error:
        raise ProtocolError(
            "bad_frame",
            f"`{frame_type.__struct_config__.tag}`: {field_error}",
            frame_id=_readable_id(head.id) or _readable_id(head.prompt_id),
        ) from None


def _readable_id(raw: msgspec.Raw) -> str | None:
    try:
        return _string_decoder.decode(raw)[:MAX_ID_CHARS] or None
    except (msgspec.DecodeError, UnicodeError):
        return None


# --------------------------------------------------------------------------------------------------
# Fields


def required_id(value: str | None, field: str = "id") -> str:
    """A frame's id cut to 128 characters. Raises `bad_frame` when it is missing or empty."""
    if not value:
        raise ProtocolError("bad_frame", f"`{field}` is missing or empty")
    return value[:MAX_ID_CHARS]


def bounded_text(value: str | None, field: str, frame_id: str | None) -> str:
    """`text` or `caption`: at most 12,000 characters; blank is "". Raises `too_big`."""
    if value is None:
        return ""
    if len(value) > MAX_TEXT_CHARS:
        raise ProtocolError(
            "too_big",
            f"`{field}` has {len(value)} characters, the limit is {MAX_TEXT_CHARS}: split it",
            frame_id=frame_id,
        )
    return value if not value.isspace() else ""


def base64_field(raw: msgspec.Raw, field: str, limit: int, frame_id: str | None) -> Base64:
    """Check a base64 field without decoding it; calling the answer decodes it.

    The size is known from the length, so that a limit holds before any memory is spent.
    Raises `bad_frame` for what is missing, empty or no string, `too_big` over `limit` bytes.
    """
    text = memoryview(raw)
    if len(text) < 2 or text[0] != 0x22:
        problem = "is missing" if not len(text) or bytes(text) == b"null" else "is no string"
        raise ProtocolError("bad_frame", f"`{field}` {problem}", frame_id=frame_id)
    return Base64(text[1:-1], field, limit, frame_id)


class Base64:
    """A base64 text whose decoded `size` in bytes is known; calling it decodes."""

    __slots__ = ("_body", "_field", "_frame_id", "size")

    def __init__(
        self, body: memoryview | bytes, field: str, limit: int, frame_id: str | None
    ) -> None:
        if _ESCAPE.search(body):
            # JSON may write `/` as `\/` and any character as \uXXXX.
            body = _unescaped(body, field, frame_id)
        if not body:
            raise ProtocolError("bad_frame", f"`{field}` is empty", frame_id=frame_id)
        self._body = body
        self._field = field
        self._frame_id = frame_id
        padding = bytes(body[-2:]).count(b"=")
        # A length that is no multiple of four is found out by decoding; this keeps the limit.
        self.size = (len(body) + 3) // 4 * 3 - padding
        if self.size > limit:
            raise ProtocolError(
                "too_big",
                f"`{field}` holds {self.size} bytes, the limit is {limit}: compress or split it",
                frame_id=frame_id,
            )

    def __call__(self) -> bytes:
        """The bytes. Raises `bad_frame` outside the standard padded alphabet (RFC 4648, 4)."""
        try:
            return pybase64.b64decode(self._body, validate=True)
        except ValueError:
            raise ProtocolError(
                "bad_frame",
                f"`{self._field}` is not base64 in the standard alphabet with padding",
                frame_id=self._frame_id,
            ) from None


_ESCAPE = re.compile(rb"\\")


def _unescaped(body: memoryview | bytes, field: str, frame_id: str | None) -> bytes:
    try:
        return _string_decoder.decode(b'"' + bytes(body) + b'"').encode()
    except (msgspec.DecodeError, UnicodeError):
        raise ProtocolError("bad_frame", f"`{field}` is no text", frame_id=frame_id) from None


def device_text(value: str | None) -> str:
    """A device or user string: cut to 120 characters, without control characters."""
    if not value:
        return ""
    cut = value[:MAX_DEVICE_CHARS]
    return cut if cut.isprintable() else "".join(c for c in cut if not _is_control(c)).strip()


def device_id(value: str | None) -> str:
    """A device id cut to 120 characters; "" when absent.

    It becomes part of addresses and of Hermes' session keys, so that control characters (and the
    invisible format and line separators), `:` and `/` raise `bad_frame`.
    """
    if value is None:
        return ""
    cut = value[:MAX_DEVICE_CHARS]
    for character in cut:  # before the spaces go: a line break counts as one of them
        if character in ":/" or _is_control(character):
            raise ProtocolError(
                "bad_frame",
                "`device.id` holds a control character, `:` or `/`: it becomes part of addresses",
            )
    return cut.strip()


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}


def clean_filename(value: str | None) -> str:
    """The last component of a name, without control characters, at most 200 characters.

    The extension survives the cut. "" when nothing usable is left.
    """
    if not value:
        return ""
    name = re.split(r"[/\\]", value)[-1]
    name = "".join(c for c in name if not _is_control(c)).strip()
    if name.strip(".") == "":
        return ""
    if len(name) <= MAX_FILENAME_CHARS:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or not stem or len(extension) > 20:
        return name[:MAX_FILENAME_CHARS]
    return stem[: MAX_FILENAME_CHARS - len(extension) - 1] + "." + extension


_MIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")


def mime_type(value: str | None, filename: str) -> str:
    """The MIME type as said, else guessed by the filename, else `application/octet-stream`.

    Parameters (`; charset=…`) are dropped; what does not look like a type counts as absent
    (RFC 6838 section 4.2).
    """
    said = (value or "").partition(";")[0].strip().lower()
    if said and _MIME.fullmatch(said):
        return said
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"


def echoed_ts(raw: msgspec.Raw) -> msgspec.Raw:
    """What `pong` echoes: the bytes of `ping.ts`, `null` when absent.

    Raises `bad_frame` for a value that is longer than `MAX_TS_BYTES` or not well-formed.
    """
    size = len(memoryview(raw))
    if not size:
        return _NULL
    if size > MAX_TS_BYTES:
        raise ProtocolError("bad_frame", f"`ts` is longer than {MAX_TS_BYTES} bytes")
    copy = msgspec.Raw(bytes(raw))
    try:
        # A number that no float holds, a lone surrogate: no client could read the echo.
        _any_decoder.decode(copy)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ProtocolError(
            "bad_frame", "`ts` cannot be echoed: it is no plain JSON value"
        ) from None
    return copy


_NULL: Final = msgspec.Raw(b"null")


def well_formed(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


# --------------------------------------------------------------------------------------------------
# Frames from the server, fields in the order of the reference's tables.


class ReadyDevice(msgspec.Struct, frozen=True):
    """The device as the server sees it."""

    id: str
    name: str


class Capabilities(msgspec.Struct, frozen=True):
    """`ready.capabilities`. `extensions`: what of `hello.supports` is in force here."""

    text: bool = True
    voice: bool = True
    typing: bool = True
    avatar_states: tuple[str, ...] = AVATAR_STATES
    media_in: tuple[str, ...] = MEDIA_IN
    media_out: tuple[str, ...] = MEDIA_OUT
    prompts: tuple[str, ...] = PROMPT_KINDS
    edit: bool = True
    max_media_bytes: int = MAX_MEDIA_BYTES
    max_text_chars: int = MAX_TEXT_CHARS
    extensions: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class Ready(msgspec.Struct, frozen=True, tag_field="t", tag="ready"):
    """The handshake is done; `session` is the device's address in Hermes."""

    v: int
    session: str
    device: ReadyDevice
    avatar_url: str
    capabilities: Capabilities


class Chunk(msgspec.Struct, frozen=True):
    """Which piece of a long text a `message` frame is: `index` from 0."""

    index: int
    total: int


class Message(msgspec.Struct, frozen=True, tag_field="t", tag="message", omit_defaults=True):
    """A piece of an answer. One `id` for all pieces and revisions of one answer."""

    id: str
    text: str
    chunk: Chunk
    final: bool
    edit: bool = False


class MediaOut(msgspec.Struct, frozen=True, tag_field="t", tag="media", omit_defaults=True):
    """A piece of a file; `size` is the whole file's, in bytes."""

    id: str
    kind: MediaKind
    mime: str
    filename: str
    part: int
    parts: int
    final: bool
    size: int
    caption: str | None = None
    data: str | None = None
    url: str | None = None
    reply_to: str | None = None


class Option(msgspec.Struct, frozen=True):
    """A button of a card; `style` is `primary`, `danger` or ""."""

    id: str
    label: str
    style: str = ""


class PromptOut(msgspec.Struct, frozen=True, tag_field="t", tag="prompt", omit_defaults=True):
    """A card. `timeout_seconds` is what remains of its life when the frame leaves."""

    id: str
    kind: Literal["exec_approval", "slash_confirm", "clarify"]
    text: str
    options: tuple[Option, ...]
    session: str
    timeout_seconds: int
    command: str | None = None
    description: str | None = None


class PromptDone(msgspec.Struct, frozen=True, tag_field="t", tag="prompt_done", omit_defaults=True):
    """A card is settled: `option_id` is what was applied."""

    id: str
    option_id: str | None = None
    expired: bool = False


class Avatar(msgspec.Struct, frozen=True, tag_field="t", tag="avatar"):
    """What the agent is doing."""

    state: Literal["idle", "thinking", "speaking"]


class TypingOut(msgspec.Struct, frozen=True, tag_field="t", tag="typing", omit_defaults=True):
    """The agent works; `stop` puts the sign out at once."""

    stop: bool = False


class Pong(msgspec.Struct, frozen=True, tag_field="t", tag="pong"):
    """The answer to `ping`."""

    ts: msgspec.Raw


class Error(msgspec.Struct, frozen=True, tag_field="t", tag="error"):
    """Something was refused; `id` names the frame at fault where that is known."""

    code: Code
    message: str
    fatal: bool
    id: str | msgspec.UnsetType = msgspec.UNSET


class Accepted(msgspec.Struct, frozen=True, tag_field="t", tag="accepted"):
    """Addition `accepted`: the agent has taken the text, audio or media with this id."""

    id: str


ServerFrame = (
    Ready
    | Message
    | MediaOut
    | PromptOut
    | PromptDone
    | Avatar
    | TypingOut
    | Pong
    | Error
    | Accepted
)

# One frame as UTF-8 JSON.
encode: Final[Callable[[ServerFrame], bytes]] = msgspec.json.Encoder().encode


def error_frame(error: ProtocolError) -> bytes:
    """The `error` frame of a `ProtocolError`."""
    return encode(
        Error(
            code=error.code,
            message=error.message,
            fatal=error.fatal,
            id=msgspec.UNSET if error.frame_id is None else error.frame_id,
        )
    )
