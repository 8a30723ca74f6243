"""Many browsers at once: open event streams and note when each event came."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import cast

_TIME = re.compile(rb"t=(\d+) ")


@dataclass
class Seen:
    """What all readers saw: the age of each event in nanoseconds, and how many streams ended."""

    ages: list[int] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    all_opened: asyncio.Event = field(default_factory=asyncio.Event)
    all_closed: asyncio.Event = field(default_factory=asyncio.Event)


class Reader(asyncio.Protocol):
    """One browser."""

    def __init__(self, request: bytes, streams: int, seen: Seen) -> None:
        self._request = request
        self._streams = streams
        self._seen = seen
        self._open = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self._open:
            if not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"a stream was refused: {data[:200]!r}")
            self._open = True
            self._seen.opened += 1
            if self._seen.opened == self._streams:
                self._seen.all_opened.set()
        data = self._rest + data
        # An event's number may be cut in two by the end of what came.
        whole, _, self._rest = data.rpartition(b"\n")
        self._seen.ages += [now - int(sent) for sent in _TIME.findall(whole)]
        if b"0\r\n\r\n" in data[-7:] or b"run.completed" in whole:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._seen.closed += 1
        if self._seen.closed == self._streams:
            self._seen.all_closed.set()


async def open_all(port: int, paths: list[str], seen: Seen) -> list[asyncio.Transport]:
    """Opens one stream for each path."""
    loop = asyncio.get_running_loop()
    transports = []
    for path in paths:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-User: bench\r\n\r\n".encode()
        transport, _ = await loop.create_connection(
            lambda request=request: Reader(request, len(paths), seen),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        transports.append(transport)
    return transports
