"""Checks of single requests: who is asked in, from where, with what, and what is answered."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from .. import contract
from ..contract import BAD_REQUEST, FORBIDDEN, NOT_FOUND, TOO_LARGE, UNAUTHORIZED
from .browser import Failed, Page, shortened, vectors

Play = Callable[[Page], Awaitable[None]]
Row = tuple[str, str, Play]  # name, heading of docs/client-proxy.md, check

FOREIGN = "https://attacker.example"


def _routes(ids: dict[str, str]) -> list[tuple[str, str, Any]]:
    """Every route, with a body where it takes one."""
    session, documents = ids["sessionId"], f"workspaceId={ids['workspaceId']}"
    documents += f"&documentId={ids['documentId']}"
    return [
        ("GET", f"/sessions?{documents}", None),
        ("POST", "/sessions", {k: ids[k] for k in ("workspaceId", "documentId")}),
        ("GET", f"/sessions/{session}?{documents}", None),
        ("POST", "/runs", {**ids, "message": "hello"}),
        ("GET", f"/events/run_1?sessionId={session}", None),
        ("POST", "/runs/run_1/abort", ids),
        ("POST", "/runs/run_1/approval", {**ids, "approvalId": "a", "choice": "deny"}),
        ("GET", "/models", None),
        ("GET", "/tools", None),
    ]


def _name(method: str, path: str) -> str:
    plain = path.partition("?")[0]
    parts = ["*" if part.startswith(("mnote_", "run_")) else part for part in plain.split("/")]
    return f"{method} {'/'.join(parts)}"


def _body(body: Any) -> dict[str, Any]:
    return {} if body is None else {"json": body}


# Sign-in


async def _unauthorized(number: int, page: Page) -> None:
    method, path, body = _routes(page.ids())[number]
    await page.refused(method, path, 401, UNAUTHORIZED, signed_in=False, **_body(body))


async def _wrong_cookie(page: Page) -> None:
    await page.refused(
        "GET",
        "/models",
        401,
        UNAUTHORIZED,
        signed_in=False,
        headers={"Cookie": "hermes_client_session=forged.value.here"},
    )


# Same origin


async def _foreign(number: int, headers: dict[str, str | None], page: Page) -> None:
    method, path, body = _routes(page.ids())[number]
    await page.refused(method, path, 403, FORBIDDEN, headers=headers, **_body(body))


async def _no_browser_headers(page: Page) -> None:
    none = {"Sec-Fetch-Site": None, "Origin": None}
    await page.good("GET", "/models", contract.ModelList, headers=none)


async def _direct(page: Page) -> None:
    await page.good("GET", "/models", headers={"Sec-Fetch-Site": "none"})


async def _own_origin(page: Page) -> None:
    await page.good("GET", "/models", headers={"Origin": page.origin})


async def _preflight(page: Page) -> None:
    answer = await page.ask(
        "OPTIONS",
        "/runs",
        headers={
            "Origin": FOREIGN,
            "Sec-Fetch-Site": "cross-site",
            "Access-Control-Request-Method": "POST",
        },
    )
    if answer.status < 400:
        raise Failed(f"a preflight of another origin was answered with HTTP {answer.status}")


async def _origin_like_ours(number: int, wrong: Callable[[str], str], page: Page) -> None:
    method, path, body = _routes(page.ids())[number]
    headers = {"Origin": wrong(page.origin), "Sec-Fetch-Site": None}
    await page.refused(method, path, 403, FORBIDDEN, headers=headers, **_body(body))


def _other_scheme(origin: str) -> str:
    scheme, _, rest = origin.partition("://")
    return f"{'http' if scheme == 'https' else 'https'}://{rest}"


def _other_port(origin: str) -> str:
    parts = urlsplit(origin)
    host = parts.netloc.removesuffix(f":{parts.port}")
    return f"{parts.scheme}://{host}:{1 + (parts.port or 8000) % 65_000}"


def _with_ours_before(origin: str) -> str:
    return f"{origin}.attacker.example"


def _with_ours_as_user(origin: str) -> str:
    return f"{origin}@attacker.example"


async def _content_type(number: int, kind: str | None, page: Page) -> None:
    method, path, body = _routes(page.ids())[number]
    headers = {} if kind is None else {"Content-Type": kind}
    options: dict[str, Any] = {"data": json.dumps(body).encode()}
    if kind is None:
        options["skip_auto_headers"] = ["Content-Type"]
    await page.refused(method, path, 415, BAD_REQUEST, headers=headers, **options)


# Fields


async def _sessions(page: Page) -> None:
    ids = page.ids()
    query = f"workspaceId={ids['workspaceId']}&documentId={ids['documentId']}"
    await page.good("GET", f"/sessions?{query}&limit=1", contract.SessionList)


async def _new_session(page: Page) -> None:
    ids = page.ids()
    body = {"workspaceId": ids["workspaceId"], "documentId": ids["documentId"], "title": "页面"}
    told = await page.good("POST", "/sessions", contract.SessionCreated, json=body)
    if not told["sessionId"].startswith(f"mnote_{ids['documentId']}_"):
        raise Failed(f"the session id does not name its document: {told['sessionId']}")


async def _empty_session(page: Page) -> None:
    ids = page.ids()
    told = await page.good("GET", f"/sessions/{ids['sessionId']}", contract.SessionDetail)
    if told["messages"]:
        raise Failed(f"a session that has not run has messages: {shortened(told)}")
    if any(value is not None for value in told["usage"].values()):
        raise Failed(f"usage that is not known is null, never zero: {shortened(told['usage'])}")


async def _models(page: Page) -> None:
    told = await page.good("GET", "/models", contract.ModelList)
    ids = [model["id"] for model in told["models"]]
    if len(set(ids)) != len(ids):
        raise Failed(f"a model is listed twice: {shortened(ids)}")
    if told["defaultModel"] not in (ids or [""]):
        raise Failed(f"the default model is none of the list: {shortened(told)}")


async def _tools(page: Page) -> None:
    await page.good("GET", "/tools", contract.ToolList)


async def _health(page: Page) -> None:
    told = await page.good("GET", "/health", contract.Health, signed_in=False)
    if not told["configured"] or told["upstream"] != "ok":
        raise Failed(f"Hermes answers, but health says otherwise: {shortened(told)}")


_SECRET = re.compile(r"key|token|secret|password|cookie|authorization|://", re.IGNORECASE)


async def _health_tells_nothing(page: Page) -> None:
    told = await page.good("GET", "/health", signed_in=False)
    found = [name for name, value in told.items() if _SECRET.search(f"{name} {value}")]
    if found:
        raise Failed(f"health is for strangers too, but it tells {', '.join(found)}")


async def _limit(value: str, page: Page) -> None:
    ids = page.ids()
    query = f"workspaceId={ids['workspaceId']}&documentId={ids['documentId']}&limit={value}"
    await page.refused("GET", f"/sessions?{query}", 400, BAD_REQUEST)


async def _limit_taken(value: str, page: Page) -> None:
    ids = page.ids()
    query = f"workspaceId={ids['workspaceId']}&documentId={ids['documentId']}&limit={value}"
    await page.good("GET", f"/sessions?{query}", contract.SessionList)


async def _no_document(page: Page) -> None:
    await page.refused("GET", "/sessions?workspaceId=w", 400, BAD_REQUEST)


async def _trace(where: str, page: Page) -> None:
    trace = f"trace_conform-{page.run}"
    options: dict[str, Any] = {}
    if where == "header":
        options = {"headers": {"X-Trace-Id": trace}}
    path = "/models" + (f"?traceId={trace}" if where == "query" else "")
    if where == "body":
        ids = page.ids()
        body = {"workspaceId": ids["workspaceId"], "documentId": ids["documentId"]}
        told = await page.good("POST", "/sessions", json={**body, "traceId": trace})
    else:
        told = await page.good("GET", path, **options)
    if told["traceId"] != trace:
        raise Failed(f"the trace id was {trace}, the answer's is {told['traceId']}")


async def _refusal(where: str, page: Page) -> None:
    trace = f"trace_conform-{page.run}"
    headers = {"X-Trace-Id": trace} if where == "header" else {}
    if where == "body":
        raw = {"json": {"workspaceId": page.workspace, "traceId": trace}}
        told = await page.refused("POST", "/sessions", 400, BAD_REQUEST, **raw)
    else:
        query = f"&traceId={trace}" if where == "query" else ""
        path = f"/sessions?workspaceId=w{query}"
        told = await page.refused("GET", path, 400, BAD_REQUEST, headers=headers)
    if told.body["traceId"] != trace:
        raise Failed(f"the trace id was {trace}, the error's is {told.body['traceId']}")


async def _which_trace(page: Page) -> None:
    """The body's comes before the query's, the query's before the header's."""
    body, query, header = (f"trace_{w}-{page.run}" for w in ("body", "query", "header"))
    told = await page.good("GET", f"/models?traceId={query}", headers={"X-Trace-Id": header})
    if told["traceId"] != query:
        raise Failed(f"the query's trace id counts before the header's, not {told['traceId']}")
    ids = page.ids()
    sent = {"workspaceId": ids["workspaceId"], "documentId": ids["documentId"], "traceId": body}
    path, headers = f"/sessions?traceId={query}", {"X-Trace-Id": header}
    told = await page.good("POST", path, json=sent, headers=headers)
    if told["traceId"] != body:
        raise Failed(f"the body's trace id counts before all others, not {told['traceId']}")


async def _ids_of_their_own(page: Page) -> None:
    """Two requests that name no trace are told apart by trace and request id."""
    first, second = await page.ask("GET", "/models"), await page.ask("GET", "/models")
    for name in ("x-trace-id", "x-request-id"):
        if first.headers.get(name) == second.headers.get(name):
            raise Failed(f"two requests have the same {name}: {first.headers.get(name)!r}")


async def _bad_trace(page: Page) -> None:
    told = await page.good("GET", f"/models?traceId={quote('a b<script>')}")
    if "<" in told["traceId"]:
        raise Failed("a trace id outside of [A-Za-z0-9._:-]{1,128} was taken over")


async def _unknown_route(page: Page) -> None:
    await page.refused("GET", "/nothing/here", 404, NOT_FOUND)


async def _wrong_method(page: Page) -> None:
    answer = await page.refused("DELETE", "/models", 405, BAD_REQUEST)
    if "GET" not in answer.headers.get("allow", ""):
        raise Failed("405 should carry Allow: GET")


async def _large_body(page: Page) -> None:
    ids = page.ids()
    raw = json.dumps({**ids, "message": "x" * 1_100_000}).encode()
    kind = {"Content-Type": "application/json"}
    await page.refused("POST", "/runs", 413, TOO_LARGE, data=io.BytesIO(raw), headers=kind)


async def _large_context(page: Page) -> None:
    ids = page.ids()
    body = {**ids, "message": "hello", "pageContext": {"text": "ж" * 33_000}}
    await page.refused("POST", "/runs", 413, TOO_LARGE, json=body)


async def _bad_json(raw: bytes, page: Page) -> None:
    headers = {"Content-Type": "application/json"}
    await page.refused("POST", "/runs", 400, BAD_REQUEST, data=raw, headers=headers)


async def _legacy(page: Page) -> None:
    answer = await page.refused(
        "POST", "/api/ai-agent/run", 400, BAD_REQUEST, json={"provider": "hermes"}
    )
    if "/api/hermes/client" not in answer.body["message"]:
        raise Failed(f"the message should name the new route: {answer.body['message']!r}")


# The contract's own vectors

_WORDS = {
    BAD_REQUEST: "is refused",
    FORBIDDEN: "is another document's",
    NOT_FOUND: "is not known",
}


async def _bad_request(row: dict[str, Any], page: Page) -> None:
    method, _, path = row["route"].partition(" ")
    document = page.ids()["documentId"]
    body = json.loads(json.dumps(row["body"]).replace("doc_1", document))
    # Not the client's own `json`: to that, null is no body at all.
    raw, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    await page.refused(method, path, row["status"], row["code"], data=raw, headers=kind)


async def _good_session(row: dict[str, Any], page: Page) -> None:
    document = page.ids()["documentId"]
    body = {**row["body"], "documentId": document}
    await page.good("POST", "/sessions", contract.SessionCreated, json=body)


async def _session_id(row: dict[str, Any], page: Page) -> None:
    path = f"/sessions/{quote(row['sessionId'], safe='')}"
    owner = row["document"]
    if owner is None:
        wanted = (400, 404) if row["sessionId"] == "" or "/" in row["sessionId"] else (400,)
        answer = await page.ask("GET", path)
        if answer.status not in wanted:
            raise Failed(
                f"{row['sessionId']!r} is no session id, but HTTP {answer.status}: "
                f"{shortened(answer.raw.decode('utf-8', 'replace'))}"
            )
        return
    await page.good("GET", f"{path}?documentId={owner}", contract.SessionDetail)
    await page.refused("GET", f"{path}?documentId={owner}_x", 403, FORBIDDEN)


async def _made_id(row: dict[str, Any], page: Page) -> None:
    body = {"workspaceId": "w", "documentId": row["documentId"], "traceId": row["traceId"]}
    told = await page.good("POST", "/sessions", contract.SessionCreated, json=body)
    if told["sessionId"] != row["sessionId"]:
        raise Failed(f"the session id should be {row['sessionId']}, it is {told['sessionId']}")


def _say(value: Any) -> str:
    return shortened(value, 160)


def _owned(row: dict[str, Any]) -> str:
    owner = "is none" if row["document"] is None else f"is of {row['document']}"
    return f"{row['sessionId']!r} {owner}"


def rows() -> dict[str, list[Row]]:
    """Every check of single requests, by group."""
    samples = _routes({"workspaceId": "w", "documentId": "d", "sessionId": "mnote_d_x"})
    names = [_name(method, path) for method, path, _ in samples]
    foreign: list[tuple[str, dict[str, str | None]]] = [
        ("a foreign Origin", {"Origin": FOREIGN, "Sec-Fetch-Site": None}),
        ("Origin null", {"Origin": "null", "Sec-Fetch-Site": None}),
        ("Sec-Fetch-Site cross-site", {"Sec-Fetch-Site": "cross-site", "Origin": None}),
        ("Sec-Fetch-Site same-site", {"Sec-Fetch-Site": "same-site", "Origin": None}),
        ("a rebound Host", {"Host": "rebound.example", "Origin": None}),
    ]
    alike: list[tuple[str, Callable[[str], str]]] = [
        ("of another scheme", _other_scheme),
        ("of another port", _other_port),
        ("that begins like ours", _with_ours_before),
        ("that names ours as a user", _with_ours_as_user),
    ]
    who = "who-may-ask"
    requests, session_ids = vectors("requests.json"), vectors("session_ids.json")
    types = ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", None)
    return {
        "sign-in": [
            *(
                (f"{name} without a sign-in", who, partial(_unauthorized, n))
                for n, name in enumerate(names)
            ),
            ("a forged cookie", who, _wrong_cookie),
        ],
        "same origin": [
            *(
                (f"{name} with {what}", who, partial(_foreign, n, headers))
                for what, headers in foreign
                for n, name in enumerate(names)
            ),
            ("a program that sends neither header", who, _no_browser_headers),
            ("an address that was typed in", who, _direct),
            ("the page's own origin", who, _own_origin),
            ("a preflight gets nothing", who, _preflight),
            *(
                (f"{names[n]} with an Origin {what}", who, partial(_origin_like_ours, n, wrong))
                for what, wrong in alike
                for n in [names.index(r) for r in ("GET /models", "POST /runs", "GET /events/*")]
            ),
            *(
                (
                    f"{name} as {kind or 'no type at all'}",
                    who,
                    partial(_content_type, n, kind),
                )
                for n, name in enumerate(names)
                if samples[n][0] == "POST"
                for kind in types
            ),
        ],
        "answers": [
            ("the sessions of a document", "routes", _sessions),
            ("a new session", "sessions", _new_session),
            ("a session that has not run is empty", "sessions", _empty_session),
            ("models", "routes", _models),
            ("tools", "routes", _tools),
            ("health needs no sign-in", "routes", _health),
            ("health tells a stranger no secret", "routes", _health_tells_nothing),
            *(
                (f"limit={value} is refused", "sessions", partial(_limit, value))
                for value in ("0", "201", "x", "-1", "1.5")
            ),
            *(
                (f"limit={value} is taken", "routes", partial(_limit_taken, value))
                for value in ("1", "200")
            ),
            ("sessions of no document", "sessions", _no_document),
            *(
                (f"a trace id in the {w} comes back", "routes", partial(_trace, w))
                for w in ("header", "query", "body")
            ),
            *(
                (f"a trace id in the {w} comes back in an error", "routes", partial(_refusal, w))
                for w in ("header", "query", "body")
            ),
            ("which trace id counts", "routes", _which_trace),
            ("every request has ids of its own", "routes", _ids_of_their_own),
            ("a malformed trace id does not", "routes", _bad_trace),
            ("an unknown route", "errors", _unknown_route),
            ("a wrong method", "errors", _wrong_method),
            ("a body of more than 1 MiB", "errors", _large_body),
            ("a page context of more than 64 KiB", "errors", _large_context),
            ("a body that is no JSON", "errors", partial(_bad_json, b"{")),
            ("a body that is no UTF-8", "errors", partial(_bad_json, b'{"a":"\xff"}')),
            ("the legacy route names the new one", "routes", _legacy),
        ],
        "requests": [
            *(
                (
                    f"{row['route']} {_say(row['body'])} {_WORDS[row['code']]}",
                    "errors",
                    partial(_bad_request, row),
                )
                for row in requests["bad"]
            ),
            *(
                (
                    f"{row['route']} {_say(row['body'])} is taken",
                    "sessions",
                    partial(_good_session, row),
                )
                for row in requests["good"]
                if row["route"] == "POST /sessions"
            ),
        ],
        "session ids": [
            *(
                (_owned(row), "sessions", partial(_session_id, row))
                for row in session_ids["read"]
                if row["sessionId"]
            ),
            *(
                (
                    f"{row['documentId']} and {row['traceId']} make {row['sessionId']}",
                    "sessions",
                    partial(_made_id, row),
                )
                for row in session_ids["make"]
            ),
        ],
    }
