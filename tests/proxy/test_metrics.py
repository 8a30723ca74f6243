"""What the browser door counts, times and logs over a session with everything in it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from hermes_client_proxy import ToolEntry
from hermes_client_proxy.contract import PREFIX
from hermes_client_proxy.counters import OPERATIONS, ROUTES, Spread, operation, status_class
from hermes_client_proxy.metrics import _buckets, check_reader
from hermes_client_proxy.paths import METRICS_PATH, route_label
from hermes_client_proxy.settings import Settings, SettingsError
from tests.proxy.running import IDS, SESSION, Browser, browsing
from tests.proxy.small_hermes import KEY, SmallHermes, error, message_row, session_row
from tests.proxy.test_runs import BOTH, until

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
TOKEN = "geheim-token-of-graphs"
TIMING = re.compile(r"total;dur=\d+\.\d(, upstream;dur=\d+\.\d)?")


class Scraped:
    """The samples of one scrape, by name and label values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, *labels: str) -> float:
        return self.samples["hermes_client_proxy_" + name, *labels]


async def scrape(browser: Browser, path: str = METRICS_PATH, **headers: str) -> Scraped:
    async with browser.client.get(browser.url + path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/plain"
        return Scraped(await answer.text())


async def everything(browser: Browser, hermes: SmallHermes) -> None:
    """A session with everything in it; every secret word begins with `geheim`."""
    list_path = "/sessions?workspaceId=ws_1&documentId=doc_1"
    hermes.sessions[SESSION] = session_row(SESSION)
    hermes.messages[SESSION] = [message_row(1, SESSION, "user", "geheim-gestern")]
    await browser.ask("GET", "/health")
    await browser.ask("GET", "/models")
    await browser.ask("GET", "/tools")
    await browser.ask("GET", list_path)
    await browser.ask("GET", f"/sessions/{SESSION}")
    body = {"workspaceId": "ws_1", "documentId": "doc_1", "title": "geheim-titel"}
    await browser.ask("POST", "/sessions", json=body)
    await browser.ask("GET", list_path, 401, user="")
    await browser.ask("GET", "/sessions?workspaceId=w&documentId=geheim-verboten", 403)
    await browser.ask("GET", list_path, 403, headers={"Origin": "https://geheim.example"})
    await browser.ask("POST", "/runs", 400, data=b'{"geheim', headers=JSON)
    await browser.ask("GET", "/geheim-seite?token=geheim", 404)

    page = {"title": "geheim-seite", "blocks": [{"text": "geheim-absatz"}]}
    key = {"Idempotency-Key": "key-1"}
    start: dict[str, Any] = {
        "headers": key,
        "body": {"pageContext": page, "selectedText": "geheim"},
    }
    first = await browser.start("geheim-frage", **start)
    await browser.start("geheim-frage", **start)
    run = hermes.last
    async with browser.events(first["runId"]) as events:
        run.say("message.delta", delta="geheim-antwort")
        run.say("approval.request", command="rm geheim", request_id="r1", choices=["once", "deny"])
        card = {}
        async for event in events:
            if not event.event and (card := json.loads(event.data)).get("approvalId"):
                break
        assert (await scrape(browser))("streams_open") == 1
        wanted = {**IDS, "sessionId": SESSION, "approvalId": card["approvalId"], "choice": "once"}
        await browser.ask("POST", f"/runs/{first['runId']}/approval", json=wanted)
        last_id = event.id
    await browser.ask(
        "POST", f"/runs/{first['runId']}/approval", 409, json={**wanted, "approvalId": "geheim"}
    )
    run.say("message.completed", text="geheim-antwort")
    run.end()
    events_read = await browser.read(first["runId"])
    await browser.read(first["runId"], last_id)
    await browser.read(first["runId"], "99-geheim00")
    async with browser.request(
        "GET",
        f"/events/{first['runId']}?sessionId={SESSION}",
        headers={"Last-Event-ID": str(events_read[-1].id)},
    ) as answer:
        assert answer.status == 204

    second = await browser.start("geheim-zweitens")
    await browser.ask("POST", f"/runs/{second['runId']}/abort", json={**IDS, "sessionId": SESSION})
    hermes.last.end("cancelled", error="geheim-grund")
    await browser.read(second["runId"])

    async def failing(request: web.Request) -> web.StreamResponse:
        return error(500, "boom", "geheim-fehler")

    hermes.answers["GET /v1/models"] = failing
    await browser.ask("GET", "/models", 502)
    del hermes.answers["GET /v1/models"]


JSON = {"Content-Type": "application/json"}


def only_doc_1(user: Any, workspace_id: str | None, document_id: str) -> bool:
    if document_id == "broken":
        raise ValueError("geheim-zugriff")
    return document_id == "doc_1"


OPTIONS: dict[str, Any] = {
    "authorize": only_doc_1,
    "tools": (ToolEntry("mnote.page.get", "page.read", "v1"),),
}


@BOTH
async def test_everything_is_counted(replayable: bool) -> None:
    async with (
        SmallHermes(replayable=replayable) as hermes,
        browsing(hermes.url, **OPTIONS) as browser,
    ):
        await everything(browser, hermes)
        await until(lambda: not browser.app.service.runs.running)
        got = await scrape(browser)

        assert got("requests_total", "sessions", "2xx") == 2
        assert got("requests_total", "sessions", "4xx") == 3
        assert got("requests_total", "session", "2xx") == 1
        assert got("requests_total", "runs", "2xx") == 3
        assert got("requests_total", "runs", "4xx") == 1
        assert got("requests_total", "events", "2xx") == 6
        assert got("requests_total", "abort", "2xx") == 1
        assert got("requests_total", "approval", "2xx") == 1
        assert got("requests_total", "models", "5xx") == 1
        assert got("requests_total", "other", "4xx") == 1
        assert got("requests_total", "metrics", "2xx") == 1
        assert got("request_seconds_count", "runs") == 4
        assert got("errors_total", "hermes_client_unauthorized") == 1
        assert got("errors_total", "hermes_client_forbidden") == 2
        assert got("errors_total", "hermes_client_upstream_unavailable") == 1
        assert [got("refused_total", of) for of in ("origin", "session", "document")] == [1, 1, 1]
        assert got("body_bytes_total", "in") > 500 and got("body_bytes_total", "out") > 1000

        assert got("upstream_requests_total", "start", "2xx") == 2
        assert got("upstream_requests_total", "models", "5xx") == 1
        assert got("upstream_requests_total", "events", "2xx") == 2
        assert got("upstream_requests_total", "stop", "2xx") == 1
        assert got("upstream_seconds_count", "start") == 2
        assert got("upstream_streams_open") == 0

        assert got("runs_active") == 0 and got("runs_kept") == 2 and got("log_bytes") > 100
        assert got("runs_total", "started") == 2 and got("runs_total", "repeated") == 1
        assert got("runs_ended_total", "completed") == 1
        assert got("runs_ended_total", "cancelled") == 1
        assert got("run_seconds_count") == 2 and got("run_events_total") >= 5
        assert got("approvals_total", "once") == 1 and got("approvals_total", "failed") == 1
        assert got("approvals_open") == 0

        assert got("streams_open") == 0
        assert got("streams_total", "left") == 1 and got("streams_total", "ended") == 4
        assert got("stream_seconds_count") == 5 and got("stream_bytes_total") > 500
        assert got("stream_behind_events_max") == 0
        assert [got("replays_total", of) for of in ("hit", "miss", "ended")] == [1, 1, 1]
        assert got.samples["process_resident_memory_bytes",] > 0


async def test_open_streams_runs_and_lost_streams_are_counted() -> None:
    async with SmallHermes(replayable=True) as hermes, browsing(hermes.url) as browser:
        started = await browser.start()
        async with browser.events(started["runId"]) as events:
            hermes.last.say("message.delta", delta="x")
            async for event in events:
                if not event.event:
                    break
            got = await scrape(browser)
            assert got("streams_open") == got("runs_active") == got("upstream_streams_open") == 1
            assert got("stream_bytes_total") > 0 and got("run_events_total") == 1
            hermes.last.cut()
            await until(lambda: hermes.last.opened == 2)
        hermes.last.end()
        await browser.read(started["runId"])
        assert (await scrape(browser))("upstream_streams_lost_total", "broke") == 1
        hermes.forget_runs()
    async with browsing("http://127.0.0.1:1") as browser:
        await browser.ask("GET", "/models", 502)
        got = await scrape(browser)
        assert got("upstream_requests_total", "models", "unreachable") == 1


async def test_labels_come_from_closed_lists_whatever_is_asked() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, **OPTIONS) as browser:
        before = set((await scrape(browser)).samples)
        await everything(browser, hermes)
        async with browser.request("BREW", "/geheim/../x/%00") as answer:
            assert answer.status >= 400
        after = set((await scrape(browser)).samples)

    assert before == after
    assert not any("geheim" in part for key in after for part in key)


