"""Browser doors with one fault each, and the check of the conformance kit that must name it.

Each is the real proxy behind a layer that does one thing wrong.
"""

from __future__ import annotations

import json
import re
import time
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


@named_by("same origin: POST /sessions as text/plain")
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


# Origins that only look like ours, other types, and what an answer is


@named_by("same origin: GET /models with an Origin of another port")
class EveryPortIsOurs(Layer):
    def incoming(self, scope: Scope) -> None:
        host = dict(scope["headers"]).get(b"host", b"")
        ours = b"http://" + host.partition(b":")[0] + b":"
        _origins(scope, lambda origin: b"http://" + host if origin.startswith(ours) else origin)


@named_by("same origin: POST /runs with an Origin of another scheme")
class EverySchemeIsOurs(Layer):
    def incoming(self, scope: Scope) -> None:
        _origins(scope, lambda origin: origin.replace(b"https://127.", b"http://127."))


@named_by("same origin: GET /events/* with an Origin that begins like ours")
class BeginningOfAnOriginIsEnough(Layer):
    def incoming(self, scope: Scope) -> None:
        ours = b"http://" + dict(scope["headers"]).get(b"host", b"")
        _origins(scope, lambda origin: ours if origin.startswith(ours) else origin)


@named_by("same origin: GET /models with an Origin that names ours as a user")
class UserOfAnOriginIsEnough(Layer):
    def incoming(self, scope: Scope) -> None:
        _origins(scope, lambda origin: origin.partition(b"@")[0])


def _origins(scope: Scope, change: Callable[[bytes], bytes]) -> None:
    scope["headers"] = [(n, change(v) if n == b"origin" else v) for n, v in scope["headers"]]


class AnyType(Layer):
    """Takes every write of its route for JSON."""

    route = ""

    def incoming(self, scope: Scope) -> None:
        if scope["path"].endswith(self.route):
            scope["headers"] = [
                (n, b"application/json" if n == b"content-type" else v) for n, v in scope["headers"]
            ]


@named_by("same origin: POST /runs as text/plain")
class RunsOfAnyType(AnyType):
    route = "/runs"


@named_by("same origin: POST /runs/*/abort as application/x-www-form-urlencoded")
class AbortsOfAnyType(AnyType):
    route = "/abort"


@named_by("same origin: POST /runs/*/approval as application/jsonp")
class ApprovalsOfAnyType(AnyType):
    route = "/approval"


