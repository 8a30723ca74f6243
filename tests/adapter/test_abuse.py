"""Crowds and cranks at the door are bounded in memory, number and time; the owner gets in."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from hermes_mobile import doorstep, server, sockets
from hermes_mobile.hub import MAX_UNAUTHENTICATED
from hermes_mobile.protocol import MAX_HELLO_BYTES

from .raw_client import (
    CONTINUATION,
    PATIENCE,
    TEXT,
    TOKEN,
    Client,
    Place,
    frame,
    hello,
    running,
    upgrade,
)

MIB = 1024 * 1024
CROWD = 700
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with running() as place:
        yield place


@dataclass
class OtherDoor:
    """A door in another process, where nobody is sent away for being slow."""

    port: int
    process: psutil.Process

    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    def work(self) -> float:
        """CPU seconds so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def other_door() -> AsyncIterator[OtherDoor]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.adapter.door_process",
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'adapter'}"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            port = int(await process.stdout.readline())
        yield OtherDoor(port, psutil.Process(process.pid))
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def crowd(port: int, number: int, words: Callable[[int], bytes]) -> list[Client]:
    """Connections that said what `words` gives and stay; those that were thrown out as well."""
    clients = []
    for index in range(number):
        client = await connect(port)
        client.write(words(index))
        clients.append(client)
        if index % 20 == 19:
            await asyncio.sleep(0)
    for client in clients:
        try:
            async with asyncio.timeout(PATIENCE):
                await client.writer.drain()
        except (ConnectionError, TimeoutError):
            pass
    return clients


async def welcome(port: int) -> None:
    """A client that knows the token is let in."""
    client = await connect(port)
    try:
        client.write(upgrade() + hello())
        assert (await client.head())[0] == 101
        assert (await client.json())["t"] == "ready"
    finally:
        client.hang_up()


def announced(size: int) -> bytes:
    """A frame of `size` bytes of which one is missing."""
    return frame(b"x" * size)[:-1]


BIG_HELLO = json.dumps(
    {"t": "hello", "token": "guess", "supports": [f"{n:x}" for n in range(7000)]}
).encode()
DEEP = b'{"t":"hello","token":"guess","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(lambda n: upgrade() + announced(MAX_HELLO_BYTES - 300), id="half a hello"),
        pytest.param(lambda n: upgrade() + announced(2 * MIB), id="far more than a hello"),
        pytest.param(lambda n: upgrade() + frame(BIG_HELLO), id="guesses that are big"),
        pytest.param(lambda n: upgrade() + frame(DEEP), id="deep nonsense"),
        pytest.param(
            lambda n: upgrade()
            + frame(b"{", fin=False)
            + frame(b"x", CONTINUATION, fin=False) * 8000,
            id="fragments",
        ),
        pytest.param(lambda n: upgrade()[:-2] + b"X: " + b"x" * 15_000, id="half an upgrade"),
        pytest.param(lambda n: b"", id="silence"),
    ],
)  # fmt: skip
async def test_a_crowd_costs_little_and_the_owner_gets_in(words: Callable[[int], bytes]) -> None:
    async with other_door() as door:
        await welcome(door.port)
        before = door.memory()
        clients = await crowd(door.port, CROWD, words)
        # Strangers do not go by themselves at this door: who waited for that would wait for ever.
        for _ in range(3):
            await welcome(door.port)
        held = door.memory() - before
        for client in clients:
            client.hang_up()
        assert held < 64 * MIB, f"{held / MIB:.0f} MiB are held for strangers"
        await welcome(door.port)


async def test_strangers_beyond_the_bound_are_told_to_come_later(place: Place) -> None:
    clients = [await place.open() for _ in range(MAX_UNAUTHENTICATED + 10)]
    for client in clients[:10]:
        assert (await client.closed())[:2] == (1013, "too many connections without hello")
        await client.eof()
    clients[10].write(hello())
    assert (await clients[10].json())["t"] == "ready"


async def test_upgrades_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UPGRADE_TIMEOUT", 0.3)
    async with running() as place:
        slow = await place.connect()
        for byte in upgrade()[:40]:
            slow.write(bytes([byte]))
            await asyncio.sleep(0.005)
        await slow.eof()
        assert not place.door._sockets and not place.door.hub.connections


async def test_the_doorstep_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorstep, "MAX_KNOCKING", 5)
    inside = await place.join()
    clients = [await place.connect() for _ in range(12)]
    for client in clients[:7]:
        await client.eof()
    clients[-1].write(upgrade() + hello("pc"))
    assert (await clients[-1].head())[0] == 101
    inside.send(t="ping", ts=1)
    assert (await inside.json())["ts"] == 1


