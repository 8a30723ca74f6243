"""A signed-in page, and what goes wrong when it asks."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ..contract import PREFIX, TERMINAL_EVENTS, ErrorBody
from ..sse import Decoder

MAX_ANSWER = 16 * 1024 * 1024
# Hermes runs a few at a time; a start may have to wait for others of this kit.
BUSY_SECONDS = 60.0
CORS = "access-control-allow-"


class Failed(Exception):
    """The server did something else than the contract says; what."""


class CannotCheck(Exception):
    """Nothing can be checked; the text is for the person who called."""


def shortened(value: Any, limit: int = 200) -> str:
    """A value as a report shows it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


def vectors(name: str) -> Any:
    """One file of the contract's vectors: installed beside this package, or of the checkout."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "contract", here.parents[3] / "contracts" / "client-proxy-v1"):
        file = folder / "vectors" / name
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"the contract's file {name} is missing: install the package again")


@dataclass(frozen=True)
class Answer:
    """One answer, whole."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object it holds. Raises `Failed`."""
        try:
            found = json.loads(self.raw)
        except (ValueError, UnicodeDecodeError):
            raise Failed(
                f"HTTP {self.status} with a body that is no JSON: "
                f"{shortened(self.raw.decode('utf-8', 'replace'))}"
            ) from None
        if not isinstance(found, dict):
            raise Failed(f"HTTP {self.status} with JSON that is no object: {shortened(found)}")
        return found


@dataclass(frozen=True)
class Event:
    """One event of a stream. `name`: its `event:` line; `at`: seconds since the request."""

    id: str | None
    name: str
    data: dict[str, Any]
    at: float

    @property
    def kind(self) -> str:
        """The `event` field of its data."""
        return str(self.data.get("event"))

    @property
    def terminal(self) -> bool:
        """Whether the run ends with it."""
        return self.kind in TERMINAL_EVENTS