@named_by("answers: models")
class AnswersArePages(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        kind = b"text/html"
        headers[:] = [(n, kind if n == b"content-type" else v) for n, v in headers]
        return status, body


@named_by("answers: an unknown route")
class ErrorsSayNothing(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return told if status == 200 else {**told, "message": ""}


@named_by("answers: models")
class MethodsForOthers(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        headers.append((b"access-control-allow-methods", b"*"))
        return status, body


@named_by("answers: a trace id in the query comes back in an error")
class ErrorsTracedAnew(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        if status < 400 or not body:
            return status, body
        headers[:] = [(n, b"anew" if n == b"x-trace-id" else v) for n, v in headers]
        return status, json.dumps({**json.loads(body), "traceId": "anew"}).encode()


@named_by("answers: which trace id counts")
class HeaderTraceFirst(Layer):
    def incoming(self, scope: Scope) -> None:
        if b"x-trace-id" in dict(scope["headers"]):
            query = scope["query_string"]
            scope["query_string"] = re.sub(rb"&?traceId=[^&]*", b"", query)


@named_by("answers: every request has ids of its own")
class OneRequestId(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        headers[:] = [(n, b"req_1" if n == b"x-request-id" else v) for n, v in headers]
        return status, body


# What is listed


@named_by("answers: models")
class DefaultModelOfNoList(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "defaultModel": "nobody"} if "models" in told else told


@named_by("answers: health tells a stranger no secret")
class HealthTellsWhereHermesIs(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "hermes": "http://10.0.0.5:8642"} if "configured" in told else told


@named_by("answers: health needs no sign-in")
class HealthIsWrong(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "upstream": "unavailable"} if "configured" in told else told


@named_by("answers: limit=200 is taken")
class LimitOneTooLow(Layer):
    def incoming(self, scope: Scope) -> None:
        scope["query_string"] = scope["query_string"].replace(b"limit=200", b"limit=201")


@named_by("runs: the session in its document's list")
class SessionsOfAllDocuments(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        for row in told.get("sessions", [])[:1]:
            told["sessions"].append({**row, "sessionId": "mnote_other_trace_1"})
        return told


@named_by("runs: the session in its document's list")
class TimesInMilliseconds(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        for row in told.get("sessions", []):
            row["updatedAt"] *= 1000
        return told


@named_by("runs: the newest sessions, as many as limit says")
class OldestFirst(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        told.get("sessions", []).reverse()
        return told


@named_by("runs: a title that came with the session")
class TitlesForgotten(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        for row in told.get("sessions", []):
            row["title"] = ""
        return told


@named_by("runs: the session afterwards")
class MessagesTwice(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "messages": told["messages"] * 2} if "messages" in told else told


# What an event holds


class Events(Layer):
    """A fault in the data of one kind of event: `change` gives another in its place, or None."""

    kind = ""

    def part(self, scope: Scope, data: bytes) -> bytes:
        def changed(found: re.Match[bytes]) -> bytes:
            told = json.loads(found[2])
            if told.get("event") != self.kind:
                return found[0]
            other = self.change(told)
            return b"" if other is None else found[1] + json.dumps(other).encode() + b"\n\n"

        return re.sub(rb"(id:[^\n]*\ndata: ?)([^\n]*)\n\n", changed, data)

    def change(self, told: dict[str, Any]) -> dict[str, Any] | None:
        raise NotImplementedError


@named_by("runs: a run from its start to its end")
class WordsWithoutBlanks(Events):
    kind = "message.delta"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "delta": told["delta"].strip()}


@named_by("runs: a run from its start to its end")
class OneWordLost(Events):
    kind = "message.delta"

    def change(self, told: dict[str, Any]) -> dict[str, Any] | None:
        return None if told["delta"].strip() == "word3" else told


@named_by("runs: a run from its start to its end")
class NoOutput(Events):
    kind = "run.completed"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "output": ""}


@named_by("runs: a run from its start to its end")
class NoUsage(Events):
    kind = "run.completed"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in told.items() if name != "usage"}


@named_by("runs: a run from its start to its end")
class EventTimesInMilliseconds(Events):
    kind = "message.delta"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "timestamp": 1_796_037_277_130}


@named_by("runs: an approval is answered by its id")
class ApprovalWithoutChoices(Events):
    kind = "approval.request"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in told.items() if name != "choices"}


@named_by("runs: an approval is answered by its id")
class ApprovalWithoutCommand(Events):
    kind = "approval.request"

    def change(self, told: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in told.items() if name != "command"}


@named_by("runs: an approval is answered by its id")
class NobodyResponded(Events):
    kind = "approval.responded"

    def change(self, told: dict[str, Any]) -> None:
        return None


@named_by("runs: an approval is answered by its id")
class AnotherChoiceIsTold(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "choice": "once"} if "choice" in told else told


@named_by("runs: abort, and its end on the stream")
class AbortOfAnotherRun(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "runId": "run_zzz"} if scope["path"].endswith("/abort") else told


@named_by("runs: abort, and its end on the stream")
class AbortGuessesTheEnd(JsonLayer):
    def change(self, scope: Scope, status: int, told: dict[str, Any]) -> dict[str, Any]:
        if scope["path"].endswith("/abort") and told["events"]:
            told["events"][0]["event"] = "run.cancelled"
        return told


@named_by("runs: words come as they are said")
class WordsInHeaps(Layer):
    """Every write waits until one second has passed since the last."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._held: dict[int, tuple[float, bytes]] = {}

    def part(self, scope: Scope, data: bytes) -> bytes:
        now = time.monotonic()
        began, held = self._held.pop(id(scope), (now, b""))
        held += data
        if now - began > 1.0 or b'"run.' in held:
            return held
        self._held[id(scope)] = began, held
        return b""


@named_by("runs: the stream's head and first byte leave at once")
class StreamWithoutTrace(Layer):
    def head(self, scope: Scope, headers: Headers) -> None:
        headers[:] = [(n, v) for n, v in headers if n != b"x-trace-id"]
