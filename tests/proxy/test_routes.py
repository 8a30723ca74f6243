"""Every route as a page sees it, before a small Hermes of either interface."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes_client_proxy import ToolEntry, service
from hermes_client_proxy.contract import PREFIX
from tests.proxy.running import IDS, PATIENCE, SESSION, Browser, browsing
from tests.proxy.small_hermes import SmallHermes, message_row, session_row

VECTORS: dict[str, Any] = json.loads(
    Path(__file__)
    .parents[2]
    .joinpath("contracts/client-proxy-v1/vectors/requests.json")
    .read_text()
)
LIST = "/sessions?workspaceId=ws_1&documentId=doc_1"
ROUTES = [
    ("GET", LIST),
    ("POST", "/sessions"),
    ("GET", f"/sessions/{SESSION}"),
    ("POST", "/runs"),
    ("GET", f"/events/run_1?sessionId={SESSION}"),
    ("POST", "/runs/run_1/abort"),
    ("POST", "/runs/run_1/approval"),
    ("GET", "/models"),
    ("GET", "/tools"),
]


@pytest.mark.parametrize("case", VECTORS["good"], ids=str)
async def test_good_bodies_are_taken(case: dict[str, Any]) -> None:
    method, path = case["route"].split()
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.ask(method, path, json=case["body"])


@pytest.mark.parametrize("case", VECTORS["bad"], ids=str)
async def test_bad_bodies_are_refused(case: dict[str, Any]) -> None:
    method, path = case["route"].split()
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(case["body"]).encode()
        body = await browser.ask(method, path, case["status"], data=data, headers=headers)

        assert body["code"] == case["code"]
        assert not hermes.runs


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'"text"', b"nul", b'{"a":1}{"b":2}', b"\x00"],
    ids=repr,
)
async def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for path in ("/sessions", "/runs", "/runs/run_1/abort", "/runs/run_1/approval"):
            headers = {"Content-Type": "application/json"}
            body = await browser.ask("POST", path, 400, data=raw, headers=headers)
            assert body["code"] == "hermes_client_bad_request"


async def test_the_list_is_this_documents_newest_first() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for number, name in enumerate(
            ["mnote_doc_1_trace_1", "mnote_doc_1_20260514", "mnote_doc_1_x_trace_1", "cli"]
        ):
            hermes.sessions[name] = session_row(name, 1000.5 + number)
        hermes.sessions["mnote_doc_1_trace_2"] = session_row(
            "mnote_doc_1_trace_2", source="telegram"
        )
        tip = session_row("20260514_1_ab", 2000.0, _lineage_root_id="mnote_doc_1_trace_9")
        hermes.sessions[tip["id"]] = tip

        body = await browser.ask("GET", LIST)

        assert [s["sessionId"] for s in body["sessions"]] == [
            "mnote_doc_1_trace_9",
            "mnote_doc_1_20260514",
            "mnote_doc_1_trace_1",
        ]
        assert body["sessions"][1] == {
            "sessionId": "mnote_doc_1_20260514",
            "title": "",
            "preview": "hello",
            "messageCount": 2,
            "toolCallCount": 0,
            "updatedAt": 1001,
            "model": "m",
        }


async def test_the_limit_is_honoured_over_pages_and_pins() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for number in range(700):
            name = f"mnote_doc_1_trace_{number}" if number % 10 == 0 else f"other_{number}"
            hermes.sessions[name] = session_row(name, 10_000.0 - number)
        for number in (690, 680, 205):
            hermes.sessions.setdefault(
                f"mnote_doc_1_trace_{number}", session_row(f"mnote_doc_1_trace_{number}")
            )
            hermes.sessions[f"mnote_doc_1_trace_{number}"].update(
                pinned=True, last_active=10_000.0 - number
            )

        body = await browser.ask("GET", LIST + "&limit=50")
        found = [s["sessionId"] for s in body["sessions"]]
        everything = (await browser.ask("GET", LIST + "&limit=200"))["sessions"]

        expected = sorted((s for s in hermes.sessions if s.startswith("mnote")), key=_number)
        assert found == expected[:50]
        assert [s["sessionId"] for s in everything] == expected


def _number(session: str) -> int:
    return int(session.rpartition("_")[2])


async def test_pages_are_as_long_as_hermes_makes_them() -> None:
    async def short_pages(request: web.Request) -> web.Response:
        offset = int(request.query["offset"])
        rows = sorted(hermes.sessions.values(), key=lambda row: -row["last_active"])
        page = rows[offset : offset + 7]
        more = offset + 7 < len(rows)
        return web.json_response({"data": page, "limit": 7, "offset": offset, "has_more": more})

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for number in range(30):
            name = f"mnote_doc_1_trace_{number}"
            hermes.sessions[name] = session_row(name, 10_000.0 - number)
        hermes.answers["GET /api/sessions"] = short_pages

        for limit in (1, 7, 8, 29, 200):
            body = await browser.ask("GET", f"{LIST}&limit={limit}")
            assert [_number(s["sessionId"]) for s in body["sessions"]] == list(range(30))[:limit]


@pytest.mark.parametrize("order", ["oldest first", "mixed"])
async def test_the_newest_are_found_in_whatever_order_hermes_lists_them(order: str) -> None:
    async def any_order(request: web.Request) -> web.Response:
        limit, offset = int(request.query["limit"]), int(request.query["offset"])
        rows = list(hermes.sessions.values())
        if order == "mixed":
            rows = rows[::2] + rows[1::2]
        page = rows[offset : offset + limit]
        return web.json_response({"data": page, "has_more": offset + limit < len(rows)})

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for number in range(450):
            name = f"mnote_doc_1_trace_{number}"
            hermes.sessions[name] = session_row(name, 10_000.0 + number)
        hermes.answers["GET /api/sessions"] = any_order

        body = await browser.ask("GET", f"{LIST}&limit=5")

    assert [_number(s["sessionId"]) for s in body["sessions"]] == [449, 448, 447, 446, 445]


async def test_no_more_is_read_than_is_needed() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for number in range(900):
            name = f"mnote_doc_1_trace_{number}"
            hermes.sessions[name] = session_row(name, 10_000.0 - number, pinned=number == 777)

        await browser.ask("GET", f"{LIST}&limit=5")

        assert sum(r.path == "/api/sessions" for r in hermes.seen) == 1


async def test_the_scan_is_bounded() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, session_scan=400) as browser:
        for number in range(1000):
            hermes.sessions[f"other_{number}"] = session_row(f"other_{number}", 5000.0 - number)

        assert (await browser.ask("GET", LIST))["sessions"] == []
        assert sum(r.path == "/api/sessions" for r in hermes.seen) == 2


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?workspaceId=ws_1",
        "?documentId=doc_1",
        "?workspaceId=ws_1&documentId=",
        "?workspaceId=ws_1&documentId=a%2Fb",
        "?workspaceId=ws_1&documentId=doc_1&documentId=doc_2",
        "?workspaceId=ws_1&documentId=doc_1&limit=0",
        "?workspaceId=ws_1&documentId=doc_1&limit=-1",
        "?workspaceId=ws_1&documentId=doc_1&limit=x",
        "?workspaceId=ws_1&documentId=doc_1&limit=201",
        "?workspaceId=ws_1&documentId=doc_1&limit=99999999999999999999",
        "?workspaceId=ws_1&documentId=doc_1&limit=%D9%A3",
    ],
)
async def test_bad_list_queries_are_refused(query: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.ask("GET", "/sessions" + query, 400)


async def test_a_session_is_made_as_the_reference_says() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask("POST", "/sessions", json={**IDS, "traceId": "trace_1"})

        assert body == {
            "ok": True,
            "sessionId": "mnote_doc_1_trace_1",
            "traceId": "trace_1",
            "persistence": "hermes_on_first_run",
        }
        assert hermes.seen == []


async def test_a_session_that_has_not_run_is_empty() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask("GET", f"/sessions/{SESSION}?traceId=trace_7")

        assert body == {
            "ok": True,
            "sessionId": SESSION,
            "traceId": "trace_7",
            "messages": [],
            "usage": {"inputTokens": None, "outputTokens": None, "totalTokens": None},
        }


@pytest.mark.parametrize("replayable", [False, True])
async def test_messages_are_shown_in_the_contracts_words(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        hermes.sessions[SESSION] = session_row(SESSION)
        parts = [{"type": "text", "text": "see"}, {"type": "image_url"}]
        hermes.messages[SESSION] = [
            message_row(41, SESSION, "user", parts),
            {**message_row(42, SESSION, "assistant", None), "reasoning_content": "hm"},
            {**message_row(43, SESSION, "tool", "ok"), "tool_call_id": "c1", "tool_name": "t"},
            {**message_row(44, SESSION, "user", ""), "display_kind": "hidden"},
        ]

        body = await browser.ask("GET", f"/sessions/{SESSION}?workspaceId=ws_1&documentId=doc_1")

        assert body["messages"] == [
            _message("41", "user", "see", 1041),
            {**_message("42", "assistant", "", 1042), "reasoning": "hm"},
            {**_message("43", "tool", "ok", 1043), "toolCallId": "c1", "toolName": "t"},
        ]
        assert body["usage"] == {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}


def _message(number: str, role: str, content: str, at: int) -> dict[str, Any]:
    return {
        "messageId": number,
        "role": role,
        "content": content,
        "toolCallId": None,
        "toolName": None,
        "timestamp": at,
        "reasoning": None,
    }


@pytest.mark.parametrize("replayable", [False, True])
async def test_a_long_session_is_read_whole_once(replayable: bool) -> None:
    async with SmallHermes(replayable=replayable) as hermes, browsing(hermes.url) as browser:
        rows = [message_row(n, SESSION, "user", str(n)) for n in range(1200)]
        hermes.messages[SESSION] = rows
        hermes.sessions[SESSION] = session_row(SESSION)

        body = await browser.ask("GET", f"/sessions/{SESSION}")

        assert [m["content"] for m in body["messages"]] == [str(n) for n in range(1200)]


async def test_messages_come_in_pages_as_long_as_hermes_makes_them() -> None:
    async def short_pages(request: web.Request) -> web.Response:
        end = 20 - int(request.query["offset"])
        rows = [message_row(n, SESSION, "user", str(n)) for n in range(max(0, end - 6), end)]
        pages = {"limit": 6, "offset": 20 - end, "returned": len(rows)}
        return web.json_response({"session_id": SESSION, "data": rows, "pagination": pages})

    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        hermes.sessions[SESSION] = session_row(SESSION)
        hermes.answers["GET /api/sessions/*/messages"] = short_pages
        body = await browser.ask("GET", f"/sessions/{SESSION}")

    assert [m["content"] for m in body["messages"]] == [str(n) for n in range(20)]


async def test_tokens_that_hermes_does_not_know_are_null() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.sessions[SESSION] = session_row(SESSION, input_tokens=0, output_tokens=0)
        hermes.messages[SESSION] = [message_row(1, SESSION, "assistant", "yes")]

        usage = (await browser.ask("GET", f"/sessions/{SESSION}"))["usage"]

        assert usage == {"inputTokens": None, "outputTokens": None, "totalTokens": None}


async def test_after_compressions_the_usage_is_that_of_the_whole_conversation() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.sessions[SESSION] = session_row(SESSION, end_reason="compression")
        hermes.sessions["next_1"] = session_row("next_1", parent_session_id=SESSION)
        hermes.messages[SESSION] = [message_row(1, "next_1", "assistant", "yes")]

        body = await browser.ask("GET", f"/sessions/{SESSION}")

        assert body["sessionId"] == SESSION
        assert body["usage"]["totalTokens"] == 240


async def test_models_and_tools_are_mapped() -> None:
    tools = (
        ToolEntry("mnote.page.get", "page.read", "mnote.hermes_tool.v1"),
        ToolEntry("mnote.page.set", "page.write", "mnote.hermes_tool.v1"),
        ToolEntry("mnote.page.read", "page.read", "v2", upstream="mnote_page_get"),
        ToolEntry("mnote.unknown", "x", "v1"),
    )
    async with SmallHermes() as hermes, browsing(hermes.url, tools=tools) as browser:
        models = await browser.ask("GET", "/models")
        found = await browser.ask("GET", "/tools")

    assert models["defaultModel"] == "hermes-agent"
    assert models["models"] == [
        {"id": "hermes-agent", "label": "Hermes Agent", "provider": "hermes"}
    ]
    assert found["tools"] == [
        {"name": "mnote.page.get", "scope": "page.read", "schemaVersion": "mnote.hermes_tool.v1"},
        {"name": "mnote.page.read", "scope": "page.read", "schemaVersion": "v2"},
    ]


@pytest.mark.parametrize(
    "path",
    ["", "/", "/nothing", "/sessions/", "/sessions/a/b", "/runs/run_1", "/events", "/models/"],
)
async def test_unknown_routes_have_the_error_body(path: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for method in ("GET", "POST", "DELETE"):
            body = await browser.ask(method, PREFIX + path, 404)
            assert body["code"] == "hermes_client_not_found"


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_wrong_methods_have_the_error_body(method: str, path: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for other in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            async with browser.request(other, path) as answer:
                body = await answer.json()
                assert (answer.status, body["code"]) == (405, "hermes_client_bad_request")
                assert method in answer.headers["Allow"]
                assert not any(name.startswith("Access-Control") for name in answer.headers)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_nobody_gets_401_and_other_pages_403(method: str, path: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask(method, path, 401, user="")
        assert body["code"] == "hermes_client_unauthorized"
        for headers in (
            {"Origin": "null"},
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Host": "evil.example"},
        ):
            body = await browser.ask(method, path, 403, headers=headers)
            assert body["code"] == "hermes_client_forbidden"
        assert hermes.seen == []


@pytest.mark.parametrize("path", [path for method, path in ROUTES if method == "POST"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_writes_need_json(path: str, kind: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask("POST", path, 415, data=b"{}", headers={"Content-Type": kind})

        assert body["code"] == "hermes_client_bad_request"


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_unconfigured_every_route_says_so_and_how(method: str, path: str) -> None:
    async with browsing(None) as browser:
        body = await browser.ask(method, path, 503)

        assert body["code"] == "hermes_client_unconfigured"
        assert "MNOTE_WEB_HERMES_UPSTREAM_URL" in body["message"]


async def test_health_needs_nobody_and_no_upstream() -> None:
    async with browsing(None) as browser:
        body = await browser.ask("GET", "/health", user="")
        assert (body["configured"], body["upstream"]) == (False, "unconfigured")
    async with SmallHermes(replayable=True) as hermes:
        async with browsing(hermes.url) as browser:
            body = await browser.ask("GET", "/health", user="")
            assert (body["upstream"], body["runInterface"]) == ("ok", "replayable")
        async with browsing(hermes.url, api_key="wrong-key-0123456789") as browser:
            body = await browser.ask("GET", "/health", user="")
            assert (body["upstream"], body["runInterface"]) == ("unauthorized", None)


async def test_health_does_not_wait_for_a_hermes_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(service, "_HEALTH_PATIENCE", 0.2)
    for path in ("GET /v1/capabilities", "GET /v1/models"):
        async with SmallHermes() as hermes, browsing(hermes.url) as browser:
            hermes.answers[path] = hangs
            async with asyncio.timeout(PATIENCE):
                body = await browser.ask("GET", "/health", user="")
            assert (body["upstream"], body["runInterface"]) == ("unavailable", None)


@pytest.mark.parametrize(
    ("sent", "query", "header", "kept"),
    [
        ("trace_b", "trace_q", "trace_h", "trace_b"),
        (None, "trace_q", "trace_h", "trace_q"),
        (None, None, "trace_h", "trace_h"),
        ("not allowed!", None, "trace_h", "trace_h"),
        ("x" * 129, "x" * 129, "é", None),
        (None, None, None, None),
    ],
)
async def test_the_trace_id_is_kept_where_it_can_be(
    sent: str | None, query: str | None, header: str | None, kept: str | None
) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = {**IDS, "sessionId": SESSION, "message": "x", "traceId": sent}
        path = "/runs" + (f"?traceId={query}" if query else "")
        headers = {"X-Trace-Id": header} if header else {}
        answer = await browser.ask("POST", path, json=body, headers=headers)

        assert kept is None or answer["traceId"] == kept
        started = next(r for r in hermes.seen if r.method == "POST")
        assert started.headers["X-Trace-Id"] == answer["traceId"]
        assert started.headers["X-Request-Id"].startswith("req_")


async def test_errors_carry_the_bodys_trace_id_too() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        body = await browser.ask("POST", "/runs", 400, json={"traceId": "trace_5"})

        assert body["traceId"] == "trace_5"


async def test_a_refusal_from_before_the_body_carries_its_trace_id_too() -> None:
    said = {"traceId": "trace_5"}
    async with SmallHermes() as hermes, browsing(hermes.url, max_body=1000) as browser:
        for status, method, path, options in (
            (401, "POST", "/runs", {"user": ""}),
            (403, "POST", "/runs", {"headers": {"Origin": "http://evil.example"}}),
            (404, "POST", "/nothing", {}),
            (405, "PUT", "/runs", {}),
        ):
            body = await browser.ask(method, path, status, json=said, **options)
            assert body["traceId"] == "trace_5"
        plain = {"Content-Type": "text/plain"}
        body = await browser.ask("POST", "/runs", 415, data=json.dumps(said), headers=plain)
        assert body["traceId"] == "trace_5"
        body = await browser.ask("POST", "/runs", 401, data=b"x" * 2_000, user="")
        assert body["traceId"].startswith("trace_")
    async with browsing(None) as browser:
        body = await browser.ask("POST", "/runs", 503, json=said)
        assert body["traceId"] == "trace_5"


async def test_a_field_nobody_reads_has_to_be_utf_8_too() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        raw = json.dumps({**IDS, "more": "?"}).encode().replace(b"?", b"\xff")
        headers = {"Content-Type": "application/json"}
        await browser.ask("POST", "/sessions", 400, data=raw, headers=headers)


async def test_a_body_above_the_limit_is_refused() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, max_body=1000) as browser:
        body = await browser.start("x" * 1000, 413)
        assert body["code"] == "hermes_client_too_large"

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * 100

        headers = {"Content-Type": "application/json"}
        await browser.ask("POST", "/runs", 413, data=chunks(), headers=headers)


async def test_page_data_above_the_limit_is_refused() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        await browser.start(body={"selectedText": "x" * 65_536})
        hermes.last.end()
        body = await browser.start(
            status=413, body={"selectedText": "x" * 65_537, "sessionId": "mnote_doc_1_b"}
        )
        assert body["code"] == "hermes_client_too_large"
        page = {"selectedText": "当" * 21_846, "sessionId": "mnote_doc_1_b"}
        await browser.start(status=413, body=page)


async def test_only_listed_headers_go_upstream() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        headers = {
            "Origin": browser.url,
            "Cookie": "session=private",
            "Authorization": "Bearer browser",
            "X-Forwarded-For": "1.2.3.4",
            "X-Hermes-Session-Key": "k",
            "X-Custom": "y",
        }
        await browser.ask("GET", "/models", headers=headers)

        (request,) = hermes.seen
        assert {name.lower() for name in request.headers} == {
            "host",
            "user-agent",
            "accept",
            "accept-encoding",
            "authorization",
            "x-trace-id",
            "x-request-id",
        }


class Legacy:
    """A host's own handler, which answers with what it was sent."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"host:" + body})


