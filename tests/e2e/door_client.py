"""A small raw client of the device door for tests: frames as they are on the wire."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, Self
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect

Frame = dict[str, Any]
PATIENCE = 120.0


class DoorClient:
    """One signed-in device. Every frame it ever got is in `frames`, oldest first."""

    def __init__(self, url: str, token: str, device: str, supports: Iterable[str] = ()) -> None:
        self.url, self.token, self.device = url, token, device
        self.supports = list(supports)
        self.frames: list[Frame] = []
        self._more = asyncio.Condition()
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def open(self) -> Frame:
        """Connect and say hello; the `ready` frame."""
        self._socket = await connect(self.url, max_size=None, compression=None, proxy=None)
        mark = len(self.frames)
        self._reader = asyncio.create_task(self._read(self._socket))
        hello: Frame = {"t": "hello", "token": self.token, "device": {"id": self.device}}
        if self.supports:
            hello["supports"] = self.supports
        await self.send(hello)
        return await self.wait(lambda f: f["t"] in ("ready", "error"), since=mark)

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self, socket: ClientConnection) -> None:
        async for raw in socket:
            async with self._more:
                self.frames.append(json.loads(raw))
                self._more.notify_all()

    async def send(self, frame: Frame) -> None:
        assert self._socket is not None
        await self._socket.send(json.dumps(frame))

    async def text(self, text: str, id: str | None = None) -> str:
        """Send a text; its id."""
        id = id or uuid4().hex
        await self.send({"t": "text", "id": id, "text": text})
        return id

    async def file(self, frame: Frame, data: bytes) -> None:
        """Send an audio or media frame with `data`."""
        await self.send({"id": uuid4().hex, **frame, "data": base64.b64encode(data).decode()})

    async def answer(
        self, prompt: Frame, option: str | None = None, text: str | None = None
    ) -> None:
        """Answer a card."""
        frame: Frame = {"t": "prompt", "prompt_id": prompt["id"]}
        if option is not None:
            frame["option_id"] = option
        if text is not None:
            frame["text"] = text
        await self.send(frame)

    async def wait(self, wanted: Callable[[Frame], bool], *, since: int = 0) -> Frame:
        """The first frame from number `since` on that is wanted, now or when it comes."""

        def found() -> Frame | None:
            return next((f for f in self.frames[since:] if wanted(f)), None)

        try:
            async with self._more, asyncio.timeout(PATIENCE):
                await self._more.wait_for(lambda: found() is not None)
        except TimeoutError:
            got = "\n".join(json.dumps(f)[:200] for f in self.frames[since:])
            raise AssertionError(f"the frame did not come; since then there were:\n{got}") from None
        frame = found()
        assert frame is not None
        return frame

    async def message(self, part: str, *, since: int = 0) -> Frame:
        """The last frame of a finished message whose whole text holds `part`."""
        return await self.wait(
            lambda f: f["t"] == "message" and f["final"] and part in self.texts(since)[f["id"]],
            since=since,
        )

    async def idle(self, *, since: int = 0) -> Frame:
        """The end of a turn."""
        return await self.wait(lambda f: f["t"] == "avatar" and f["state"] == "idle", since=since)

    async def rest(self, *, since: int = 0) -> None:
        """A turn has ended since, and now an app would show nobody writing, typing or thinking.

        An interrupted turn may end before the next one begins: one end need not be the last.
        """
        await self.idle(since=since)
        await self.wait(
            lambda _: (self.typing, self.avatar) == (False, "idle") and not self.unfinished()
        )

    async def prompt(self, *, since: int = 0, **fields: Any) -> Frame:
        """A card with these fields."""
        return await self.wait(
            lambda f: f["t"] == "prompt" and all(f.get(k) == v for k, v in fields.items()),
            since=since,
        )

    async def done(self, prompt: Frame) -> Frame:
        """The end of a card."""
        return await self.wait(lambda f: f["t"] == "prompt_done" and f["id"] == prompt["id"])

    def texts(self, since: int = 0) -> dict[str, str]:
        """The messages as an app shows them: id -> text, in order of their first frame."""
        chunks: dict[str, dict[int, str]] = {}
        for frame in self.frames[since:]:
            if frame["t"] == "message":
                pieces = chunks.setdefault(frame["id"], {})
                pieces[frame["chunk"]["index"]] = frame["text"]
                for index in [i for i in pieces if i >= frame["chunk"]["total"]]:
                    del pieces[index]
        return {id: "".join(p[i] for i in sorted(p)) for id, p in chunks.items()}

    def unfinished(self) -> list[str]:
        """Messages whose last frame is not final: an app would show them as being written."""
        last = {f["id"]: f for f in self.frames if f["t"] == "message"}
        return [id for id, frame in last.items() if not frame["final"]]

    def changed_after_end(self) -> list[str]:
        """Messages with a frame behind their final one."""
        ended: set[str] = set()
        changed = []
        for frame in self.frames:
            if frame["t"] == "message":
                if frame["id"] in ended:
                    changed.append(frame["id"])
                if frame["final"]:
                    ended.add(frame["id"])
        return changed

    @property
    def typing(self) -> bool:
        """Whether an app would show the typing sign."""
        last = [f for f in self.frames if f["t"] == "typing"]
        return bool(last) and not last[-1].get("stop", False)

    @property
    def avatar(self) -> str:
        states = [f["state"] for f in self.frames if f["t"] == "avatar"]
        return states[-1] if states else "idle"
