"""A file from a device -> what Hermes expects of an attachment.

What an app says about a file is a hint: the first bytes decide the type and the extension, because
a mislabelled container is refused by the model that has to read it. Everything here touches the
disk and runs in a worker thread.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

import filetype

from .protocol import clean_filename

# The largest text document whose content is put into the message for the model.
MAX_INLINE_TEXT_BYTES = 100 * 1024

MessageKind = Literal["text", "photo", "voice", "audio", "video", "document"]

# File systems count a name in bytes, 255 at most, and Hermes puts some of its own in front of it.
MAX_NAME_BYTES = 200
# A longer "extension" is a part of the name behind a full stop.
MAX_SUFFIX_CHARS = 16

# What the extensions of the sniffing library mean where it knows no audio sibling of a container.
_VOICE_EXTENSIONS = {"ogg": ".ogg", "opus": ".ogg", "wav": ".wav"}


class FileRefused(Exception):
    """Hermes did not take the file; the text says why and holds no path."""


@dataclass(frozen=True)
class Attachment:
    """One file as the agent gets it: `text` is the whole message text beside it."""

    kind: MessageKind
    text: str
    path: str
    mime: str


@dataclass(frozen=True)
class Cache:
    """Hermes' functions that store a received file; each returns the path on this machine."""

    image: Callable[..., str]
    audio: Callable[..., str]
    video: Callable[..., str]
    document: Callable[..., str]


def sniff(data: bytes) -> tuple[str, str] | None:
    """MIME type and extension (with its dot) by the bytes; None for what is not recognised."""
    found = filetype.guess(data)
    if found is None:
        return None
    mime, extension = str(found.mime), str(found.extension)
    if mime.startswith("video/") and _ogg_or_webm_audio(data):
        return "audio/" + mime.partition("/")[2], "." + extension
    # The library's names for two of the commonest types are not the registered ones.
    return {"audio/x-wav": "audio/wav", "audio/x-flac": "audio/flac"}.get(
        mime, mime
    ), "." + extension


def _ogg_or_webm_audio(data: bytes) -> bool:
    head = data[:4096]
    if data[:4] == b"OggS":
        return b"OpusHead" in head or b"\x01vorbis" in head
    return (b"A_OPUS" in head or b"A_VORBIS" in head) and b"V_" not in head


def receive(
    kind: str, data: bytes, mime: str, filename: str, voice_format: str, text: str, cache: Cache
) -> Attachment:
    """Store a file of an incoming message. Blocks: call it in a thread.

    `kind` is the frame's: voice, image, video, document or audio; `voice_format` wav or ogg for a
    voice frame; `text` the transcript or caption. Raises `FileRefused`.
    """
    sniffed = sniff(data)
    try:
        if kind == "voice":
            return _voice(data, sniffed, voice_format, text, cache)
        if kind != "document" and sniffed is not None:
            family = sniffed[0].partition("/")[0]
            if family == "image":
                return _image(data, sniffed, filename, text, cache)
            if family == "audio":
                path = cache.audio(data, ext=sniffed[1])
                return Attachment("audio", text, path, sniffed[0])
            if family == "video":
                path = cache.video(data, ext=sniffed[1])
                return Attachment("video", text, path, sniffed[0])
        if kind in ("video", "audio") and sniffed is None and mime.startswith(f"{kind}/"):
            return _unrecognised(kind, data, mime, filename, text, cache)
        return _document(data, sniffed, mime, filename, text, cache)
    except (OSError, ValueError) as error:
        raise FileRefused(f"Hermes could not store the file: {type(error).__name__}") from error


def _voice(
    data: bytes, sniffed: tuple[str, str] | None, voice_format: str, text: str, cache: Cache
) -> Attachment:
    extension = _VOICE_EXTENSIONS.get(voice_format, ".ogg")
    mime = f"audio/{extension[1:]}"
    if sniffed is not None and sniffed[0].startswith("audio/"):
        mime, extension = sniffed
    path = cache.audio(data, ext=extension)
    # With the app's own transcript Hermes must not transcribe again: an audio file, not a voice.
    return Attachment("audio" if text else "voice", text, path, mime)