async def test_lines_for_requests_streams_and_runs_and_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        SmallHermes() as hermes,
        browsing(hermes.url, metrics_token=TOKEN, **OPTIONS) as browser,
    ):
        token = {"Authorization": f"Bearer {TOKEN}"}
        browser.client.headers.update(token)
        await everything(browser, hermes)
        await until(lambda: not browser.app.service.runs.running)
        await browser.ask("GET", "/sessions?workspaceId=w&documentId=broken", 403)
        wrong = {"Authorization": "Bearer geheim-falsch"}
        async with browser.client.get(browser.url + METRICS_PATH, headers=wrong) as answer:
            assert answer.status == 401

    lines = []
    for record in caplog.records:
        if record.name == "uvicorn.access":
            continue  # this test's server; `serve` has it switched off
        message = record.getMessage()
        assert "geheim" not in message and KEY not in message
        assert "geheim" not in str(record.exc_text) and record.exc_info is None
        if record.name == "hermes_client_proxy":
            lines.append(json.loads(message))
    requests = [line for line in lines if line["event"] == "request"]
    start = next(line for line in requests if line["route"] == "/runs" and line["status"] == 200)
    assert start["bytes_in"] > 100 and start["bytes_out"] > 50 and start["method"] == "POST"
    assert start["ms"] >= start["upstream_ms"] > 0
    assert start["user"] and start["trace_id"] and start["request_id"]
    streams = [line for line in lines if line["event"] == "stream_ended"]
    assert sorted(line["how"] for line in streams) == ["ended"] * 4 + ["left"]
    assert all(line["bytes_out"] >= 0 and line["seconds"] >= 0 for line in streams)
    assert {line["run"] for line in streams} == set(hermes.runs)
    runs = [line for line in lines if line["event"] == "run_ended"]
    assert [line["outcome"] for line in runs] == ["run.completed", "run.cancelled"]
    assert all(line["events"] >= 1 and line["kept_bytes"] > 0 for line in runs)