async def test_the_route_of_old_names_the_new_one() -> None:
    old = "/api/ai-agent/run"
    async with browsing(None) as browser:
        body = await browser.ask("POST", old, 400, json={"provider": "hermes"})
        assert body["code"] == "hermes_client_bad_request"
        assert f"{PREFIX}/runs" in body["message"]
        await browser.ask("POST", old, 410, json={"provider": "other"})
        await browser.ask("POST", old, 410, data=b"no json")
        await browser.ask("POST", old, 403, json={}, headers={"Origin": "null"})
    async with browsing(None, legacy=Legacy()) as browser:
        await browser.ask("POST", old, 400, json={"provider": "Hermes"})
        for data in (b'{"provider": "other"}', b"no json", b""):
            async with browser.request("POST", old, data=data) as answer:
                assert await answer.read() == b"host:" + data


def _no_document_but_1(user: Any, workspace_id: str | None, document_id: str) -> bool:
    return document_id == "doc_1"


async def test_authorize_is_asked_on_every_route_that_names_something() -> None:
    asked: list[tuple[str, str | None, str]] = []

    async def authorize(user: Any, workspace_id: str | None, document_id: str) -> bool:
        asked.append((user.id, workspace_id, document_id))
        return False

    async with SmallHermes() as hermes, browsing(hermes.url, authorize=authorize) as browser:
        ids = {**IDS, "sessionId": SESSION}
        for method, path, body in (
            ("GET", LIST, None),
            ("POST", "/sessions", IDS),
            ("GET", f"/sessions/{SESSION}", None),
            ("POST", "/runs", {**ids, "message": "x"}),
            ("GET", f"/events/run_1?sessionId={SESSION}", None),
            ("POST", "/runs/run_1/abort", ids),
            ("POST", "/runs/run_1/approval", {**ids, "approvalId": "a", "choice": "once"}),
        ):
            options = {} if body is None else {"json": body}
            answer = await browser.ask(method, path, 403, **options)
            assert answer["code"] == "hermes_client_forbidden"
        assert {(user, document) for user, _, document in asked} == {("ann", "doc_1")}
        assert [w for _, w, _ in asked] == ["ws_1", "ws_1", None, "ws_1", None, "ws_1", "ws_1"]
        assert hermes.seen == []