async def test_an_upgrade_request_without_end_is_cut(place: Place) -> None:
    client = await place.connect()
    client.write(b"GET /ws HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)
    await client.eof()


async def test_coming_and_going_leaves_nothing(place: Place) -> None:
    for index in range(600):
        client = await place.connect()
        place.clients.clear()
        if index % 3:
            client.write(upgrade())
        if index % 3 == 2:
            client.write(hello(f"device-{index % 7}"))
        if index % 2:
            await asyncio.sleep(0)
        client.hang_up()
    async with asyncio.timeout(PATIENCE):
        while place.door._sockets or place.door.hub.connections or place.door.hub.devices:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    gc.collect()
    assert len([o for o in gc.get_objects() if isinstance(o, sockets.Socket)]) < 10


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * MIB,
        b'{"t":"text","id":' + b"[" * MIB + b"]" * MIB + b"}",
        b'{"t":"ping","ts":' + b'{"a":' * MIB + b"1" + b"}" * MIB + b"}",
        b'{"t":"hello","supports":[' + b'"a",' * MIB + b'"a"]}',
        b'{"t":"text","id":"a","text":"' + b"\\ud800" * MIB + b'"}',
        b'{"t":"text","id":"a","text":' + b"9" * MIB + b"}",
        b'{"t":"media","id":"a","kind":"image","part":' + b"9" * MIB + b"}",
        b'{"t":"media","id":"a","kind":"image","data":"' + b"\\/" * MIB + b'"}',
        b'{"t":"' + b"x" * MIB + b'"}',
        b'{"' + b'a":1,"' * MIB + b'b":1}',
        b"\x00" * MIB,
    ],
    ids=lambda payload: repr(payload[:30]),
)
async def test_giant_nonsense_of_a_device_costs_an_error(place: Place, payload: bytes) -> None:
    client, other = await place.join(), await place.join("pc")
    began = time.process_time()
    client.write(frame(payload))
    client.send(t="ping", ts=1)
    answers = []
    while (answer := await client.json())["t"] != "pong":
        answers.append(answer["code"])
    assert answers in ([], ["bad_frame"], ["too_big"])
    assert time.process_time() - began < 3.0
    other.send(t="ping", ts=2)
    assert (await other.json())["ts"] == 2


async def test_a_message_of_one_byte_fragments(place: Place) -> None:
    client, other = await place.join(), await place.join("pc")
    whole = json.dumps({"t": "text", "id": "a", "text": "x" * 11_000}).encode()
    parts = [
        frame(whole[n : n + 1], CONTINUATION if n else TEXT, fin=n == len(whole) - 1)
        for n in range(len(whole))
    ]
    client.write(b"".join(parts))
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1
    await place.agent.wait_for(1)
    assert len(place.agent.got[0].text) == 11_000


async def test_every_byte_on_its_own(place: Place) -> None:
    client = await place.connect()
    for byte in upgrade() + hello() + frame(b'{"t":"ping","ts":1}'):
        client.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.head())[0] == 101
    assert (await client.json())["t"] == "ready"
    assert (await client.json())["ts"] == 1


async def test_a_flood_of_frames_holds_up_no_one(place: Place) -> None:
    client, other = await place.join(), await place.join("pc")
    began = time.process_time()
    client.write(frame(b'{"t":"nonsense"}') * 20_000)
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1
    client.send(t="ping", ts=2)
    assert (await client.json())["ts"] == 2
    assert time.process_time() - began < 3.0  # of work, whatever else the machine does


async def test_uploads_are_bounded_and_freed(place: Place) -> None:
    client = await place.join()
    part = "A" * (4 * MIB // 3 // 4 * 4)
    for index in range(12):
        client.send(t="media", id=f"f{index}", kind="video", part=0, parts=3, data=part)
    client.send(t="ping", ts=1)
    codes = []
    while (answer := await client.json())["t"] != "pong":
        codes.append(answer["code"])
    assert codes and set(codes) == {"too_big"}
    device = place.door.hub.devices["tel"]
    assert 0 < device.uploads.size <= 8 * MIB
    client.hang_up()
    async with asyncio.timeout(PATIENCE):
        while place.door.hub.devices:
            await asyncio.sleep(0.01)
    assert device.uploads.size == 0


def test_the_token_of_these_tests_is_long_enough() -> None:
    assert len(TOKEN) >= 16


async def test_memory_is_given_back_after_large_frames() -> None:
    """The reader of a connection keeps the room of its largest frame, not the memory behind it."""
    big = frame(b'{"t":"ack","x":"' + b"x" * (12 * MIB) + b'"}')
    async with other_door() as door:
        clients = [await connect(door.port) for _ in range(10)]
        for number, client in enumerate(clients):
            client.write(upgrade() + hello(f"d{number}"))
            assert (await client.head())[0] == 101
            assert (await client.json())["t"] == "ready"
        before = door.memory()
        for client in clients:
            client.write(big)
            client.send(t="ping", ts=1)
            assert (await client.until("pong"))["ts"] == 1
        grown = door.memory() - before
        for client in clients:
            client.hang_up()
    assert grown < 60 * MIB, "ten readers of 12 MiB and more would hold twice that"
