"""Strangers, cranks and a hostile Hermes before and behind the browser door: all of it bounded."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import resource
import socket
import sys
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web

from hermes_client_proxy.contract import PREFIX
from tests.faults.devices import ROOT
from tests.proxy.running import IDS, SESSION, Browser, browsing, data_of
from tests.proxy.small_hermes import KEY, SmallHermes

MIB = 1024 * 1024
# A deadline tells what never comes from a busy machine; nothing is measured with it.
PATIENCE = 90.0
PATIENT_DOOR = """
from hermes_client_proxy import doorstep
from hermes_client_proxy.cli import main
doorstep.REQUEST_TIMEOUT = doorstep.IDLE_TIMEOUT = doorstep.REST_TIMEOUT = 3600.0
raise SystemExit(main())
"""


@dataclass
class OtherDoor:
    """`hermes-client-proxy serve` in a process of its own, few file descriptors at its disposal.

    Nobody is sent away there for being slow: who waited for strangers to go would wait for ever.
    """

    port: int
    cookie: str
    process: psutil.Process

    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    async def serves_the_owner(self) -> None:
        """The owner gets an answer; a reset is tried again, as browsers do."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self._ask()
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.02)

    async def _ask(self) -> None:
        async with (
            aiohttp.ClientSession(headers={"Cookie": self.cookie}) as client,
            client.get(
                f"http://127.0.0.1:{self.port}{PREFIX}/models",
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer,
        ):
            assert answer.status == 200, await answer.text()


@asynccontextmanager
async def other_door(upstream: str, folder: Path) -> AsyncIterator[OtherDoor]:
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PATIENT_DOOR,
        "serve",
        "--port",
        "0",
        cwd=folder,
        env={
            "PYTHONPATH": f"{ROOT / 'proxy'}",
            "PATH": os.environ["PATH"],
            "MNOTE_WEB_HERMES_UPSTREAM_URL": upstream,
            "MNOTE_WEB_HERMES_API_KEY": KEY,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=few_descriptors,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            found = None
            while found is None:
                line = await process.stdout.readline()
                assert line, "the door did not start"
                found = re.search(rb"http://\S+:(\d+)\S+token=\S+", line)
        async with (
            aiohttp.ClientSession() as client,
            client.get(found[0].decode(), allow_redirects=False) as answer,
        ):
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        yield OtherDoor(int(found[1]), cookie, psutil.Process(process.pid))
    finally:
        process.kill()
        await process.wait()


def talking(port: int, words: bytes) -> socket.socket:
    """A connection that says something and stays; one that was thrown out as well."""
    stranger = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    with suppress(OSError):
        stranger.sendall(words)
    return stranger


CROWD = 700
HEAD = b"POST /api/hermes/client/runs HTTP/1.1\r\nHost: localhost\r\n"
LEGACY = b"POST /api/ai-agent/run HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = b"GET /api/hermes/client/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="silence"),
        pytest.param(HEAD, id="half a head"),
        pytest.param(HEAD + b"X: " + b"x" * 60_000, id="a large half head"),
        pytest.param(HEAD + b"Content-Length: 9\r\n\r\n{", id="half a body"),
        pytest.param(LEGACY + b"Content-Length: 900000\r\n\r\n" + b"{" * 800_000, id="much"),
        pytest.param(WHOLE, id="idle after an answer"),
        pytest.param(WHOLE + b"GET /", id="half a second request"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01" * 20, id="TLS"),
    ],
)
async def test_a_crowd_of_strangers_keeps_nobody_out(words: bytes, tmp_path: Path) -> None:
    async with SmallHermes() as hermes, other_door(hermes.url, tmp_path) as door:
        await door.serves_the_owner()
        before = door.memory()
        crowd = [talking(door.port, words) for _ in range(CROWD)]
        try:
            for _ in range(3):
                await door.serves_the_owner()
            held = door.memory() - before
        finally:
            for stranger in crowd:
                stranger.close()
        assert held < 64 * MIB, f"{held / MIB:.0f} MiB are held for strangers"


