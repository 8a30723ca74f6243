"""One reader per run, any number of watchers, and a truthful end whatever breaks."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import weakref
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hermes_client_proxy.events import UNREACHABLE
from tests.proxy.running import (
    IDS,
    PATIENCE,
    SESSION,
    Browser,
    browsing,
    data_of,
    kinds_of,
)
from tests.proxy.small_hermes import KEY, SmallHermes, error, message_row, session_row

BOTH = pytest.mark.parametrize("replayable", [False, True], ids=["basic", "replayable"])
SESSION_IDS = {**IDS, "sessionId": SESSION}


async def until(condition: Any) -> None:
    """Waits for something that is about to come true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


async def collect(browser: Browser, run_id: str, count: int) -> list[Any]:
    """The first *count* contract events; then the reader leaves."""
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE), browser.events(run_id) as events:
        async for event in events:
            if not event.event:
                found.append(event)
                if len(found) == count:
                    break
    return found


@BOTH
async def test_the_reader_opens_at_once_and_events_are_the_contracts(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        started = await browser.start(body={"traceId": "trace_1", "model": "m1"})
        assert started == {
            "ok": True,
            "sessionId": SESSION,
            "runId": "run_0001",
            "messageId": None,
            "events": [],
            "traceId": "trace_1",
        }
        await until(lambda: hermes.last.opened == 1)
        assert hermes.last.body["input"] == "hello" and hermes.last.body["model"] == "m1"
        hermes.last.say("message.delta", delta="当前页")
        hermes.last.say("strange.kind", more=[1])
        hermes.last.end(output="done", usage={"input_tokens": 0, "output_tokens": 0})

        events = await browser.read("run_0001")

        assert data_of(events)[0] == {
            "event": "message.delta",
            "run_id": "run_0001",
            "session_id": SESSION,
            "timestamp": 1,
            "delta": "当前页",
        }
        assert kinds_of(events) == ["message.delta", "strange.kind", "run.completed"]
        assert data_of(events)[2]["usage"]["total_tokens"] is None
        assert all(event.id for event in events)


async def test_the_stream_has_the_headers_that_proxies_need_and_a_first_byte_at_once() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, heartbeat=0.05) as browser:
        run_id = (await browser.start())["runId"]
        path = f"/events/{run_id}?sessionId={SESSION}"
        async with browser.request("GET", path, headers={"Accept-Encoding": "gzip, br"}) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["Cache-Control"] == "no-cache, no-transform"
            assert answer.headers["X-Accel-Buffering"] == "no"
            assert "Content-Encoding" not in answer.headers
            first = await answer.content.readany()
            assert b"\n: keepalive\n" in first and b"event: heartbeat\ndata: {" in first
            assert b"id:" not in first
            for _ in range(3):
                assert b"event: heartbeat" in await answer.content.readany()
            hermes.last.end()


