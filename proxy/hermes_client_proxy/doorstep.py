"""Connections without a whole request: bounded in number, in time and in bytes.

The server by itself waits for a request for as long as it takes and keeps whatever comes of its
head. Strangers could hold every file descriptor, or all memory, without ever asking for anything;
an idle connection that was answered once is no better.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from http import HTTPMethod, HTTPStatus
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .contract import BAD_REQUEST, ErrorBody, made_id

REQUEST_TIMEOUT: Final = 30.0
"""Seconds from the connection, or from a request's first byte, to its last."""
IDLE_TIMEOUT: Final = 30.0
"""Seconds that a connection is kept for the next request."""
REST_TIMEOUT: Final = 2.0
"""Seconds after the answer for what is left of a request that was answered before its end."""
MAX_HEAD: Final = 65_536
"""Bytes of a request's head."""
MAX_READ_OVER: Final = 4_194_304
"""Bytes of a refused request that are read over, so that its sender gets to read the answer."""
MAX_WAITING: Final = 256
"""Connections that wait for (the rest of) a request; the oldest is closed for a new one."""
MAX_WAITING_BYTES: Final = 33_554_432
"""Bytes that have come on all of these together; beyond this the oldest is closed too."""

_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [^\r\n]")
_METHODS = frozenset(method.value.encode() for method in HTTPMethod)


class Doorstep(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 connection with these bounds."""

    # One process listens once: those who wait are counted together. Who was answered already goes
    # before one whose request is on its way.
    _waiting: OrderedDict[Doorstep, asyncio.TimerHandle] = OrderedDict()
    _idle: OrderedDict[Doorstep, None] = OrderedDict()
    _all_bytes = 0
    _bytes = 0
    _in_head = True
    _whole = False
    _refused = False
    _head_size = 0
    _first_bytes = b""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait(REQUEST_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._head_size += len(data)
            if self._head_size > MAX_READ_OVER:
                self._give_up()
            return
        if self._in_head:
            if not self._head_size:
                self._first_bytes = data[:32]
            self._head_size += len(data)
        if self in self._waiting:
            self._bytes += len(data)
            Doorstep._all_bytes += len(data)
            while Doorstep._all_bytes > MAX_WAITING_BYTES:
                self._send_one_away()
        super().data_received(data)
        if self._in_head and self._head_size > MAX_HEAD and not self._refused:
            self._refuse(400, f"The head of this request is larger than {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        self._in_head, self._whole, self._head_size = True, False, 0
        if not self._serving:
            self._wait(REQUEST_TIMEOUT)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        if self._serving:
            self._enter()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._serving and not self.transport.is_closing():
            self._wait(IDLE_TIMEOUT if self._whole else REST_TIMEOUT)
            self._idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or names a method that HTTP does not have, is refused in the contract's
        words too."""
        status, sentence = 400, "This is no HTTP request."
        method = _METHOD.match(self._first_bytes)
        if method is not None and method[1] not in _METHODS:
            status, sentence = 405, "HTTP has no such method; this server takes GET and POST."
        elif self._in_head and self._head_size > MAX_HEAD:
            sentence = f"The head of this request is larger than {MAX_HEAD} bytes."
        self._refuse(status, sentence)

    def _refuse(self, status: int, sentence: str) -> None:
        if self._serving and self.cycle.response_started:
            self._give_up()  # another answer is on its way
            return
        trace_id, request_id = made_id("trace_"), made_id("req_")
        body = msgspec.json.encode(ErrorBody(False, BAD_REQUEST, sentence, trace_id, request_id))
        head = [
            b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode()),
            b"cache-control: no-store",
            b"content-type: application/json; charset=utf-8",
            b"x-content-type-options: nosniff",
            b"x-trace-id: " + trace_id.encode(),
            b"x-request-id: " + request_id.encode(),
            b"content-length: %d" % len(body),
            b"connection: close",
        ]
        if status == 405:
            head.append(b"allow: GET, POST")
        self.transport.write(b"\r\n".join([*head, b"", body]))
        if self._serving or not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closed before the rest has come the connection would be reset, and the answer lost.
        self._refused = True
        self._wait(REST_TIMEOUT)
        self.transport.write_eof()

    @property
    def _serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._enter()
        self._waiting[self] = self.loop.call_later(seconds, self._give_up)
        if len(self._waiting) > MAX_WAITING:
            # Of many that come at once most have sent their request already: what has come is read
            # in the loop's next turn, and only who is still waiting after that makes room.
            self.loop.call_soon(self.loop.call_soon, self._make_room)

    def _enter(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
            self._idle.pop(self, None)
            Doorstep._all_bytes -= self._bytes
            self._bytes = 0

    @classmethod
    def _make_room(cls) -> None:
        while len(cls._waiting) > MAX_WAITING:
            cls._send_one_away()

    @classmethod
    def _send_one_away(cls) -> None:
        next(iter(cls._idle or cls._waiting))._give_up()

    def _give_up(self) -> None:
        self._enter()
        self.transport.abort()