async def test_a_head_without_end_is_cut(tmp_path: Path) -> None:
    async with SmallHermes() as hermes, other_door(hermes.url, tmp_path) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        before = door.memory()
        sent = 0
        writer.write(HEAD)
        with pytest.raises(OSError):
            while sent < 64 * MIB:
                writer.write(b"X-More: " + b"y" * 8000 + b"\r\n")
                sent += 8010
                await writer.drain()
                await asyncio.sleep(0)
        assert door.memory() - before < 8 * MIB
        await door.serves_the_owner()
        del reader


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(b"\0" * 50 * MIB)),
        ({"Content-Encoding": "deflate"}, zlib.compress(b'{"message":"' + b"x" * 20 * MIB + b'"}')),
        ({}, b"[" * 900_000),
        ({}, b'{"message":' + b"[" * 400_000 + b"]" * 400_000 + b"}"),
        ({}, b'{"a":' * 150_000 + b"1" + b"}" * 150_000),
        ({}, b'{"message":' + b"9" * 900_000 + b"}"),
        ({}, b'{"' + b'a":1,"' * 150_000 + b'b":1}'),
        ({}, b'{"message":"' + b"\\ud800" * 150_000 + b'"}'),
    ],
    ids=["gzip", "deflate", "brackets", "deep", "deep objects", "digits", "many keys", "halves"],
)
async def test_a_body_that_is_a_bomb_costs_an_error(headers: dict[str, str], body: bytes) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        before = psutil.Process().memory_info().rss
        began = time.process_time()
        async with browser.request(
            "POST", "/runs", data=body, headers={"Content-Type": "application/json", **headers}
        ) as answer:
            assert answer.status in (400, 415)
            assert len(await answer.read()) < 2000
        assert time.process_time() - began < 3.0  # of work, whatever else the machine does
        assert psutil.Process().memory_info().rss - before < 48 * MIB
        await browser.ask("GET", "/models")
        assert not hermes.runs


