"""The Hermes API server: one HTTP client, what it can do, and what its answers mean.

No text of the upstream leaves this module as an error: every answer that is not the one hoped for
becomes a ProxyError with a closed sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from . import eventstream, upstream_json
from .contract import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    TOO_LARGE,
    UPSTREAM_RATE_LIMITED,
    UPSTREAM_UNAUTHORIZED,
    UPSTREAM_UNAVAILABLE,
    ProxyError,
)
from .counters import Counters, Spent, operation, status_class
from .settings import Settings

MAX_ANSWER = 33_554_432
"""The greatest answer read, in bytes; Hermes answers messages of a session in pages."""

PAGE = 200
MESSAGE_PAGE = 500
MAX_LINEAGE = 32
_CAPABILITIES_KEEP = 30.0

_SESSION = re.compile(r"[A-Za-z0-9._:-]{1,256}")

Interface = Literal["basic", "replayable"]
Query = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Trace:
    """What identifies one request in both servers' logs."""

    trace_id: str
    request_id: str
    spent: Spent = field(default_factory=Spent, compare=False, repr=False)
    """Where the time that Hermes takes for this request is added up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer. ``data`` is None unless it is a JSON object; ``code`` is Hermes' own
    error code, "" for an error body without one, None where there is no error body."""

    status: int
    data: dict[str, Any] | None
    code: str | None
    retry_after: int | None


class NoAnswer(Exception):
    """No complete answer came. ``sent`` tells whether the request may have reached Hermes."""

    def __init__(self, *, sent: bool, slow: bool) -> None:
        super().__init__("no answer")
        self.sent = sent
        self.slow = slow

    @property
    def kind(self) -> str:
        """slow, broken or unreachable, for the metrics."""
        return "slow" if self.slow else "broken" if self.sent else "unreachable"

    def error(self) -> ProxyError:
        if self.slow:
            return ProxyError(UPSTREAM_UNAVAILABLE, "Hermes did not answer in time.", status=504)
        return ProxyError(UPSTREAM_UNAVAILABLE, "Hermes cannot be reached or broke off.")


