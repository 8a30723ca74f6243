"""The proxy on a real socket in the test's own loop, and a browser for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn
from starlette.requests import Request

from hermes_client_proxy import ProxyApp, Settings, create_app
from hermes_client_proxy.contract import PREFIX
from hermes_client_proxy.sse import Decoder, ServerSentEvent
from tests.proxy.small_hermes import KEY

# A deadline tells what never comes from a busy machine; nothing is measured with it.
PATIENCE = 60.0
SESSION = "mnote_doc_1_trace_1"
IDS = {"workspaceId": "ws_1", "documentId": "doc_1"}


def user_of(request: Request) -> str | None:
    """Signed in is who sends X-Test-User."""
    return request.headers.get("x-test-user")


class Browser:
    """Asks the proxy as a signed-in page."""

    def __init__(self, url: str, app: ProxyApp, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.app = app
        self.client = client

    def request(self, method: str, path: str, user: str = "ann", **options: Any) -> Any:
        """aiohttp's request; *path* is under the contract's prefix unless it starts with it."""
        full = path if path.startswith("/api/") else PREFIX + path
        headers = {"X-Test-User": user, **options.pop("headers", {})}
        headers = {name: value for name, value in headers.items() if value}
        return self.client.request(
            method, self.url + full, headers=headers, allow_redirects=False, **options
        )

    async def ask(
        self, method: str, path: str, status: int = 200, **options: Any
    ) -> dict[str, Any]:
        """The JSON body of an answer with this status; an error's shape is checked."""
        async with self.request(method, path, **options) as answer:
            raw = await answer.read()
            assert answer.status == status, (answer.status, raw)
            body: dict[str, Any] = json.loads(raw)
            assert answer.headers["X-Trace-Id"] == body["traceId"]
            assert answer.headers["X-Request-Id"]
            if status >= 400:
                assert set(body) == {"ok", "code", "message", "traceId", "requestId"}
                assert body["ok"] is False and body["requestId"] == answer.headers["X-Request-Id"]
            return body

    async def start(self, message: str = "hello", status: int = 200, **options: Any) -> Any:
        """POST /runs in SESSION; *body* adds fields."""
        extra = options.pop("body", {})
        body = {**IDS, "sessionId": SESSION, "message": message, **extra}
        return await self.ask("POST", "/runs", status, json=body, **options)

    @asynccontextmanager
    async def events(
        self, run_id: str, last_id: str | None = None, session: str = SESSION, **options: Any
    ) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        """The event stream, heartbeats included."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        async with self.request(
            "GET", f"/events/{run_id}?sessionId={session}", headers=headers, **options
        ) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)

    async def read(self, run_id: str, last_id: str | None = None) -> list[ServerSentEvent]:
        """Every contract event to the end of the stream."""
        async with asyncio.timeout(PATIENCE), self.events(run_id, last_id) as events:
            return [event async for event in events if not event.event]


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
    decoder = Decoder(10_000_000)
    async for chunk in answer.content.iter_any():
        for event in decoder.feed(chunk):
            yield event


def data_of(events: list[ServerSentEvent]) -> list[dict[str, Any]]:
    """The events' data."""
    return [json.loads(event.data) for event in events]


def kinds_of(events: list[ServerSentEvent]) -> list[str]:
    """The events' kinds."""
    return [str(data["event"]) for data in data_of(events)]


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[str]:
    """*app* on a free port; its address. *options* are uvicorn's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        config = uvicorn.Config(
            app,
            log_config=None,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=3,
            **options,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listener]))
        while not server.started:
            await asyncio.sleep(0.005)
            assert not task.done()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def browsing(upstream_url: str | None, **options: Any) -> AsyncIterator[Browser]:
    """A proxy before this upstream, and a browser. Fields of Settings, or of create_app."""
    hooks = {
        name: options.pop(name)
        for name in ("authenticate", "authorize", "legacy")
        if name in options
    }
    hooks.setdefault("authenticate", user_of)
    settings = Settings(**{"upstream_url": upstream_url, "api_key": KEY, "poll": 0.05, **options})
    app = create_app(settings, **hooks)
    async with serving(app) as url, aiohttp.ClientSession() as client:
        try:
            yield Browser(url, app, client)
        finally:
            await app.aclose()


async def until_ended(process: asyncio.subprocess.Process) -> int:
    """The exit status of a process that is asked to end."""
    async with asyncio.timeout(PATIENCE * 2):
        return await process.wait()
