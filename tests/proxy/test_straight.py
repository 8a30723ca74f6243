"""Written straight or through ``send``: the same bytes, the same bounds."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import RequestResponseCycle as H11Cycle
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from hermes_client_proxy import streams
from hermes_client_proxy.straight import straight_writer
from tests.proxy.running import PATIENCE, SESSION, browsing, serving
from tests.proxy.small_hermes import KEY, SmallHermes
from tests.proxy.test_runs import until

_HEARTBEAT = re.compile(rb": keepalive\n\nevent: heartbeat\ndata: [^\n]*\n\n")


class Transport(asyncio.Transport):
    """Notes what is written."""

    def __init__(self, *, closing: bool = False, broken: bool = False) -> None:
        super().__init__()
        self.written = b""
        self.closing = closing
        self.broken = broken
        self.aborted = False

    def write(self, data: Any) -> None:
        if self.broken:
            raise RuntimeError("this transport is of no use")
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


def answer(transport: Transport, method: str = "GET") -> Any:
    """One answer of uvicorn's."""
    return RequestResponseCycle(
        scope={"type": "http", "method": method, "headers": []},  # type: ignore[typeddict-item]
        transport=transport,
        flow=FlowControl(transport),
        logger=logging.getLogger("test"),
        access_logger=logging.getLogger("test"),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


async def opened(transport: Transport, method: str = "GET", *headers: tuple[bytes, bytes]) -> Any:
    """An answer whose head was sent; what was written of it is forgotten."""
    made = answer(transport, method)
    await made.send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    transport.written = b""
    return made


@pytest.mark.parametrize("data", [b"x", b"data: \xe5\xbd\x93\n\n", b"y" * 70_000])
async def test_a_piece_is_written_as_send_would(data: bytes) -> None:
    straight, plain = Transport(), Transport()
    write = straight_writer((await opened(straight)).send)
    send = (await opened(plain)).send

    assert write is not None and write(data)
    await send({"type": "http.response.body", "body": data, "more_body": True})

    assert straight.written == plain.written != b""


async def test_only_an_open_chunked_answer_of_the_known_server_is_written_straight() -> None:
    made: Any = await opened(Transport())

    async def wrapped(message: Any) -> None:
        await made.send(message)

    class Other(RequestResponseCycle):
        pass

    other: Any = Other.__new__(Other)
    other.__dict__.update(made.__dict__)
    by_h11: Any = H11Cycle.__new__(H11Cycle)
    changed = await opened(Transport())
    del changed.flow

    assert straight_writer(made.send) is not None
    assert straight_writer(wrapped) is None
    assert straight_writer(other.send) is None
    assert straight_writer(made.receive) is None
    assert straight_writer(answer(Transport()).send) is None  # no head yet
    assert straight_writer((await opened(Transport(), "HEAD")).send) is None
    length = (b"content-length", b"5")
    assert straight_writer((await opened(Transport(), "GET", length)).send) is None
    assert straight_writer(changed.send) is None  # another version of the server
    assert straight_writer(by_h11.send) is None


async def test_nothing_is_written_while_send_would_wait_or_the_connection_closes() -> None:
    full = Transport()
    made = await opened(full)
    write = straight_writer(made.send)
    assert write is not None
    made.flow.pause_writing()
    assert not write(b"x") and full.written == b""
    made.flow.resume_writing()
    assert write(b"x") and full.written == b"1\r\nx\r\n"

    closing = Transport()
    write = straight_writer((await opened(closing)).send)
    closing.closing = True
    assert write is not None and not write(b"x") and closing.written == b""


async def test_a_connection_that_cannot_be_written_to_is_given_up_alone() -> None:
    broken = Transport()
    write = straight_writer((await opened(broken)).send)
    broken.broken = True

    assert write is not None and not write(b"x")
    assert broken.aborted


def spied(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many pieces go out straight and how many streams cannot, and the fullest buffer."""
    seen = {"straight": 0, "plain": 0, "buffered": 0}

    def spy(send: Any) -> Callable[[bytes], bool] | None:
        write = straight_writer(send)
        if write is None:
            seen["plain"] += 1
            return None
        transport = send.__self__.transport

        def counted(data: bytes) -> bool:
            done = write(data)
            seen["straight"] += done
            if done:
                seen["buffered"] = max(seen["buffered"], transport.get_write_buffer_size())
            return done

        return counted

    monkeypatch.setattr(streams, "straight_writer", spy)
    return seen


def behind_a_middleware(app: Any) -> Any:
    """*app* in a host that looks at every message."""

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        async def wrapped(message: Any) -> None:
            await send(message)

        await app(scope, receive, wrapped)

    return middleware


async def raw_body(url: str, run_id: str) -> bytes:
    """The chunks of a run's stream put together, heartbeats left out; the framing is checked."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path = f"/api/hermes/client/events/{run_id}?sessionId={SESSION}"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Test-User: ann\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    writer.close()
    return _HEARTBEAT.sub(b"", body)


@pytest.mark.parametrize("replayable", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_every_way_gives_the_same_bytes(
    loop: Callable[[], asyncio.AbstractEventLoop] | None,
    replayable: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = spied(monkeypatch)

    async def scenario() -> None:
        async with (
            SmallHermes(replayable=replayable) as hermes,
            browsing(hermes.url, heartbeat=0.05) as browser,
            serving(behind_a_middleware(browser.app)) as wrapped,
            serving(browser.app, http="h11") as other,
        ):
            run_id = (await browser.start())["runId"]
            runs = browser.app.service.runs
            urls = (browser.url, wrapped, other)
            reading = [asyncio.create_task(raw_body(url, run_id)) for url in urls]
            await until(lambda: runs.streams == 3)
            for number in range(60):
                written = seen["straight"]
                hermes.last.say("message.delta", delta=f"word {number} 当前页 {KEY[:number]}")
                if number % 20 == 7:
                    hermes.last.say("tool.started", tool="t", preview="x" * 90_000)
                if number % 3 == 0:  # sometimes alone, sometimes in company
                    await until(lambda written=written: seen["straight"] > written)
            hermes.last.end(output="done")
            straight, plain, by_h11 = await asyncio.gather(*reading)
            late = await raw_body(browser.url, run_id)

            assert straight == plain == by_h11 == late
            assert straight.count(b"\nid: ") >= 60 and b"run.completed" in straight
            assert KEY.encode() not in straight

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), PATIENCE * 3))
    assert seen["straight"] >= 20 and seen["plain"] == 2


async def test_who_stops_reading_is_bounded_and_cut_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = spied(monkeypatch)
    piece = 50_000
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, slow_reader=1.5, log_bytes=100_000_000) as browser,
    ):
        run_id = (await browser.start())["runId"]
        runs = browser.app.service.runs
        host, port = browser.url.removeprefix("http://").split(":")
        stalled, writer = await asyncio.open_connection(host, int(port), limit=1)
        path = f"/api/hermes/client/events/{run_id}?sessionId={SESSION}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Test-User: ann\r\n\r\n".encode())
        await until(lambda: runs.streams == 1)
        good = asyncio.create_task(raw_body(browser.url, run_id))
        await until(lambda: runs.streams == 2)
        for _ in range(400):
            hermes.last.say("message.delta", delta="x" * piece)
            await asyncio.sleep(0)
        await until(lambda: runs.streams == 1)  # the run goes on: nothing but patience ends it
        hermes.last.end()
        body = await asyncio.wait_for(good, PATIENCE)

        assert body.count(b"x" * piece) == 400 and b"run.completed" in body
        await until(lambda: browser.app.service.counters.streams["slow"] == 1)
        writer.transport.abort()
        assert stalled is not None
    assert seen["straight"] > 0 and seen["plain"] == 0
    assert seen["buffered"] <= HIGH_WATER_LIMIT + 2 * piece
