"""What tests/adapter/test_abuse.py leaves: compression, hostile pages, HTTP cranks, on sockets."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest

from tests.adapter.raw_client import SETTINGS, TEXT, Place, frame, hello, running, upgrade

MIB = 1024 * 1024


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with running() as place:
        yield place


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits, permessage-deflate",
        "x-webkit-deflate-frame",
    ],
)
async def test_compression_is_not_negotiated(place: Place, offer: str) -> None:
    client = await place.connect()
    client.write(upgrade(Sec_WebSocket_Extensions=offer))
    status, head = await client.head()
    assert status == 101 and b"extensions" not in head.lower()
    client.write(hello())
    assert (await client.json())["t"] == "ready"


@pytest.mark.parametrize("signed_in", [True, False])
async def test_a_compressed_bomb_is_not_unpacked(place: Place, signed_in: bool) -> None:
    other = await place.join("pc")
    client = await place.join() if signed_in else await place.open()
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = squeezed.compress(b"\0" * 100 * MIB) + squeezed.flush(zlib.Z_SYNC_FLUSH)
    raw = frame(bomb, TEXT)
    before = psutil.Process().memory_info().rss
    client.write(bytes([raw[0] | 0x40]) + raw[1:])  # RSV1: "this is compressed"
    if signed_in:  # before `ready` its mere size is too much
        assert (await client.closed())[0] == 1002
        client.hang_up()
    else:
        await client.eof()
    assert psutil.Process().memory_info().rss - before < 16 * MIB
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://127.0.0.1@evil.example"},
        {"Origin": "http://evil.example#127.0.0.1"},
        {"Origin": "http://evil.example", "Host": "evil.example"},
        {"Origin": "http://-[::1]", "Host": "[::1]"},
        {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"},
        {"Origin": ""},
    ],
    ids=str,
)
async def test_a_hostile_page_is_not_let_in(place: Place, headers: dict[str, str]) -> None:
    client = await place.connect()
    client.write(upgrade(host=headers.pop("Host", "127.0.0.1"), **_spelled(headers)))
    status, head = await client.head()
    assert status == 403, head
    await client.eof()


async def test_a_rebound_name_is_no_owners_machine() -> None:
    """DNS rebinding: the page's own name points here now. Its pages and deliveries stay out."""
    async with running(replace(SETTINGS, loopback_deliver=True)) as place:
        device = await place.join()
        for headers in (
            {"host": "evil.example"},
            {"host": "localhost", "Origin": "http://localhost"},
        ):
            client = await place.connect()
            client.write(upgrade(**headers) + hello("pc"))
            status, _ = await client.head()
            if status != 101:
                continue
            assert (await client.json())["t"] == "ready"
            client.send(t="deliver", id="d", target="tel", text="from nobody")
            assert (await client.until("error"))["code"] == "forbidden"
        device.send(t="ping", ts=1)
        assert (await device.json())["t"] == "pong"


@pytest.mark.parametrize(
    "words",
    [
        b"GET /ws HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /ws\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /ws HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 1000,
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /chat/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /chat/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\0" * 5000 + b"\r\n\r\n",
        b"G" * 15_000,
    ],
    ids=lambda words: repr(words[:24]),
)
async def test_what_is_no_upgrade_costs_a_refusal(place: Place, words: bytes) -> None:
    other = await place.join("pc")
    client = await place.connect()
    client.write(words)
    client.writer.write_eof()
    answer = await client.reader.read(65536)
    assert b"root:" not in answer and b" 101 " not in answer and b" 200 " not in answer[:20]
    client.hang_up()
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1


async def test_lengths_that_lie_end_the_connection_and_no_other(place: Place) -> None:
    other = await place.join("pc")
    for size in (33 * MIB, 2**31, 2**63 - 1, 2**64 - 1):
        client = await place.join()
        before = psutil.Process().memory_info().rss
        client.write(bytes([0x81, 0xFF]) + struct.pack("!Q", size) + b"\0\0\0\0" + b"x" * 1000)
        await client.eof()
        assert psutil.Process().memory_info().rss - before < 8 * MIB
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1


async def test_deep_answers_and_keys_cost_their_sender_alone(place: Place) -> None:
    client, other = await place.join(), await place.join("pc")
    deep = {"t": "ack", "id": None}
    raw = json.dumps(deep).replace("null", "[" * 50_000 + "]" * 50_000).encode()
    began = time.process_time()
    for _ in range(20):
        client.write(frame(raw))
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1
    client.send(t="ping", ts=2)
    while (await client.json())["t"] != "pong":
        pass
    assert time.process_time() - began < 5.0  # of work, whatever else the machine does


def _spelled(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}
