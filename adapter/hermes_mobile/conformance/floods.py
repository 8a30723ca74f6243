"""What a crowd does to a door: strangers that say nothing, and guesses of a token.

These run alone and last: they would push others' connections out, and make their refusals late.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from websockets.exceptions import ConnectionClosed

from .line import Failed, Line, Unreachable
from .target import Target

# A legal client is served beside so many strangers, within this time in seconds.
STRANGERS = 300
SERVED_WITHIN = 2.0
# So many are more than a door may keep waiting; its own bound is lower.
TOO_MANY = 600
AT_A_TIME = 50
# Failed sign-ins of one address in one minute; from the 21st on the answers come later.
GUESSES = 40
LATER = 1.0
# The longest delay, and what a slow line adds.
LATEST = 5.0 + 3.0


async def served_beside_strangers(target: Target, number: int) -> None:
    """300 connections that say nothing hold nobody up."""
    async with _strangers(target) as strangers:
        await _more(target, strangers, STRANGERS)
        seconds = await _served(target, number)
    if seconds > SERVED_WITHIN:
        raise Failed(
            f"beside {STRANGERS} connections without hello a client waited {seconds:.1f} s for "
            f"its `ready`, more than {SERVED_WITHIN:g} s"
        )


async def strangers_are_bounded(target: Target, number: int) -> None:
    """Connections without a hello are bounded in number; the oldest goes, with 1013."""
    async with _strangers(target) as strangers:
        while len(strangers) < TOO_MANY and not _gone(strangers):
            await _more(target, strangers, len(strangers) + AT_A_TIME)
            await asyncio.sleep(0.05)  # a close may be on its way
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(target.patience if len(strangers) >= TOO_MANY else 0.5):
                await strangers[0].socket.wait_closed()
        if not _gone(strangers):
            raise Failed(f"{len(strangers)} connections without hello were kept, all of them")
        code = strangers[0].socket.close_code
        if code != 1013:
            told = "was kept" if code is None else f"was closed with {code}"
            raise Failed(
                f"of {len(strangers)} connections without hello the oldest {told}: it is the "
                "first to go, with 1013"
            )
        if strangers[-1].socket.close_code is not None:
            raise Failed(
                f"of {len(strangers)} connections without hello the newest was closed with "
                f"{strangers[-1].socket.close_code}: the oldest goes, not the one that comes"
            )


async def guesses_get_slow(target: Target, number: int) -> None:
    """After 20 failed sign-ins of one address in a minute its failures are answered later and
    later, up to 5 s; who knows the token is not made to wait."""
    guesses = [asyncio.create_task(_guess(target)) for _ in range(GUESSES)]
    try:
        await asyncio.sleep(0.2)
        served = await _served(target, number)
        seconds = await asyncio.gather(*guesses)
    finally:
        for guess in guesses:
            guess.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
    slowest = max(seconds)
    if slowest < LATER:
        raise Failed(
            f"{GUESSES} wrong tokens from one address were all answered within {slowest:.1f} s: "
            "after 20 in a minute the answers come later and later"
        )
    if slowest > LATEST:
        raise Failed(f"a wrong token was answered after {slowest:.1f} s, the most is 5 s")
    if served > SERVED_WITHIN:
        raise Failed(
            f"a good token waited {served:.1f} s for its `ready` because others of its address "
            "were wrong"
        )


@contextlib.asynccontextmanager
async def _strangers(target: Target) -> AsyncIterator[list[Line]]:
    _allow_many_sockets()
    strangers: list[Line] = []
    try:
        yield strangers
    finally:
        for line in strangers:
            line.socket.transport.abort()


async def _more(target: Target, strangers: list[Line], count: int) -> None:
    """Open connections until there are `count`, some at a time, in their order."""
    while (missing := count - len(strangers)) > 0:
        opening = [Line.open(target) for _ in range(min(missing, AT_A_TIME))]
        for found in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(found, Line):
                strangers.append(found)
            elif isinstance(found, Unreachable):
                raise Failed(f"connection {len(strangers) + 1} without hello: {found}")
            else:
                raise found


def _gone(strangers: list[Line]) -> list[Line]:
    return [line for line in strangers if line.socket.close_code is not None]


async def _served(target: Target, number: int) -> float:
    """Seconds until a client is let in: a busy machine holds one up now and then, a door that
    cannot serve it holds up each."""
    seconds = await _sign_in(target, number)
    return seconds if seconds <= SERVED_WITHIN else min(seconds, await _sign_in(target, number))


async def _sign_in(target: Target, number: int) -> float:
    """Seconds from the first packet to `ready`."""
    began = asyncio.get_running_loop().time()
    line = await Line.open(target)
    try:
        await line.say(
            {"t": "hello", "token": target.token, "device": {"id": target.fresh("tel-1", number)}}
        )
        await line.expect({"t": "ready"}, {})
        return asyncio.get_running_loop().time() - began
    finally:
        await line.close()


async def _guess(target: Target) -> float:
    """Seconds from a hello with a wrong token to the end of its connection."""
    line = await Line.open(target)
    try:
        began = asyncio.get_running_loop().time()
        await line.say({"t": "hello", "token": f"wrong-{secrets.token_hex(12)}"})
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(LATEST + target.patience):
                await line.socket.recv()
        return asyncio.get_running_loop().time() - began
    except TimeoutError:
        raise Failed("a hello with a wrong token got no answer") from None
    finally:
        line.socket.transport.abort()


def _allow_many_sockets() -> None:
    """Each connection is an open file, and the usual limit is 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
