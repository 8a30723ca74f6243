"""The bad network does what it says: the same for the same seed, and each fault for real."""

from __future__ import annotations

import asyncio

import pytest

from tests.adapter.raw_client import TEXT, frame
from tests.faults.fault_proxy import (
    DOWN,
    ENDS,
    KINDS,
    UP,
    Fault,
    FaultProxy,
    inside_character,
    payload_of,
    plan,
)


def test_a_seed_is_a_plan() -> None:
    assert plan(1, 50) == plan(1, 50) != plan(2, 50)
    assert {fault.kind for fault in plan(3, 10)} == set(KINDS)
    assert {fault.way for fault in plan(3, 50)} == {UP, DOWN}


@pytest.mark.parametrize("hint", range(7))
def test_a_cut_falls_inside_a_character(hint: int) -> None:
    raw = frame("ab早安🙂".encode(), TEXT)
    cut = inside_character(raw, hint)
    start, text = payload_of(raw)
    with pytest.raises(UnicodeDecodeError):
        text[: cut - start].decode()


@pytest.mark.parametrize("way", [UP, DOWN])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "freeze"])
async def test_each_kind_happens_to_an_echo(kind: str, way: str) -> None:
    heard = bytearray()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                heard.extend(piece)
                writer.write(piece)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with FaultProxy(server.sockets[0].getsockname()[1], frames=False) as network:
        network.arm(Fault(kind, way, 0, 0.01))
        reader, writer = await asyncio.open_connection("127.0.0.1", network.port)
        writer.write(b"hello, it is me")
        got = b""
        try:
            async with asyncio.timeout(60):
                while len(got) < 15 and (piece := await reader.read(100)):
                    got += piece
        except (ConnectionError, TimeoutError):
            pass
        await network.quiet()
        if kind in ENDS:
            assert got != b"hello, it is me"
        else:
            assert got == b"hello, it is me"
            # A request that is doubled is one the server hears twice.
            times = 2 if kind == "duplicate" else 1
            async with asyncio.timeout(60):
                while heard.count(b"hello") < times:
                    await network.passed()
            assert heard.count(b"hello") == times
        writer.transport.abort()
    server.close()
