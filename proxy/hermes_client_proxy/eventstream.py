"""Reading one event stream of the upstream: bytes are handed on as they arrive.

A general HTTP client wakes a task for every piece it reads. A run's events are many and small, and
most of what relaying one costs would be that; here the parser calls the reader directly. Requests
that are answered once go through the one HTTP client in ``upstream``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import cast

import httptools
from yarl import URL

MAX_HEAD = 65_536


class NoStream(Exception):
    """There is no event stream to be had. ``sent`` tells whether the request went out."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("no stream")
        self.sent = sent


class EventStream(asyncio.Protocol):
    """One connection with one request. *take* gets the body's bytes in order; what it raises ends
    the stream. A stream silent for *silence* seconds counts as broken."""

    def __init__(self, request: bytes, take: Callable[[bytes], None], silence: float) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self.on_body = take  # the parser calls it
        self._silence = silence
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: dict[bytes, bytes] = {}
        self._head_size = 0
        self._ahead = False
        self._opened: asyncio.Future[bool] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._alive = True
        self._watch = loop.call_later(silence, self._check)

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        self._alive = True
        try:
            before_body = not self._opened.done()
            self._parser.feed_data(data)
            if before_body and not self._opened.done():
                # Judged after the parser: the first bytes may be a short head and many events.
                self._head_size += len(data)
                if self._head_size > MAX_HEAD:
                    raise ValueError("the head is too large")
        except Exception:
            # The end, bytes that are no HTTP, or what the reader refuses: this stream is over.
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    # the parser's calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value.lower()

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        self._ahead = 100 <= status < 200 and status != 101
        if self._ahead:
            return
        kind = self._headers.get(b"content-type", b"").partition(b";")[0].strip()
        plain = self._headers.get(b"content-encoding", b"identity") == b"identity"
        good = status == 200 and kind == b"text/event-stream" and plain
        if not good:
            raise NoStream(sent=True)
        self._opened.set_result(True)

    def on_message_complete(self) -> None:
        if self._ahead:  # a word ahead of the answer, such as 103: the answer is still to come
            self._headers.clear()
            return
        raise EOFError  # whatever else comes is not this stream's

    # the reader's calls

    async def run(self) -> None:
        """Returns when the stream has ended, however. Raises NoStream if it never began."""
        if not await self._opened:
            raise NoStream(sent=True)
        await self._ended

    def close(self) -> None:
        """Ends the stream."""
        self._watch.cancel()
        # It and this object hold each other: the whole run's log would wait for the collector.
        self._parser = None
        if not self._opened.done():
            self._opened.set_result(False)
        if not self._ended.done():
            self._ended.set_result(None)
        if self._transport is not None:
            self._transport.abort()

    def _check(self) -> None:
        if not self._alive:
            self.close()
            return
        self._alive = False
        self._watch = asyncio.get_running_loop().call_later(self._silence, self._check)


async def read(
    url: URL,
    headers: Mapping[str, str],
    take: Callable[[bytes], None],
    *,
    connect_timeout: float,
    silence: float,
) -> None:
    """Reads the event stream at *url* to its end, cut or not; *take* gets its bytes.

    Times are in seconds. Raises NoStream if there is none.
    """
    assert url.host is not None and url.port is not None
    lines = [f"GET {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    request = "\r\n".join([*lines, "", ""]).encode("latin-1")
    stream = EventStream(request, take, silence)
    try:
        try:
            async with asyncio.timeout(connect_timeout):
                await asyncio.get_running_loop().create_connection(
                    lambda: stream,
                    url.host,
                    url.port,
                    ssl=ssl.create_default_context() if url.scheme == "https" else None,
                )
        except (OSError, TimeoutError):
            raise NoStream(sent=False) from None
        await stream.run()
    finally:
        stream.close()
