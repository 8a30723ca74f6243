"""`hermes-client-proxy serve` as a person runs it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hermes_client_proxy.cli import main
from hermes_client_proxy.contract import PREFIX
from tests.proxy.running import PATIENCE, SESSION, until_ended
from tests.proxy.small_hermes import KEY, SmallHermes

ROOT = Path(__file__).parents[2]


class Served:
    """A running `serve`: what it printed, and where it is."""

    def __init__(self, process: asyncio.subprocess.Process, lines: list[str]) -> None:
        self.process = process
        self.lines = lines
        self.url = re.search(r"http\S+?(?=/api)", lines[0])[0]  # type: ignore[index]

    @property
    def link(self) -> str:
        found = re.search(r"http\S+token=\S+", "\n".join(self.lines))
        assert found is not None
        return found[0]


@asynccontextmanager
async def serve(*options: str, lines: int = 2, **env: str) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hermes_client_proxy",
        "serve",
        "--port",
        "0",
        *options,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "proxy"), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            printed = [(await process.stdout.readline()).decode() for _ in range(lines)]
        yield Served(process, printed)
    finally:
        if process.returncode is None:
            process.terminate()
        await until_ended(process)


async def test_it_serves_one_user_after_a_link_that_works_once() -> None:
    async with SmallHermes() as hermes:
        env = {"MNOTE_WEB_HERMES_UPSTREAM_URL": hermes.url, "MNOTE_WEB_HERMES_API_KEY": KEY}
        async with serve(**env) as served, aiohttp.ClientSession() as client:
            async with client.get(f"{served.url}{PREFIX}/models") as answer:
                assert answer.status == 401
            async with client.get(f"{served.url}{PREFIX}/login?token=wrong") as answer:
                assert answer.status == 401
            async with client.get(served.link, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/")
                cookie = answer.headers["Set-Cookie"]
                assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
            async with client.get(served.link, allow_redirects=False) as answer:
                assert answer.status == 401
            headers = {"Cookie": cookie.partition(";")[0]}
            async with client.get(f"{served.url}{PREFIX}/models", headers=headers) as answer:
                assert answer.status == 200


async def test_at_the_end_streams_are_closed_with_a_word_and_nothing_is_aborted() -> None:
    async with SmallHermes() as hermes:
        env = {"MNOTE_WEB_HERMES_UPSTREAM_URL": hermes.url, "MNOTE_WEB_HERMES_API_KEY": KEY}
        async with serve(**env) as served, aiohttp.ClientSession() as client:
            async with client.get(served.link, allow_redirects=False) as answer:
                headers = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
            names = {"workspaceId": "w", "documentId": "doc_1", "sessionId": SESSION}
            async with client.post(
                f"{served.url}{PREFIX}/runs", json={**names, "message": "x"}, headers=headers
            ) as answer:
                run_id = (await answer.json())["runId"]
            path = f"{served.url}{PREFIX}/events/{run_id}?sessionId={SESSION}"
            async with client.get(path, headers=headers) as answer:
                await answer.content.readany()
                served.process.send_signal(signal.SIGTERM)
                rest = await answer.content.read()
            assert b"proxy.closing" in rest and b"retry: " in rest
            assert await until_ended(served.process) == 0
            assert hermes.stops == []
            assert served.process.stderr is not None
            assert await served.process.stderr.read() == b""


async def test_without_an_upstream_it_says_what_to_set() -> None:
    async with serve(lines=3) as served, aiohttp.ClientSession() as client:
        assert "MNOTE_WEB_HERMES_UPSTREAM_URL" in served.lines[1]
        async with client.get(f"{served.url}{PREFIX}/models") as answer:
            assert answer.status == 503
        async with client.get(f"{served.url}{PREFIX}/health") as answer:
            assert (await answer.json())["upstream"] == "unconfigured"


async def test_pages_are_served_on_the_same_origin(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>panel")
    async with serve("--pages", str(tmp_path), lines=3) as served:
        async with aiohttp.ClientSession() as client:
            async with client.get(served.url + "/") as answer:
                assert "panel" in await answer.text()
            async with client.get(f"{served.url}{PREFIX}/nothing") as answer:
                assert (await answer.json())["code"] == "hermes_client_not_found"
            async with client.get(served.url + "/../../etc/passwd") as answer:
                assert answer.status == 404


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"MNOTE_WEB_HERMES_UPSTREAM_URL": "nonsense"}, "MNOTE_WEB_HERMES_UPSTREAM_URL"),
        ({"MNOTE_WEB_AUTH": "jwt", "MNOTE_WEB_HERMES_UPSTREAM_URL": "http://h"}, "MNOTE_WEB_JWT"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(
    env: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert main(["serve", "--port", "0"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("port", ["65536", "-1", "x", "99999999999999999999", "²", ""])
def test_a_port_that_is_none_is_told(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", f"--port={port}"])

    assert ended.value.code == 2 and "from 0 to 65535" in capsys.readouterr().err


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 1

    assert str(port) in capsys.readouterr().err


def test_every_setting_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    assert "MNOTE_WEB_HERMES_API_KEY" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"BREW /api/hermes/client/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405),
        (b"get /api/hermes/client/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405),
        (b"GET /api/hermes/client/models HTTP/9.9\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nContent-Length: abc\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /?x=" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"GET /?x=" + b"y" * 3_000_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 3_000_000 + b"\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500_000, 400),
        (b"G" * 3_000_000, 400),
        (b"{" * 3_000_000, 400),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_what_is_no_http_has_the_error_body_too(raw: bytes, status: int) -> None:
    async with serve(lines=3) as served:
        reader, writer = await asyncio.open_connection(*served.url.partition("//")[2].split(":"))
        writer.write(raw)
        await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    assert head.startswith(b"HTTP/1.1 %d " % status)
    error = json.loads(body)
    assert (error["ok"], error["code"]) == (False, "hermes_client_bad_request")
    assert f"x-trace-id: {error['traceId']}" in head.decode()
    assert f"x-request-id: {error['requestId']}" in head.decode()