@BOTH
@pytest.mark.parametrize("size", [70_000, 250_000, 1_000_000])
async def test_a_head_and_many_events_may_come_in_one_piece(replayable: bool, size: int) -> None:
    event = json.dumps({"event": "message.delta", "delta": "x" * 900})
    ids = (f"id: {number}\n" if replayable else "" for number in range(size // 1000))
    words = "".join(f"{id}data: {event}\n\n" for id in ids)

    async def at_once(request: web.Request) -> web.StreamResponse:
        end = json.dumps({"event": "run.completed", "output": "x"})
        body = f": open\n\n{words}data: {end}\n\n".encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        assert request.transport is not None
        request.transport.write(head + body)
        request.transport.close()
        return web.Response()

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = at_once
        run_id = (await browser.start())["runId"]

        kinds = kinds_of(await browser.read(run_id))

    assert kinds == ["message.delta"] * (size // 1000) + ["run.completed"]


@BOTH
async def test_words_ahead_of_the_answer_are_none(replayable: bool) -> None:
    async def ahead(request: web.Request) -> web.StreamResponse:
        event = json.dumps({"event": "run.completed", "output": "x"})
        hints = b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\nLink: <x>\r\n\r\n"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        assert request.transport is not None
        for part in (b"HTTP/1.1 100 Continue\r\n\r\n", hints, head, f"data: {event}\n\n".encode()):
            request.transport.write(part)
            await asyncio.sleep(0)
        request.transport.close()
        return web.Response()

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = ahead
        run_id = (await browser.start())["runId"]

        assert kinds_of(await browser.read(run_id)) == ["run.completed"]


async def test_a_head_without_end_is_no_stream() -> None:
    async def no_end(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: y\r\n" * 20_000)
        await asyncio.Event().wait()
        return web.Response()

    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, silence=60) as browser,
    ):
        hermes.answers["GET /v1/runs/*/events"] = no_end
        run_id = (await browser.start())["runId"]
        hermes.last.status.update(status="completed", output="x")

        assert kinds_of(await browser.read(run_id))[-1] == "run.completed"


@BOTH
async def test_two_tabs_and_a_late_one_see_the_whole_run(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        tabs = [asyncio.create_task(browser.read(run_id)) for _ in range(2)]
        await until(lambda: browser.app.service.runs.streams == 2)
        for number in range(50):
            hermes.last.say("message.delta", delta=f"{number} ")
        hermes.last.end()
        first, second = await asyncio.gather(*tabs)

        assert first == second == await browser.read(run_id)
        assert len(first) == 51
        assert hermes.last.opened == 1


@BOTH
async def test_a_returning_reader_goes_on_and_one_with_the_last_event_gets_204(
    replayable: bool,
) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        hermes.last.say("message.delta", delta="b")
        seen = await collect(browser, run_id, 2)
        hermes.last.say("message.delta", delta="c")
        hermes.last.end()

        rest = await browser.read(run_id, seen[0].id)

        assert [d.get("delta") for d in data_of(rest)] == ["b", "c", None]
        path = f"/events/{run_id}?sessionId={SESSION}"
        async with browser.request("GET", path, headers={"Last-Event-ID": rest[-1].id}) as answer:
            assert (answer.status, await answer.read()) == (204, b"")
        for headers in ({}, {"Last-Event-ID": ""}):
            last = f"{path}&lastEventId={rest[-1].id}"
            async with browser.request("GET", last, headers=headers) as answer:
                assert answer.status == 204
        async with browser.request("GET", f"{path}&lastEventId={rest[-2].id}") as answer:
            assert b"run.completed" in await answer.read()


async def test_leaving_never_aborts() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        await collect(browser, run_id, 1)
        await until(lambda: browser.app.service.runs.streams == 0)
        assert hermes.last.readers == 1 and hermes.stops == []
        hermes.last.end()

        assert kinds_of(await browser.read(run_id)) == ["message.delta", "run.completed"]


async def test_a_reader_that_comes_too_late_is_told_from_where_it_sees() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, log_events=5) as browser:
        run_id = (await browser.start())["runId"]
        for number in range(20):
            hermes.last.say("message.delta", delta=f"{number} ")
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)

        data = data_of(await browser.read(run_id))

        assert data[0]["event"] == "replay.truncated" and data[0]["from"] == 16
        assert [d.get("delta") for d in data[1:]] == ["16 ", "17 ", "18 ", "19 ", None]


# -- what breaks upstream


@BOTH
async def test_a_broken_stream_of_a_finished_run_ends_with_what_the_status_says(
    replayable: bool,
) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a ")
        await collect(browser, run_id, 1)
        hermes.last.status.update(
            status="completed", output="a b", usage={"input_tokens": 3, "output_tokens": 4}
        )
        hermes.last.events.append(None)
        hermes.last.cut()

        data = data_of(await browser.read(run_id))

        assert data[0]["delta"] == "a "
        assert data[-1]["event"] == "run.completed" and data[-1]["output"] == "a b"
        assert data[-1]["usage"]["input_tokens"] == 3


async def test_on_the_older_interface_a_broken_stream_is_polled_to_its_end() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a ")
        await collect(browser, run_id, 1)
        reading = asyncio.create_task(browser.read(run_id))
        hermes.last.cut()
        await until(lambda: sum(r.path == f"/v1/runs/{run_id}" for r in hermes.seen) > 3)
        hermes.last.status.update(status="completed", output="a b")

        kinds = kinds_of(await reading)

        assert kinds == ["message.delta", "replay.truncated", "run.completed"]
        assert hermes.last.opened == 1


async def test_on_the_newer_interface_a_broken_stream_is_taken_up_where_it_was() -> None:
    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        reading = asyncio.create_task(browser.read(run_id))
        for number in range(6):
            hermes.last.say("message.delta", delta=f"{number} ")
            if number % 2:
                await until(lambda: hermes.last.readers == 1)
                hermes.last.cut()
                await until(lambda: hermes.last.readers == 0)
        hermes.last.end(output="x")

        data = data_of(await reading)

        assert "".join(d.get("delta", "") for d in data) == "0 1 2 3 4 5 "
        assert [d["event"] for d in data].count("run.completed") == 1
        assert "replay.truncated" not in [d["event"] for d in data]


@pytest.mark.parametrize("id", ["", "id: a1\n"], ids=["no ids", "ids that are no numbers"])
@pytest.mark.parametrize("ended", [False, True], ids=["goes on", "ended"])
async def test_a_stream_that_cannot_be_taken_up_again_shows_nothing_twice(
    id: str, ended: bool
) -> None:
    async def without_numbers(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        event = json.dumps({"event": "message.delta", "delta": "once "})
        await answer.write(f"{id}data: {event}\n\n".encode())
        hermes.last.status.update(status="completed" if ended else "running", output="once more")
        assert request.transport is not None
        request.transport.close()
        return answer

    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = without_numbers
        run_id = (await browser.start())["runId"]
        if not ended:
            await collect(browser, run_id, 2)
            hermes.last.status.update(status="completed")

        data = data_of(await browser.read(run_id))

    assert [d["event"] for d in data] == ["message.delta", "replay.truncated", "run.completed"]
    assert data[-1]["output"] == "once more"


async def test_every_gap_is_told() -> None:
    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        run = hermes.last
        reading = asyncio.create_task(browser.read(run_id))
        for number in range(3):
            run.say("message.delta", delta=f"{number} ")
            await until(lambda: run.readers == 1)
            await collect(browser, run_id, 2 * number + 1)
            run.cut()
            await until(lambda: run.readers == 0)
            run.say("message.delta", delta="lost")
            run.events[-1] = {"event": "replay.truncated", "oldest_retained_seq": len(run.events)}
        await until(lambda: run.readers == 1)
        run.end(output="x")

        data = data_of(await reading)

        kinds = [d["event"] for d in data]
        assert kinds == ["message.delta", "replay.truncated"] * 3 + ["run.completed"]
        assert [d["from"] for d in data if "from" in d] == [2, 4, 6]


@BOTH
@pytest.mark.parametrize("status", ["failed", "cancelled", "interrupted"])
async def test_each_end_is_told(replayable: bool, status: str) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.end(status, error=f"provider said {KEY}")
        text = str(await browser.read(run_id))
        hermes.last.status["status"] = status

        assert f"run.{status}" in text and "provider" not in text


@BOTH
async def test_a_run_that_hermes_forgot_has_failed_in_a_fixed_sentence(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        run = hermes.last
        run.say("message.delta", delta="a")
        await collect(browser, run_id, 1)
        hermes.forget_runs()
        run.cut()

        data = data_of(await browser.read(run_id))

        assert data[-1]["event"] == "run.failed"
        assert data[-1]["error"].startswith("The agent no longer knows this run")


@BOTH
async def test_an_upstream_that_stays_away_ends_the_stream_too(replayable: bool) -> None:
    async with (
        SmallHermes(replayable=replayable) as hermes,
        browsing(hermes.url, lost_after=0.3) as browser,
    ):
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        await collect(browser, run_id, 1)
        await hermes.close()

        data = data_of(await browser.read(run_id))

        assert data[-1]["event"] == "run.failed" and "cannot be reached" in data[-1]["error"]


@BOTH
async def test_an_upstream_that_comes_back_is_asked(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        reading = asyncio.create_task(browser.read(run_id))
        await collect(browser, run_id, 1)
        await hermes.close()
        hermes.last.status.update(status="completed", output="all of it")
        await hermes.listen()

        assert data_of(await reading)[-1]["output"] == "all of it"


@BOTH
async def test_a_stream_that_falls_silent_counts_as_broken(replayable: bool) -> None:
    async with (
        SmallHermes(replayable=replayable) as hermes,
        browsing(hermes.url, silence=0.2) as browser,
    ):
        run_id = (await browser.start())["runId"]
        reading = asyncio.create_task(browser.read(run_id))
        await until(lambda: any(r.path == f"/v1/runs/{run_id}" for r in hermes.seen))
        hermes.last.status.update(status="completed", output="truth")
        if replayable:
            hermes.last.end(output="truth")

        assert data_of(await reading)[-1]["output"] == "truth"


STREAMS: dict[str, bytes] = {
    "cut inside a character": b'data: {"event":"message.delta","delta":"\xe5\xbd',
    "no terminal event": b'data: {"event":"message.delta","delta":"a"}\n\n: stream closed\n\n',
    "nothing": b"",
    "no json": b"data: <html>\n\ndata: [1]\n\ndata: 7\n\ndata:\n\ndata: " + b"[" * 5000 + b"\n\n",
    "only comments": b": open\n\n: keepalive\n\n",
    "an event without a kind": b"data: {}\n\n",
}


@BOTH
@pytest.mark.parametrize("name", STREAMS)
async def test_every_kind_of_stream_leads_to_the_truth(replayable: bool, name: str) -> None:
    async def events(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(STREAMS[name])
        return answer

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = events
        run_id = (await browser.start())["runId"]
        reading = asyncio.create_task(browser.read(run_id))
        await until(lambda: any(r.path == f"/v1/runs/{run_id}" for r in hermes.seen))
        hermes.last.status.update(status="completed", output="truth")

        assert data_of(await reading)[-1]["output"] == "truth"


@BOTH
@pytest.mark.parametrize("status", [200, 204, 302, 401, 404, 429, 500, 503])
async def test_a_refused_stream_leads_to_the_truth(replayable: bool, status: int) -> None:
    async def events(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="<html>", headers={"Location": "/x"})

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = events
        run_id = (await browser.start())["runId"]
        hermes.last.status.update(status="completed", output="truth")

        assert data_of(await browser.read(run_id))[-1]["output"] == "truth"


# -- restarts of this server


@BOTH
async def test_after_a_restart_the_reader_gets_the_rest(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            hermes.last.say("message.delta", delta="a ")
            hermes.last.say("message.delta", delta="b ")
            seen = await collect(browser, run_id, 2)
        assert hermes.stops == []
        async with browsing(hermes.url) as browser:
            reading = asyncio.create_task(browser.read(run_id, seen[0].id))
            await until(lambda: browser.app.service.runs.streams == 1)
            hermes.last.say("message.delta", delta="c ")
            hermes.last.end(output="a b c")
            data = data_of(await reading)

            if replayable:
                assert [d.get("delta") for d in data] == ["b ", "c ", None]
            else:
                assert [d["event"] for d in data] == ["replay.truncated", "run.completed"]
                assert hermes.last.opened == 1
            assert data[-1]["output"] == "a b c"
            assert await browser.read(run_id, "5-00000000") == await browser.read(run_id)


@BOTH
async def test_after_a_restart_an_ended_run_is_shown(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            hermes.last.say("message.delta", delta="a ")
            hermes.last.end(output="a")
            seen = await browser.read(run_id)
        async with browsing(hermes.url) as browser:
            data = data_of(await browser.read(run_id))
            assert data[-1]["event"] == "run.completed" and data[-1]["output"] == "a"
            if replayable:
                path = f"/events/{run_id}?sessionId={SESSION}"
                headers = {"Last-Event-ID": str(seen[-1].id)}
                async with browser.request("GET", path, headers=headers) as answer:
                    assert answer.status == 204


@BOTH
async def test_a_reader_that_has_the_end_gets_204_after_every_restart(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            hermes.last.end(output="x", updated_at=1_700_000_000.75)
            await browser.read(run_id)
        async with browsing(hermes.url) as browser:
            last = (await browser.read(run_id))[-1]
        # An end that is told anew is the same one: when it was, not when it was looked up.
        assert replayable or data_of([last])[0]["timestamp"] == 1_700_000_000
        for _ in range(2):
            async with browsing(hermes.url) as browser:
                path, headers = f"/events/{run_id}?sessionId={SESSION}", {"Last-Event-ID": last.id}
                async with browser.request("GET", path, headers=headers) as answer:
                    assert answer.status == 204


async def test_a_foreign_sessions_question_does_not_answer_for_the_owner() -> None:
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
        asked, go_on = [], asyncio.Event()

        async def slow(request: web.Request) -> web.Response:
            asked.append(request)
            await go_on.wait()
            return web.json_response(hermes.last.status)

        hermes.answers["GET /v1/runs/*"] = slow
        async with browsing(hermes.url) as browser:
            path = f"/events/{run_id}?sessionId=mnote_doc_2_trace_1"
            foreign = asyncio.create_task(browser.ask("GET", path, 404))
            await until(lambda: len(asked) == 1)
            owner = asyncio.create_task(browser.read(run_id))
            await until(lambda: len(asked) == 2)
            hermes.last.end()
            go_on.set()
            await foreign

            assert kinds_of(await owner) == ["run.completed"]


async def test_a_run_moved_to_a_successor_session_stays_its_owners() -> None:
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            run = hermes.last
        hermes.sessions[SESSION] = session_row(SESSION, end_reason="compression")
        hermes.sessions["next_1"] = session_row("next_1", parent_session_id=SESSION)
        other = "mnote_doc_1_trace_9"
        hermes.sessions[other] = session_row(other, end_reason="branched")
        hermes.sessions["branch"] = session_row("branch", parent_session_id=other)
        async with browsing(hermes.url) as browser:
            run.status["session_id"] = "branch"
            await browser.ask("GET", f"/events/{run_id}?sessionId={SESSION}", 404)
            await browser.ask("GET", f"/events/{run_id}?sessionId={other}", 404)
            for odd in (None, 7, "../x", "", "unknown"):
                run.status["session_id"] = odd
                await browser.ask("GET", f"/events/{run_id}?sessionId={SESSION}", 404)
            run.status["session_id"] = "next_1"
            await browser.ask("GET", f"/events/{run_id}?sessionId={other}", 404)
            run.end(output="x")
            assert kinds_of(await browser.read(run_id))[-1] == "run.completed"


async def test_closing_ends_the_readers_with_a_word_and_aborts_nothing() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        path = f"/events/{run_id}?sessionId={SESSION}"
        async with browser.request("GET", path) as answer:
            while b"message.delta" not in await answer.content.readany():
                pass
            browser.app.begin_closing()
            rest = await answer.content.read()

        assert b"retry: " in rest and b'"event":"proxy.closing"' in rest
        assert b"event: " not in rest
        assert hermes.stops == [] and hermes.last.readers == 1


# -- abort and approvals


@BOTH
async def test_abort_tells_what_hermes_did(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        path = f"/runs/{run_id}/abort"
        first = await browser.ask("POST", path, json={**SESSION_IDS, "traceId": "trace_2"})
        assert first == {
            "ok": True,
            "runId": run_id,
            "sessionId": SESSION,
            "traceId": "trace_2",
            "events": [{"event": "abort.started", "run_id": run_id}],
        }
        again = await browser.ask("POST", path, json=SESSION_IDS)
        assert again["events"] == first["events"]
        hermes.last.end("cancelled")
        assert kinds_of(await browser.read(run_id)) == ["run.cancelled"]
        after = await browser.ask("POST", path, json=SESSION_IDS)
        assert after["events"] == [{"event": "run.cancelled", "run_id": run_id}]


async def test_an_abort_that_hermes_refuses_is_an_error() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"code": "x", "message": KEY}}, status=status)

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.answers["POST /v1/runs/*/stop"] = refuse
        for status, code in (
            (401, "hermes_client_upstream_unauthorized"),
            (409, "hermes_client_conflict"),
            (500, "hermes_client_upstream_unavailable"),
        ):
            expected = {401: 502, 409: 409, 500: 502}[status]
            body = await browser.ask("POST", f"/runs/{run_id}/abort", expected, json=SESSION_IDS)
            assert body["code"] == code


@BOTH
async def test_after_a_restart_a_run_can_be_aborted(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
        async with browsing(hermes.url) as browser:
            body = await browser.ask("POST", f"/runs/{run_id}/abort", json=SESSION_IDS)
            assert body["events"][0]["event"] == "abort.started"


def approval(approval_id: str, choice: str = "once") -> dict[str, str]:
    return {**SESSION_IDS, "approvalId": approval_id, "choice": choice}


@BOTH
async def test_an_approval_is_answered_once(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        more = {"request_id": "req-1"} if replayable else {}
        hermes.last.say("approval.request", command=f"curl {KEY}", choices=["once", "deny"], **more)
        (event,) = data_of(await collect(browser, run_id, 1))
        assert KEY not in event["command"]
        if replayable:
            assert event["approvalId"] == "req-1"
        path = f"/runs/{run_id}/approval"
        for wrong in ("other", "apr_x"):
            await browser.ask("POST", path, 409, json=approval(wrong))
        await browser.ask("POST", path, 400, json=approval(event["approvalId"], "always"))
        await browser.ask("POST", path, 400, json=approval("a b"))
        assert hermes.approvals == []

        body = await browser.ask(
            "POST", path, json={**approval(event["approvalId"]), "traceId": "trace_3"}
        )

        assert body == {
            "ok": True,
            "runId": run_id,
            "sessionId": SESSION,
            "traceId": "trace_3",
            "approvalId": event["approvalId"],
            "choice": "once",
            "resolved": 1,
        }
        assert hermes.approvals == [{"choice": "once", **more}]
        await browser.ask("POST", path, 409, json=approval(event["approvalId"]))
        hermes.last.end()
        answered = data_of(await browser.read(run_id))[1]
        assert answered["approvalId"] == event["approvalId"]
        await browser.ask("POST", path, 409, json=approval(event["approvalId"]))


@BOTH
async def test_an_answer_that_resolved_nothing_is_a_conflict(replayable: bool) -> None:
    async def nothing(request: web.Request) -> web.StreamResponse:
        return web.json_response({"run_id": hermes.last.run_id, "choice": "once", "resolved": 0})

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("approval.request", command="ls", request_id="req-1")
        (event,) = data_of(await collect(browser, run_id, 1))
        hermes.answers["POST /v1/runs/*/approval"] = nothing

        for _ in range(2):
            await browser.ask(
                "POST", f"/runs/{run_id}/approval", 409, json=approval(event["approvalId"])
            )


async def test_two_open_approvals_on_the_older_interface_are_answered_in_order() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        for command in ("one", "two"):
            hermes.last.say("approval.request", command=command, choices=["once", "deny"])
        first, second = (d["approvalId"] for d in data_of(await collect(browser, run_id, 2)))
        path = f"/runs/{run_id}/approval"

        await browser.ask("POST", path, 409, json=approval(second))
        assert hermes.approvals == []
        await browser.ask("POST", path, json=approval(first, "deny"))
        await browser.ask("POST", path, json=approval(second))

        assert [a["choice"] for a in hermes.approvals] == ["deny", "once"]


async def test_two_tabs_answer_at_once_and_one_answer_counts() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("approval.request", command="x", choices=["once", "deny"])
        (event,) = data_of(await collect(browser, run_id, 1))

        async def answer() -> int:
            path = f"/runs/{run_id}/approval"
            async with browser.request("POST", path, json=approval(event["approvalId"])) as found:
                return int(found.status)

        assert sorted(await asyncio.gather(*(answer() for _ in range(5)))) == [200] + [409] * 4
        assert len(hermes.approvals) == 1


async def test_an_answer_of_unknown_outcome_is_not_sent_again_to_the_older_interface() -> None:
    async def vanish(request: web.Request) -> web.StreamResponse:
        calls.append(1)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    calls: list[int] = []
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("approval.request", command="x", choices=["once", "deny"])
        (event,) = data_of(await collect(browser, run_id, 1))
        hermes.answers["POST /v1/runs/*/approval"] = vanish
        path = f"/runs/{run_id}/approval"
        await browser.ask("POST", path, 502, json=approval(event["approvalId"]))
        await browser.ask("POST", path, 409, json=approval(event["approvalId"]))

        assert len(calls) == 1


async def test_after_a_restart_a_waiting_approval_can_be_denied_or_answered() -> None:
    for replayable in (False, True):
        async with SmallHermes(replayable=replayable) as hermes:
            async with browsing(hermes.url) as browser:
                run_id = (await browser.start())["runId"]
                more = {"request_id": "req-1"} if replayable else {}
                hermes.last.say("approval.request", command="rm x", choices=["once"], **more)
                hermes.last.status["status"] = "waiting_for_approval"
            async with browsing(hermes.url) as browser:
                found = data_of(await collect(browser, run_id, 1 if replayable else 2))[-1]
                assert found["event"] == "approval.request"
                choice = "once" if replayable else "deny"
                assert found["choices"] == [choice]
                answer = approval(found["approvalId"], choice)
                await browser.ask("POST", f"/runs/{run_id}/approval", json=answer)


async def test_a_request_known_from_before_a_restart_can_be_answered_at_once() -> None:
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            for number in range(300):
                hermes.last.say("message.delta", delta=f"{number} ")
            hermes.last.say("approval.request", command="rm x", request_id="req-1")
            hermes.last.status["status"] = "waiting_for_approval"
            await collect(browser, run_id, 301)
        path = f"/runs/{run_id}/approval"
        async with browsing(hermes.url) as browser:
            await browser.ask("POST", path, 409, json=approval("req-2"))
        async with browsing(hermes.url) as browser:  # nobody has asked for the run here yet
            await browser.ask("POST", path, json=approval("req-1"))
            await browser.ask("POST", path, 409, json=approval("req-1"))
        assert [answer["request_id"] for answer in hermes.approvals] == ["req-1"]


async def test_a_status_that_says_nothing_is_no_silence_and_no_unknown_run() -> None:
    async def nothing(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no"}})

    async with SmallHermes() as hermes, browsing(hermes.url, lost_after=0.3) as browser:
        run_id = (await browser.start())["runId"]
        hermes.answers["GET /v1/runs/*"] = nothing
        await browser.ask("GET", f"/events/run_9?sessionId={SESSION}", 502)
        hermes.last.cut()

        assert data_of(await browser.read(run_id))[-1]["error"] == UNREACHABLE


# -- limits


async def test_after_a_restart_a_second_abort_is_answered_calmly() -> None:
    async with SmallHermes() as hermes:
        abort = {**IDS, "sessionId": SESSION}
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start())["runId"]
            await browser.ask("POST", f"/runs/{run_id}/abort", json=abort)

        async def not_found(request: web.Request) -> web.Response:
            return error(404, "run_not_found")

        hermes.answers["POST /v1/runs/*/stop"] = not_found
        async with browsing(hermes.url) as browser:
            answer = await browser.ask("POST", f"/runs/{run_id}/abort", json=abort)
            assert answer["events"] == [{"event": "abort.started", "run_id": run_id}]


async def test_a_stream_opened_while_the_server_closes_ends_with_a_word() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        hermes.last.say("message.delta", delta="a")
        browser.app.begin_closing()

        assert kinds_of(await browser.read(run_id))[-1] == "proxy.closing"


async def test_a_second_run_of_an_active_session_is_refused() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.start()
        body = await browser.start("more", 409, user="ben")
        assert body["code"] == "hermes_client_conflict"
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)
        await browser.start("more")


async def test_runs_are_limited_per_user_and_in_all() -> None:
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, max_runs=3, max_runs_per_user=2) as browser,
    ):
        sessions = [f"mnote_doc_1_s{number}" for number in range(9)]

        async def start(user: str, status: int = 200) -> Any:
            return await browser.start(status=status, user=user, body={"sessionId": sessions.pop()})

        await start("ann")
        await start("ann")
        body = await start("ann", 429)
        assert body["code"] == "hermes_client_rate_limited"
        await start("ben")
        await start("cid", 429)
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 2)
        await start("cid")


async def test_looking_at_ended_runs_takes_nobodys_place() -> None:
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            runs = []
            for number in range(3):
                session = f"mnote_doc_1_s{number}"
                runs.append(((await browser.start(body={"sessionId": session}))["runId"], session))
                hermes.last.end()
        for run in hermes.runs.values():
            # Its stream hangs: whoever looks waits for a while.
            run.events.clear()
        async with browsing(hermes.url, max_runs=1) as browser:
            looks = [
                asyncio.create_task(
                    browser.ask(
                        "POST",
                        f"/runs/{run_id}/abort",
                        json={**IDS, "sessionId": session},
                    )
                )
                for run_id, session in runs
            ]
            await until(lambda: hermes.last.readers == 1)
            assert (await browser.ask("GET", "/health"))["runningRuns"] == 0
            await browser.start()
            assert (await browser.ask("GET", "/health"))["runningRuns"] == 1
            await asyncio.gather(*looks)


async def test_streams_are_limited_per_user_and_in_all() -> None:
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, max_streams=3, max_streams_per_user=2) as browser,
    ):
        run_id = (await browser.start())["runId"]
        path = f"/events/{run_id}?sessionId={SESSION}"
        open_streams = [await browser.request("GET", path, user=u) for u in ("ann", "ann", "ben")]
        for user in ("ann", "cid"):
            async with browser.request("GET", path, user=user) as answer:
                assert answer.status == 429
                assert int(answer.headers["Retry-After"]) > 0
        open_streams[0].close()
        await until(lambda: browser.app.service.runs.streams == 2)
        async with browser.request("GET", path, user="cid") as answer:
            assert answer.status == 200
        hermes.last.end()
        for stream in open_streams:
            stream.close()


@BOTH
async def test_an_ended_runs_log_goes_without_the_garbage_collector(replayable: bool) -> None:
    async with (
        SmallHermes(replayable=replayable) as hermes,
        browsing(hermes.url, log_keep=0.01) as browser,
    ):
        run_id = (await browser.start())["runId"]
        run = browser.app.service.runs.get(run_id)
        assert run is not None
        log = weakref.ref(run.log)
        del run
        gc.disable()
        try:
            reading = asyncio.create_task(browser.read(run_id))
            await until(lambda: browser.app.service.runs.streams == 1)
            hermes.last.say("message.delta", delta="a")
            hermes.last.end()
            await reading
            await until(lambda: browser.app.service.runs.get(run_id) is None)
            await until(lambda: log() is None)
        finally:
            gc.enable()


async def test_a_browser_that_stops_reading_is_cut_off_alone() -> None:
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, slow_reader=1.5, log_bytes=100_000_000) as browser,
    ):
        run_id = (await browser.start())["runId"]
        host, port = browser.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        head = f"GET /api/hermes/client/events/{run_id}?sessionId={SESSION} HTTP/1.1\r\n"
        writer.write(f"{head}Host: localhost\r\nX-Test-User: ann\r\n\r\n".encode())
        await until(lambda: browser.app.service.runs.streams == 1)
        good = asyncio.create_task(browser.read(run_id))
        for _ in range(100):
            hermes.last.say("message.delta", delta="x" * 200_000)
            await asyncio.sleep(0)
        await until(lambda: browser.app.service.runs.streams <= 1)
        hermes.last.end()

        assert kinds_of(await good)[-1] == "run.completed"
        await until(lambda: browser.app.service.runs.streams == 0)
        writer.transport.abort()
        assert reader is not None


