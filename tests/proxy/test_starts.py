"""Starting a run: once, with its history, with the page's data beside the words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from hermes_client_proxy import service
from tests.proxy.running import IDS, PATIENCE, SESSION, browsing, data_of, kinds_of
from tests.proxy.small_hermes import KEY, SmallHermes, error, message_row, session_row
from tests.proxy.test_runs import BOTH, collect, until

Answers = dict[str, Any]


def starts_of(hermes: SmallHermes) -> list[dict[str, Any]]:
    return [
        json.loads(body)
        for request, body in zip(hermes.seen, hermes.bodies, strict=True)
        if (request.method, request.path) == ("POST", "/v1/runs")
    ]


@BOTH
async def test_the_same_key_is_the_same_run_and_another_body_a_conflict(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        headers = {"Idempotency-Key": "key-1"}
        page = {"pageContext": {"title": "x"}}
        both = await asyncio.gather(
            *(browser.start(headers=headers, body={**page, "traceId": t}) for t in ("a", "b"))
        )
        hermes.last.end()
        again = await browser.start(headers=headers, body=page)

        assert {answer["runId"] for answer in (*both, again)} == {"run_0001"}
        assert len(hermes.runs) == 1
        body = await browser.start("other", 409, headers=headers, body=page)
        assert body["code"] == "hermes_client_conflict"
        await browser.start(user="ben", headers=headers, body=page)
        assert len(hermes.runs) == 2


@BOTH
async def test_without_a_key_the_same_trace_and_body_are_the_same_run(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        first = await browser.start(body={"traceId": "trace_1"})
        assert (await browser.start(body={"traceId": "trace_1"}))["runId"] == first["runId"]
        await browser.start("other words", 409, body={"traceId": "trace_1"})
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)
        assert (await browser.start(body={"traceId": "trace_1"}))["runId"] == first["runId"]
        other = await browser.start("other words", body={"traceId": "trace_1"})
        assert other["runId"] != first["runId"]
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)
        assert (await browser.start())["runId"] == "run_0003"
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)
        assert (await browser.start())["runId"] == "run_0004"


async def test_after_a_restart_a_repeated_start_shows_nothing_twice() -> None:
    headers = {"Idempotency-Key": "key-1"}
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start(headers=headers))["runId"]
            for number in range(300):
                hermes.last.say("message.delta", delta=f"{number} ")
            seen = await collect(browser, run_id, 200)
        async with browsing(hermes.url) as browser:
            assert (await browser.start(headers=headers))["runId"] == run_id
            reading = asyncio.create_task(browser.read(run_id, seen[-1].id))
            await until(lambda: hermes.last.readers == 1)
            hermes.last.end()

            data = data_of(await reading)

    assert [d.get("delta") for d in data] == [f"{n} " for n in range(200, 300)] + [None]


async def test_a_key_outlives_this_server_where_hermes_keeps_keys() -> None:
    async with SmallHermes(replayable=True) as hermes:
        answers = []
        for _ in range(2):
            async with browsing(hermes.url) as browser:
                body = {"pageContext": {"title": "x"}, "selectedText": "y"}
                headers = {"Idempotency-Key": "key-1"}
                answers.append(await browser.start(headers=headers, body=body))
        assert answers[0]["runId"] == answers[1]["runId"]
        first, second = starts_of(hermes)
        assert first == second and "page data" in first["instructions"]
        async with browsing(hermes.url) as browser:
            await browser.start("other", 409, headers={"Idempotency-Key": "key-1"})


@pytest.mark.parametrize("key", ["a b", "é", "x" * 256])
async def test_a_malformed_key_is_refused(key: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.start(status=400, headers={"Idempotency-Key": key})
        assert hermes.seen == []


async def test_history_is_sent_where_it_is_not_loaded() -> None:
    for replayable in (False, True):
        async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
            hermes.messages[SESSION] = [
                message_row(1, SESSION, "user", [{"type": "text", "text": "hi"}]),
                message_row(2, SESSION, "assistant", None),
                message_row(3, SESSION, "tool", "result"),
                message_row(4, SESSION, "assistant", "hello"),
                message_row(5, SESSION, "system", "be kind"),
            ]
            await browser.start("more")
            (body,) = starts_of(hermes)
            if replayable:
                assert body == {"input": "more", "session_id": SESSION}
            else:
                assert body["conversation_history"] == [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "hello"},
                ]


async def test_after_a_compression_the_older_interface_goes_on_in_the_successor() -> None:
    async with SmallHermes() as hermes:
        hermes.messages[SESSION] = [message_row(1, "next_1", "user", "hi")]
        hermes.sessions[SESSION] = session_row(SESSION, end_reason="compression")
        hermes.sessions["next_1"] = session_row("next_1", parent_session_id=SESSION)
        async with browsing(hermes.url) as browser:
            run_id = (await browser.start("more"))["runId"]
            assert starts_of(hermes)[0]["session_id"] == "next_1"
        async with browsing(hermes.url) as browser:
            hermes.last.end(output="x")
            assert kinds_of(await browser.read(run_id))[-1] == "run.completed"


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_without_its_history_no_run_is_started(status: int) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="<html>")

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /api/sessions/*/messages"] = broken
        async with browser.request(
            "POST", "/runs", json={**IDS, "sessionId": SESSION, "message": "x"}
        ) as answer:
            assert answer.status in (429, 502)
        assert starts_of(hermes) == []
        del hermes.answers["GET /api/sessions/*/messages"]
        await browser.start()


@BOTH
async def test_page_data_goes_into_the_instructions_and_not_into_the_words(
    replayable: bool,
) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        page = {"pageContext": {"title": "项目计划"}, "selectedBlockId": "b1", "selectedText": "t"}
        instructions = []
        for _ in range(2):
            await browser.start("summarise", body=page)
            instructions.append(hermes.last.body["instructions"])
            assert hermes.last.body["input"] == "summarise"
            assert "项目计划" in instructions[-1]
            hermes.last.end()
            await until(lambda: browser.app.service.runs.running == 0)
        assert instructions[0] != instructions[1]


@BOTH
async def test_the_title_reaches_hermes_after_the_first_run(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.sessions["x"] = session_row("x", title="Taken")
        for title, session in (
            ("My  page\n", "trace_1"),
            ("Taken", "trace_2"),
            ("y" * 300, "trace_3"),
        ):
            made = await browser.ask(
                "POST", "/sessions", json={**IDS, "traceId": session, "title": title}
            )
            assert hermes.patches == []
            await browser.start(body={"sessionId": made["sessionId"]})
            hermes.sessions[made["sessionId"]] = session_row(made["sessionId"])
            hermes.last.end()
            count = 2 if title == "Taken" else 1
            await until(lambda count=count: len(hermes.patches) == count)
            hermes.patches.clear()
        titles = [hermes.sessions[f"mnote_doc_1_trace_{n}"]["title"] for n in (1, 2, 3)]
        assert titles[0] == "My page"
        assert titles[1].startswith("Taken (") and len(titles[1]) < 15
        assert len(titles[2]) == 100


@pytest.mark.parametrize("status", [400, 409, 422])
async def test_however_hermes_says_that_a_title_is_taken_it_gets_a_suffix(status: int) -> None:
    titles: list[str] = []

    async def taken(request: web.Request) -> web.StreamResponse:
        titles.append((await request.json())["title"])
        return error(status, "taken") if titles[-1] == "Plan" else web.json_response({})

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["PATCH /api/sessions/*"] = taken
        await browser.ask("POST", "/sessions", json={**IDS, "traceId": "trace_1", "title": "Plan"})
        await browser.start()
        hermes.last.end()
        await until(lambda: len(titles) == 2)

    assert titles[0] == "Plan" and titles[1].startswith("Plan (") and len(titles[1]) < 13


async def test_a_title_whose_first_run_made_no_session_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patches: list[int] = []

    async def patch(request: web.Request) -> web.StreamResponse:
        known = SESSION in hermes.sessions
        patches.append(200 if known else 404)
        return web.json_response({}) if known else error(404, "session_not_found")

    monkeypatch.setattr(service, "_TITLE_PAUSES", (0.0, 0.0))
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["PATCH /api/sessions/*"] = patch
        await browser.ask("POST", "/sessions", json={**IDS, "traceId": "trace_1", "title": "t"})
        await browser.start()
        hermes.last.end("cancelled")
        await until(lambda: len(patches) == 2)
        await browser.start("again")
        hermes.sessions[SESSION] = session_row(SESSION)
        hermes.last.end()
        await until(lambda: len(patches) == 3)
        await browser.start("and again")
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)

    assert patches == [404, 404, 200]


async def test_a_title_that_cannot_be_set_fails_no_run() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return error(400, "invalid_title")

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["PATCH /api/sessions/*"] = refuse
        await browser.ask("POST", "/sessions", json={**IDS, "traceId": "trace_1", "title": "t"})
        run_id = (await browser.start())["runId"]
        hermes.last.end()
        assert kinds_of(await browser.read(run_id)) == ["run.completed"]


# -- answers of unknown outcome


def plain(status: int, text: str) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type="text/html")

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(status=202, headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b'{"run_id": "run_0')
    assert request.transport is not None
    request.transport.abort()
    return answer


async def vanish(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def lie(request: web.Request) -> web.StreamResponse:
    return web.json_response({"run_id": "../../x", "status": "started"}, status=202)


UNKNOWN: Answers = {
    "html with 200": plain(200, "<html>"),
    "empty with 202": plain(202, ""),
    "html with 500": plain(500, "500 Internal Server Error"),
    "html with 502": plain(502, "<html>Bad Gateway"),
    "a redirect": plain(302, ""),
    "json without a run": plain(202, "{}"),
    "a run id that is none": lie,
    "cut": cut,
    "vanished": vanish,
    "slow": never,
}


@pytest.mark.parametrize("name", UNKNOWN)
async def test_a_start_of_unknown_outcome_is_never_sent_again_to_the_older_interface(
    name: str,
) -> None:
    patience = 1.5 if name == "slow" else PATIENCE
    async with SmallHermes() as hermes, browsing(hermes.url, answer_timeout=patience) as browser:
        hermes.answers["POST /v1/runs"] = UNKNOWN[name]
        headers = {"Idempotency-Key": "key-1"}
        status = 504 if name == "slow" else 502
        for _ in range(2):
            body = await browser.start(status=status, headers=headers)
            assert body["code"] == "hermes_client_upstream_unavailable"
        del hermes.answers["POST /v1/runs"]
        await browser.start(status=status, headers=headers)
        assert len(starts_of(hermes)) == 1
        await browser.start(headers={"Idempotency-Key": "key-2"})
        assert len(hermes.runs) == 1


async def test_on_the_newer_interface_such_a_start_is_sent_again_under_its_key() -> None:
    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        calls: list[str] = []

        async def once(request: web.Request) -> web.StreamResponse:
            calls.append(request.headers["Idempotency-Key"])
            await hermes._start(request)
            if len(calls) == 1:
                return await vanish(request)
            return web.json_response({"run_id": hermes.last.run_id}, status=202)

        hermes.answers["POST /v1/runs"] = once
        answer = await browser.start()

        assert len(set(calls)) == 1 and len(calls) == 2
        assert len(hermes.runs) == 1 and answer["runId"] == "run_0001"


REFUSALS = [
    (400, "x", 400, "hermes_client_bad_request"),
    (401, "invalid_api_key", 502, "hermes_client_upstream_unauthorized"),
    (413, "body_too_large", 413, "hermes_client_too_large"),
    (429, "rate_limit_exceeded", 429, "hermes_client_upstream_rate_limited"),
    (500, "x", 502, "hermes_client_upstream_unavailable"),
    (503, "gateway_draining", 502, "hermes_client_upstream_unavailable"),
]


@BOTH
@pytest.mark.parametrize(("given", "own", "status", "code"), REFUSALS)
async def test_an_answer_with_hermes_error_body_is_a_refusal(
    replayable: bool, given: int, own: str, status: int, code: str
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        answer = error(given, own)
        answer.headers["Retry-After"] = "7"
        return answer

    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.answers["POST /v1/runs"] = refuse
        headers = {"Idempotency-Key": "key-1"}
        async with browser.request(
            "POST",
            "/runs",
            json={**IDS, "sessionId": SESSION, "message": "x"},
            headers=headers,
        ) as answer:
            body = await answer.json()
            assert (answer.status, body["code"]) == (status, code)
            assert KEY not in body["message"] and "words of" not in body["message"]
            if given == 429:
                assert answer.headers["Retry-After"] == "7"
        del hermes.answers["POST /v1/runs"]
        await browser.start("x", headers=headers)


async def test_a_start_that_never_left_may_be_tried_again() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.ask("GET", "/health")
        await hermes.close()
        headers = {"Idempotency-Key": "key-1"}
        body = await browser.start(status=502, headers=headers)
        assert body["code"] == "hermes_client_upstream_unavailable"
        await hermes.listen()
        await browser.start(headers=headers)
        assert len(hermes.runs) == 1


async def test_a_browser_that_leaves_during_the_start_does_not_leave_it_half_done() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        gate = asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse:
            await gate.wait()
            return await hermes._start(request)

        hermes.answers["POST /v1/runs"] = slow
        task = asyncio.create_task(browser.start(headers={"Idempotency-Key": "key-1"}))
        await until(lambda: len(starts_of(hermes)) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.set()
        await until(lambda: len(hermes.runs) == 1 and hermes.last.opened == 1)
        again = await browser.start(headers={"Idempotency-Key": "key-1"})
        assert again["runId"] == "run_0001"


# -- answers of any shape on the other routes

SHAPES: Answers = {
    "html": plain(200, "<html>"),
    "empty": plain(200, ""),
    "no object": plain(200, "[1, 2]"),
    "null": plain(200, "null"),
    "other json": plain(200, '{"data": {"a": 1}, "session": [], "features": 7}'),
    "rows that are none": plain(200, '{"data": [null, 1, "x", []], "session": 1}'),
    "deep json": plain(200, "[" * 50_000),
    "redirect": plain(301, ""),
    "400": plain(400, "no"),
    "403": plain(403, ""),
    "404": plain(404, "404: Not Found"),
    "418": plain(418, "teapot"),
    "429": plain(429, ""),
    "500": plain(500, "trace"),
    "599": plain(599, ""),
    "cut": cut,
    "vanished": vanish,
    "slow": never,
}
CODES = {
    "hermes_client_upstream_unauthorized": (502,),
    "hermes_client_upstream_rate_limited": (429,),
    "hermes_client_upstream_unavailable": (502, 504),
}


@pytest.mark.parametrize("name", SHAPES)
async def test_answers_of_any_shape_map_to_a_code(name: str) -> None:
    patience = 0.3 if name == "slow" else PATIENCE
    async with SmallHermes() as hermes, browsing(hermes.url, answer_timeout=patience) as browser:
        for shape in (
            "GET /api/sessions",
            "GET /api/sessions/*",
            "GET /api/sessions/*/messages",
            "GET /v1/models",
            "GET /v1/toolsets",
            "GET /v1/runs/*",
        ):
            hermes.answers[shape] = SHAPES[name]
        for method, path in (
            ("GET", "/sessions?workspaceId=ws_1&documentId=doc_1"),
            ("GET", f"/sessions/{SESSION}"),
            ("GET", "/models"),
            ("GET", "/tools"),
            ("GET", f"/events/run_1?sessionId={SESSION}"),
        ):
            async with browser.request(method, path) as answer:
                body = await answer.json()
                harmless = answer.status == 200 and name == "rows that are none"
                lost = answer.status == 404 and "events" in path
                assert harmless or lost or answer.status in CODES[body["code"]], (path, body)


async def test_another_hermes_at_the_same_address_is_asked_anew() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.start()
        hermes.last.end()
        await until(lambda: browser.app.service.runs.running == 0)
        await hermes.close()
        await browser.ask("GET", "/models", 502)
        hermes.replayable = True
        await hermes.listen()
        headers = {"Idempotency-Key": "key-1"}

        await browser.start("again", headers=headers)

        assert hermes.last.key is not None and "conversation_history" not in hermes.last.body


async def test_capabilities_decide_and_not_a_version() -> None:
    for answer, interface in (
        (plain(404, "404: Not Found"), "basic"),
        (plain(200, '{"features": {"runs_idempotency": {"supported": true}}}'), "replayable"),
        (plain(200, '{"features": {"runs_idempotency": {"supported": "yes"}}}'), "basic"),
        (plain(200, '{"version": "0.22.2", "features": {}}'), "basic"),
    ):
        async with SmallHermes() as hermes, browsing(hermes.url) as browser:
            hermes.answers["GET /v1/capabilities"] = answer
            assert (await browser.ask("GET", "/health"))["runInterface"] == interface


async def test_a_hermes_that_hangs_is_asked_once_for_all_who_wait() -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with SmallHermes() as hermes:
        hermes.answers["GET /v1/capabilities"] = hangs
        async with browsing(hermes.url, answer_timeout=2.0) as browser:
            bodies = [{**IDS, "sessionId": f"{SESSION}.{n}", "message": "hello"} for n in range(8)]
            starts = [browser.ask("POST", "/runs", 504, json=body) for body in bodies]
            await asyncio.gather(*starts)

        assert [request.path for request in hermes.seen] == ["/v1/capabilities"]
