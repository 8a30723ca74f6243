"""What was half written when the process was killed.

An app shows a message without its final frame as being written, for ever if the gateway was killed
meanwhile. So the texts of unfinished messages are noted in a small private file, and the next start
ends them as they stood.
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
    """The file. Safe from any thread; a disk that does not work costs the note, not the message."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._noted: Texts = {}
        self._over: set[str] = set()  # finished while a note of them was on its way

    def take(self) -> Texts:
        """What an earlier process left behind; the file is empty from then on."""
        with self._lock:
            try:
                found = json.loads(self._path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                found = {}
            self._write({})
        if not isinstance(found, dict):
            return {}
        return {
            str(chat): {str(id): text for id, text in texts.items() if isinstance(text, str)}
            for chat, texts in found.items()
            if isinstance(texts, dict)
        }

    def note(self, texts: Texts) -> None:
        """These messages are unfinished, with these texts. Blocks for a small write."""
        with self._lock:
            left = {
                chat: {id: text for id, text in messages.items() if id not in self._over}
                for chat, messages in texts.items()
            }
            self._over.clear()
            left = {chat: messages for chat, messages in left.items() if messages}
            if left != self._noted:
                self._write(left)

    def finished(self, message_id: str) -> None:
        """Called before the final frame leaves: no later start may end the message again."""
        with self._lock:
            self._over.add(message_id)
            if any(message_id in messages for messages in self._noted.values()):
                left = {
                    chat: {id: text for id, text in messages.items() if id != message_id}
                    for chat, messages in self._noted.items()
                }
                self._write({chat: messages for chat, messages in left.items() if messages})

    def _write(self, texts: Texts) -> None:
        self._noted = texts
        with contextlib.suppress(OSError):
            if not texts:
                self._path.unlink(missing_ok=True)
                return
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".unfinished-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(texts, file)
                os.replace(temporary, self._path)
            except OSError:
                os.unlink(temporary)  # a full disk is not made fuller by every try
                raise
