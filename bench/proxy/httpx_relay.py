"""The relay that one would write first: Starlette, httpx, one event after another.

python -m bench.proxy.httpx_relay PORT UPSTREAM_URL
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


def application(upstream: str) -> Starlette:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
            app.state.client = client
            yield

    async def relay(request: Request) -> StreamingResponse:
        async def events() -> AsyncIterator[bytes]:
            url = upstream + request.url.path
            async with request.app.state.client.stream("GET", url) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        event = msgspec.json.decode(line[6:])
                        event["session_id"] = "mnote_doc_1_trace_1"
                        yield b"data: %s\n\n" % msgspec.json.encode(event)
                    elif line:
                        yield f"{line}\n\n".encode()

        return StreamingResponse(events(), media_type="text/event-stream")

    return Starlette(routes=[Route("/{path:path}", relay)], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        backlog=4096,
    )
