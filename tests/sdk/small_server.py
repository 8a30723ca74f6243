"""A server that speaks just enough of protocol v1 for the client's tests.

Each test says what happens after `ready` by giving a handler; everything the client sends is kept
in `frames`. To try something new, write another handler: it gets the connection, may send any
frame with `connection.say(...)`, take the client's next with `connection.hear()`, and end the
connection by returning (close 1000), by `connection.close(code, reason)` or `connection.cut()`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

T = TypeVar("T")
Frame = dict[str, Any]
Handler = Callable[["Connection"], Awaitable[None]]

TOKEN = "a-token-of-the-tests"


class Connection:
    """The server's end of one connection; `number` counts from 1."""

    def __init__(self, server: SmallServer, socket: ServerConnection, number: int) -> None:
        self.server = server
        self.socket = socket
        self.number = number

    async def say(self, t: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"t": t, **fields}))

    async def raw(self, message: str | bytes) -> None:
        await self.socket.send(message)

    async def hear(self, *types: str) -> Frame:
        """The client's next frame of these types (any but heartbeats if none is named)."""
        while True:
            frame: Frame = json.loads(await self.socket.recv())
            self.server.frames.append(frame)
            if frame["t"] in types or (not types and frame["t"] != "ping"):
                return frame
            if frame["t"] == "ping":
                await self.say("pong", ts=frame["ts"])

    async def accept_all(self) -> None:
        """Say `accepted` to every message until the client leaves."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                frame = await self.hear("text", "audio", "media")
                if frame.get("part", 0) == frame.get("parts", 1) - 1:
                    await self.say("accepted", id=frame["id"])

    async def close(self, code: int, reason: str = "") -> None:
        await self.socket.close(code, reason)

    def cut(self) -> None:
        """End the connection as a lost network does: without a word."""
        self.socket.transport.abort()


class SmallServer:
    """Start with `running`; `url` is where it listens."""

    def __init__(self, handler: Handler, *, extensions: tuple[str, ...] = ("accepted",)) -> None:
        self.handler = handler
        self.extensions = extensions
        self.frames: list[Frame] = []
        self.hellos: list[Frame] = []
        self.count = 0
        self.url = ""
        self.max_text_chars = 12_000
        self.max_media_bytes = 8 * 1024 * 1024

    def of(self, *types: str) -> list[Frame]:
        return [frame for frame in self.frames if frame["t"] in types]

    async def _serve(self, socket: ServerConnection) -> None:
        self.count += 1
        connection = Connection(self, socket, self.count)
        with contextlib.suppress(ConnectionClosed):
            hello = await connection.hear("hello")
            self.hellos.append(hello)
            await self.greet(connection, hello)

    async def greet(self, connection: Connection, hello: Frame) -> None:
        if hello["token"] != TOKEN:
            await connection.say("error", code="auth_failed", message="wrong token", fatal=True)
            await connection.close(1008, "auth_failed")
            return
        device = hello["device"].get("id", "dev-5e7f")
        await connection.say(
            "ready",
            v=1,
            session=f"mobile:{device}",
            device={"id": device, "name": "Test"},
            avatar_url="",
            capabilities={
                "media_in": ["image", "video", "document", "audio"],
                "max_text_chars": self.max_text_chars,
                "max_media_bytes": self.max_media_bytes,
                "edit": True,
                "extensions": list(self.extensions),
            },
        )
        await self.handler(connection)


@contextlib.asynccontextmanager
async def running(
    server: SmallServer, *, max_size: int = 17 * 1024 * 1024
) -> AsyncIterator[SmallServer]:
    async with serve(
        server._serve,
        "127.0.0.1",
        0,
        compression=None,
        max_size=max_size,
        ping_interval=None,
        close_timeout=1,
    ) as listening:
        port = listening.sockets[0].getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}/ws"
        yield server


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    *,
    extensions: tuple[str, ...] = ("accepted",),
    max_size: int = 17 * 1024 * 1024,
) -> AsyncIterator[SmallServer]:
    async with running(SmallServer(handler, extensions=extensions), max_size=max_size) as server:
        yield server


def media_frames(data: bytes, *, id: str = "f-1", parts: int = 1, **fields: Any) -> list[Frame]:
    """The frames of one file of the agent, cut into equal parts."""
    step = -(-len(data) // parts) or 1
    return [
        {
            "t": "media",
            "id": id,
            "kind": "document",
            "mime": "application/octet-stream",
            "filename": "data.bin",
            "part": part,
            "parts": parts,
            "final": part == parts - 1,
            "size": len(data),
            "data": base64.b64encode(data[part * step : (part + 1) * step]).decode(),
            **fields,
        }
        for part in range(parts)
    ]


async def stay(connection: Connection) -> None:
    """A handler that listens until the client leaves."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await connection.hear()


async def within(awaitable: Awaitable[T], seconds: float = 60) -> T:
    """A bound for what must end by itself."""
    return await asyncio.wait_for(awaitable, seconds)
