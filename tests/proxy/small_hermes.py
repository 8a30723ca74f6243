"""A small Hermes API server that does what a test tells it to, good or bad.

It speaks the older run interface, or with ``replayable=True`` the newer one. ``answers`` replaces
the answer of a route: a Reply, or a function of the request that returns one or writes bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY = "small-hermes-key-0123456789abcdef"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class SmallRun:
    """A run that a test drives: ``say`` sends an event, ``end`` closes the stream."""

    run_id: str
    body: dict[str, Any]
    key: str | None
    status: dict[str, Any]
    events: list[dict[str, Any] | None] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    readers: int = 0
    opened: int = 0
    taken: bool = False
    drop: bool = False

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append({"event": kind, "run_id": self.run_id, "timestamp": 1.5, **fields})
        self._wake()

    def end(self, status: str = "completed", **fields: Any) -> None:
        """The terminal event, the status, and the end of the stream."""
        self.status.update(status=status, **fields)
        self.say(f"run.{status}", **fields)
        self.events.append(None)
        self._wake()

    def cut(self) -> None:
        """Breaks the connection of every reader; the run goes on."""
        self.drop = True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class SmallHermes:
    """Use as an async context manager; ``url`` is where it listens."""

    def __init__(self, *, replayable: bool = False) -> None:
        self.replayable = replayable
        self.runs: dict[str, SmallRun] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self.answers: dict[str, Answer] = {}
        self.seen: list[web.Request] = []
        self.bodies: list[Any] = []
        self.patches: list[tuple[str, Any]] = []
        self.approvals: list[dict[str, Any]] = []
        self.stops: list[str] = []
        self.started = asyncio.Event()
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._keys: dict[str, tuple[str, str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> SmallRun:
        """The newest run."""
        return list(self.runs.values())[-1]

    async def __aenter__(self) -> SmallHermes:
        await self.listen()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def listen(self) -> None:
        app = web.Application(client_max_size=20_000_000)
        app.router.add_route("*", "/{path:.*}", self._any)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def forget_runs(self) -> None:
        """What a restart does."""
        self.runs.clear()

    async def _any(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        path = request.path
        parts = path.strip("/").split("/")
        shape = f"{request.method} /" + "/".join(
            "*" if i == 2 and parts[1] in ("runs", "sessions") else part
            for i, part in enumerate(parts)
        )
        raw = await request.read()
        self.bodies.append(raw)
        own = self.answers.get(shape)
        if own is not None:
            return await own(request)
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return error(401, "invalid_api_key")
        if "Origin" in request.headers:
            return web.Response(status=403)
        handler = {
            "GET /v1/capabilities": self._capabilities,
            "GET /v1/models": self._models,
            "GET /v1/toolsets": self._toolsets,
            "POST /v1/runs": self._start,
            "GET /v1/runs/*": self._status,
            "GET /v1/runs/*/events": self._events,
            "POST /v1/runs/*/stop": self._stop,
            "POST /v1/runs/*/approval": self._approve,
            "GET /api/sessions": self._sessions,
            "GET /api/sessions/*": self._session,
            "PATCH /api/sessions/*": self._patch,
            "GET /api/sessions/*/messages": self._messages,
        }.get(shape)
        if handler is None:
            return web.Response(status=404, text="404: Not Found")
        return await handler(request)

    async def _capabilities(self, request: web.Request) -> web.Response:
        features: dict[str, Any] = {"run_submission": True}
        if self.replayable:
            features["runs_idempotency"] = {"supported": True, "retention_seconds": 86400}
        return web.json_response({"object": "capabilities", "features": features})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "hermes-agent", "owned_by": "hermes"}]})

    async def _toolsets(self, request: web.Request) -> web.Response:
        sets = [
            {"name": "page", "enabled": True, "tools": ["mnote_page_get"]},
            {"name": "off", "enabled": False, "tools": ["mnote_page_set"]},
        ]
        return web.json_response({"data": sets})

    async def _start(self, request: web.Request) -> web.Response:
        body = json.loads(self.bodies[-1])
        key = request.headers.get("Idempotency-Key")
        text = json.dumps(body, sort_keys=True)
        if self.replayable and key in self._keys:
            run_id, known = self._keys[key]
            if known != text:
                return error(409, "idempotency_key_conflict")
            return web.json_response({"run_id": run_id, "status": "running"}, status=202)
        run_id = f"run_{len(self.runs) + 1:04d}"
        status = {"run_id": run_id, "status": "running", "session_id": body.get("session_id")}
        self.runs[run_id] = SmallRun(run_id, body, key, status)
        if key is not None:
            self._keys[key] = (run_id, text)
        self.started.set()
        return web.json_response({"run_id": run_id, "status": "started"}, status=202)

    async def _status(self, request: web.Request) -> web.Response:
        run = self._run(request)
        return error(404, "run_not_found") if run is None else web.json_response(run.status)

    def _run(self, request: web.Request) -> SmallRun | None:
        return self.runs.get(request.path.split("/")[3])

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run = self._run(request)
        if run is None or (run.taken and not self.replayable):
            return error(404, "run_not_found")
        run.taken = True
        run.opened += 1
        run.readers += 1
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        at = 0
        if self.replayable and "Last-Event-ID" in request.headers:
            at = int(request.headers["Last-Event-ID"]) + 1
        run.drop = False
        try:
            while True:
                changed = run.changed
                while at < len(run.events) and not run.drop:
                    event = run.events[at]
                    if event is None:
                        await answer.write(b": stream closed\n\n")
                        return answer
                    head = f"id: {at}\n" if self.replayable else ""
                    await answer.write(f"{head}data: {json.dumps(event)}\n\n".encode())
                    at += 1
                if run.drop:
                    assert request.transport is not None
                    request.transport.abort()
                    return answer
                await changed.wait()
        finally:
            run.readers -= 1

    async def _stop(self, request: web.Request) -> web.Response:
        run = self._run(request)
        self.stops.append(request.path)
        if run is None or run.status["status"] in ("completed", "cancelled", "failed"):
            return error(404, "run_not_found")
        run.status["status"] = "stopping"
        return web.json_response({"run_id": run.run_id, "status": "stopping"})

    async def _approve(self, request: web.Request) -> web.Response:
        run = self._run(request)
        body = json.loads(self.bodies[-1])
        self.approvals.append(body)
        if run is None:
            return error(404, "run_not_found")
        run.say("approval.responded", resolved=1, **body)
        return web.json_response({"run_id": run.run_id, "resolved": 1, **body})

    async def _sessions(self, request: web.Request) -> web.Response:
        limit, offset = int(request.query["limit"]), int(request.query["offset"])
        rows = [r for r in self.sessions.values() if r["source"] == request.query["source"]]
        rows.sort(key=lambda row: -row["last_active"])
        page = rows[offset : offset + limit]
        pinned = [row for row in rows if row.get("pinned") and row not in page]
        more = sum(not row.get("pinned") for row in page) >= limit
        return web.json_response({"data": page + pinned, "has_more": more})

    async def _session(self, request: web.Request) -> web.Response:
        row = self.sessions.get(request.path.split("/")[3])
        return (
            error(404, "session_not_found") if row is None else web.json_response({"session": row})
        )

    async def _patch(self, request: web.Request) -> web.Response:
        session, body = request.path.split("/")[3], json.loads(self.bodies[-1])
        self.patches.append((session, body))
        if any(row.get("title") == body["title"] for row in self.sessions.values()):
            return error(400, "invalid_title")
        self.sessions.setdefault(session, {})["title"] = body["title"]
        return web.json_response({"session": self.sessions[session]})

    async def _messages(self, request: web.Request) -> web.Response:
        session = request.path.split("/")[3]
        rows = self.messages.get(session)
        if rows is None:
            return error(404, "session_not_found")
        answer: dict[str, Any] = {"session_id": rows[-1]["session_id"] if rows else session}
        if self.replayable:
            limit, offset = int(request.query["limit"]), int(request.query["offset"])
            end = len(rows) - offset
            answer["pagination"] = {"limit": limit, "offset": offset}
            rows = rows[max(0, end - limit) : max(0, end)]
        return web.json_response({**answer, "data": rows})


def error(status: int, code: str, message: str = f"words of Hermes with {KEY}") -> web.Response:
    """An error in Hermes' own form."""
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


def session_row(session_id: str, at: float = 1000.5, **more: Any) -> dict[str, Any]:
    """A row as GET /api/sessions has it."""
    return {
        "id": session_id,
        "source": "api_server",
        "title": None,
        "preview": "hello",
        "model": "m",
        "started_at": at - 10,
        "last_active": at,
        "message_count": 2,
        "tool_call_count": 0,
        "input_tokens": 100,
        "output_tokens": 20,
        **more,
    }


def message_row(number: int, session_id: str, role: str, content: Any) -> dict[str, Any]:
    """A row as GET …/messages has it."""
    return {
        "id": number,
        "session_id": session_id,
        "role": role,
        "content": content,
        "tool_call_id": None,
        "tool_name": None,
        "timestamp": 1000.25 + number,
        "reasoning": None,
        "reasoning_content": None,
    }
