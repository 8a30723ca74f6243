"""What the routes do, without HTTP: sessions, runs, approvals, models and tools of one Hermes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from typing import Any, Literal

import msgspec

from . import context, conversation
from .contract import (
    CONFLICT,
    NOT_FOUND,
    TERMINAL_EVENTS,
    UPSTREAM_UNAUTHORIZED,
    UPSTREAM_UNAVAILABLE,
    AnswerApproval,
    Model,
    ProxyError,
    SessionSummary,
    StartRun,
    Tool,
    Usage,
    check_run_id,
)
from .idempotency import Start, StartBook
from .logs import log, where
from .redact import Redactor
from .runlog import Reader
from .runs import Run, Runs, unknown_run
from .settings import Settings
from .upstream import (
    PAGE,
    Interface,
    NoAnswer,
    Query,
    Reply,
    Trace,
    Upstream,
    malformed,
    refusal,
)

Condition = Literal["ok", "unauthorized", "unavailable", "unconfigured"]

MAX_LIMIT = 200
_TITLE_PAUSES = (0.0, 0.5, 2.0)
_CATCH_UP = 1.0
_HEALTH_PATIENCE = 5.0


class Service:
    """One Hermes behind one proxy."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.redactor = Redactor(settings.secrets)
        self.upstream = Upstream(settings)
        self.counters = self.upstream.counters
        self.runs = Runs(settings, self.upstream, self.redactor)
        self._starts = StartBook(settings.max_keys)
        self._titles: OrderedDict[str, str] = OrderedDict()
        self._starting: set[asyncio.Task[None]] = set()
        # The same on every replica and after a restart: a repeated start must send the same body.
        self._secret = hmac.new(
            (settings.api_key or secrets.token_hex(32)).encode(), b"page-data", hashlib.sha256
        ).digest()
        self._health: tuple[float, Condition] | None = None
        self._health_lock = asyncio.Lock()

    async def begin_anew(self) -> None:
        """After a close, or in another event loop than before: as after a restart of the server,
        but what was asked for once stays known."""
        self.runs.begin_anew()
        self._starts.give_up_unsettled(ProxyError(UPSTREAM_UNAVAILABLE, _OUTCOME_UNKNOWN))
        self._starting.clear()
        self._health, self._health_lock = None, asyncio.Lock()
        await self.upstream.begin_anew()

    async def close(self) -> None:
        """Ends readers and closes every connection; no run is aborted."""
        await self.runs.close()
        await self.upstream.close()

    # -- sessions ---------------------------------------------------------------------------------

    async def sessions(self, trace: Trace, document_id: str, limit: int) -> list[SessionSummary]:
        """The newest *limit* sessions of the document among the newest ``session_scan`` ones."""
        found: dict[str, SessionSummary] = {}
        offset = in_window = 0
        last_time: float | None = None
        in_order = True
        while offset < self.settings.session_scan and (in_window < limit or not in_order):
            query: Query = {"limit": PAGE, "offset": offset, "source": conversation.SOURCE}
            data = await self.upstream.get(trace, "/api/sessions", query)
            rows = data.get("data")
            if not isinstance(rows, list):
                raise malformed()
            given = data.get("limit")  # what was asked for may be more than is given at a time
            step = given if type(given) is int and 0 < given < PAGE else PAGE
            for place, row in enumerate(rows):
                if not isinstance(row, dict):
                    raise malformed()
                # Rows past the page's length are pinned ones, put there out of turn.
                in_turn = place < step and row.get("pinned") is not True
                if in_turn and (time_of_row := conversation.updated_at(row)) is not None:
                    # Newest first, as Hermes says, means that what follows cannot be newer.
                    in_order &= last_time is None or time_of_row <= last_time
                    last_time = time_of_row
                session = conversation.summary(row, document_id)
                if session is not None and session.sessionId not in found:
                    found[session.sessionId] = session
                    in_window += in_turn
            # "has_more" is not trusted when it says no: pinned rows make it false too early.
            if not rows or (len(rows) < step and data.get("has_more") is not True):
                break
            offset += step
        newest = sorted(found.values(), key=lambda s: -(s.updatedAt or 0))
        return newest[:limit]

    def expect_title(self, session_id: str, title: str) -> None:
        """Holds a title until the first run of the session has made the session."""
        cleaned = conversation.clean_title(title)
        if cleaned:
            self._titles[session_id] = cleaned
            self._titles.move_to_end(session_id)
            while len(self._titles) > self.settings.max_keys:
                self._titles.popitem(last=False)

    async def session(self, trace: Trace, session_id: str) -> tuple[list[dict[str, Any]], Usage]:
        """The stored messages (newest ``max_messages``) and the usage; empty if it has not run."""
        found = await self.upstream.messages(trace, session_id, self.settings.max_messages)
        if found is None:
            return [], Usage(None, None, None)
        holder, rows = found
        lineage = await self.upstream.lineage(trace, holder, session_id)
        return rows, conversation.usage(lineage or [])

    async def owns(self, trace: Trace, session_id: str, status: dict[str, Any]) -> bool:
        """Whether a run with this status belongs to the session: it runs in it, or in a session
        that Hermes made of it by compression."""
        where = status.get("session_id")
        if where == session_id:
            return True
        if not isinstance(where, str):
            return False
        return await self.upstream.lineage(trace, where, session_id) is not None

    # -- starting a run ---------------------------------------------------------------------------

    async def start(
        self, trace: Trace, user: str, wanted: StartRun, key: str | None, given_trace: str | None
    ) -> str:
        """Starts a run, or finds the one that was asked for before; its id.

        *key* is the Idempotency-Key, *given_trace* the trace id that the browser sent.
        Raises ProxyError.
        """
        fingerprint = _fingerprint(wanted)
        scope = None
        if key is not None:
            scope = _hash("key", user, key)
        elif given_trace is not None:
            scope = _hash("trace", wanted.sessionId, given_trace, fingerprint.hex())
        now = time.monotonic()
        if scope is not None:
            known = self._starts.find(scope, fingerprint, now)
            if known is not None and not await self._may_repeat(trace, known):
                self.counters.runs["repeated"] += 1
                return await asyncio.shield(known.run_id)
        if self.runs.active(wanted.sessionId):
            raise ProxyError(CONFLICT, "A run of this session is under way; wait or abort it.")
        instructions = context.instructions(
            wanted.pageContext,
            wanted.selectedBlockId,
            wanted.selectedText,
            secret=self._secret,
            scope=None if scope is None else scope.hex(),
            limit=self.settings.max_context,
        )
        self.runs.reserve(user, wanted.sessionId)
        start = Start(fingerprint, asyncio.get_running_loop().create_future(), now)
        start.run_id.add_done_callback(lambda f: f.cancelled() or f.exception())
        if scope is not None:
            self._starts.add(scope, start)
        # A task of its own: a browser that leaves now must not leave the run half started.
        work = asyncio.create_task(self._start(trace, user, wanted, scope, start, instructions))
        self._starting.add(work)
        work.add_done_callback(self._starting.discard)
        await asyncio.shield(work)
        return start.run_id.result()

    async def _may_repeat(self, trace: Trace, known: Start) -> bool:
        """Whether a start of unknown outcome may be sent again: where Hermes keeps keys."""
        if not known.unknown:
            return False
        return await self.upstream.interface(trace) == "replayable"

    async def _start(
        self,
        trace: Trace,
        user: str,
        wanted: StartRun,
        scope: bytes | None,
        start: Start,
        instructions: str | None,
    ) -> None:
        try:
            interface = await self.upstream.interface(trace)
            body = await self._body(trace, wanted, instructions, interface)
            upstream_key = None
            if interface == "replayable":
                upstream_key = secrets.token_hex(32) if scope is None else scope.hex()
            reply = await self._send_start(trace, body, upstream_key)
            run_id = _accepted(reply)
        except _Unknown as unknown:
            start.unknown = True
            self.runs.release(user, wanted.sessionId)
            start.run_id.set_exception(unknown.error)
        except ProxyError as error:
            if scope is not None:
                self._starts.forget(scope, start)
            self.runs.release(user, wanted.sessionId)
            start.run_id.set_exception(error)
        except Exception as error:
            log.error("start_failed", trace_id=trace.trace_id, **where(error))
            self.runs.release(user, wanted.sessionId)
            start.unknown = True
            start.run_id.set_exception(ProxyError(UPSTREAM_UNAVAILABLE, _OUTCOME_UNKNOWN))
        else:

            async def title() -> None:
                await self._give_title(trace, wanted.sessionId)

            self.runs.follow(run_id, wanted.sessionId, user, interface, trace, title)
            start.run_id.set_result(run_id)

    async def _body(
        self, trace: Trace, wanted: StartRun, instructions: str | None, interface: Interface
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"input": wanted.message, "session_id": wanted.sessionId}
        if wanted.model:
            body["model"] = wanted.model
        if instructions is not None:
            body["instructions"] = instructions
        if interface == "basic":
            limit = self.settings.max_messages
            found = await self.upstream.messages(trace, wanted.sessionId, limit)
            if found is not None:
                holder, rows = found
                # After a compression the conversation goes on in a successor session.
                body["session_id"] = holder
                if turns := conversation.history(rows):
                    body["conversation_history"] = turns
        return body

    async def _send_start(self, trace: Trace, body: dict[str, Any], key: str | None) -> Reply:
        """Sends the start; where Hermes keeps keys, once more if no answer came."""
        again = key is not None
        while True:
            try:
                return await self.upstream.start_run(trace, body, key)
            except NoAnswer as failure:
                if not failure.sent:
                    raise failure.error() from None
                if not again:
                    raise _Unknown(slow=failure.slow) from None
                again = False

    async def _give_title(self, trace: Trace, session_id: str) -> None:
        """After the first run: the title that POST /sessions was given. Never fails a run."""
        title = self._titles.pop(session_id, None)
        if title is None:
            return
        wanted = title
        refused = False
        try:
            for pause in _TITLE_PAUSES:
                await asyncio.sleep(pause)
                found = await self.upstream.messages(trace, session_id, 1)
                holder = session_id if found is None else found[0]
                reply = await self.upstream.set_title(trace, holder, wanted)
                if reply.status == 200:
                    return
                if reply.status in (400, 409, 422):  # taken by another session
                    wanted = conversation.title_with_suffix(title, secrets.token_hex(2))
                    reply = await self.upstream.set_title(trace, holder, wanted)
                    if reply.status == 200:
                        return
                refused = reply.status != 404
        except (NoAnswer, ProxyError):
            refused = False
        if not refused and session_id not in self._titles:
            # The run ended before Hermes had made its session, or Hermes is away: the next run may
            # do what this one could not.
            self.expect_title(session_id, title)
        log.warning("title_not_set", trace_id=trace.trace_id)

    # -- a run under way --------------------------------------------------------------------------

    async def run(self, trace: Trace, run_id: str, session_id: str) -> Run:
        """The run of this session, known here or found upstream. Raises ProxyError (not_found)."""

        async def owned(status: dict[str, Any]) -> bool:
            return await self.owns(trace, session_id, status)

        return await self.runs.attach(run_id, session_id, trace, owned)

    async def abort(self, trace: Trace, run: Run) -> list[dict[str, Any]]:
        """Asks Hermes to stop the run; the events that tell what it did. Raises ProxyError."""
        if run.end_kind is not None:
            return [{"event": run.end_kind, "run_id": run.run_id}]
        again = run.abort_asked
        try:
            reply = await self.upstream.stop_run(trace, run.run_id)
        except NoAnswer as failure:
            raise failure.error() from None
        status = None if reply.data is None else reply.data.get("status")
        if reply.status == 200 and isinstance(status, str):
            run.abort_asked = True
            kind = f"run.{status}"
            return [
                {
                    "event": kind if kind in TERMINAL_EVENTS else "abort.started",
                    "run_id": run.run_id,
                }
            ]
        if reply.status in (404, 409) and reply.code is not None:
            if (ended := run.outcome()) is not None:
                return [{"event": ended, "run_id": run.run_id}]
            found = await self.upstream.run_status(trace, run.run_id)
            if found is None:
                raise unknown_run()
            kind = f"run.{found.get('status')}"
            if kind in TERMINAL_EVENTS:
                return [{"event": kind, "run_id": run.run_id}]
            if again or kind == "run.stopping":
                return [{"event": "abort.started", "run_id": run.run_id}]
            raise ProxyError(CONFLICT, "Hermes cannot stop this run.")
        raise refusal(reply)

    async def answer(self, trace: Trace, run: Run, wanted: AnswerApproval) -> int:
        """Answers one open approval; how many requests that resolved. Raises ProxyError."""
        if run.end_kind is not None:
            raise ProxyError(CONFLICT, "The run has ended; nothing was approved or denied.")
        counted = "failed"
        try:
            await self._caught_up(run, wanted.approvalId)
            resolved = await self._answer(trace, run, wanted)
            counted = wanted.choice
            return resolved
        finally:
            self.counters.approvals[counted] += 1

    async def _caught_up(self, run: Run, approval_id: str) -> None:
        """Waits a moment if the run was only just found again: the page may know the request from
        before a restart, and this server is about to read it."""
        patience = run.began + _CATCH_UP - time.monotonic()
        if run.user or patience <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                reader = Reader(run.log, 0, run.truncated)
                try:
                    while approval_id not in run.approvals.open and not run.log.ended:
                        await reader.wait()
                finally:
                    reader.close()

    async def _answer(self, trace: Trace, run: Run, wanted: AnswerApproval) -> int:
        request = run.approvals.begin_answer(wanted.approvalId, wanted.choice)
        body: dict[str, Any] = {"choice": wanted.choice}
        if request.upstream_id is not None:
            body["request_id"] = request.upstream_id
        try:
            reply = await self.upstream.answer_approval(trace, run.run_id, body)
        except NoAnswer as failure:
            if failure.sent and request.upstream_id is None:
                # Sent again it could answer the next request.
                run.approvals.answered(request)
            else:
                run.approvals.not_answered(request)
            raise failure.error() from None
        except BaseException:
            run.approvals.answered(request)
            raise
        if reply.status == 200 and reply.data is not None:
            run.approvals.answered(request)
            resolved = reply.data.get("resolved")
            if type(resolved) is int and resolved <= 0:
                raise ProxyError(CONFLICT, _NOT_OPEN)
            return resolved if type(resolved) is int else 1
        if reply.code is not None and reply.status in (404, 409):
            run.approvals.answered(request)
            raise ProxyError(CONFLICT, _NOT_OPEN)
        if reply.code is not None:
            run.approvals.not_answered(request)
        else:
            run.approvals.answered(request)
        raise refusal(reply)

    # -- models, tools, health --------------------------------------------------------------------

    async def models(self, trace: Trace) -> tuple[str, list[Model]]:
        """The default model and all models."""
        data = await self.upstream.get(trace, "/v1/models")
        rows = data.get("data")
        if not isinstance(rows, list):
            raise malformed()
        models = []
        for row in rows:
            model_id = row.get("id") if isinstance(row, dict) else None
            if isinstance(model_id, str) and model_id:
                provider = conversation.text(row.get("owned_by")) or "hermes"
                # A secret must not hide in a name that was made of it.
                label = conversation.model_label(self.redactor.text(model_id))
                models.append(Model(model_id, label, provider))
        return (models[0].id if models else ""), models

    async def tools(self, trace: Trace) -> list[Tool]:
        """The listed tools that Hermes has switched on."""
        data = await self.upstream.get(trace, "/v1/toolsets")
        rows = data.get("data")
        if not isinstance(rows, list):
            raise malformed()
        enabled: set[str] = set()
        for row in rows:
            if isinstance(row, dict) and row.get("enabled") is True:
                names = row.get("tools")
                if isinstance(names, list):
                    enabled.update(name for name in names if isinstance(name, str))
        return [
            Tool(tool.name, tool.scope, tool.schemaVersion)
            for tool in self.settings.tools
            if tool.upstream_name in enabled
        ]

    async def health(self, trace: Trace) -> tuple[Condition, Interface | None]:
        """How Hermes is doing, at most a few seconds ago, and which run interface it has."""
        if self.settings.missing is not None:
            return "unconfigured", None
        async with self._health_lock:
            now = time.monotonic()
            if self._health is None or now - self._health[0] > 5:
                try:
                    # Whoever watches this server wants to know soon, not how long Hermes may take.
                    async with asyncio.timeout(_HEALTH_PATIENCE):
                        await self.upstream.interface(trace)
                        await self.upstream.get(trace, "/v1/models")
                    found: Condition = "ok"
                except TimeoutError:
                    found = "unavailable"
                except ProxyError as error:
                    refused = error.code == UPSTREAM_UNAUTHORIZED
                    found = "unauthorized" if refused else "unavailable"
                self._health = (time.monotonic(), found)
            state = self._health[1]
        if state != "ok":
            return state, None
        try:
            return state, await self.upstream.interface(trace)
        except ProxyError:
            return "unavailable", None


