"""What was half written when the process was killed.

An app shows a message without its final frame as being written, for ever if the gateway was killed
meanwhile. So a message is noted in a small private file before its first frame leaves, its text
from time to time, and the next start ends it as it stood.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from pathlib import Path

Texts = dict[str, dict[str, str]]  # chat -> message id -> text


class Unfinished:
    """The file. Safe from any thread; a disk that does not work costs the note, not the message.

    Every call that changes something blocks for a small write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._noted: Texts = {}

    def take(self) -> Texts:
        """What an earlier process left behind; the file is empty from then on."""
        with self._lock:
            try:
                found = json.loads(self._path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                found = {}
            self._noted = {}
            self._write()
        if not isinstance(found, dict):
            return {}
        return {
            str(chat): {str(id): text for id, text in texts.items() if isinstance(text, str)}
            for chat, texts in found.items()
            if isinstance(texts, dict)
        }

    def begun(self, chat: str, message_id: str, text: str) -> None:
        """Called before the first frame leaves: from now on a start ends the message."""
        with self._lock:
            self._noted.setdefault(chat, {})[message_id] = text
            self._write()

    def grown(self, texts: Texts) -> None:
        """The newest texts; one that comes after the message's end changes nothing."""
        with self._lock:
            newer = [
                (noted, id, messages[id])
                for chat, noted in self._noted.items()
                if (messages := texts.get(chat))
                for id in noted
                if id in messages and messages[id] != noted[id]
            ]
            for noted, id, text in newer:
                noted[id] = text
            if newer:
                self._write()

    def finished(self, message_id: str) -> None:
        """Called before the final frame leaves: no later start may end the message again."""
        with self._lock:
            for chat, noted in self._noted.items():
                if noted.pop(message_id, None) is not None:
                    if not noted:
                        del self._noted[chat]
                    self._write()
                    return

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            if not self._noted:
                self._path.unlink(missing_ok=True)
                return
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".unfinished-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(self._noted, file)
                os.replace(temporary, self._path)
            except OSError:
                os.unlink(temporary)  # a full disk is not made fuller by every try
                raise
