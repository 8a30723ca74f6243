"""Many browsers at once on real sockets, and strangers among them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from hermes_client_proxy import doorstep

PATIENCE = 60.0
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server at whose step only five may wait."""
    monkeypatch.setattr(doorstep, "MAX_WAITING", 5)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        config = uvicorn.Config(
            PlainTextResponse("hello"), http=doorstep.Doorstep, lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


def connected(port: int, words: bytes) -> socket.socket:
    """A connection that has spoken before the server, in the same thread, can look at it."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(words)
    client.setblocking(False)
    return client


async def answer(client: socket.socket) -> bytes:
    """What comes back first; nothing where the connection was closed instead."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.get_running_loop().sock_recv(client, 1000)
    except ConnectionResetError:
        return b""
    finally:
        client.close()


async def test_who_has_sent_a_request_makes_no_room_for_others(port: int) -> None:
    crowd = [connected(port, REQUEST) for _ in range(100)]
    answers = await asyncio.gather(*map(answer, crowd))
    assert [each[:15] for each in answers] == [b"HTTP/1.1 200 OK"] * 100


async def test_of_strangers_the_oldest_go(port: int) -> None:
    strangers = [connected(port, REQUEST[:9]) for _ in range(20)]
    gone = await asyncio.gather(*map(answer, strangers[:15]))
    assert gone == [b""] * 15
    for client in strangers[15:]:
        await asyncio.get_running_loop().sock_sendall(client, REQUEST[9:])
    answers = await asyncio.gather(*map(answer, strangers[15:]))
    assert [each[:15] for each in answers] == [b"HTTP/1.1 200 OK"] * 5