# -- what a secret-telling upstream can do


def _letters(text: bytes) -> bytes:
    return re.sub(rb"[^a-z0-9]", b"", text.lower())


async def test_no_secret_passes_wherever_the_upstream_puts_it() -> None:
    async def models(request: web.Request) -> web.StreamResponse:
        rows = [{"id": KEY, "owned_by": KEY}, {"id": f"a-{KEY}", "owned_by": "x"}]
        return web.json_response({"data": rows})

    async def leak(request: web.Request) -> web.StreamResponse:
        body = {"error": {"message": KEY, "code": KEY}, KEY: KEY, "run_id": KEY, "data": [KEY]}
        headers = {"X-Key": KEY, "Set-Cookie": f"k={KEY}", "Retry-After": KEY, "Location": KEY}
        return web.json_response(body, status=status, headers=headers)

    seen: list[bytes] = []
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:

        async def look(method: str, path: str, **options: Any) -> None:
            async with browser.request(method, path, **options) as answer:
                seen.append(await answer.read() + repr(answer.raw_headers).encode())

        run_id = (await browser.start())["runId"]
        for shape in (
            "GET /api/sessions",
            "GET /api/sessions/*",
            "GET /api/sessions/*/messages",
            "GET /v1/models",
            "GET /v1/toolsets",
            "POST /v1/runs",
            "GET /v1/runs/*",
            "POST /v1/runs/*/stop",
            "POST /v1/runs/*/approval",
        ):
            hermes.answers[shape] = leak
        for status in (200, 302, 400, 401, 403, 404, 409, 413, 429, 500, 503):  # noqa: B007
            await look("GET", "/sessions?workspaceId=ws_1&documentId=doc_1")
            await look("GET", f"/sessions/{SESSION}")
            await look("GET", "/models")
            await look("GET", "/tools")
            body = {**SESSION_IDS, "message": "x", "sessionId": "mnote_doc_1_b"}
            await look("POST", "/runs", json=body)
            await look("POST", f"/runs/{run_id}/abort", json=SESSION_IDS)
            await look("GET", f"/events/run_9?sessionId={SESSION}")
        hermes.answers.clear()
        hermes.answers["GET /v1/models"] = models
        await look("GET", "/models")
        row = session_row(SESSION, title=KEY, preview=KEY, model=KEY)
        hermes.sessions[SESSION] = row
        hermes.messages[SESSION] = [
            {**message_row(1, SESSION, KEY, KEY), "reasoning": KEY, "tool_name": KEY, "id": KEY}
        ]
        await look("GET", "/sessions?workspaceId=ws_1&documentId=doc_1")
        await look("GET", f"/sessions/{SESSION}")
        for letter in f"<{KEY}>":
            hermes.last.say("message.delta", delta=letter)
        hermes.last.say("tool.started", tool=KEY, preview=KEY, **{KEY: {KEY: [KEY]}})
        hermes.last.say(KEY, text=KEY)
        hermes.last.end(output=f"it is {KEY}", error=KEY)
        await look("GET", f"/events/{run_id}?sessionId={SESSION}")

    everything = b"".join(seen)
    assert KEY.encode() not in everything and KEY[3:-3].encode() not in everything
    # Nor in another spelling, such as a name that was made of it.
    assert _letters(KEY.encode()) not in _letters(everything)
    assert everything.count(b"[redacted]") > 10


