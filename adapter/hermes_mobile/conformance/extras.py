"""What no file of the contract can say: the upgrade, fragments, how long texts are cut."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed

from .contract import shortened
from .entering import STATES, enter
from .floods import guesses_get_slow, served_beside_strangers, strangers_are_bounded
from .line import Failed, Line, Unreachable, shown
from .scripts import read_message
from .silence import alive_in_silence, dead_in_silence, health, no_compression, slow_reader
from .target import Target
from .turns import (
    ids_of_their_own,
    late_hello,
    ping_in_a_turn,
    said_while_away,
    states_around_a_file,
    states_around_revisions,
)

FOREIGN = "https://foreign.example"
TWICE_16_MIB = 32 * 1024 * 1024
_JOIN = "\N{ZERO WIDTH JOINER}"
_JOINERS = (_JOIN, "\N{VARIATION SELECTOR-15}", "\N{VARIATION SELECTOR-16}")
# What a person sees as few characters is many: a family, an accent, a flag, a flag of two.
_SEEN_AS_ONE = (
    _JOIN.join("👨👩👧👦"),
    "e\N{COMBINING ACUTE ACCENT}",
    "🇩🇪",
    "שלום",
    f"🏳\N{VARIATION SELECTOR-16}{_JOIN}🌈",
    "한글",
)


@dataclass(frozen=True)
class Extra:
    """One check that is code. `supports`: additions it needs the door to offer. `alone`: nothing
    else may run beside it. `slow`: it waits for so many seconds; `waits`: for the door's clocks.
    `hermes`: why a real Hermes Agent does otherwise."""

    name: str
    section: str
    play: Callable[[Target, int], Awaitable[None]]
    agent: bool = False
    supports: tuple[str, ...] = ()
    heavy: bool = False
    alone: bool = False
    slow: float = 0.0
    waits: bool = False
    hermes: str = ""


async def _refused(target: Target, path: str, headers: dict[str, str], what: str) -> None:
    try:
        line = await Line.open(target, path, headers)
    except Unreachable as error:
        if "HTTP 4" in str(error):
            return
        raise Failed(f"{what} should be answered with an HTTP status, but: {error}") from None
    await line.close()
    raise Failed(f"{what} was let in")


async def foreign_origin(target: Target, number: int) -> None:
    """A page of another site can make a browser connect, not the door open."""
    await _refused(target, "/ws", {"Origin": FOREIGN}, f"a page of {FOREIGN}")


async def null_origin(target: Target, number: int) -> None:
    """Sandboxed pages and files have the origin `null`."""
    await _refused(target, "/ws", {"Origin": "null"}, "a page with the origin `null`")


async def other_path(target: Target, number: int) -> None:
    """One path is the door."""
    await _refused(target, "/ws/elsewhere", {}, "an upgrade of another path")


async def part_of_a_token(target: Target, number: int) -> None:
    """A token opens whole: not its beginning, its end, or its middle."""
    token = target.token
    for part in (token[:-1], token[1:], token[: len(token) // 2]):
        if not part:
            continue
        line = await Line.open(target)
        try:
            await line.say({"t": "hello", "token": part})
            await line.expect({"t": "error", "code": "auth_failed", "fatal": True}, {})
            await line.closed(1008, "auth_failed")
        finally:
            await line.close()


async def fragments(target: Target, number: int) -> None:
    """A message in fragments is one message."""
    line = await enter(target, number)
    try:
        whole = json.dumps({"t": "ping", "ts": "in three parts"})
        await line.socket.send([whole[:3], whole[3:20], whole[20:]])
        await line.expect({"t": "pong", "ts": "in three parts"}, {})
    except ConnectionClosed as closed:
        raise Failed(f"the door cut a message in fragments: {closed}") from None
    finally:
        await line.close()


async def control_ping(target: Target, number: int) -> None:
    """A WebSocket ping is answered with its pong, whatever the protocol above does."""
    line = await enter(target, number)
    try:
        pong = await line.socket.ping(b"are you there")
        await asyncio.wait_for(pong, target.patience)
    except TimeoutError:
        raise Failed("a WebSocket ping got no pong") from None
    finally:
        await line.close()


async def far_too_big(target: Target, number: int) -> None:
    """A message announced beyond 32 MiB ends the connection: 1009, or `too_big` and 1008."""
    line = await enter(target, number)
    try:
        # The announcement is enough: the library may cut it before the first byte is read.
        sending = asyncio.ensure_future(line.send("x" * (TWICE_16_MIB + 1)))
        try:
            while True:
                async with asyncio.timeout(target.patience):
                    found = json.loads(await line.socket.recv())
                if (found.get("t"), found.get("code")) != ("error", "too_big"):
                    raise Failed(f"the connection was to end, but there came {shown(found)}")
        except TimeoutError:
            raise Failed("a message of more than 32 MiB was not refused") from None
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
            if code not in (1008, 1009, None):
                raise Failed(f"closed with {code}, not 1009 or 1008") from None
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    finally:
        await line.close()


async def bad_utf8(target: Target, number: int) -> None:
    """A text message that is no UTF-8: 1007, or `bad_frame` and the connection goes on."""
    line = await enter(target, number)
    try:
        await line.socket.send(b'{"t":"ping","ts":"\xff"}', text=True)
        try:
            async with asyncio.timeout(target.patience):
                found = json.loads(await line.socket.recv())
        except TimeoutError:
            raise Failed("a text message that is no UTF-8 got no answer") from None
        if (found.get("t"), found.get("code")) != ("error", "bad_frame"):
            raise Failed(f"1007 or bad_frame was due, but there came {shown(found)}")
        await line.quiet()
    except ConnectionClosed as closed:
        if closed.rcvd is None or closed.rcvd.code != 1007:
            raise Failed(f"1007 or bad_frame was due, but: {closed}") from None
    finally:
        await line.close()


async def neighbour(target: Target, number: int) -> None:
    """One client's mistakes are not felt by another."""
    line, other = await enter(target, number), await enter(target, number, device="tel-3")
    try:
        for raw in ("no json", "[", '{"t":7}', '{"t":"text"}'):
            await line.send(raw)
        await other.quiet()
    finally:
        await line.close()
        await other.close()


