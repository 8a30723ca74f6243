"""Describe the files a user sent, from the notes Hermes puts into the user's message.

Hermes gives a model no bytes of a voice message, a video or a document: it saves the file and
writes a line with its path. The offline model runs on the same machine and reads it there.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

MAX_READ = 64 * 1024 * 1024
"""Most bytes of a file that are read for its hash."""

_MARK = re.compile(r"(?:saved at|attached at|voice message): (?=/)")
# A path may hold brackets and full stops itself: the longest one that is a file counts.
_PATH_END = re.compile(r"(?=\. |\] *$|\]$| \(duration|$)")
_SHOWN_NAME = re.compile(r"(?:document|attachment): '([^']*)'")
_KINDS = (
    ("voice message", "voice"),
    ("audio file", "audio"),
    ("video", "video"),
    ("image", "image"),
)
# What Hermes says in the user's place, and what the device door says of a big text.
_FILLERS = re.compile(
    r"What do you see in this image\?|\(The user sent a message with no text content\)"
    r"|\[[^\]\n]* has \d+ bytes, too many to be included here[^\]\n]*\]"
)


_SYSTEM_NOTE = re.compile(r"\[System note: [^\]]*\]")


@dataclass(frozen=True)
class _Received:
    kind: str
    name: str
    path: Path


def described(message: str) -> str | None:
    """One line per received file and a last one for the caption or transcript.

    None when the message carries no file.
    """
    received: list[_Received] = []
    said: list[str] = []
    for line in message.split("\n"):
        if (found := _note(line)) is not None:
            received.append(found)
        else:
            said.append(line)
    if not received:
        return None
    rest = _SYSTEM_NOTE.sub("", "\n".join(said))
    lines: list[str] = []
    for item in received:
        data = item.path.read_bytes()[:MAX_READ]
        mime = mimetypes.guess_type(item.path.name)[0] or "application/octet-stream"
        mime = mime.replace("audio/x-wav", "audio/wav")
        digest = hashlib.sha256(data).hexdigest()
        lines.append(
            f"received {item.kind}: {item.name}, {mime}, {len(data)} bytes, sha256 {digest}"
        )
        rest = _without_content(rest, data)
    if caption := _FILLERS.sub("", rest).strip():
        lines.append(f"text: {caption}")
    return "\n".join(lines)


def _note(line: str) -> _Received | None:
    mark = _MARK.search(line) if line.startswith("[") else None
    if mark is None:
        return None
    rest = line[mark.end() :]
    ends = sorted({end.start() for end in _PATH_END.finditer(rest)}, reverse=True)
    for end in ends:
        path = Path(rest[:end])
        if _is_file(path):
            kind = next((kind for word, kind in _KINDS if word in line.lower()), "document")
            shown = _SHOWN_NAME.search(line)
            return _Received(kind, shown[1] if shown else path.name, path)
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _without_content(text: str, data: bytes) -> str:
    """The device door puts a text document's content into the message: it is no caption."""
    try:
        content = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        return text
    start = re.search(r"\[Content of [^\n]*\]:\n", text)
    if start is None:
        return text
    before, rest = text[: start.start()], text[start.end() :]
    if rest.rstrip() == content.rstrip():  # Hermes trims a message, the file's last newline too
        return before
    return before + rest.removeprefix(content) if rest.startswith(content) else text