class Upstream:
    """One Hermes. Everything that is sent there is sent here."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.counters = Counters()
        self._client: aiohttp.ClientSession | None = None
        self._interface: tuple[float, Interface] | None = None
        self._asking: asyncio.Task[Interface] | None = None

    def client(self) -> aiohttp.ClientSession:
        """The one HTTP client; made at first use, in the running loop."""
        if self._client is None or self._client.closed:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
                trust_env=False,
            )
        return self._client

    async def begin_anew(self) -> None:
        """Leaves what belongs to an event loop that is gone; the next request makes it again."""
        client, self._client, self._asking = self._client, None, None
        if client is not None:
            with contextlib.suppress(RuntimeError):  # what waited in that loop cannot be told
                await client.close()

    async def close(self) -> None:
        """Closes the client and with it every connection."""
        if self._client is not None:
            await self._client.close()

    # -- the wire ---------------------------------------------------------------------------------

    def _url(self, path: str, query: Query | None = None) -> URL:
        assert self._settings.upstream_url is not None
        text = self._settings.upstream_url + path
        return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)

    def _headers(self, trace: Trace, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # An allow-list: nothing that the browser sent gets here by itself. Hermes refuses every
        # request with an Origin.
        headers = {
            "User-Agent": "hermes-client-proxy",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "X-Trace-Id": trace.trace_id,
            "X-Request-Id": trace.request_id,
        }
        if self._settings.api_key is not None:
            headers["Authorization"] = f"Bearer {self._settings.api_key}"
        headers.update(more or {})
        return headers

    async def ask(
        self,
        trace: Trace,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Sends one request. Raises NoAnswer; any complete answer is a Reply."""
        began = time.monotonic()
        outcome = "broken"
        try:
            reply = await self._ask(trace, method, path, query, body, headers)
            outcome = status_class(reply.status)
            return reply
        except NoAnswer as failure:
            outcome = failure.kind
            if not failure.slow:
                self.forget_interface()
            raise
        finally:
            seconds = time.monotonic() - began
            trace.spent.upstream += seconds
            self._note(operation(method, path), outcome, seconds)

    def _note(self, name: str, outcome: str, seconds: float) -> None:
        self.counters.upstream[name, outcome] += 1
        self.counters.upstream_seconds[name].add(seconds)

    async def _ask(
        self,
        trace: Trace,
        method: str,
        path: str,
        query: Query | None,
        body: dict[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        more = dict(headers or {})
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            more["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(
            total=self._settings.answer_timeout, connect=self._settings.connect_timeout
        )
        try:
            async with self.client().request(
                method,
                self._url(path, query),
                data=data,
                headers=self._headers(trace, more),
                allow_redirects=False,
                timeout=timeout,
            ) as answer:
                raw = await read_body(answer, MAX_ANSWER)
                return _reply(answer.status, answer.headers, raw)
        except aiohttp.ConnectionTimeoutError:
            raise NoAnswer(sent=False, slow=True) from None
        except aiohttp.ClientConnectorError:
            raise NoAnswer(sent=False, slow=False) from None
        except TimeoutError:
            raise NoAnswer(sent=True, slow=True) from None
        except (aiohttp.ClientError, OSError, ValueError, EOFError):
            raise NoAnswer(sent=True, slow=False) from None

    async def get(self, trace: Trace, path: str, query: Query | None = None) -> dict[str, Any]:
        """The JSON object at *path*. Raises ProxyError."""
        try:
            reply = await self.ask(trace, "GET", path, query=query)
        except NoAnswer as failure:
            raise failure.error() from None
        if reply.status != 200 or reply.data is None or reply.code is not None:
            raise refusal(reply)
        return reply.data

    # -- what it can do ---------------------------------------------------------------------------

    async def interface(self, trace: Trace) -> Interface:
        """Whether history is loaded, events are replayed and keys are honoured up there.

        Raises ProxyError if Hermes cannot be asked.
        """
        known = self._interface
        if known is not None and time.monotonic() - known[0] < _CAPABILITIES_KEEP:
            return known[1]
        task = self._asking
        if task is None:  # whoever comes meanwhile waits for the same answer
            task = self._asking = asyncio.create_task(self._ask_interface(trace))
            task.add_done_callback(self._asked)
        return await asyncio.shield(task)

    def _asked(self, task: asyncio.Task[Interface]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._interface = (time.monotonic(), task.result())

    async def _ask_interface(self, trace: Trace) -> Interface:
        try:
            reply = await self.ask(trace, "GET", "/v1/capabilities")
        except NoAnswer as failure:
            raise failure.error() from None
        if reply.status == 200 and reply.data is not None:
            features = reply.data.get("features")
            keys = features.get("runs_idempotency") if isinstance(features, dict) else None
            if isinstance(keys, dict) and keys.get("supported") is True:
                return "replayable"
        elif reply.status not in (404, 405):
            raise refusal(reply)
        return "basic"

    def forget_interface(self) -> None:
        """Hermes broke off: what answers next may be another Hermes."""
        self._interface = None

    # -- runs -------------------------------------------------------------------------------------

    async def start_run(self, trace: Trace, body: dict[str, Any], key: str | None) -> Reply:
        """POST /v1/runs. Raises NoAnswer."""
        headers = {"Idempotency-Key": key} if key is not None else None
        return await self.ask(trace, "POST", "/v1/runs", body=body, headers=headers)

    async def run_status(self, trace: Trace, run_id: str) -> dict[str, Any] | None:
        """The status of a run, None if Hermes does not know it. Raises ProxyError."""
        try:
            status = await self.get(trace, f"/v1/runs/{_part(run_id)}")
        except ProxyError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        if not isinstance(status.get("status"), str):
            # Whatever this is, it does not tell that the run is unknown, or that it goes on.
            raise malformed()
        return status

    async def stop_run(self, trace: Trace, run_id: str) -> Reply:
        """POST /v1/runs/{id}/stop. Raises NoAnswer."""
        return await self.ask(trace, "POST", f"/v1/runs/{_part(run_id)}/stop", body={})

    async def answer_approval(self, trace: Trace, run_id: str, body: dict[str, Any]) -> Reply:
        """POST /v1/runs/{id}/approval. Raises NoAnswer."""
        return await self.ask(trace, "POST", f"/v1/runs/{_part(run_id)}/approval", body=body)

    async def read_events(
        self, trace: Trace, run_id: str, last_seq: str | None, take: Callable[[bytes], None]
    ) -> None:
        """Hands the bytes of a run's event stream to *take* until the stream ends or breaks; what
        *take* raises ends it too. Raises NoStream if there is no such stream to be had."""
        more = {"Accept": "text/event-stream"}
        if last_seq is not None:
            more["Last-Event-ID"] = last_seq
        outcome = "2xx"
        self.counters.upstream_streams += 1
        try:
            await eventstream.read(
                self._url(f"/v1/runs/{_part(run_id)}/events"),
                self._headers(trace, more),
                take,
                connect_timeout=self._settings.connect_timeout,
                silence=self._settings.silence,
            )
        except eventstream.NoStream as failure:
            outcome = "broken" if failure.sent else "unreachable"
            raise
        finally:
            self.counters.upstream_streams -= 1
            self.counters.upstream["events", outcome] += 1

    # -- sessions ---------------------------------------------------------------------------------

    async def session(self, trace: Trace, session_id: str) -> dict[str, Any] | None:
        """The row of a session, None if Hermes has none. Raises ProxyError."""
        try:
            data = await self.get(trace, f"/api/sessions/{_part(session_id)}")
        except ProxyError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        row = data.get("session")
        if not isinstance(row, dict):
            raise malformed()
        return row

    async def messages(
        self, trace: Trace, session_id: str, limit: int
    ) -> tuple[str, list[dict[str, Any]]] | None:
        """The newest *limit* messages, oldest first, and the id of the session that holds them (a
        successor after compression); None if Hermes has no such session. Raises ProxyError."""
        pages: list[list[dict[str, Any]]] = []
        holder, held, offset = session_id, 0, 0
        while True:
            query: Query = {"limit": MESSAGE_PAGE, "offset": offset, "order": "latest"}
            try:
                data = await self.get(trace, f"/api/sessions/{_part(session_id)}/messages", query)
            except ProxyError as error:
                if error.code == NOT_FOUND:
                    return None
                raise
            rows = data.get("data")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise malformed()
            found = data.get("session_id")
            if isinstance(found, str) and valid_session(found):
                holder = found
            pages.insert(0, rows)
            held += len(rows)
            # An upstream that knows no pages answers everything at once and says nothing of pages.
            pages_told = data.get("pagination")
            if not isinstance(pages_told, dict):
                break
            given = pages_told.get("limit")
            step = given if type(given) is int and 0 < given < MESSAGE_PAGE else MESSAGE_PAGE
            offset += step
            if len(rows) < step or held >= limit:
                break
        rows = [row for page in pages for row in page]
        return holder, rows[-limit:]

    async def lineage(
        self, trace: Trace, session_id: str, root: str
    ) -> list[dict[str, Any]] | None:
        """The session rows from *session_id* back to *root* over compressions, None if they do not
        lead there. Raises ProxyError."""
        rows: list[dict[str, Any]] = []
        current = session_id
        for _ in range(MAX_LINEAGE):
            row = await self.session(trace, current) if valid_session(current) else None
            if row is None or (rows and row.get("end_reason") != "compression"):
                return None
            rows.append(row)
            if current == root:
                return rows
            parent = row.get("parent_session_id")
            if not isinstance(parent, str):
                return None
            current = parent
        return None

    async def set_title(self, trace: Trace, session_id: str, title: str) -> Reply:
        """PATCH the title. Raises NoAnswer."""
        path = f"/api/sessions/{_part(session_id)}"
        return await self.ask(trace, "PATCH", path, body={"title": title})


def valid_session(session_id: str) -> bool:
    """Whether *session_id*, which may be Hermes' own, may become part of a path."""
    return _SESSION.fullmatch(session_id) is not None and ".." not in session_id


def malformed() -> ProxyError:
    """Hermes answered, but not what it should."""
    return ProxyError(UPSTREAM_UNAVAILABLE, "Hermes answered in a form that is not understood.")


def refusal(reply: Reply) -> ProxyError:
    """What a complete answer that is not a success means for the browser."""
    status = reply.status
    if status in (401, 403):
        return ProxyError(
            UPSTREAM_UNAUTHORIZED,
            "Hermes refused this server's key; check MNOTE_WEB_HERMES_API_KEY.",
        )
    if status == 429:
        return ProxyError(
            UPSTREAM_RATE_LIMITED,
            "Hermes is busy; try again later.",
            retry_after=1 if reply.retry_after is None else reply.retry_after,
        )
    if reply.code is not None:
        if status == 404 and reply.code in ("run_not_found", "session_not_found"):
            return ProxyError(NOT_FOUND, "Hermes does not know this run or session.")
        if status == 409:
            return ProxyError(CONFLICT, "Hermes refused: this conflicts with what is going on.")
        if status == 413:
            return ProxyError(TOO_LARGE, "This is more than Hermes accepts.")
        if status in (400, 422):
            return ProxyError(BAD_REQUEST, "Hermes refused the request as it is.")
        if status == 503:
            return ProxyError(
                UPSTREAM_UNAVAILABLE, "Hermes is not ready.", retry_after=reply.retry_after
            )
    if status == 504:
        return ProxyError(UPSTREAM_UNAVAILABLE, "Hermes did not answer in time.", status=504)
    if status >= 500:
        return ProxyError(UPSTREAM_UNAVAILABLE, "Hermes failed.", retry_after=reply.retry_after)
    return malformed()


async def read_body(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body of an answer. Raises ValueError above *limit* bytes."""
    parts = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > limit:
            answer.close()
            raise ValueError("answer too large")
        parts.append(part)
    return b"".join(parts)


def _reply(status: int, headers: Mapping[str, str], raw: bytes) -> Reply:
    try:
        data = upstream_json.read(raw)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        data = None
    code = None
    if data is not None and isinstance(error := data.get("error"), dict) and status >= 400:
        own = error.get("code")
        code = own if isinstance(own, str) else ""
    return Reply(status, data, code, _retry_after(headers.get("Retry-After")))


def _retry_after(text: str | None) -> int | None:
    """Whole seconds of a Retry-After header, at most a day."""
    if text is None:
        return None
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(int(text), 86_400)
    try:
        when = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(1, int(when - time.time())), 86_400)


def _part(text: str) -> str:
    return quote(text, safe="")
