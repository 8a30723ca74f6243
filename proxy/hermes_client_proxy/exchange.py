"""One request: what is known about it, its parameters and body, and the head of its answer."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from . import contract
from .auth import User
from .contract import TOO_LARGE, ProxyError, bad_request
from .counters import Spent
from .headers import values
from .upstream import Trace

_BODY_TIMEOUT = 30.0
_REFUSED_BODY_TIMEOUT = 2.0


class _TraceOnly(msgspec.Struct):
    traceId: Any = None


class Exchange:
    """One request and what is known about it so far; a body is read up to *max_body* bytes."""

    def __init__(self, scope: Scope, receive: Receive, max_body: int) -> None:
        self._max_body = max_body
        self.request = Request(scope, receive)
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.method: str = scope["method"]
        self.query = QueryParams(scope.get("query_string", b""))
        self.request_id = contract.made_id("req_")
        self.params: dict[str, str] = {}
        self.began = time.monotonic()
        self.spent = Spent()
        self.bytes_in = 0
        self.body_asked = False
        self.plain_send: Send | None = None
        """The server's own send, for what is sent often."""
        self.user = User("")
        self.given_trace = next(
            (
                value
                for value in (
                    *self.query.getlist("traceId"),
                    *values(self.headers, b"x-trace-id"),
                )
                if contract.valid_trace_id(value)
            ),
            None,
        )
        self.trace_id = self.given_trace or contract.made_id("trace_")

    @property
    def trace(self) -> Trace:
        return Trace(self.trace_id, self.request_id, self.spent)

    @property
    def timing(self) -> str:
        """The time so far, in all and waiting for Hermes, as Server-Timing: milliseconds."""
        total = (time.monotonic() - self.began) * 1000
        timing = f"total;dur={total:.1f}"
        if self.spent.upstream:
            timing += f", upstream;dur={self.spent.upstream * 1000:.1f}"
        return timing

    def adopt_trace(self, raw: bytes) -> None:
        """The body's trace id goes before the others."""
        try:
            found = msgspec.json.decode(raw, type=_TraceOnly).traceId
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if contract.valid_trace_id(found):
            self.given_trace = self.trace_id = found

    # -- parameters --------------------------------------------------------------------------------

    def optional(self, name: str) -> str | None:
        """A query parameter; ProxyError (400) if it is given twice."""
        found = self.query.getlist(name)
        if len(found) > 1:
            raise bad_request(f"Give {name} once.")
        return found[0] if found else None

    def required(self, name: str) -> str:
        """A query parameter; ProxyError (400) if it is missing, empty or given twice."""
        value = self.optional(name)
        if not value:
            raise bad_request(f"The query parameter {name} is missing.")
        return value

    def limit(self, most: int) -> int:
        """How many rows are asked for, 20 without a word; ProxyError (400) outside 1 to *most*."""
        text = self.optional("limit")
        if text is None:
            return 20
        if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= most:
            raise bad_request(f"limit must be a whole number from 1 to {most}.")
        return int(text)

    # -- body --------------------------------------------------------------------------------------

    async def body(self, kind: type[contract.T]) -> contract.T:
        """The JSON body in the shape *kind*; ProxyError (400, 413) with what is wrong with it."""
        raw = await self.raw_body()
        self.adopt_trace(raw)
        return contract.decode(raw, kind)

    async def learn_trace(self) -> None:
        """A refusal from before the body was read carries the body's trace id all the same."""
        if self.method in ("POST", "PUT", "PATCH", "DELETE") and not self.body_asked:
            # RuntimeError: an ``authenticate`` has read the body and kept nothing of it.
            with contextlib.suppress(ProxyError, RuntimeError):
                self.adopt_trace(await self.raw_body(_REFUSED_BODY_TIMEOUT))

    async def raw_body(self, patience: float = _BODY_TIMEOUT) -> bytes:
        """The bytes of the body; ProxyError if it is too large (413), or broken off or slower than
        *patience* seconds (400)."""
        self.body_asked = True
        limit = self._max_body
        too_large = ProxyError(TOO_LARGE, f"The body is larger than {limit} bytes.")
        for length in values(self.headers, b"content-length"):
            if re.fullmatch(r"[0-9]{1,4000}", length) and int(length) > limit:
                raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(patience):
                # The host's ``authenticate`` may have read it already; the request keeps it then.
                async with contextlib.aclosing(self.request.stream()) as body:
                    async for part in body:
                        size += len(part)
                        self.bytes_in = size
                        if size > limit:
                            raise too_large
                        parts.append(part)
                return b"".join(parts)
        except ClientDisconnect:
            raise bad_request("The body broke off.") from None
        except TimeoutError:
            raise bad_request("The body did not come in time.") from None

    # -- answer ------------------------------------------------------------------------------------

    def head(
        self, content_type: bytes | None, cache: bytes = b"no-store"
    ) -> list[tuple[bytes, bytes]]:
        """What every answer begins with, as ASGI header pairs."""
        head = [
            (b"cache-control", b"no-cache, " + cache if cache != b"no-store" else cache),
            (b"x-content-type-options", b"nosniff"),
            (b"x-trace-id", self.trace_id.encode()),
            (b"x-request-id", self.request_id.encode()),
            (b"server-timing", self.timing.encode()),
        ]
        if content_type is not None:
            head.append((b"content-type", content_type))
        return head