@pytest.mark.parametrize("verdict", [None, "yes", 1, ValueError("x")])
async def test_only_true_allows(verdict: Any) -> None:
    def authorize(user: Any, workspace_id: str | None, document_id: str) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    async with SmallHermes() as hermes, browsing(hermes.url, authorize=authorize) as browser:
        await browser.ask("GET", LIST, 403)


async def test_a_run_of_another_session_is_not_found() -> None:
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, authorize=_no_document_but_1) as browser,
    ):
        run_id = (await browser.start())["runId"]
        for session in ("mnote_doc_1_other", "mnote_doc_1_trace_2"):
            await browser.ask("GET", f"/events/{run_id}?sessionId={session}", 404)
            ids = {**IDS, "sessionId": session}
            await browser.ask("POST", f"/runs/{run_id}/abort", 404, json=ids)
        await browser.ask("GET", f"/events/{run_id}?sessionId=mnote_doc_2_trace_1", 403)
        await browser.ask("GET", f"/events/{run_id}", 400)
        assert hermes.stops == []


@pytest.mark.parametrize("run_id", ["..", "a..b", "%2e%2e", "a%00", "x" * 129, "a b", "run%0a1"])
async def test_a_malformed_run_id_goes_nowhere(run_id: str) -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        async with browser.request("GET", f"/events/{run_id}?sessionId={SESSION}") as answer:
            assert answer.status in (400, 404)
        assert hermes.seen == []


async def test_mounted_in_another_application_the_paths_are_the_same() -> None:
    import aiohttp
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    from hermes_client_proxy import Settings, create_app
    from tests.proxy.running import serving, user_of
    from tests.proxy.small_hermes import KEY

    async with SmallHermes() as hermes:
        settings = Settings(upstream_url=hermes.url, api_key=KEY)
        for place in ("/", PREFIX):
            proxy = create_app(settings, authenticate=user_of)
            old = Route("/api/ai-agent/run", endpoint=proxy)
            app = Starlette(routes=[old, Mount(place, proxy)])
            async with serving(app) as url, aiohttp.ClientSession() as client:
                browser = Browser(url, proxy, client)
                assert (await browser.ask("GET", "/models"))["defaultModel"] == "hermes-agent"
                await browser.ask("GET", "/models", 401, user="")
                legacy = {"provider": "hermes"}
                body = await browser.ask("POST", "/api/ai-agent/run", 400, json=legacy)
                assert f"{PREFIX}/runs" in body["message"]
                await proxy.aclose()
