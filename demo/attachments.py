"""Describe the files a user sent, from the notes Hermes puts into the user's message.

Hermes gives a model no bytes of a voice message, a video or a document: it saves the file and
writes a note with the path. The offline model runs on the same machine and reads it there.
Pictures come inline, as data URLs.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path

MAX_READ = 64 * 1024 * 1024
"""Largest file that is read for its hash, in bytes."""

# A note is a bracketed paragraph that names an absolute path.
_NOTE = re.compile(r"\[(?=[^\]\n]*/)[^\]\n]*\]")
_PATH = re.compile(
    r"(?:saved at:?|attached at:?|voice message:|path:?|at:)\s*`?(/[^\]\n`]*?)`?"
    r"(?=\. |\.\]|\]| \(duration|, |$)"
)
_KINDS = (
    ("voice message", "voice"),
    ("audio file", "audio"),
    ("video", "video"),
    ("document", "document"),
    ("image", "image"),
    ("file", "document"),
)
# Hermes' cache puts <kind>_<hash>_ in front of a document's own name.
_CACHE_NAME = re.compile(r"^[a-z]+_[0-9a-f]{8,}_(?=.)")


def described(text: str, content: object) -> str | None:
    """One line per received file and its caption, or None when the message carries no file."""
    lines: list[str] = []
    rest = text
    for note in _NOTE.findall(text):
        path = _PATH.search(note)
        if path is None or not (file := Path(path[1])).is_file():
            continue
        lines.append(_line(_kind(note), file.name, file.read_bytes()[:MAX_READ]))
        rest = rest.replace(note, "")
    if not lines:
        lines = [_line("image", "", data, mime) for mime, data in _inline(content)]
    if not lines:
        return None
    caption = _caption(rest)
    return "\n".join(lines) + (f"\ntext: {caption}" if caption else "")


def _kind(note: str) -> str:
    lowered = note.lower()
    return next((kind for word, kind in _KINDS if word in lowered), "document")


def _line(kind: str, name: str, data: bytes, mime: str | None = None) -> str:
    name = _CACHE_NAME.sub("", name)
    mime = mime or mimetypes.guess_type(name)[0] or "application/octet-stream"
    digest = hashlib.sha256(data).hexdigest()
    return f"received {kind}: {name or '-'}, {mime}, {len(data)} bytes, sha256 {digest}"


def _inline(content: object) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, Mapping) or part.get("type") != "image_url":
            continue
        image = part.get("image_url")
        url = image.get("url", "") if isinstance(image, Mapping) else str(image)
        if isinstance(url, str) and url.startswith("data:") and "," in url:
            head, _, data = url.partition(",")
            mime = head.removeprefix("data:").partition(";")[0]
            found.append((mime, base64.b64decode(data)))
    return found


def _caption(rest: str) -> str:
    # The content of a text document follows its note; it is no caption.
    rest = re.sub(r"\[Content of [^\]]*\]:?\n[\s\S]*?(?=\n\n\[|\Z)", "", rest)
    return rest.strip()