async def echo_is_lossless(target: Target, number: int) -> None:
    """A long answer of families, flags and accents comes back joined as it went, cut nowhere
    inside a character that a person sees."""
    text = (" ".join(_SEEN_AS_ONE) + "\n") * 350
    text = text[:11_990].rstrip()
    line = await enter(target, number)
    try:
        await line.say({"t": "text", "id": "t1", "text": text})
        found = await read_message(line, STATES)
    finally:
        await line.close()
    if found.text != f"echo: {text}":
        raise Failed(f"the chunks joined are not the text: {shortened(repr(found.text), 120)}")
    for frame in found.frames:
        first = frame["text"][:1]
        if first and (unicodedata.combining(first) or first in _JOINERS):
            raise Failed(f"a chunk begins inside a character, with U+{ord(first):04X}")


async def long_answer(target: Target, number: int) -> None:
    """Chunks come in order, `final` on the last alone, no `edit`, cut between words."""
    line = await enter(target, number)
    try:
        await line.say({"t": "text", "id": "t1", "text": "long 12000"})
        found = await read_message(line, STATES)
        await line.quiet(STATES)
    finally:
        await line.close()
    last = found.frames[-found.chunks :]
    indexes = [frame["chunk"]["index"] for frame in last]
    if indexes != list(range(found.chunks)):
        raise Failed(f"the chunks of a message should come in order, they came as {indexes}")
    if not target.hermes and (last != found.frames or any(f.get("edit") for f in last)):
        raise Failed("an answer that does not grow is no edit, and comes once")
    for frame, after in zip(last, last[1:], strict=False):
        if not (frame["text"][-1:].isspace() or after["text"][:1].isspace()):
            raise Failed(f"a chunk is cut inside a word: …{frame['text'][-20:]!r}")


async def _revisions(
    target: Target, number: int, supports: tuple[str, ...]
) -> list[dict[str, Any]]:
    line = await enter(target, number, supports=supports)
    try:
        # Long enough for two chunks.
        await line.say({"t": "text", "id": "t1", "text": "stream 550 0"})
        found = await read_message(line, STATES)
        await line.quiet(STATES)
    finally:
        await line.close()
    expected = " ".join(f"word{word}" for word in range(1, 551))
    if found.text != expected:
        raise Failed(f"the last revision is not the text: {shortened(repr(found.text), 120)}")
    first, *later = found.frames
    if first.get("edit"):
        raise Failed(f"the first frame of a message is no edit, in {shown(first)}")
    if plain := next((frame for frame in later if not frame.get("edit")), None):
        # The chunks of the first revision follow each other before anything is revised.
        opening = later[: later.index(plain) + 1]
        if any(frame.get("edit") for frame in opening):
            raise Failed(f"a later revision should say edit: true, in {shown(plain)}")
    return found.frames


async def edits_resend_all(target: Target, number: int) -> None:
    """A client that did not name `partial_edits` gets every chunk with every revision."""
    frames = await _revisions(target, number, ())
    due = 0
    for frame in frames:
        index, total = frame["chunk"]["index"], frame["chunk"]["total"]
        if index != due:
            raise Failed(
                f"chunk {due} of a revision was due: without `partial_edits` a revision resends "
                f"all chunks, in {shown(frame)}"
            )
        due = 0 if index == total - 1 else index + 1


async def edits_send_changes(target: Target, number: int) -> None:
    """With `partial_edits` a chunk that did not change is not sent again."""
    held: dict[int, tuple[str, int]] = {}
    for frame in await _revisions(target, number, ("partial_edits",)):
        index, total = frame["chunk"]["index"], frame["chunk"]["total"]
        if held.get(index) == (frame["text"], total) and not frame["final"]:
            raise Failed(f"chunk {index} was sent again though it did not change, {shown(frame)}")
        held[index] = frame["text"], total


