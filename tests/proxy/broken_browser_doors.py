"""Browser doors with one fault each, and the check of the conformance kit that must name it.

Each is the real proxy behind a layer that does one thing wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

FAULTS: list[tuple[type[Layer], str]] = []

Headers = list[tuple[bytes, bytes]]


def named_by(title: str) -> Callable[[type[Layer]], type[Layer]]:
    """The check that must fail at a door with this fault."""

    def note(fault: type[Layer]) -> type[Layer]:
        FAULTS.append((fault, title))
        return fault

    return note


class Layer:
    """Passes everything on, and lets a fault change what comes in and goes out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def incoming(self, scope: Scope) -> None:
        """Change the request's scope."""

    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        """Change a whole answer; `headers` may be changed in place."""
        return status, body

    def head(self, scope: Scope, headers: Headers) -> None:
        """Change the head of an event stream."""

    def part(self, scope: Scope, data: bytes) -> bytes:
        """Change a part of an event stream."""
        return data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.incoming(scope)
        start: Message = {}
        streaming = False

        async def sent(message: Message) -> None:
            nonlocal start, streaming
            if message["type"] == "http.response.start":
                start = dict(message)
                kinds = [v for n, v in message["headers"] if n.lower() == b"content-type"]
                streaming = any(v.startswith(b"text/event-stream") for v in kinds)
                if streaming:
                    headers = list(message["headers"])
                    self.head(scope, headers)
                    await send({**message, "headers": headers})
                return
            if streaming:
                data = self.part(scope, message.get("body", b""))
                await send({**message, "body": data})
                return
            headers = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
            status, body = self.answer(scope, start["status"], headers, message.get("body", b""))
            if status != 204:
                headers.append((b"content-length", str(len(body)).encode()))
            await send({**start, "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, sent)


class JsonLayer(Layer):
    """A fault in the JSON of answers."""

    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        if not body:
            return status, body
        told = json.loads(body)
        changed = self.change(scope, status, told)
        return status, json.dumps(changed).encode()

    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


def _without(scope: Scope, *names: bytes) -> None:
    scope["headers"] = [(n, v) for n, v in scope["headers"] if n.lower() not in names]


# Who may ask


@named_by("same origin: POST /runs with a foreign Origin")
class OriginNotLookedAt(Layer):
    def incoming(self, scope: Scope) -> None:
        _without(scope, b"origin")


@named_by("same origin: GET /events/* with Sec-Fetch-Site cross-site")
class StreamForOtherSites(Layer):
    def incoming(self, scope: Scope) -> None:
        if "/events/" in scope["path"]:
            _without(scope, b"origin", b"sec-fetch-site")


@named_by("same origin: GET /models with Sec-Fetch-Site same-site")
class SameSiteIsEnough(Layer):
    def incoming(self, scope: Scope) -> None:
        if (b"sec-fetch-site", b"same-site") in scope["headers"]:
            _without(scope, b"sec-fetch-site")


@named_by("same origin: GET /sessions with a rebound Host")
class EveryHost(Layer):
    def incoming(self, scope: Scope) -> None:
        headers = [(n, v) for n, v in scope["headers"] if n != b"host"]
        scope["headers"] = [*headers, (b"host", b"127.0.0.1:%d" % scope["server"][1])]


@named_by("same origin: the page's own origin")
class CorsForAll(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        if scope["method"] == "GET":
            headers.append((b"access-control-allow-origin", b"*"))
        return status, body


@named_by("same origin: a write as text/plain")
class EveryContentType(Layer):
    def incoming(self, scope: Scope) -> None:
        if scope["method"] == "POST":
            _without(scope, b"content-type")
            scope["headers"] = [*scope["headers"], (b"content-type", b"application/json")]


@named_by("sign-in: GET /models without a sign-in")
class ModelsForAll(Layer):
    def incoming(self, scope: Scope) -> None:
        if scope["path"].endswith("/models"):
            scope["headers"] = [*scope["headers"], (b"x-test-user", b"ann")]


# Fields and errors


@named_by("sign-in: GET /tools without a sign-in")
class ErrorWithoutRequestId(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        if status >= 400:
            del told["requestId"]
        return told


@named_by("answers: an unknown route")
class OtherCode(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "code": "not_found"} if status == 404 else told


@named_by("answers: a trace id in the header comes back")
class OwnTraceIds(JsonLayer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        headers[:] = [(n, v) for n, v in headers if n != b"x-trace-id"]
        headers.append((b"x-trace-id", b"trace_mine"))
        return super().answer(scope, status, headers, body)

    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "traceId": "trace_mine"}


@named_by("answers: a session that has not run is empty")
class UnknownUsageIsZero(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        if "usage" in told:
            told["usage"] = {name: value or 0 for name, value in told["usage"].items()}
        return told


@named_by("answers: models")
class ModelWithoutLabel(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        for model in told.get("models", ()):
            del model["label"]
        return told


@named_by("runs: the session afterwards")
class TimesWithFractions(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        for message in told.get("messages", ()):
            message["timestamp"] += 0.5
        return told


@named_by("answers: a wrong method")
class NoAllow(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        headers[:] = [(n, v) for n, v in headers if n != b"allow"]
        return status, body


@named_by("requests: POST /sessions [] is refused")
class RefusalsAre422(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        return (422 if status == 400 else status), body


# Events


@named_by("runs: the stream's head and first byte leave at once")
class ProxiesMayBuffer(Layer):
    def head(self, scope: Scope, headers: Headers) -> None:
        headers[:] = [(n, v) for n, v in headers if n != b"x-accel-buffering"]


@named_by("runs: a run from its start to its end")
class EventsAreNamed(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return re.sub(rb"(?m)^id:", b"event: message.delta\nid:", data)


@named_by("runs: a run from its start to its end")
class EventsWithoutSession(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return re.sub(rb'"session_id":"[^"]*",?', b"", data)


@named_by("runs: a run from its start to its end")
class EventsWithoutIds(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return re.sub(rb"(?m)^id:.*\n", b"", data)


@named_by("runs: a comment and a heartbeat at the beginning")
class NoHeartbeat(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return re.sub(rb"event: ?heartbeat\n.*\n\n", b"", data)


@named_by("runs: a comment and a heartbeat at the beginning")
class HeartbeatsHaveIds(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return data.replace(b"event: heartbeat\n", b"id: 99\nevent: heartbeat\n")


@named_by("runs: replay after Last-Event-ID")
class NoReplay(Layer):
    def incoming(self, scope: Scope) -> None:
        _without(scope, b"last-event-id")


@named_by("runs: nothing left to replay is 204")
class NothingLeftIs200(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        return (200 if status == 204 else status), body


@named_by("runs: words come as they are said")
class EventsInOneHeap(Layer):
    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._held: dict[int, bytes] = {}

    def part(self, scope: Scope, data: bytes) -> bytes:
        held = self._held.pop(id(scope), b"") + data
        if b"run.completed" in held or b"run.cancelled" in held:
            return held
        self._held[id(scope)] = held
        return b": waiting\n" if b"keepalive" in data else b""


@named_by("runs: a run from its start to its end")
class TwoEnds(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        found = re.search(rb'(?s)id:.*?"event":"run\.completed".*?\n\n', data)
        return data if found is None else data + re.sub(rb"id: ?", b"id: 9", found[0])


# Runs


@named_by("runs: the same Idempotency-Key is the same run")
class KeysNotKept(Layer):
    def incoming(self, scope: Scope) -> None:
        _without(scope, b"idempotency-key")


@named_by("runs: a second run on the same session")
class ConflictIs200(JsonLayer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        status, body = super().answer(scope, status, headers, body)
        return (200 if status == 409 else status), body

    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return told


@named_by("runs: abort, and its end on the stream")
class AbortSaysNothing(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "events": []} if scope["path"].endswith("/abort") else told


@named_by("runs: an approval is answered by its id")
class ApprovalWithoutId(Layer):
    def part(self, scope: Scope, data: bytes) -> bytes:
        return re.sub(rb'"approvalId":"[^"]*",?', b"", data)
