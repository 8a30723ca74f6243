"""A file or an address from Hermes -> what the door sends to a device.

Reading is done in a worker thread: a file on a slow disk must not hold up the other devices.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from .inbound_files import sniff
from .protocol import MAX_MEDIA_BYTES, clean_filename

MediaKind = Literal["image", "voice", "video", "document", "animation"]

_DEFAULT_MIME: dict[str, str] = {
    "image": "image/jpeg",
    "voice": "audio/ogg",
    "video": "video/mp4",
    "animation": "image/gif",
    "document": "application/octet-stream",
}
_AUDIO_SUFFIXES = {".ogg", ".opus", ".mp3", ".wav", ".m4a", ".flac", ".aac", ".oga"}


class FileNotSent(Exception):
    """A file cannot be sent; the text, with its path, is for who asked for it on this machine.

    `notice` is for the person at the device and names no path, `why` for the log and names nothing.
    """

    def __init__(self, notice: str, reason: str, why: str) -> None:
        super().__init__(reason)
        self.notice = notice
        self.why = why


async def read(path: str, kind: MediaKind) -> tuple[bytes, str, str]:
    """The bytes, MIME type and name of a file on this machine. Raises `FileNotSent`."""
    name = clean_filename(os.path.basename(path)) or kind
    try:
        data = await asyncio.to_thread(_read, path)
    except _TooBig as error:
        raise FileNotSent(
            f"⚠️ {name} ({_mebibytes(error.size)}) was not sent: "
            f"the limit is {_mebibytes(MAX_MEDIA_BYTES)}.",
            f"{path} has {error.size} bytes, the limit of the protocol is {MAX_MEDIA_BYTES}",
            f"too_big bytes={error.size} limit={MAX_MEDIA_BYTES}",
        ) from None
    except OSError as error:
        raise FileNotSent(
            f"⚠️ {name} was not sent: it could not be read.",
            f"{path}: {error.strerror or error}",
            "unreadable",
        ) from error
    if not data:
        raise FileNotSent(f"⚠️ {name} was not sent: it is empty.", f"{path} is empty", "empty")
    found = sniff(data)
    mime = found[0] if found else mimetypes.guess_type(name)[0] or _DEFAULT_MIME[kind]
    if found and not Path(name).suffix:
        name += found[1]
    return data, mime, name


class _TooBig(Exception):
    def __init__(self, size: int) -> None:
        self.size = size


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_MEDIA_BYTES:
            raise _TooBig(size)
        data = file.read(MAX_MEDIA_BYTES + 1)
    if len(data) > MAX_MEDIA_BYTES:  # it grew, or it is no plain file
        raise _TooBig(len(data))
    return data


def of_url(url: str, kind: MediaKind) -> tuple[str, str]:
    """MIME type and name of a file the device fetches itself."""
    name = clean_filename(unquote(urlsplit(url).path))
    guessed = mimetypes.guess_type(name)[0] if name else None
    fallback = mimetypes.guess_extension(_DEFAULT_MIME[kind]) or ""
    return guessed or _DEFAULT_MIME[kind], name or f"{kind}{fallback}"


def local_path(url: str) -> str | None:
    """The path in a `file://` address or a plain absolute path; None for anything else."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return url if os.path.isabs(url) else None


def kind_of(path: str, *, voice: bool = False, as_document: bool = False) -> MediaKind:
    """What kind a file is sent as, by its name, like Hermes does it."""
    suffix = Path(path).suffix.lower()
    if as_document:
        return "document"
    if voice or suffix in _AUDIO_SUFFIXES:
        return "voice"
    if suffix == ".gif":
        return "animation"
    mime = mimetypes.guess_type(path)[0] or ""
    if mime.startswith("image/") and suffix != ".svg":
        return "image"
    return "video" if mime.startswith("video/") else "document"


def _mebibytes(size: int) -> str:
    return f"{size / 1048576:.1f} MiB".replace(".0 MiB", " MiB")