async def accepted_once(target: Target, number: int) -> None:
    """`accepted` comes once, and not at all for what the agent did not take."""
    line = await enter(target, number, supports=("accepted",))
    try:
        await line.say({"t": "text", "id": "t1", "text": "fail"})
        await line.expect({"t": "error", "code": "internal_error", "id": "t1"}, {}, STATES)
        await line.quiet(STATES)
        await line.say({"t": "text", "id": "t1", "text": "once"})
        await line.expect({"t": "accepted", "id": "t1"}, {}, STATES)
        await read_message(line, STATES)
        await line.quiet(STATES)
    finally:
        await line.close()


async def three_turns(target: Target, number: int) -> None:
    """Every turn begins with thinking and typing and ends with both over, also the third."""
    line = await enter(target, number)
    try:
        for turn in range(3):
            await line.say({"t": "text", "id": f"t{turn}", "text": f"turn {turn}"})
            await line.expect({"t": "avatar", "state": "thinking"}, {})
            await line.expect({"t": "typing", "stop": {"$absent": True}}, {})
            first = await line.expect({"t": "message"}, {})
            await line.expect({"t": "avatar", "state": "speaking"}, {})
            found = await _whole(line, first)
            if found != f"echo: turn {turn}":
                raise Failed(f"the answer of turn {turn} is {shortened(repr(found), 120)}")
            await line.expect({"t": "typing", "stop": True}, {})
            await line.expect({"t": "avatar", "state": "idle"}, {})
        await line.quiet()
    finally:
        await line.close()


async def _whole(line: Line, first: dict[str, Any]) -> str:
    """The text of an answer of one chunk whose first frame came; a growing one has more."""
    return first["text"] if first["final"] else (await read_message(line, ())).text


EXTRAS: dict[str, tuple[Extra, ...]] = {
    "connection": (
        Extra("a page of a foreign origin is not let in", "transport", foreign_origin),
        Extra("a page with the origin null is not let in", "transport", null_origin),
        Extra("another path is no door", "transport", other_path),
        Extra("a part of a token opens nothing", "handshake", part_of_a_token, waits=True),
        Extra("a message in fragments is one message", "transport", fragments),
        Extra("a WebSocket ping gets its pong", "transport", control_ping),
        Extra("a text message that is no UTF-8", "transport", bad_utf8),
        Extra(
            "a message of more than 32 MiB ends the connection", "limits", far_too_big, heavy=True
        ),
        Extra("one client's mistakes are not felt by another", "frame", neighbour),
        Extra("compression is not taken up", "transport", no_compression),
        Extra("GET /health tells no secret", "pages", health),
        Extra("a hello that comes late replaces nobody", "handshake", late_hello),
        Extra("a silent client that answers pings is kept", "transport", alive_in_silence, slow=53),
        Extra("a client without a sign of life is given up", "transport", dead_in_silence, slow=45),
    ),
    "texts": (
        Extra("an echo comes back character for character", "long", echo_is_lossless, agent=True),
        Extra("a long answer is cut between words", "long", long_answer, agent=True),
        Extra("every revision resends every chunk", "long", edits_resend_all, agent=True),
        Extra(
            "with partial_edits a revision sends what changed",
            "additions",
            edits_send_changes,
            agent=True,
            supports=("partial_edits",),
        ),
        Extra(
            "accepted comes once, and only for what was taken",
            "accepted",
            accepted_once,
            agent=True,
            supports=("accepted",),
        ),
        Extra("three turns, each from thinking to idle", "turns", three_turns, agent=True),
        Extra("every message has an id of its own", "message", ids_of_their_own, agent=True),
        Extra(
            "many revisions, and each state is told once",
            "turns",
            states_around_revisions,
            agent=True,
        ),
        Extra("the states around a file", "turns", states_around_a_file, agent=True),
        Extra("a ping is answered while the agent works", "ping", ping_in_a_turn, agent=True),
        Extra(
            "what was said while a device was away", "sending-again", said_while_away, agent=True
        ),
    ),
    "crowds": (
        Extra(
            "a client is let in within 2 s beside 300 strangers",
            "handshake",
            served_beside_strangers,
            alone=True,
        ),
        Extra(
            "of too many connections without hello the oldest goes",
            "handshake",
            strangers_are_bounded,
            alone=True,
        ),
        Extra(
            "after 20 failed hellos a minute the answers come later",
            "handshake",
            guesses_get_slow,
            alone=True,
        ),
        Extra(
            "who reads nothing is cut off, and holds nobody up",
            "closing",
            slow_reader,
            agent=True,
            alone=True,
            hermes="its model takes its time over a few hundred long answers",
        ),
    ),
}
