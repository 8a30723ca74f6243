"""The browser door in front of a real Hermes, for tests: a process of its own, and a page's client.

async with Door(hermes, folder) as door:
    async with door.page("doc_1") as page:
        started = await page.start("hello")
        events = await page.read(started["runId"])
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from demo import home
from demo.processes import Child, free_port, start, stop, wait_for
from demo.settings import ROOT
from hermes_client_proxy.contract import PREFIX, TERMINAL_EVENTS
from hermes_client_proxy.sse import Decoder
from tests.e2e.hermes_process import HermesProcess

SECRET = "e2e-session-secret-0123456789abcdef"
PATIENCE = 150.0


@dataclass(frozen=True)
class Seen:
    """One event as a browser's EventSource would show it, and when it came (seconds)."""

    kind: str
    id: str | None
    data: dict[str, Any]
    at: float


class Door:
    """`hermes-client-proxy serve` beside one Hermes. Start, stop and restart at will."""

    def __init__(self, hermes: HermesProcess, folder: Path, **settings: str) -> None:
        self._hermes = hermes
        self._folder = folder
        self._settings = settings
        self.port = free_port()
        self._child: Child | None = None
        self._starts = 0
        self.cookie = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Starts it and signs in with the link that it prints."""
        self._starts += 1
        environment = {
            **home.environment(self._folder),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'proxy'}",
            "MNOTE_WEB_HERMES_UPSTREAM_URL": self._hermes.api_url,
            "MNOTE_WEB_HERMES_API_KEY": self._hermes.api_key,
            "MNOTE_WEB_SESSION_SECRET": SECRET,
            **self._settings,
        }
        command = [sys.executable, "-m", "hermes_client_proxy", "serve", "--port", str(self.port)]
        self._child = start(
            "The browser door",
            command,
            log=self._folder / f"door-{self._starts}.log",
            env=environment,
            cwd=self._folder,
        )
        await asyncio.to_thread(wait_for, f"{self.url}{PREFIX}/health", [self._child], PATIENCE)
        if not self.cookie:
            found = re.search(r"http\S+/login\?token=\S+", self.output())
            assert found is not None, "no sign-in link was printed"
            async with (
                aiohttp.ClientSession() as client,
                client.get(found[0], allow_redirects=False) as answer,
            ):
                assert answer.status == 303
                self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def output(self) -> str:
        """What it printed since its last start."""
        assert self._child is not None
        return self._child.log.read_text(errors="replace")

    async def stop(self) -> None:
        """SIGTERM, as a service manager would; returns when it has ended."""
        if self._child is not None:
            await asyncio.to_thread(stop, [self._child], patience=60.0)

    async def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._child.process.wait, PATIENCE)
        await self.stop()

    @asynccontextmanager
    async def page(self, document: str, trace: str | None = None) -> AsyncIterator[Page]:
        """A page of *document* with a session of its own."""
        async with aiohttp.ClientSession(headers={"Cookie": self.cookie}) as client:
            page = Page(self, client, document)
            made = await page.post("/sessions", {**page.names, "traceId": trace})
            page.session = made["sessionId"]
            yield page

    async def __aenter__(self) -> Door:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()


class Page:
    """What a page does, in a browser's words."""

    def __init__(self, door: Door, client: aiohttp.ClientSession, document: str) -> None:
        self.door = door
        self.client = client
        self.names = {"workspaceId": "ws_1", "documentId": document}
        self.session = ""

    @property
    def ids(self) -> dict[str, str]:
        return {**self.names, "sessionId": self.session}

    async def get(self, path: str, status: int = 200, **query: str) -> Any:
        async with self.client.get(self.door.url + PREFIX + path, params=query) as answer:
            body = await answer.json()
            assert answer.status == status, body
            return body

    async def post(self, path: str, body: dict[str, Any], status: int = 200, **headers: str) -> Any:
        async with self.client.post(
            self.door.url + PREFIX + path, json=body, headers=headers
        ) as answer:
            found = await answer.json()
            assert answer.status == status, found
            return found

    async def start(self, message: str, status: int = 200, **more: Any) -> Any:
        """POST /runs; *more* are further fields."""
        return await self.post("/runs", {**self.ids, "message": message, **more}, status)

    @asynccontextmanager
    async def events(
        self, run_id: str, last_id: str | None = None
    ) -> AsyncIterator[AsyncIterator[Seen]]:
        """The run's events, heartbeats left out."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        async with self.client.get(
            f"{self.door.url}{PREFIX}/events/{run_id}",
            params={"sessionId": self.session},
            headers=headers,
        ) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield self._seen(answer)

    async def _seen(self, answer: aiohttp.ClientResponse) -> AsyncIterator[Seen]:
        decoder = Decoder(10_000_000)
        async for chunk in answer.content.iter_any():
            for event in decoder.feed(chunk):
                if not event.event:
                    data = json.loads(event.data)
                    yield Seen(data["event"], event.id, data, time.monotonic())

    async def read(self, run_id: str, last_id: str | None = None) -> list[Seen]:
        """Every event to the end of the stream."""
        async with asyncio.timeout(PATIENCE), self.events(run_id, last_id) as events:
            return [event async for event in events]

    async def read_until(self, run_id: str, kind: str, times: int = 1) -> list[Seen]:
        """Events up to the *times*-th one of this kind; the stream is left then."""
        found = []
        async with asyncio.timeout(PATIENCE), self.events(run_id) as events:
            async for event in events:
                found.append(event)
                times -= event.kind == kind
                if not times:
                    break
        return found


def text_of(events: list[Seen]) -> str:
    """What the deltas say together."""
    return "".join(e.data["delta"] for e in events if e.kind == "message.delta")


def end_of(events: list[Seen]) -> Seen:
    """The last event, which has to be the run's end."""
    assert events[-1].kind in TERMINAL_EVENTS, [event.kind for event in events]
    return events[-1]
