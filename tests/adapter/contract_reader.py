"""The least a client has to do with what the door sends; the measure of the server vectors."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

AVATAR_STATES = ("idle", "thinking", "speaking")


@dataclass
class Reader:
    """Takes frames one by one; afterwards its fields are what a person would see."""

    ready: dict[str, Any] | None = None
    avatar: str = "idle"
    typing: bool = False
    pongs: list[Any] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    unknown: int = 0
    bad: int = 0
    _texts: dict[str, tuple[list[str], bool]] = field(default_factory=dict)
    _files: dict[str, tuple[dict[str, Any], dict[int, bytes]]] = field(default_factory=dict)
    _cards: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages with their text so far."""
        return [
            {"id": id, "text": "".join(chunks), "final": final}
            for id, (chunks, final) in self._texts.items()
        ]

    @property
    def files(self) -> list[dict[str, Any]]:
        """The files that are whole."""
        whole = []
        for head, parts in self._files.values():
            shown = {
                name: head[name]
                for name in ("id", "kind", "mime", "filename", "size", "caption", "reply_to")
                if head.get(name) is not None
            }
            if head.get("url") and "data" not in head:
                whole.append({**shown, "url": head["url"]})
            elif len(parts) == head["parts"]:
                data = b"".join(parts[index] for index in range(head["parts"]))
                assert len(data) == head["size"]
                whole.append({**shown, "sha256": hashlib.sha256(data).hexdigest()})
        return whole

    @property
    def cards(self) -> list[dict[str, Any]]:
        """All cards, open or not."""
        return list(self._cards.values())

    def feed(self, raw: str) -> None:
        """Take one message of the connection."""
        try:
            frame = json.loads(raw)
        except ValueError:
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
            self.bad += 1
            return
        frame = {name: value for name, value in frame.items() if value is not None or name == "ts"}
        take = getattr(self, f"_take_{frame['t'].lower()}", None)
        if take is None:
            self.unknown += 1
            return
        try:
            take(frame)
        except (KeyError, TypeError, ValueError):
            self.bad += 1

    def _take_ready(self, frame: dict[str, Any]) -> None:
        self.ready = {
            "session": frame["session"],
            "device": frame["device"]["id"],
            "avatar_url": frame["avatar_url"],
            "extensions": frame["capabilities"].get("extensions", []),
        }

    def _take_message(self, frame: dict[str, Any]) -> None:
        id, index, total = frame["id"], frame["chunk"]["index"], frame["chunk"]["total"]
        if not 0 <= index < total:
            raise ValueError("no such chunk")
        chunks, _ = self._texts.get(id, ([], False))
        chunks = [*chunks[:total], *[""] * (total - len(chunks))]
        chunks[index] = frame["text"]
        self._texts[id] = chunks, frame["final"]

    def _take_media(self, frame: dict[str, Any]) -> None:
        id, part, parts = frame["id"], frame["part"], frame["parts"]
        if not 0 <= part < parts:
            raise ValueError("no such part")
        _, received = self._files.get(id, ({}, {}))
        if "data" in frame:
            received[part] = base64.b64decode(frame["data"], validate=True)
        self._files[id] = frame, received

    def _take_prompt(self, frame: dict[str, Any]) -> None:
        card = {name: value for name, value in frame.items() if name not in ("t", "options")}
        card["options"] = [option["id"] for option in frame["options"]]
        self._cards[frame["id"]] = {**card, "open": True}

    def _take_prompt_done(self, frame: dict[str, Any]) -> None:
        if (card := self._cards.get(frame["id"])) is not None:
            card["open"] = False
            card["option_id"] = frame.get("option_id")
            card["expired"] = frame.get("expired", False)

    def _take_avatar(self, frame: dict[str, Any]) -> None:
        self.avatar = frame["state"] if frame["state"] in AVATAR_STATES else "idle"

    def _take_typing(self, frame: dict[str, Any]) -> None:
        self.typing = not frame.get("stop", False)

    def _take_pong(self, frame: dict[str, Any]) -> None:
        self.pongs.append(frame["ts"])

    def _take_error(self, frame: dict[str, Any]) -> None:
        told = {"code": frame["code"], "fatal": frame["fatal"], "id": frame.get("id")}
        self.errors.append(told)

    def _take_accepted(self, frame: dict[str, Any]) -> None:
        self.accepted.append(frame["id"])