async def test_every_answer_tells_its_time() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        for method, path, waits in (
            ("GET", "/models", True),
            ("GET", "/sessions?workspaceId=w&documentId=doc_1", True),
            ("GET", "/nothing", False),
            ("POST", "/runs", False),
        ):
            async with browser.request(method, path) as answer:
                timing = answer.headers["Server-Timing"]
                assert TIMING.fullmatch(timing), timing
                assert ("upstream" in timing) is waits
        started = await browser.start()
        async with browser.request(
            "GET", f"/events/{started['runId']}?sessionId={SESSION}"
        ) as answer:
            assert TIMING.fullmatch(answer.headers["Server-Timing"])
        hermes.last.end()


async def test_the_time_of_hermes_is_told() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.json_response({"object": "list", "data": []})

    async with SmallHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/models"] = slow
        async with browser.request("GET", "/models") as answer:
            timing = answer.headers["Server-Timing"]
        total, upstream = (float(part.partition("dur=")[2]) for part in timing.split(", "))

    assert total >= upstream >= 200


# Who may read


def reader(host: str = "127.0.0.1:8750", **headers: str) -> list[tuple[bytes, bytes]]:
    more = [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()]
    return [(b"host", host.encode()), *more]


HERE = ("127.0.0.1", 50000)


@pytest.mark.parametrize(
    ("settings", "headers", "client", "status"),
    [
        ({}, reader(), HERE, 200),
        ({}, reader("localhost:8750"), ("::1", 1), 200),
        ({}, reader("[::1]:8750"), ("::ffff:127.0.0.1", 1), 200),
        ({}, reader(), ("10.0.0.7", 1), 403),
        ({}, reader(), None, 403),
        ({}, reader("rebound.example"), HERE, 403),
        ({}, reader("192.168.1.4:8750"), HERE, 403),
        ({}, [], HERE, 403),
        ({}, reader(origin="http://127.0.0.1:8750"), HERE, 403),
        ({}, reader(sec_fetch_site="same-origin"), HERE, 403),
        ({}, reader(x_forwarded_for="127.0.0.1"), HERE, 403),
        ({}, reader(X_Real_IP="127.0.0.1"), HERE, 403),
        ({}, reader(forwarded="for=1.2.3.4"), HERE, 403),
        ({"MNOTE_WEB_PUBLIC_ORIGIN": "https://notes.example.org"}, reader(), HERE, 403),
        ({"MNOTE_WEB_TRUSTED_PROXIES": "127.0.0.1"}, reader(), HERE, 403),
        ({"MNOTE_WEB_METRICS_TOKEN": TOKEN}, reader(), HERE, 401),
        ({"MNOTE_WEB_METRICS_TOKEN": TOKEN}, reader(authorization="Bearer x"), HERE, 401),
        ({"MNOTE_WEB_METRICS_TOKEN": TOKEN}, reader(authorization=f"Basic {TOKEN}"), HERE, 401),
        ({"MNOTE_WEB_METRICS_TOKEN": TOKEN}, reader(authorization=f"Bearer {TOKEN}"), None, 200),
    ],
)
def test_who_may_read(
    settings: dict[str, str], headers: Any, client: tuple[str, int] | None, status: int
) -> None:
    found = 200
    try:
        check_reader(headers, {"client": client}, Settings.from_env(settings))
    except Exception as refusal:
        found = getattr(refusal, "status", 0)
        assert "MNOTE_WEB_METRICS_TOKEN" in str(refusal) and "geheim" not in str(refusal)

    assert found == status


