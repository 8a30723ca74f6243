"""What no file of the contract can say of turns: ids, states, and what is said meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from .contract import shortened
from .entering import STATES, enter
from .line import Failed, Line, shown
from .scripts import read_message
from .target import Target

THINKING: tuple[dict[str, Any], ...] = (
    {"t": "avatar", "state": "thinking"},
    {"t": "typing"},
    {"t": "avatar", "state": "speaking"},
    {"t": "typing", "stop": True},
    {"t": "avatar", "state": "idle"},
)
# The scripted agent says so many words, so far apart; a word behind it is answered afterwards.
WORDS, STEP_MS = 4, 700
AWAY_SECONDS = 3.0


async def ids_of_their_own(target: Target, number: int) -> None:
    """No two messages have one id, on whatever connection and device: an app would overwrite."""
    seen: dict[str, str] = {}
    for device, words in (
        ("tel-1", ("first", "second")),
        ("tel-1", ("after a reconnect",)),
        ("tel-3", ("on another device",)),
    ):
        line = await enter(target, number, device=device)
        try:
            for word in words:
                await line.say({"t": "text", "id": f"t-{word}", "text": word})
                found = await read_message(line, STATES)
                if found.id in seen:
                    raise Failed(
                        f"the answers to {seen[found.id]!r} and {word!r} have one id, {found.id!r}"
                    )
                seen[found.id] = word
                await line.quiet(STATES)
        finally:
            await line.close()


async def states_around_revisions(target: Target, number: int) -> None:
    """However many revisions an answer has, each state of its turn is told once."""
    await _states(target, number, "stream 6 60", "message")


async def states_around_a_file(target: Target, number: int) -> None:
    """A turn whose answer is a file tells the same states as one of words."""
    await _states(target, number, "image", "media")


async def _states(target: Target, number: int, word: str, kind: str) -> None:
    line = await enter(target, number)
    told: list[dict[str, Any]] = []
    try:
        await line.say({"t": "text", "id": "t1", "text": word})
        answered = False
        while not told or told[-1] != THINKING[-1]:
            found = await line.frame()
            answered = answered or found["t"] == kind
            if found["t"] in STATES:
                told.append(found)
                if found == THINKING[2] and not answered:
                    raise Failed("the avatar speaks before anything was said")
        await line.quiet()
    finally:
        await line.close()
    if tuple(told) != THINKING:
        raise Failed(f"the states of the turn should be {shown(THINKING)}, they were {shown(told)}")


async def ping_in_a_turn(target: Target, number: int) -> None:
    """While the agent works the door goes on reading: a ping is answered before the turn ends."""
    line = await enter(target, number)
    try:
        await line.say({"t": "text", "id": "t1", "text": f"stream {WORDS} {STEP_MS}"})
        first = await line.frame(STATES)
        await line.say({"t": "ping", "ts": "in a turn"})
        while (found := await line.frame(STATES))["t"] != "pong":
            if found.get("final"):
                raise Failed("a ping in the middle of a turn got no pong before the turn's end")
        await read_message(line, STATES, first)
    finally:
        await line.close()


async def said_while_away(target: Target, number: int) -> None:
    """What the agent says to a device that is away comes after its next `ready`, whole, in order
    and once."""
    line = await enter(target, number)
    try:
        await line.say({"t": "text", "id": "t1", "text": f"stream {WORDS} {STEP_MS}"})
        await line.frame(STATES)
        await line.say({"t": "text", "id": "t2", "text": "behind it"})
        await line.quiet((*STATES, "message"))
    finally:
        await line.close()
    await asyncio.sleep(WORDS * STEP_MS / 1000 + AWAY_SECONDS)
    line = await enter(target, number)
    try:
        due = " ".join(f"word{word}" for word in range(1, WORDS + 1))
        for text in (due, "echo: behind it"):
            found = await read_message(line, STATES)
            if found.text != text:
                raise Failed(f"{text!r} was said meanwhile, there came {shortened(found.text)!r}")
        await line.quiet(STATES)
    finally:
        await line.close()


async def late_hello(target: Target, number: int) -> None:
    """A `hello` that comes late, on a connection opened earlier, does not push the newer one
    out."""
    early = await Line.open(target)
    try:
        newer = await enter(target, number)
        try:
            device = {"id": target.fresh("tel-1", number)}
            await early.say({"t": "hello", "token": target.token, "device": device})
            await early.closed(4001, "replaced", ("ready", *STATES))
            await newer.quiet()
        finally:
            await newer.close()
    finally:
        await early.close()