@dataclass
class Page:
    """A page of the door's own origin. `document` None: every check takes a fresh one."""

    url: str
    client: aiohttp.ClientSession
    cookie: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    workspace: str = "conform"
    document: str | None = None
    patience: float = 15.0
    run: str = field(default_factory=lambda: secrets.token_hex(3))
    _numbers: Any = field(default_factory=itertools.count, repr=False)

    @property
    def origin(self) -> str:
        """The origin that the browser would send."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def ids(self) -> dict[str, str]:
        """workspaceId, documentId and a session of that document which has not run."""
        number = next(self._numbers)
        document = self.document or f"conform-{self.run}-{number}"
        return {
            "workspaceId": self.workspace,
            "documentId": document,
            "sessionId": f"mnote_{document}_trace_{self.run}-{number}",
        }

    def _request(
        self,
        method: str,
        path: str,
        *,
        signed_in: bool = True,
        headers: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> Any:
        own: dict[str, str | None] = {"Sec-Fetch-Site": "same-origin"}
        if method != "GET":
            own["Origin"] = self.origin
        if signed_in:
            own.update(self.headers)
            if self.cookie:
                own["Cookie"] = self.cookie
        own.update(headers or {})
        full = path if path.startswith("/api/") else PREFIX + path
        return self.client.request(
            method,
            self.url + full,
            headers={name: value for name, value in own.items() if value is not None},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.patience),
            **options,
        )

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """One answer of any status. Raises `Failed` when there is none, or one with CORS.

        A start that Hermes has no room for is asked again, as `Retry-After` says.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            answer = await self._ask(method, path, **options)
            busy = answer.status == 429 and (method, path) == ("POST", "/runs")
            if not busy or time.monotonic() > deadline:
                return answer
            pause = answer.headers.get("retry-after", "")
            await asyncio.sleep(min(int(pause), 10) if pause.isdigit() else 2)

    async def _ask(self, method: str, path: str, **options: Any) -> Answer:
        try:
            async with asyncio.timeout(self.patience):
                async with self._request(method, path, **options) as answer:
                    raw = await answer.content.read(MAX_ANSWER)
                    while not answer.content.at_eof():
                        raw += await answer.content.read(MAX_ANSWER)
                        if len(raw) > MAX_ANSWER:
                            raise Failed(f"an answer of more than {MAX_ANSWER} bytes")
        except TimeoutError:
            raise Failed(f"no whole answer within {self.patience:g} s") from None
        except aiohttp.ClientError as error:
            raise Failed(f"no answer: {type(error).__name__}: {error}") from None
        return Answer(answer.status, _headers(answer), raw)

    async def good(
        self, method: str, path: str, shape: type[msgspec.Struct] | None = None, **options: Any
    ) -> dict[str, Any]:
        """The body of a 200 that fits `shape`, with its trace. Raises `Failed`."""
        answer = await self.ask(method, path, **options)
        if answer.status != 200:
            raise Failed(f"HTTP {answer.status} in place of 200: {shortened(answer.body)}")
        body = answer.body
        _is_json(answer)
        if shape is not None:
            try:
                msgspec.convert(body, type=shape)
            except msgspec.ValidationError as error:
                raise Failed(f"the answer does not fit: {error}, in {shortened(body)}") from None
        _traced(answer, body)
        return body

    async def refused(
        self, method: str, path: str, status: int | Collection[int], code: str, **options: Any
    ) -> Answer:
        """An error with this status and code, in the contract's one shape. Raises `Failed`."""
        answer = await self.ask(method, path, **options)
        wanted = (status,) if isinstance(status, int) else tuple(status)
        if answer.status not in wanted:
            shown = shortened(answer.raw.decode("utf-8", "replace"))
            named = " or ".join(map(str, wanted))
            raise Failed(f"HTTP {answer.status} in place of {named} {code}: {shown}")
        body = answer.body
        _is_json(answer)
        if set(body) != {"ok", "code", "message", "traceId", "requestId"}:
            raise Failed(f"an error has ok, code, message, traceId, requestId: {shortened(body)}")
        try:
            msgspec.convert(body, type=ErrorBody)
        except msgspec.ValidationError as error:
            raise Failed(f"the error does not fit: {error}, in {shortened(body)}") from None
        if body["code"] != code:
            raise Failed(f"the code should be {code}: {shortened(body)}")
        if not body["message"].strip():
            raise Failed(f"the message of an error is a sentence: {shortened(body)}")
        _traced(answer, body)
        if body["requestId"] != answer.headers.get("x-request-id"):
            raise Failed(f"requestId should be that of X-Request-Id: {shortened(body)}")
        return answer

    # Runs

    async def start(self, ids: Mapping[str, str], message: str, **more: Any) -> dict[str, Any]:
        """POST /runs; the answer's body. `headers` and `body` add to the request."""
        from ..contract import RunStarted

        extra = more.pop("body", {})
        body = {**ids, "message": message, **extra}
        return await self.good("POST", "/runs", RunStarted, json=body, **more)

    @asynccontextmanager
    async def events(
        self, run_id: str, session: str, *, last: str | None = None, query: str = ""
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[Event]]]:
        """An open event stream: the answer's head, and its events with comments as `name` ":"."""
        headers: dict[str, str | None] = {"Accept": "text/event-stream", "Last-Event-ID": last}
        began = time.monotonic()
        path = f"/events/{run_id}?sessionId={session}{query}"
        try:
            async with asyncio.timeout(self.patience):
                request = self._request("GET", path, headers=headers)
                answer = await request.__aenter__()
        except TimeoutError:
            raise Failed(f"no head of the event stream within {self.patience:g} s") from None
        except aiohttp.ClientError as error:
            raise Failed(f"no event stream: {type(error).__name__}: {error}") from None
        try:
            found = _headers(answer)
            raw = b"" if answer.status == 200 else await answer.content.read(65_536)
            yield Answer(answer.status, found, raw), self._read(answer, began)
        finally:
            answer.close()

    async def _read(self, answer: aiohttp.ClientResponse, began: float) -> AsyncIterator[Event]:
        decoder = Decoder(MAX_ANSWER)
        seen = b""
        while True:
            try:
                async with asyncio.timeout(max(self.patience, 20.0)):
                    chunk = await answer.content.readany()
            except TimeoutError:
                raise Failed("the event stream is silent for too long") from None
            except aiohttp.ClientError as error:
                raise Failed(f"the event stream broke off: {type(error).__name__}") from None
            if not chunk:
                return
            at = time.monotonic() - began
            *lines, seen = (seen + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b":"):
                    yield Event(None, ":", {}, at)
            for event in decoder.feed(chunk):
                try:
                    data = json.loads(event.data)
                except ValueError:
                    raise Failed(f"an event's data is no JSON: {shortened(event.data)}") from None
                if not isinstance(data, dict):
                    raise Failed(f"an event's data is no object: {shortened(event.data)}")
                yield Event(event.id, event.event or "", data, at)

    async def read(
        self, run_id: str, session: str, *, last: str | None = None, query: str = ""
    ) -> list[Event]:
        """The contract's events, to the end of the stream."""
        async with self.events(run_id, session, last=last, query=query) as (answer, events):
            if answer.status != 200:
                shown = shortened(answer.raw.decode("utf-8", "replace"))
                raise Failed(f"HTTP {answer.status} in place of an event stream: {shown}")
            return [event async for event in events if not event.name]


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers by their names in lower case. Raises `Failed` for one that lets other sites
    read."""
    found = {name.lower(): value for name, value in answer.headers.items()}
    for name, value in found.items():
        if name.startswith(CORS):
            raise Failed(f"a CORS header: {name}: {value}")
    return found


def _is_json(answer: Answer) -> None:
    kind = answer.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Failed(f"Content-Type should be application/json, it is {kind!r}")


def _traced(answer: Answer, body: Mapping[str, Any]) -> None:
    trace = answer.headers.get("x-trace-id")
    if not trace or trace != body.get("traceId"):
        raise Failed(f"X-Trace-Id is {trace!r}, traceId is {body.get('traceId')!r}")
    if not answer.headers.get("x-request-id"):
        raise Failed("X-Request-Id is missing")