async def test_the_refusals_on_the_socket_and_both_paths() -> None:
    async with browsing(None, metrics_token=TOKEN) as browser:
        token = {"Authorization": f"Bearer {TOKEN}"}
        for path in (METRICS_PATH, f"{METRICS_PATH}?token={TOKEN}", PREFIX + METRICS_PATH):
            async with browser.client.get(browser.url + path) as answer:
                assert answer.status == 401
                assert (await answer.json())["code"] == "hermes_client_unauthorized"
        assert (await scrape(browser, **token))("refused_total", "metrics") == 3
        # The token is enough: a scraper may come by any name.
        await scrape(browser, PREFIX + METRICS_PATH, Host="proxy:8750", **token)
        async with browser.client.post(browser.url + METRICS_PATH, headers=token) as answer:
            assert answer.status == 405
    async with browsing(None) as browser:
        await scrape(browser)
        async with browser.client.get(
            browser.url + METRICS_PATH, headers={"X-Forwarded-For": "1.2.3.4"}
        ) as answer:
            assert answer.status == 403


def test_the_token_is_long_and_its_own() -> None:
    key = "a-key-of-the-api-server-0123456789"
    with pytest.raises(SettingsError, match="at least 16"):
        Settings(metrics_token="short")
    for name in ("api_key", "session_secret"):
        with pytest.raises(SettingsError, match="make one of its own") as refused:
            Settings(metrics_token=key, **{name: key})
        assert key not in str(refused.value)
    assert TOKEN not in repr(Settings(metrics_token=TOKEN))


async def test_the_token_never_leaves_in_an_answer() -> None:
    async with SmallHermes() as hermes, browsing(hermes.url, metrics_token=TOKEN) as browser:
        hermes.sessions[SESSION] = session_row(SESSION)
        hermes.messages[SESSION] = [message_row(1, SESSION, "user", f"look: {TOKEN}")]
        answer = await browser.ask("GET", f"/sessions/{SESSION}")

    assert TOKEN not in json.dumps(answer)


# The counters themselves


def test_routes_and_operations_are_closed_lists() -> None:
    for path in ("/", "/api", PREFIX, f"{PREFIX}/", f"{PREFIX}/runs/x", f"{PREFIX}/runs/x/y"):
        assert route_label(path) == "other"
    paths = ("sessions", "sessions/x", "runs", "events/x", "runs/x/abort", "runs/x/approval")
    found = [route_label(f"{PREFIX}/{path}") for path in paths]
    assert found == ["sessions", "session", "runs", "events", "abort", "approval"]
    assert {route_label(METRICS_PATH), route_label("/api/ai-agent/run")} == {"metrics", "legacy"}
    assert set(found) <= set(ROUTES)
    assert operation("GET", "/v1/runs/any.thing/stop") == "stop"
    assert operation("PATCH", "/api/sessions/x") == "title"
    assert operation("GET", "/api/sessions/x/messages") == "messages"
    assert operation("GET", "/v2/new") == "other" and "title" in OPERATIONS
    classes = [status_class(status) for status in (0, 200, 404, 599, 700)]
    assert classes == ["none", "2xx", "4xx", "5xx", "none"]


def test_a_spread_counts_below_and_above() -> None:
    spread = Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        spread.add(value)

    assert _buckets(spread) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)] and spread.sum == 12


# The dashboard


async def test_the_dashboard_asks_for_what_is_there_and_the_page_names_it() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    async with SmallHermes() as hermes, browsing(hermes.url, **OPTIONS) as browser:
        await everything(browser, hermes)
        got = await scrape(browser)
    asked = set(re.findall(r"\bhermes_client_proxy_\w+", " ".join(queries)))
    page = DASHBOARD.with_name("metrics.md").read_text()

    assert asked and asked <= {key[0] for key in got.samples}
    for family in text_string_to_metric_families(got.text):
        if family.name.startswith("hermes_client_proxy_"):
            name = family.name.removeprefix("hermes_client_proxy_")
            assert f"`{name}{'_total' * (family.type == 'counter')}`" in page, name


async def test_a_hermes_that_is_too_slow_is_counted() -> None:
    waiting = asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        waiting.set()
        await asyncio.sleep(30)
        raise AssertionError

    async with SmallHermes() as hermes, browsing(hermes.url, answer_timeout=0.3) as browser:
        hermes.answers["GET /v1/models"] = never
        async with browser.request("GET", "/models") as answer:
            assert answer.status == 504
        got = await scrape(browser)

    assert waiting.is_set() and got("upstream_requests_total", "models", "slow") == 1
