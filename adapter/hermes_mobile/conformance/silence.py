"""Clients that say nothing or read nothing, and what else concerns the connection alone."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.frames import Opcode

from .contract import shortened
from .entering import enter
from .line import Failed, Line
from .target import Target

# Without a byte for so long a client is given up; a busy machine may be late.
GIVEN_UP = 45.0
LATE = 8.0
EARLY = 5.0
# More than a door keeps for one client, and than fits into what lies between.
MANY_ANSWERS = 500
LONG_WORDS = "long 200000"
SERVED_WITHIN = 2.0
SMALL_ANSWER = 65_536


async def alive_in_silence(target: Target, number: int) -> None:
    """A client that says nothing but answers pings is kept; the door asks it for a sign of life."""
    line = await enter(target, number)
    try:
        asked = _count_pings(line)
        try:
            async with asyncio.timeout(GIVEN_UP + LATE):
                await line.socket.wait_closed()
        except TimeoutError:
            pass
        else:
            raise Failed(
                f"a client that answers pings was cut off for its silence, with "
                f"{line.socket.close_code}"
            )
        if not asked:
            raise Failed(f"no WebSocket ping came in {GIVEN_UP + LATE:g} s of silence")
        await line.quiet()
    finally:
        await line.close()


async def dead_in_silence(target: Target, number: int) -> None:
    """A client that does not even answer pings is given up 45 s after its last byte."""
    line = await enter(target, number)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        _answer_no_ping(line)
        try:
            async with asyncio.timeout(GIVEN_UP + LATE):
                await line.socket.wait_closed()
        except TimeoutError:
            raise Failed(
                f"a client without a sign of life was still kept after {GIVEN_UP + LATE:g} s, "
                f"not given up after {GIVEN_UP:g} s"
            ) from None
        if (took := loop.time() - began) < GIVEN_UP - EARLY:
            raise Failed(f"a silent client was given up after {took:.0f} s, before {GIVEN_UP:g} s")
    finally:
        line.socket.transport.abort()


def _count_pings(line: Line) -> list[int]:
    """Pings as they come; they are answered all the same."""
    asked: list[int] = []
    protocol = line.socket.protocol
    send = protocol.send_frame

    def counted(frame: Any) -> None:
        if frame.opcode is Opcode.PONG:
            asked.append(1)
        send(frame)

    protocol.send_frame = counted  # type: ignore[method-assign]
    return asked


def _answer_no_ping(line: Line) -> None:
    protocol = line.socket.protocol
    send = protocol.send_frame

    def silent(frame: Any) -> None:
        if frame.opcode is not Opcode.PONG:
            send(frame)

    protocol.send_frame = silent  # type: ignore[method-assign]


async def slow_reader(target: Target, number: int) -> None:
    """Who reads nothing while much waits is cut off with 1013, or without a close frame, for which
    there may be no room left; nobody else is held up by it."""
    slow = await enter(target, number)
    try:
        for count in range(MANY_ANSWERS):
            try:
                async with asyncio.timeout(target.patience):
                    await slow.socket.send(
                        json.dumps({"t": "text", "id": f"t{count}", "text": LONG_WORDS})
                    )
            except (TimeoutError, ConnectionClosed):
                break
        seconds = await _echo(target, number)
        if seconds > SERVED_WITHIN:  # a busy machine holds one up now and then, such a door each
            seconds = min(seconds, await _echo(target, number))
        try:
            async with asyncio.timeout(6 * target.patience):
                while True:
                    await slow.socket.recv()
        except TimeoutError:
            raise Failed(
                f"a client that asked for {MANY_ANSWERS} long answers and read none was not cut off"
            ) from None
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
        if code not in (1013, None):
            raise Failed(f"a client that read nothing was closed with {code}, not with 1013")
    finally:
        slow.socket.transport.abort()
    if seconds > SERVED_WITHIN:
        raise Failed(
            f"beside a client that read nothing another waited {seconds:.1f} s for an echo"
        )


async def _echo(target: Target, number: int) -> float:
    line = await enter(target, number, device="tel-3")
    loop = asyncio.get_running_loop()
    try:
        began = loop.time()
        await line.say({"t": "text", "id": "t1", "text": "beside it"})
        await line.expect({"t": "message"}, {}, ("avatar", "typing"))
        return loop.time() - began
    finally:
        await line.close()


async def no_compression(target: Target, number: int) -> None:
    """Compression that a client offers is not taken up."""
    line = await Line.open(target, compression="deflate")
    try:
        answer = line.socket.response
        found = answer.headers.get("Sec-WebSocket-Extensions") if answer else None
        if found:
            raise Failed(f"the door took up an extension: {shortened(found)}")
    finally:
        await line.close()


async def health(target: Target, number: int) -> None:
    """`GET /health` answers JSON, with no token in it."""
    parts = urlsplit(target.url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    address = f"{scheme}://{parts.netloc}{parts.path.removesuffix('/ws')}/health"
    raw = await asyncio.to_thread(_get, address, target.patience)
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Failed(f"GET /health should answer a JSON object: {shortened(repr(raw))}")
    if target.token.encode() in raw:
        raise Failed("GET /health tells the token")


def _get(address: str, seconds: float) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=seconds) as answer:
            return bytes(answer.read(SMALL_ANSWER))
    except urllib.error.HTTPError as error:
        raise Failed(f"GET /health is answered with HTTP {error.code}") from None
    except OSError as error:
        raise Failed(f"GET /health gets no answer: {getattr(error, 'reason', error)}") from None