@pytest.mark.parametrize("replayable", [False, True])
async def test_half_a_character_costs_no_event_and_no_end(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        await until(lambda: hermes.last.readers == 1)
        hermes.last.say("message.delta", delta="a\ud83d")
        hermes.last.say("step", cost=float("nan"))
        deep: Any = "x"
        for _ in range(600):
            deep = {"in": deep}
        hermes.last.say("step", deep=deep)
        hermes.last.end(output="a\ud83d")
        hermes.messages[SESSION] = [message_row(1, SESSION, "assistant", "a\ud83d")]
        events = data_of(await browser.read(run_id))
        stored = (await browser.ask("GET", f"/sessions/{SESSION}"))["messages"]

        assert events[0]["delta"] == events[-1]["output"] == stored[0]["content"] == "a\ufffd"
        assert events[1]["cost"] is None
        assert events[-1]["event"] == "run.completed"
        assert "replay.truncated" not in [event["event"] for event in events]


async def test_events_come_when_they_are_said_and_not_later() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        came: list[bytes] = []

        async def read() -> None:
            async with browser.events(run_id) as events:
                async for event in events:
                    if b"message.delta" in event.data:
                        came.append(event.data)

        reading = asyncio.create_task(read())
        await until(lambda: browser.app.service.runs.streams == 1)
        for number in range(20):
            hermes.last.say("message.delta", delta=f"{number} ")
            # Waited for before the next is said: nothing is held back for company.
            await until(lambda number=number: len(came) > number)
        hermes.last.end()
        await reading


async def test_bodies_that_are_no_utf_8_or_surrogates_do_no_harm() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        raw = b'{"workspaceId":"w","documentId":"doc_1","sessionId":"%s","message":"\\ud800"}'
        headers = {"Content-Type": "application/json"}
        async with browser.request(
            "POST", "/runs", data=raw % SESSION.encode(), headers=headers
        ) as answer:
            assert answer.status in (200, 400)
            assert isinstance(json.loads(await answer.read()), dict)


async def test_a_dead_browser_is_noticed_without_an_event() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        run_id = (await browser.start())["runId"]
        async with aiohttp.ClientSession() as other:
            path = f"{browser.url}/api/hermes/client/events/{run_id}?sessionId={SESSION}"
            answer = await other.get(path, headers={"X-Test-User": "ann"})
            await until(lambda: browser.app.service.runs.streams == 1)
            answer.close()
        await until(lambda: browser.app.service.runs.streams == 0)
        hermes.last.end()