_NOT_OPEN = "This approval is not open any more; nothing was resolved."
_OUTCOME_UNKNOWN = (
    "Hermes did not say whether the run was started, so it is not started again; "
    "look at the session before you send the message anew."
)


class _Unknown(Exception):
    """The start may have reached Hermes; no well-formed answer came."""

    def __init__(self, *, slow: bool = False, reply: Reply | None = None) -> None:
        super().__init__("unknown")
        told = None if reply is None or reply.status not in (401, 403, 429) else refusal(reply)
        self.error = told or ProxyError(
            UPSTREAM_UNAVAILABLE, _OUTCOME_UNKNOWN, status=504 if slow else None
        )


def _accepted(reply: Reply) -> str:
    """The run id of a start that was accepted. Raises ProxyError for a refusal in Hermes' own
    form, _Unknown for everything else."""
    if reply.code is not None and reply.status >= 400:
        error = refusal(reply)
        if error.code == NOT_FOUND:
            raise malformed()
        raise error
    run_id = None if reply.data is None else reply.data.get("run_id")
    if reply.status not in (200, 201, 202) or not isinstance(run_id, str):
        raise _Unknown(reply=reply)
    try:
        return check_run_id(run_id)
    except ProxyError:
        raise _Unknown() from None


def _fingerprint(wanted: StartRun) -> bytes:
    """A hash of the body, the trace id excepted: a repeated start may carry another one."""
    body = msgspec.to_builtins(wanted)
    del body["traceId"]
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).digest()


def _hash(*parts: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


__all__ = ["MAX_LIMIT", "Service", "unknown_run"]
