"""Connections without a whole request: bounded in number, in time and in bytes.

The server by itself waits for a request for as long as it takes and keeps whatever comes of its
head. Strangers could hold every file descriptor, or all memory, without ever asking for anything;
an idle connection that was answered once is no better.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_TIMEOUT: Final = 30.0
"""Seconds from the connection, or from a request's first byte, to its last."""
IDLE_TIMEOUT: Final = 30.0
"""Seconds that a connection is kept for the next request."""
REST_TIMEOUT: Final = 2.0
"""Seconds after the answer for what is left of a request that was answered before its end."""
MAX_HEAD: Final = 65_536
"""Bytes of a request's head."""
MAX_WAITING: Final = 256
"""Connections that wait for (the rest of) a request; the oldest is closed for a new one."""
MAX_WAITING_BYTES: Final = 33_554_432
"""Bytes that have come on all of these together; beyond this the oldest is closed too."""


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
    _head_size = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait(REQUEST_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_size += len(data)
        if self in self._waiting:
            self._bytes += len(data)
            Doorstep._all_bytes += len(data)
            while Doorstep._all_bytes > MAX_WAITING_BYTES:
                self._send_one_away()
        super().data_received(data)
        if self._in_head and self._head_size > MAX_HEAD:
            self._give_up()

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

    @property
    def _serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._enter()
        self._waiting[self] = self.loop.call_later(seconds, self._give_up)
        if len(self._waiting) > MAX_WAITING:
            self._send_one_away()

    def _enter(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
            self._idle.pop(self, None)
            Doorstep._all_bytes -= self._bytes
            self._bytes = 0

    def _send_one_away(self) -> None:
        next(iter(self._idle or self._waiting))._give_up()

    def _give_up(self) -> None:
        self._enter()
        self.transport.abort()
