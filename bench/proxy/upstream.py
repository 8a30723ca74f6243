"""A Hermes API server for measuring: as little work as possible, and a time in every event.

    python -m bench.proxy.upstream PORT EVENTS INTERVAL_MS DELAY_MS

The events of a run begin DELAY_MS after its stream is opened and come INTERVAL_MS apart. ``t=``
in an event's text is the monotonic clock in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import cast

import uvloop

_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_WORDS = "word after word "


class Server(asyncio.Protocol):
    """One connection."""

    events = 0
    interval = 0.0
    delay = 0.0
    runs = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n")[1:]:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            method, path, _ = head.split(b" ", 2)
            self._answer(method.decode(), path.decode())

    def _answer(self, method: str, path: str) -> None:
        if path.endswith("/events"):
            run_id = path.split("/")[-2]
            self._transport.write(_CHUNKED)
            self._chunk(b": open\n\n")
            wait = self.delay + random.random() * self.interval
            asyncio.get_running_loop().call_later(wait, self._event, run_id, 0)
        elif method == "POST":
            Server.runs += 1
            self._json(202, f'{{"run_id":"run_{Server.runs}","status":"started"}}')
        elif path.startswith("/api/sessions"):
            self._json(404, '{"error":{"code":"session_not_found","message":""}}')
        elif path.startswith("/v1/capabilities"):
            self._json(200, '{"features":{}}')
        else:
            self._json(200, '{"status":"ok","data":[]}')

    def _event(self, run_id: str, number: int) -> None:
        if self._transport.is_closing():
            return
        last = number + 1 == self.events
        kind, field = ("run.completed", "output") if last else ("message.delta", "delta")
        data = f'"event":"{kind}","run_id":"{run_id}","timestamp":1796037277.1366973'
        said = f'"{field}":"t={time.monotonic_ns()} {_WORDS}"'
        self._chunk(f"data: {{{data},{said}}}\n\n".encode())
        if last:
            self._transport.write(b"0\r\n\r\n")
        elif number + 1 < self.events:
            loop = asyncio.get_running_loop()
            loop.call_later(self.interval, self._event, run_id, number + 1)

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _json(self, status: int, text: str) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    port, Server.events = int(sys.argv[1]), int(sys.argv[2])
    Server.interval, Server.delay = int(sys.argv[3]) / 1000, int(sys.argv[4]) / 1000
    uvloop.run(serve(port))


if __name__ == "__main__":
    main()
