"""Stands between an app and a door, passes everything on, and can be told to spoil it.

A spoiler is a subclass of `Faithful` that does one thing wrong. What it does not touch goes through
as it came: the bytes of a message, the order, the close code and its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import urllib.request
from collections.abc import AsyncIterator, Iterable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response

Raw = str | bytes
_PASSED_HEADERS = ("Origin", "X-Forwarded-For")


class Conversation:
    """One app and its own connection to the door."""

    def __init__(self, app: ServerConnection, door: ClientConnection) -> None:
        self.app = app
        self.door = door
        self.path = ""
        self.hello: dict[str, Any] = {}
        self.ready = False
        self.state: dict[str, Any] = {}
        self.ended = False

    @property
    def device(self) -> str:
        """The device id that the app asked for."""
        found = (self.hello.get("device") or {}).get("id")
        return found if isinstance(found, str) else ""

    def supports(self, name: str) -> bool:
        """Whether the app named this addition."""
        return name in (self.hello.get("supports") or ())

    async def tell(self, *frames: dict[str, Any] | Raw) -> None:
        """Send to the app what the door did not say."""
        with contextlib.suppress(ConnectionClosed):
            for frame in frames:
                await self.app.send(json.dumps(frame) if isinstance(frame, dict) else frame)

    async def end(self, code: int, reason: str = "") -> None:
        """Close towards the app."""
        self.ended = True
        await self.app.close(code, reason)


class Faithful:
    """Passes everything on. One object sees all conversations with a door."""

    compression: str | None = None

    def __init__(self) -> None:
        self.conversations: list[Conversation] = []

    def health(self, body: bytes) -> bytes:
        """What the app gets in place of this answer of `GET /health`."""
        return body

    def address(self, path: str, headers: dict[str, str]) -> str:
        """The path to ask the door for; `headers` may be changed."""
        return path

    async def opened(self, talk: Conversation) -> None:
        """The app is connected."""

    async def inward(self, talk: Conversation, frame: dict[str, Any], raw: Raw) -> Iterable[Any]:
        """What the door gets in place of this message; {} is a message that is no frame."""
        return (raw,)

    async def outward(self, talk: Conversation, frame: dict[str, Any], raw: Raw) -> Iterable[Any]:
        """What the app gets in place of this frame."""
        return (raw,)

    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str] | None:
        """How the door's close is passed on; None: not at all."""
        return code, reason


def error(code: str, id: str | None = None, *, fatal: bool = False) -> dict[str, Any]:
    """An error frame as the door writes it."""
    told = {"t": "error", "code": code, "message": "`text` `parts` `t` are wrong", "fatal": fatal}
    return told if id is None else {**told, "id": id}


@contextlib.asynccontextmanager
async def between(spoiler: Faithful, port: int) -> AsyncIterator[int]:
    """A door at a port of its own whose frames pass the spoiler; `port` is the real door's."""
    lines: dict[ServerConnection, ClientConnection] = {}

    async def upgrade(app: ServerConnection, request: Request) -> Response | None:
        if request.path == "/health":
            body = spoiler.health(await asyncio.to_thread(_health, port))
            return Response(200, "OK", Headers({"Content-Length": str(len(body))}), body)
        headers = {n: request.headers[n] for n in _PASSED_HEADERS if n in request.headers}
        path = spoiler.address(request.path, headers)
        try:
            lines[app] = await connect(
                f"ws://127.0.0.1:{port}{path}",
                additional_headers=headers,
                compression=None,
                max_size=None,
                ping_interval=None,
                proxy=None,
            )
        except InvalidStatus as refused:
            answer = refused.response
            status = http.HTTPStatus(answer.status_code)
            return Response(status.value, status.phrase, Headers(), answer.body or b"")
        return None

    async def handle(app: ServerConnection) -> None:
        talk = Conversation(app, lines.pop(app))
        talk.path = app.request.path if app.request else ""
        spoiler.conversations.append(talk)
        await spoiler.opened(talk)
        pumps = [
            asyncio.create_task(_inward(spoiler, talk)),
            asyncio.create_task(_out(spoiler, talk)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await talk.door.close()
            spoiler.conversations.remove(talk)

    server = await serve(
        handle,
        "127.0.0.1",
        0,
        process_request=upgrade,
        compression=spoiler.compression,
        max_size=None,
        ping_interval=None,
    )
    try:
        yield next(iter(server.sockets)).getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        for line in lines.values():
            await line.close()


def _health(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        return bytes(answer.read())


async def _inward(spoiler: Faithful, talk: Conversation) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for raw in talk.app:
            frame = _frame(raw)
            if not talk.hello and _kind(frame) == "hello":
                talk.hello = frame
            for changed in await spoiler.inward(talk, frame, raw):
                # The door may be closing; why, the app hears from the other direction.
                with contextlib.suppress(ConnectionClosed):
                    await talk.door.send(_written(changed))


async def _out(spoiler: Faithful, talk: Conversation) -> None:
    try:
        async for raw in talk.door:
            frame = _frame(raw)
            talk.ready = talk.ready or frame.get("t") == "ready"
            for changed in await spoiler.outward(talk, frame, raw):
                await talk.app.send(_written(changed))
    except ConnectionClosed:
        pass
    received = talk.door.protocol.close_rcvd
    how = (received.code, received.reason) if received else (1011, "")
    passed = spoiler.closing(talk, *how)
    if passed is None:
        await talk.app.wait_closed()
    elif not talk.ended:
        await talk.app.close(*passed)


def _written(frame: Any) -> Raw:
    return json.dumps(frame, ensure_ascii=False) if isinstance(frame, dict) else frame


def _frame(raw: Raw) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _kind(frame: dict[str, Any]) -> str:
    return str(frame.get("t")).lower()