# A hostile Hermes

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def bomb(request: web.Request) -> web.Response:
    """100 MiB of zeros in some 100 KiB."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = b"\0" * MIB
    body = b"".join(squeezed.compress(piece) for _ in range(100)) + squeezed.flush()
    kind = "text/event-stream" if "events" in request.path else "application/json"
    return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": kind})


async def test_answers_that_are_bombs_are_not_unpacked_without_end() -> None:
    async def bombs(request: web.Request) -> web.StreamResponse:
        return bomb(request)

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.ask("GET", "/models")
        hermes.answers["GET /v1/models"] = bombs
        before = psutil.Process().memory_info().rss
        body = await browser.ask("GET", "/models", 502)
        assert body["code"] == "hermes_client_upstream_unavailable"
        # The bomb itself is made in this process too.
        assert psutil.Process().memory_info().rss - before < 64 * MIB
        hermes.answers.clear()
        await browser.ask("GET", "/models")


async def endless_line(answer: web.StreamResponse) -> None:
    await answer.write(b"data: ")
    for _ in range(40):
        await answer.write(b"x" * MIB)


async def endless_fields(answer: web.StreamResponse) -> None:
    for _ in range(40):
        await answer.write(b"data: " + b"x" * 1000 + b"\n" + b"id: 1\n" * 100_000)


async def many_megabytes(answer: web.StreamResponse) -> None:
    text = json.dumps({"event": "tool.completed", "result": "y" * MIB}).encode()
    for number in range(40):
        await answer.write(b"id: %d\ndata: " % number + text + b"\n\n")


async def deep_events(answer: web.StreamResponse) -> None:
    for number in range(20):
        deep = b'{"event":"x","a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        await answer.write(b"id: %d\ndata: " % number + deep + b"\n\n")


async def one_byte_at_a_time(answer: web.StreamResponse) -> None:
    for byte in (
        b'id: 0\ndata: {"event":"message.delta","delta":"' + "当".encode() * 300 + b'"}\n\n'
    ):
        await answer.write(bytes([byte]))


async def comments(answer: web.StreamResponse) -> None:
    for _ in range(40):
        await answer.write(b":" * 1000 + b"\n" + b"\n" * 500_000)


@pytest.mark.parametrize(
    "words",
    [endless_line, endless_fields, many_megabytes, deep_events, one_byte_at_a_time, comments],
    ids=lambda words: words.__name__,
)
async def test_a_hostile_stream_is_bounded_and_another_user_waits_for_nothing(words: Any) -> None:
    streams = 0
    answered: list[int] = []
    over = asyncio.Event()

    async def bob_asks(browser: Browser) -> None:
        while not over.is_set():
            async with asyncio.timeout(PATIENCE):
                await browser.ask("GET", "/models", user="bob")
            answered.append(streams)

    async def hostile(request: web.Request) -> web.StreamResponse:
        nonlocal streams
        streams += 1
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        try:
            await words(answer)
        except ConnectionError:
            pass
        run = hermes.last
        run.status.update(status="completed", output="the end")
        return answer

    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        await browser.ask("GET", "/models", user="bob")
        hermes.answers["GET /v1/runs/*/events"] = hostile
        before = psutil.Process().memory_info().rss
        asking = asyncio.create_task(bob_asks(browser))
        events = data_of(await browser.read((await browser.start())["runId"]))
        over.set()
        await asking
        held = psutil.Process().memory_info().rss - before
    assert events[-1]["event"] == "run.completed" and events[-1]["output"] == "the end"
    assert any(answered), "bob heard nothing once the stream had begun"
    assert held < 160 * MIB, f"{held / MIB:.0f} MiB"
    assert streams <= 6


async def test_the_key_leaves_in_no_form_however_the_network_cuts_it() -> None:
    async def echoes(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Echo": KEY, "Set-Cookie": f"k={KEY}"}
        )
        await answer.prepare(request)
        lines = [
            f"id: {KEY}\nevent: {KEY}\ndata: " + json.dumps({"event": KEY, KEY: KEY}),
            *(
                f"id: {n}\ndata: " + json.dumps({"event": "message.delta", "delta": letter})
                for n, letter in enumerate(f"the key is {KEY}, is it not?")
            ),
            "id: 99\ndata: " + json.dumps({"event": "tool.started", "tool": KEY, "args": {KEY: 1}}),
            f"id: 100\ndata: {{{KEY}",
            f": {KEY}",
        ]
        for byte in "\n\n".join([*lines, ""]).encode():
            await answer.write(bytes([byte]))
        hermes.last.status.update(status="failed", error=KEY, output=f"no {KEY}")
        return answer

    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = echoes
        run_id = (await browser.start())["runId"]
        async with browser.request("GET", f"/events/{run_id}?sessionId={SESSION}") as answer:
            raw = await answer.read()
            heads = str(answer.headers)
    assert KEY.encode() not in raw and KEY not in heads
    said = "".join(
        json.loads(line[6:]).get("delta", "")
        for line in raw.decode().splitlines()
        if line.startswith("data: ")
    )
    assert KEY not in said and said.startswith("the key is ") and said.endswith("is it not?")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost", "Origin": "http://localhost.evil.example"},
        {"Host": "[::1]", "Origin": "http://-[::1]"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example", "X-Forwarded-Host": "localhost"},
    ],
    ids=str,
)
async def test_a_hostile_page_gets_nothing(headers: dict[str, str]) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask(
            "POST",
            "/runs",
            403,
            json={**IDS, "sessionId": SESSION, "message": "x"},
            headers=headers,
        )
        assert body["code"] == "hermes_client_forbidden"
        assert not hermes.seen and not hermes.runs