def _image(
    data: bytes, sniffed: tuple[str, str], filename: str, text: str, cache: Cache
) -> Attachment:
    mime, extension = sniffed
    try:
        return Attachment("photo", text, cache.image(data, ext=extension), mime)
    except ValueError:
        # An image Hermes' models cannot look at (HEIC, PSD, …) is still a file.
        return _document(data, sniffed, mime, filename, text, cache)


def _unrecognised(
    kind: str, data: bytes, mime: str, filename: str, text: str, cache: Cache
) -> Attachment:
    suffix = _suffix(filename).lower() or mimetypes.guess_extension(mime) or ""
    if kind == "video":
        return Attachment("video", text, cache.video(data, ext=suffix or ".mp4"), mime)
    return Attachment("audio", text, cache.audio(data, ext=suffix or ".ogg"), mime)


def _document(
    data: bytes,
    sniffed: tuple[str, str] | None,
    mime: str,
    filename: str,
    text: str,
    cache: Cache,
) -> Attachment:
    name = clean_filename(filename) or "document"
    if sniffed is not None:
        true_mime, extension = sniffed
        # Office files and books are ZIP inside: the name knows more than "zip" does.
        if not (true_mime == "application/zip" and PurePath(name).suffix):
            mime = true_mime
            if not _same_type(name, true_mime, extension):
                name = f"{name}{extension}"
        return Attachment("document", text, cache.document(data, stored_name(name)), mime)
    content = readable(data)
    if content is None:
        # Hermes says of text/* that the model can read the content below: not of this one.
        true = "application/octet-stream" if mime.startswith("text/") else mime
        return Attachment("document", text, cache.document(data, stored_name(name)), true)
    if not PurePath(name).suffix:
        name += mimetypes.guess_extension(mime) or ".txt"
    path = cache.document(data, stored_name(name))
    if len(data) > MAX_INLINE_TEXT_BYTES:
        note = (
            f"[{name} has {len(data)} bytes, too many to be included here: "
            "read it from the path above]"
        )
        return Attachment("document", _joined(note, text), path, _text_mime(mime))
    return Attachment(
        "document", _joined(f"[Content of {name}]:\n{content}", text), path, _text_mime(mime)
    )


def stored_name(name: str) -> str:
    """`name` short enough for a disk, its extension kept."""
    suffix = _suffix(name)
    stem = name[: len(name) - len(suffix)].encode()
    if len(stem) + len(suffix.encode()) <= MAX_NAME_BYTES:
        return name
    return stem[: MAX_NAME_BYTES - len(suffix.encode())].decode(errors="ignore") + suffix


def _suffix(name: str) -> str:
    suffix = PurePath(name).suffix
    return suffix if len(suffix) <= MAX_SUFFIX_CHARS else ""


def readable(data: bytes) -> str | None:
    """The text of a document that a person could read, None for anything binary."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    if any(c < " " and c not in "\t\n\r\f\x1b" for c in text):
        return None
    return text


def _text_mime(mime: str) -> str:
    """Hermes tells the model "its content is included" of text/* alone."""
    return mime if mime.startswith("text/") else "text/plain"


def _joined(first: str, text: str) -> str:
    return f"{first}\n\n{text}" if text else first


def _same_type(name: str, mime: str, extension: str) -> bool:
    suffix = PurePath(name).suffix.lower()
    return suffix == extension or (bool(suffix) and mimetypes.guess_type(name)[0] == mime)


def cache_of(module: Any) -> Cache:
    """Hermes' cache functions, out of the module that has them."""
    return Cache(
        module.cache_image_from_bytes,
        module.cache_audio_from_bytes,
        module.cache_video_from_bytes,
        module.cache_document_from_bytes,
    )
