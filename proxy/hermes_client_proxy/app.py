"""The routes, and nothing that decides: guard, sign-in, shapes, one call into the service."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import contract, conversation
from .auth import (
    Authenticate,
    Authorize,
    LoginLink,
    User,
    as_user,
    authenticator,
    cookie_name,
    every_document,
    session_cookie,
)
from .contract import (
    BAD_REQUEST,
    FORBIDDEN,
    LEGACY_PATH,
    NOT_FOUND,
    PREFIX,
    UNAUTHORIZED,
    UNCONFIGURED,
    UPSTREAM_UNAVAILABLE,
    ProxyError,
    bad_request,
)
from .counters import status_class
from .exchange import Exchange
from .guard import check_json, check_origin
from .headers import values
from .logs import fingerprint, log, where
from .metrics import CONTENT_TYPE, check_reader, exposition
from .paths import METRICS_PATH, contract_path, path_shape, route_label
from .runlog import Reader
from .runs import Run
from .service import MAX_LIMIT, Service
from .session_ids import check_document_id, check_session_id, session_id_for
from .settings import Settings
from .streams import stream

VERSION = "1.0.0"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_WELCOME = (
    f"This is the Hermes client proxy. A page of this origin that is signed in may ask it under "
    f"{PREFIX}. No pages are served here; start it with --pages FOLDER to serve yours.\n"
).encode()


Answer = msgspec.Struct
Handler = Callable[[Exchange, Send], Coroutine[Any, Any, "Answer | None"]]


class ProxyApp:
    """An ASGI application; see ``create_app``."""

    def __init__(
        self,
        settings: Settings,
        *,
        authenticate: Authenticate | None = None,
        authorize: Authorize | None = None,
        legacy: ASGIApp | None = None,
        login: LoginLink | None = None,
    ) -> None:
        self.settings = settings
        self.service = Service(settings)
        self._counters = self.service.counters
        self._authenticate = authenticate
        if authenticate is None and (settings.missing is None or login is not None):
            self._authenticate = authenticator(settings, self.service.upstream.client)
        self._authorize = authorize or every_document
        self._legacy = legacy
        self._login = login
        self._loop: asyncio.AbstractEventLoop | None = None
        routes: dict[str, dict[str, Handler]] = {
            "/sessions": {"GET": self._sessions, "POST": self._create_session},
            "/sessions/{session_id}": {"GET": self._session},
            "/runs": {"POST": self._start},
            "/events/{run_id}": {"GET": self._events},
            "/runs/{run_id}/abort": {"POST": self._abort},
            "/runs/{run_id}/approval": {"POST": self._approve},
            "/models": {"GET": self._models},
            "/tools": {"GET": self._tools},
        }
        self._routes = [
            (re.compile(PREFIX + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), by_method)
            for path, by_method in routes.items()
        ]

    # -- ASGI -------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._open()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """For a host application that mounts this one: enter it in the host's own lifespan."""
        await self._open()
        try:
            yield
        finally:
            await self.aclose()

    def begin_closing(self) -> None:
        """Ends the open event streams with a word to the browsers; runs go on in Hermes.

        Call it when the server begins to shut down, so that it need not wait for the streams.
        """
        self.service.runs.begin_closing()

    async def aclose(self) -> None:
        """Ends streams and closes the connections to Hermes."""
        await self._follow_loop()
        await self.service.close()

    async def _open(self) -> None:
        """A host may start, stop and start again, also in another event loop."""
        if self.service.runs.closing:
            self._loop = asyncio.get_running_loop()
            await self.service.begin_anew()

    async def _follow_loop(self) -> None:
        """Without a lifespan nobody tells that the event loop is another one: what was kept of one
        that is gone would answer nothing any more."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop and self._loop.is_closed():
            self._loop = loop
            await self.service.begin_anew()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._follow_loop()
        exchange = Exchange(scope, receive, self.settings.max_body)
        sent: list[int] = []
        bytes_out = 0
        first_byte = 0.0

        async def watched(message: Message) -> None:
            nonlocal bytes_out, first_byte
            if message["type"] == "http.response.start":
                sent.append(message["status"])
                first_byte = time.monotonic()
            else:
                bytes_out += len(message.get("body", b""))
            await send(message)

        exchange.plain_send = send

        path = contract_path(scope)
        try:
            if path == LEGACY_PATH:
                await self._guard_legacy(exchange, scope, receive, watched)
            else:
                answer = await self._dispatch(exchange, path, watched)
                if answer is not None:
                    await self._send_json(exchange, watched, 200, answer)
        except ProxyError as error:
            if not sent:
                await exchange.learn_trace()
                await self._send_error(exchange, watched, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("request_failed", trace_id=exchange.trace_id, **where(error))
            if sent:
                raise
            failed = ProxyError(UPSTREAM_UNAVAILABLE, "The request could not be carried out.")
            await self._send_error(exchange, watched, failed)
        finally:
            counters, route = self._counters, route_label(path)
            counters.requests[route, status_class(sent[0] if sent else 0)] += 1
            if sent:
                counters.request_seconds[route].add(first_byte - exchange.began)
            counters.body_bytes_in += exchange.bytes_in
            counters.body_bytes_out += bytes_out
        log.info(
            "request",
            method=exchange.method if exchange.method in _METHODS else "?",
            route=path_shape(path),
            status=sent[0] if sent else 0,
            ms=round((time.monotonic() - exchange.began) * 1000, 1),
            upstream_ms=round(exchange.spent.upstream * 1000, 1),
            bytes_in=exchange.bytes_in,
            bytes_out=bytes_out,
            user=fingerprint(exchange.user.id),
            trace_id=exchange.trace_id,
            request_id=exchange.request_id,
        )

    async def _dispatch(self, exchange: Exchange, path: str, send: Send) -> Answer | None:
        if path in (METRICS_PATH, PREFIX + METRICS_PATH):
            self._check_method(exchange, {"GET": self._health})
            await self._metrics(exchange, send)
            return None
        self._check_origin(exchange)
        if path == f"{PREFIX}/health":
            self._check_method(exchange, {"GET": self._health})
            return await self._health(exchange, send)
        if path == f"{PREFIX}/login" and self._login is not None:
            self._check_method(exchange, {"GET": self._sign_in})
            await self._sign_in(exchange, send)
            return None
        if path == "/" and self._login is not None:
            # Where the sign-in leads if no pages are served here.
            self._check_method(exchange, {"GET": self._health})
            await self._send(exchange, send, 200, _WELCOME, b"text/plain; charset=utf-8")
            return None
        for pattern, by_method in self._routes:
            if (found := pattern.fullmatch(path)) is not None:
                handler = self._check_method(exchange, by_method)
                exchange.params = found.groupdict()
                break
        else:
            raise ProxyError(NOT_FOUND, f"There is no such route; the routes are under {PREFIX}.")
        if self.settings.missing is not None:
            raise ProxyError(
                UNCONFIGURED,
                "The Hermes client proxy has no upstream. Set MNOTE_WEB_HERMES_UPSTREAM_URL to the "
                "address of the Hermes API server and MNOTE_WEB_HERMES_API_KEY to its key, then "
                "restart.",
            )
        exchange.user = await self._who(exchange)
        if exchange.method == "POST":
            check_json(exchange.headers)
        return await handler(exchange, send)

    @staticmethod
    def _check_method(exchange: Exchange, by_method: dict[str, Handler]) -> Handler:
        handler = by_method.get(exchange.method)
        if handler is None:
            raise ProxyError(
                BAD_REQUEST,
                "This route does not take this method; see the Allow header.",
                status=405,
                allow=", ".join(by_method),
            )
        return handler

    # -- who, and what may they -------------------------------------------------------------------

    def _check_origin(self, exchange: Exchange) -> None:
        scheme = exchange.request.scope.get("scheme", "http")
        try:
            check_origin(exchange.headers, scheme, self.settings.public_origin)
        except ProxyError:
            self._counters.refused["origin"] += 1
            raise

    async def _who(self, exchange: Exchange) -> User:
        assert self._authenticate is not None
        try:
            found = self._authenticate(exchange.request)
            if inspect.isawaitable(found):
                found = await found
        except Exception as error:
            log.error("authenticate_failed", trace_id=exchange.trace_id, **where(error))
            found = None
        user = as_user(found)
        if user is None:
            self._counters.refused["session"] += 1
            raise ProxyError(UNAUTHORIZED, "Sign in to the application first.")
        return user

    async def _may(self, exchange: Exchange, workspace_id: str | None, document_id: str) -> None:
        try:
            allowed = self._authorize(exchange.user, workspace_id, document_id)
            if inspect.isawaitable(allowed):
                allowed = await allowed
        except Exception as error:
            log.error("authorize_failed", trace_id=exchange.trace_id, **where(error))
            allowed = False
        if allowed is not True:
            self._counters.refused["document"] += 1
            raise ProxyError(FORBIDDEN, "This user may not use this document.")

    async def _may_session(
        self, exchange: Exchange, workspace_id: str | None, document_id: str | None, session_id: str
    ) -> None:
        owner = check_session_id(session_id)
        if document_id is not None and check_document_id(document_id) != owner:
            self._counters.refused["document"] += 1
            raise ProxyError(FORBIDDEN, "The session belongs to another document.")
        if workspace_id is not None:
            contract.check_workspace_id(workspace_id)
        await self._may(exchange, workspace_id, owner)

    # -- routes -----------------------------------------------------------------------------------

    async def _sessions(self, exchange: Exchange, send: Send) -> Answer:
        document_id = check_document_id(exchange.required("documentId"))
        workspace_id = contract.check_workspace_id(exchange.required("workspaceId"))
        limit = exchange.limit(MAX_LIMIT)
        await self._may(exchange, workspace_id, document_id)
        found = await self.service.sessions(exchange.trace, document_id, limit)
        return contract.SessionList(True, exchange.trace_id, found)

    async def _create_session(self, exchange: Exchange, send: Send) -> Answer:
        wanted = await exchange.body(contract.CreateSession)
        contract.check_workspace_id(wanted.workspaceId)
        session_id = session_id_for(wanted.documentId, exchange.trace_id)
        await self._may(exchange, wanted.workspaceId, wanted.documentId)
        if wanted.title:
            self.service.expect_title(session_id, wanted.title)
        return contract.SessionCreated(True, session_id, exchange.trace_id, "hermes_on_first_run")

    async def _session(self, exchange: Exchange, send: Send) -> Answer:
        session_id = exchange.params["session_id"]
        await self._may_session(
            exchange,
            exchange.optional("workspaceId"),
            exchange.optional("documentId"),
            session_id,
        )
        rows, usage = await self.service.session(exchange.trace, session_id)
        messages = [m for m in map(conversation.message, rows) if m is not None]
        return contract.SessionDetail(True, session_id, exchange.trace_id, messages, usage)

    async def _start(self, exchange: Exchange, send: Send) -> Answer:
        wanted = await exchange.body(contract.StartRun)
        await self._may_session(exchange, wanted.workspaceId, wanted.documentId, wanted.sessionId)
        if not wanted.message.strip():
            raise bad_request("message is empty; send the user's words.")
        contract.check_model(wanted.model)
        keys = values(exchange.headers, b"idempotency-key")
        if len(keys) > 1:
            raise bad_request("Send one Idempotency-Key.")
        run_id = await self.service.start(
            exchange.trace,
            exchange.user.id,
            wanted,
            contract.check_idempotency_key(keys[0]) if keys else None,
            exchange.given_trace,
        )
        return contract.RunStarted(True, wanted.sessionId, run_id, None, [], exchange.trace_id)

    async def _events(self, exchange: Exchange, send: Send) -> None:
        run_id = contract.check_run_id(exchange.params["run_id"])
        session_id = exchange.required("sessionId")
        await self._may_session(
            exchange,
            exchange.optional("workspaceId"),
            exchange.optional("documentId"),
            session_id,
        )
        run = await self.service.run(exchange.trace, run_id, session_id)
        last_ids = values(exchange.headers, b"last-event-id")
        last_id = (last_ids[-1] if last_ids else "") or exchange.query.get("lastEventId")
        runs = self.service.runs
        await runs.refilled(run, last_id)
        reader = runs.open_reader(run, exchange.user.id, last_id)
        if reader is None:
            await self._send(exchange, send, 204, b"", None)
            return
        try:
            head = exchange.head(b"text/event-stream; charset=utf-8", b"no-transform")
            head.append((b"x-accel-buffering", b"no"))
            await send({"type": "http.response.start", "status": 200, "headers": head})
            assert exchange.plain_send is not None
            await stream(run, reader, exchange.request.receive, exchange.plain_send, self.settings)
        finally:
            runs.close_reader(reader, exchange.user.id)
            self._note_stream(exchange, run, reader)

    def _note_stream(self, exchange: Exchange, run: Run, reader: Reader) -> None:
        seconds = time.monotonic() - exchange.began
        counters = self._counters
        counters.streams[reader.outcome] += 1
        counters.stream_seconds.add(seconds)
        counters.stream_bytes += reader.sent
        log.info(
            "stream_ended",
            run=run.run_id,
            how=reader.outcome,
            seconds=round(seconds, 3),
            bytes_out=reader.sent,
            behind=reader.behind,
            user=fingerprint(exchange.user.id),
            trace_id=exchange.trace_id,
            request_id=exchange.request_id,
        )

    async def _abort(self, exchange: Exchange, send: Send) -> Answer:
        run_id = contract.check_run_id(exchange.params["run_id"])
        wanted = await exchange.body(contract.AbortRun)
        await self._may_session(exchange, wanted.workspaceId, wanted.documentId, wanted.sessionId)
        run = await self.service.run(exchange.trace, run_id, wanted.sessionId)
        events = await self.service.abort(exchange.trace, run)
        return contract.RunAborted(True, run_id, wanted.sessionId, exchange.trace_id, events)

    async def _approve(self, exchange: Exchange, send: Send) -> Answer:
        run_id = contract.check_run_id(exchange.params["run_id"])
        wanted = await exchange.body(contract.AnswerApproval)
        contract.check_approval_id(wanted.approvalId)
        await self._may_session(exchange, wanted.workspaceId, wanted.documentId, wanted.sessionId)
        run = await self.service.run(exchange.trace, run_id, wanted.sessionId)
        resolved = await self.service.answer(exchange.trace, run, wanted)
        return contract.ApprovalAnswered(
            True,
            run_id,
            wanted.sessionId,
            exchange.trace_id,
            wanted.approvalId,
            wanted.choice,
            resolved,
        )

    async def _models(self, exchange: Exchange, send: Send) -> Answer:
        default, models = await self.service.models(exchange.trace)
        return contract.ModelList(True, exchange.trace_id, default, models)

    async def _tools(self, exchange: Exchange, send: Send) -> Answer:
        return contract.ToolList(True, exchange.trace_id, await self.service.tools(exchange.trace))

    async def _health(self, exchange: Exchange, send: Send) -> Answer:
        state, interface = await self.service.health(exchange.trace)
        return contract.Health(
            True,
            exchange.trace_id,
            VERSION,
            self.settings.missing is None,
            state,
            interface,
            self.service.runs.running,
            self.service.runs.streams,
        )

    async def _metrics(self, exchange: Exchange, send: Send) -> None:
        try:
            check_reader(exchange.headers, exchange.request.scope, self.settings)
        except ProxyError:
            self._counters.refused["metrics"] += 1
            raise
        text = exposition(self.service.runs, self._counters, VERSION)
        await self._send(exchange, send, 200, text, CONTENT_TYPE)

    async def _sign_in(self, exchange: Exchange, send: Send) -> None:
        assert self._login is not None
        if not self._login.redeem(exchange.query.get("token", "")):
            self._counters.refused["login"] += 1
            raise ProxyError(
                UNAUTHORIZED,
                "This sign-in link was used or is not right; restart the server for a new one.",
            )
        cookies = session_cookie(self.settings, exchange.request.scope.get("scheme", "http"))
        cookie = cookies.header(self._login.user_id, cookie_name(exchange.request))
        more = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
        await self._send(exchange, send, 303, b"", None, more)

    async def _guard_legacy(
        self, exchange: Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """The route of old: Hermes is not spoken there any more, everything else is the host's."""
        self._check_origin(exchange)
        raw = b""
        if exchange.method == "POST":
            raw = await exchange.raw_body()
            exchange.adopt_trace(raw)
            try:
                asked = msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                asked = None
            provider = asked.get("provider") if isinstance(asked, dict) else None
            if isinstance(provider, str) and provider.strip().lower() == "hermes":
                raise bad_request(f"Hermes is not reached here any more; use POST {PREFIX}/runs.")
        if self._legacy is None:
            if exchange.method != "POST":
                raise ProxyError(
                    BAD_REQUEST, "This route takes POST only.", status=405, allow="POST"
                )
            raise ProxyError(NOT_FOUND, f"This route is gone; use POST {PREFIX}/runs.", status=410)
        if exchange.method != "POST":
            await self._legacy(scope, receive, send)
            return
        messages = [{"type": "http.request", "body": raw, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._legacy(scope, replay, send)

    # -- answers -----------------------------------------------------------------------------------

    async def _send(
        self,
        exchange: Exchange,
        send: Send,
        status: int,
        body: bytes,
        content_type: bytes | None,
        more: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        head = exchange.head(content_type) + (more or [])
        if status != 204:
            head.append((b"content-length", str(len(body)).encode()))
        redactor = self.service.redactor
        own = (b"set-cookie", b"content-length")
        head = [(name, value if name in own else redactor.data(value)) for name, value in head]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def _send_json(
        self,
        exchange: Exchange,
        send: Send,
        status: int,
        answer: Answer,
        more: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        redactor = self.service.redactor
        body = msgspec.json.encode(answer)
        if redactor.found(body):
            body = redactor.data(msgspec.json.encode(redactor.value(msgspec.to_builtins(answer))))
        await self._send(exchange, send, status, body, b"application/json; charset=utf-8", more)

    async def _send_error(self, exchange: Exchange, send: Send, error: ProxyError) -> None:
        self._counters.errors[error.code] += 1
        more: list[tuple[bytes, bytes]] = []
        if error.retry_after is not None:
            more.append((b"retry-after", str(error.retry_after).encode()))
        if error.allow is not None:
            more.append((b"allow", error.allow.encode()))
        body = contract.ErrorBody(
            False, error.code, error.message, exchange.trace_id, exchange.request_id
        )
        await self._send_json(exchange, send, error.status, body, more)


def create_app(
    settings: Settings,
    *,
    authenticate: Authenticate | None = None,
    authorize: Authorize | None = None,
    legacy: ASGIApp | None = None,
) -> ProxyApp:
    """The proxy as an ASGI application for the paths under ``/api/hermes/client`` and for
    ``/api/ai-agent/run``.

    Args:
        settings: what the proxy is to do; ``Settings.from_env(os.environ)`` reads the environment.
        authenticate: called (or awaited) with the Starlette ``Request``; returns a ``User``, a
            user id, or None for nobody. Without it ``settings.auth`` chooses one.
        authorize: called (or awaited) with the user, the workspace id (None where a route has
            none) and the document id; returns True to allow. Without it every user may use every
            document that the sign-in does not exclude.
        legacy: the host's own handler of ``/api/ai-agent/run`` for everything but Hermes.

    Raises SettingsError if no way to know the user is configured. Mounted in another application,
    enter ``app.lifespan()`` in that application's lifespan.
    """
    return ProxyApp(settings, authenticate=authenticate, authorize=authorize, legacy=legacy)
