"""The proxy inside other applications: at any path, and in hosts that stop and start again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route
from starlette.types import Message, Scope

from hermes_client_proxy import ProxyApp, Settings, create_app
from hermes_client_proxy.contract import LEGACY_PATH, PREFIX
from tests.proxy.running import IDS, SESSION, browsing, user_of
from tests.proxy.small_hermes import KEY, SmallHermes

LIMIT = 20.0


async def call(
    app: Any, method: str, path: str, body: Any = None, *, root: str = "", bare: bool = False
) -> tuple[int, bytes]:
    """One request as a server without lifespan events makes it. *bare* leaves out of the scope
    what the ASGI specification lets a server leave out."""
    raw = b"" if body is None else json.dumps(body).encode()
    inbox = [{"type": "http.request", "body": raw, "more_body": False}]
    sent: list[Message] = []
    ended = asyncio.Event()

    async def receive() -> Message:
        if inbox:
            return inbox.pop()
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"x-test-user", b"ann")]
    if body is not None:
        headers.append((b"content-type", b"application/json"))
    path, _, query = path.partition("?")
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": headers}
    if not bare:
        scope.update(
            scheme="http",
            query_string=query.encode(),
            root_path=root,
            client=("127.0.0.1", 1),
            server=("127.0.0.1", 80),
        )
    async with asyncio.timeout(LIMIT):
        await app(scope, receive, send)
    ended.set()
    status = next(m["status"] for m in sent if m["type"] == "http.response.start")
    return status, b"".join(m.get("body", b"") for m in sent if m["type"] != "http.response.start")


def proxy_for(hermes: SmallHermes, **options: Any) -> ProxyApp:
    settings = Settings(upstream_url=hermes.url, api_key=KEY, poll=0.05)
    return create_app(settings, **{"authenticate": user_of, **options})


MOUNTS: dict[str, tuple[str, Callable[[ProxyApp], list[Any]]]] = {
    "at its prefix": ("", lambda proxy: [Mount(PREFIX, app=proxy), Route(LEGACY_PATH, proxy)]),
    "in a folder": ("/notes", lambda proxy: [Mount("/notes", app=proxy)]),
    "in a folder with a name": ("/w/7", lambda proxy: [Mount("/w/{team}", app=proxy)]),
    "at a part of its prefix": ("", lambda proxy: [Mount("/api", app=proxy)]),
    "at the root": ("", lambda proxy: [Mount("/", app=proxy)]),
    "mounted twice": (
        "/a/b",
        lambda proxy: [Mount("/a", routes=[Mount("/b", routes=[Mount(PREFIX, app=proxy)])])],
    ),
}


@pytest.mark.parametrize("root", ["", "/team", "/api"])
@pytest.mark.parametrize("name", MOUNTS)
async def test_it_answers_wherever_it_is_mounted(name: str, root: str) -> None:
    folder, routes = MOUNTS[name]
    async with SmallHermes() as hermes:
        proxy = proxy_for(hermes)
        host = Starlette(routes=routes(proxy))
        for path, expected in (("/models", 200), ("/health", 200), ("/nothing", 404)):
            full = f"{root}{folder}{PREFIX}{path}"
            status, body = await call(host, "GET", full, root=root)
            assert (status, json.loads(body)["ok"]) == (expected, expected == 200)
        if name != "mounted twice":
            full = f"{root}{folder}{LEGACY_PATH}"
            status, body = await call(host, "POST", full, {"provider": "hermes"}, root=root)
            assert status == 400 and f"{PREFIX}/runs" in json.loads(body)["message"]
        await proxy.aclose()


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/models", PREFIX, 200),  # a framework that leaves the mount out of the path
        (f"{PREFIX}/models", "/team", 200),
        ("/models", "/team" + PREFIX, 200),
        (f"/elsewhere{PREFIX}/models", "", 404),
        (f"/team/elsewhere{PREFIX}/models", "/team", 404),
        (f"{PREFIX}x/models", "", 404),
        (f"/team{PREFIX}x/models", "/team", 404),
        ("/models", "", 404),
    ],
)
async def test_only_the_mount_may_stand_before_the_path(path: str, root: str, status: int) -> None:
    async with SmallHermes() as hermes:
        proxy = proxy_for(hermes)
        assert (await call(proxy, "GET", path, root=root))[0] == status
        await proxy.aclose()


async def test_a_scope_may_lack_what_is_optional() -> None:
    async with SmallHermes() as hermes:
        proxy = proxy_for(hermes)
        assert (await call(proxy, "GET", f"{PREFIX}/models", bare=True))[0] == 200
        await proxy.aclose()


async def test_a_host_may_stop_and_start_again() -> None:
    async with SmallHermes(replayable=True) as hermes:
        proxy = proxy_for(hermes)
        body = {**IDS, "sessionId": SESSION, "message": "hello"}
        for number in (1, 2, 3):
            async with proxy.lifespan():
                status, answer = await call(proxy, "POST", f"{PREFIX}/runs", body)
                assert status == 200
                run_id = json.loads(answer)["runId"]
                assert run_id == f"run_000{number}"
                asyncio.get_running_loop().call_later(0.05, hermes.last.end)
                path = f"{PREFIX}/events/{run_id}?sessionId={SESSION}"
                stream = (await call(proxy, "GET", path))[1]
                assert b"run.completed" in stream and b"proxy.closing" not in stream
        # A run from before a stop is found again.
        async with proxy.lifespan():
            path = f"{PREFIX}/events/run_0001?sessionId={SESSION}"
            assert b"run.completed" in (await call(proxy, "GET", path))[1]


async def test_a_run_that_goes_on_over_a_stop_is_found_again() -> None:
    async with SmallHermes(replayable=True) as hermes:
        proxy = proxy_for(hermes)
        body = {**IDS, "sessionId": SESSION, "message": "hello"}
        key = {**body, "traceId": "once"}
        async with proxy.lifespan():
            assert (await call(proxy, "POST", f"{PREFIX}/runs", key))[0] == 200
            hermes.last.say("message.delta", delta="before ")
        async with proxy.lifespan():
            answer = (await call(proxy, "POST", f"{PREFIX}/runs", key))[1]
            assert json.loads(answer)["runId"] == "run_0001"
            hermes.last.say("message.delta", delta="after")
            asyncio.get_running_loop().call_later(0.05, hermes.last.end)
            stream = await call(proxy, "GET", f"{PREFIX}/events/run_0001?sessionId={SESSION}")
            assert b"before" in stream[1] and b"after" in stream[1]
        assert not hermes.stops and len(hermes.runs) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_event_loop_that_is_gone_takes_nothing_with_it() -> None:
    """Test clients and some hosts serve each request in a loop of its own, without a lifespan."""
    hermes = SmallHermes(replayable=True)
    proxy: list[ProxyApp] = []

    def in_a_loop_of_its_own(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        async def main() -> tuple[int, bytes]:
            await hermes.listen()
            try:
                if not proxy:
                    proxy.append(proxy_for(hermes))
                return await call(proxy[0], method, PREFIX + path, body)
            finally:
                await hermes.close()

        return asyncio.run(main())

    start = {**IDS, "sessionId": SESSION, "message": "hello", "traceId": "once"}
    for _ in range(3):
        assert in_a_loop_of_its_own("GET", "/models")[0] == 200
    status, answer = in_a_loop_of_its_own("POST", "/runs", start)
    assert (status, json.loads(answer)["runId"]) == (200, "run_0001")
    assert json.loads(in_a_loop_of_its_own("POST", "/runs", start)[1])["runId"] == "run_0001"
    assert json.loads(in_a_loop_of_its_own("GET", "/health")[1])["runningRuns"] == 0
    hermes.last.end()
    stream = in_a_loop_of_its_own("GET", f"/events/run_0001?sessionId={SESSION}")[1]
    assert b"run.completed" in stream
    # Nothing of the loops that are gone holds the session.
    other = {**start, "message": "more", "traceId": "again"}
    assert json.loads(in_a_loop_of_its_own("POST", "/runs", other)[1])["runId"] == "run_0002"
    asyncio.run(proxy[0].aclose())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_start_that_ended_with_its_loop_is_of_unknown_outcome() -> None:
    hermes = SmallHermes()
    proxy: list[ProxyApp] = []
    start = {**IDS, "sessionId": SESSION, "message": "hello", "traceId": "once"}

    async def first() -> None:
        async def hang(request: Any) -> Any:
            hermes.started.set()
            await asyncio.Event().wait()

        await hermes.listen()
        hermes.answers["POST /v1/runs"] = hang
        hermes.started = asyncio.Event()
        proxy.append(proxy_for(hermes))
        asking = asyncio.create_task(call(proxy[0], "POST", f"{PREFIX}/runs", start))
        await asyncio.wait_for(hermes.started.wait(), LIMIT)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await hermes.close()

    async def second() -> tuple[int, bytes]:
        hermes.answers.clear()
        await hermes.listen()
        try:
            return await call(proxy[0], "POST", f"{PREFIX}/runs", start)
        finally:
            await proxy[0].aclose()
            await hermes.close()

    asyncio.run(first())
    status, answer = asyncio.run(second())
    assert status == 502 and "look at the session" in json.loads(answer)["message"]
    assert not hermes.runs


async def test_a_body_that_the_host_has_read_is_not_waited_for() -> None:
    async def by_body(request: Request) -> str | None:
        return "ann" if (await request.json()).get("workspaceId") == "ws_1" else None

    async with SmallHermes() as hermes, browsing(hermes.url, authenticate=by_body) as browser:
        assert (await browser.start())["runId"] == "run_0001"
        body = {**IDS, "workspaceId": "ws_2", "traceId": "mine"}
        refused = await browser.ask("POST", "/sessions", 401, json=body)
        assert refused["traceId"] == "mine"


async def test_a_body_that_the_host_has_thrown_away_is_an_error() -> None:
    async def by_stream(request: Request) -> str | None:
        return "ann" if [part async for part in request.stream()] else None

    async with SmallHermes() as hermes, browsing(hermes.url, authenticate=by_stream) as browser:
        await browser.start(status=502)
        assert not hermes.runs
