"""A WebSocket client with its hands on every byte, and a door for it, for the socket tests."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hermes_mobile.server import Answered, Card, Door, Incoming
from hermes_mobile.settings import Settings

TOKEN = "token-of-these-tests"
SETTINGS = Settings(
    port=0,
    token=TOKEN,
    extra_tokens=((None, "second-token"),),
    deliver_tokens=("deliver-token",),
)
# A deadline tells what never comes from a busy machine; nothing is measured with it.
PATIENCE = 60.0
TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """A masked client frame (RFC 6455 section 5.2); the mask is zero."""
    head = bytes([(0x80 if fin else 0) | opcode])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + b"\0\0\0\0" + payload


def upgrade(path: str = "/ws", host: str = "127.0.0.1", **headers: str) -> bytes:
    """The head of an upgrade request; an underscore in a name stands for a hyphen."""
    lines = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = f"GET {path} HTTP/1.1\r\n"
    return (head + "".join(f"{n}: {v}\r\n" for n, v in lines.items()) + "\r\n").encode()


def hello(device: str = "tel", token: str = TOKEN, **more: Any) -> bytes:
    return frame(
        json.dumps({"t": "hello", "token": token, "device": {"id": device}, **more}).encode()
    )


class Client:
    """One connection. Everything that waits is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, **fields: Any) -> None:
        self.write(frame(json.dumps(fields).encode()))

    async def head(self) -> tuple[int, bytes]:
        """The HTTP answer: its status and its head."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), head

    async def read(self) -> tuple[int, bytes]:
        """The next frame of the server: opcode and payload."""
        async with asyncio.timeout(PATIENCE):
            first, size = await self.reader.readexactly(2)
            assert not size & 0x80, "a server does not mask"
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(size)

    async def json(self) -> dict[str, Any]:
        """The next frame that is no control frame."""
        while True:
            opcode, payload = await self.read()
            assert opcode != CLOSE, payload
            if opcode == TEXT:
                found: dict[str, Any] = json.loads(payload)
                return found

    async def until(self, kind: str) -> dict[str, Any]:
        while (found := await self.json())["t"] != kind:
            pass
        return found

    async def closed(self) -> tuple[int, str, list[dict[str, Any]]]:
        """The close code, its reason, and what was said before."""
        before: list[dict[str, Any]] = []
        while True:
            opcode, payload = await self.read()
            if opcode == CLOSE:
                code = struct.unpack("!H", payload[:2])[0] if payload else 1005
                return code, payload[2:].decode(), before
            if opcode == TEXT:
                before.append(json.loads(payload))

    async def eof(self) -> None:
        """Wait for the end of the TCP connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass

    def hang_up(self) -> None:
        self.writer.transport.abort()


@dataclass
class Recorder:
    """An agent that notes what it gets. `fails`: it takes nothing."""

    got: list[Incoming] = field(default_factory=list)
    answers: list[tuple[str, str | None]] = field(default_factory=list)
    fails: BaseException | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, incoming: Incoming) -> None:
        if self.fails is not None:
            raise self.fails
        self.got.append(incoming)
        self.came.set()

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        if self.fails is not None:
            raise self.fails
        self.answers.append((option_id, text))
        return Answered(True)

    async def expired(self, card: Card) -> None:
        pass

    async def wait_for(self, number: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.got) < number:
                self.came.clear()
                await self.came.wait()


@dataclass
class Place:
    """A running door with its agent; clients end with it."""

    door: Door
    agent: Recorder
    clients: list[Client] = field(default_factory=list)

    async def connect(self, host: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection(host, self.door.port, limit=32 * 1024 * 1024)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def open(self, **headers: str) -> Client:
        """A connection after the upgrade."""
        client = await self.connect()
        client.write(upgrade(**headers))
        status, head = await client.head()
        assert status == 101, head
        return client

    async def join(self, device: str = "tel", token: str = TOKEN, **more: Any) -> Client:
        """A connection after `ready`."""
        client = await self.open()
        client.write(hello(device, token, **more))
        assert (await client.json())["t"] == "ready"
        return client


@asynccontextmanager
async def running(settings: Settings = SETTINGS, **more: Any) -> AsyncIterator[Place]:
    agent = Recorder()
    door = Door(settings, agent, **more)
    await door.start()
    place = Place(door, agent)
    try:
        yield place
    finally:
        for client in place.clients:
            client.hang_up()
        await door.stop()
