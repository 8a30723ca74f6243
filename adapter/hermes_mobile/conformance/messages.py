"""The vectors: one message to the door, and the one thing that follows from it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from .contract import expand, load, message, mismatch, shortened
from .line import Failed, Line, shown
from .scripts import Message, needs_forwarding, read_file, read_message
from .target import ELSEWHERE, Target

# What a turn tells of avatar and typing is the scenarios' business.
STATES = ("avatar", "typing")
# A door that waits for hello for 15 seconds may be late by this much, not early.
LATE = 5.0
EARLY = 0.5


async def play(target: Target, number: int, vector: dict[str, Any]) -> None:
    """One vector, in the words of this door. Raises `Failed`."""
    lines: list[Line] = []
    try:
        await _play(target, number, vector, lines)
    finally:
        for line in reversed(lines):
            await line.close()


async def _play(target: Target, number: int, vector: dict[str, Any], lines: list[Line]) -> None:
    headers = ELSEWHERE if needs_forwarding(target, vector) else None

    def hello_of(state: str) -> dict[str, Any]:
        return target.fit(load("door.json")["hello"][state], number).item

    async def enter(hello: dict[str, Any] | None) -> Line:
        line = await Line.open(target, headers=headers)
        lines.append(line)
        if hello is not None:
            await line.say(hello)
            await line.expect({"t": "ready"}, {})
        return line

    others = {
        device: await enter({**hello_of("open"), "device": {"id": device}})
        for device in vector.get("online", ())
    }
    names: dict[str, Any] = {}
    hello = None if vector["state"] == "before_hello" else hello_of(vector["state"])
    if hello is not None and "supports" in vector:
        hello = {**hello, "supports": vector["supports"]}
    began = asyncio.get_running_loop().time()
    line = await enter(hello)
    if "after" in vector:
        await line.say({"t": "text", "id": "before", "text": vector["after"]})
        accepted = ("accepted",) if "accepted" in vector.get("supports", ()) else ()
        card = await line.expect({"t": "prompt"}, names, (*STATES, *accepted))
        names["card"] = card["id"]
    if "wait" in vector:
        await _wait(line, vector["wait"], began)
    else:
        await line.send(message(vector, names))
    await _check(line, vector, names, others)


async def _wait(line: Line, seconds: float, began: float) -> None:
    """Say nothing for so long; whatever the door says before it is too early."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(began + seconds - EARLY):
            await line.socket.wait_closed()
        raise Failed(f"the door closed after {loop.time() - began:.1f} s, not {seconds} s")
    except TimeoutError:
        pass


async def _check(
    line: Line, vector: dict[str, Any], names: dict[str, Any], others: dict[str, Line]
) -> None:
    expect = vector["expect"]
    match expect:
        case {"taken": wanted}:
            await _taken(line, wanted, expect)
        case {"kept": True} | {"ignored": True}:
            await line.quiet()
        case {"pong": ts}:
            await line.expect({"t": "pong"}, names)
            _as_written(line.raw, str(expand(ts)))
        case {"ready": wanted}:
            found = await line.expect({"t": "ready"}, names)
            if problem := mismatch(wanted, found):
                raise Failed(f"{problem}, in {shown(found)}")
        case {"error": wanted}:
            late = LATE + EARLY if "wait" in vector else 0.0
            await _error(line, wanted, names, late)
        case {"prompt_done": wanted}:
            await line.expect({"t": "prompt_done", **wanted}, names, STATES)
            says = expand(expect.get("says"))
            if says is not None:
                text = (await read_message(line, STATES)).text
                if text != says:
                    raise Failed(f"the agent was told something else: {shortened(text)}")
            await line.quiet(STATES)
        case {"delivered": wanted}:
            await _delivered(line, wanted, others)
        case _:
            raise Failed(f"this kit does not know how to check {shown(expect)}")


def _as_written(raw: str, ts: str) -> None:
    """The characters of `ts` are the client's own."""
    at = re.search(r'"ts"\s*:\s*', raw)
    rest = raw[at.end() :] if at else ""
    if not (rest.startswith(ts) and rest[len(ts) :].lstrip()[:1] in (",", "}")):
        raise Failed(f"`ts` should come back as {shortened(ts)}, in {shortened(raw)}")


async def _error(line: Line, wanted: dict[str, Any], names: dict[str, Any], late: float) -> None:
    found = await line.frame(STATES, patience=line.target.patience + late)
    if found["t"] != "error":
        raise Failed(f"an error {wanted['code']} was due, but there came {shown(found)}")
    told = found["code"], found["fatal"]
    if told != (wanted["code"], wanted["fatal"]):
        raise Failed(
            f"the error should be {wanted['code']}, fatal: {wanted['fatal']}, in {shown(found)}"
        )
    id = expand(wanted["id"], names)
    if found.get("id") != id:
        raise Failed(f"the error should carry the id {shortened(repr(id))}, in {shown(found)}")
    field = wanted.get("field")
    if field is not None and not re.search(rf"(?<!\w){re.escape(field)}(?!\w)", found["message"]):
        raise Failed(f"the message should name `{field}`: {found['message']!r}")
    if wanted["fatal"]:
        await line.closed(1008, wanted["code"])
    else:
        await line.quiet(STATES)


async def _taken(line: Line, wanted: dict[str, Any], expect: dict[str, Any]) -> None:
    """The agent got one message with these properties: it repeats them in its answer."""
    accepted = expect.get("accepted")
    answer: Message | None = None
    while answer is None:
        # `accepted` and the answer come in either order; what the agent has, it may answer at once.
        found = await line.frame(STATES)
        if found["t"] == "accepted" and accepted is not None and found["id"] == accepted:
            accepted = None
        elif found["t"] == "message":
            answer = await read_message(line, (*STATES, "accepted") if accepted else STATES, found)
        else:
            raise Failed(f"the agent's answer was due, but there came {shown(found)}")
    if accepted is not None and expect.get("accepted") and not answer.accepted(accepted):
        await line.expect({"t": "accepted", "id": accepted}, {}, STATES)
    _described(answer.text, wanted, line.target)
    await line.quiet(STATES)


_FILE = re.compile(
    r"received (?P<kind>\w+): (?P<filename>.*), (?P<mime>[^,\n]*), (?P<size>\d+) bytes, "
    r"sha256 (?P<sha256>[0-9a-f]{64})(?:\ntext: (?P<text>.*))?",
    re.DOTALL,
)


# What a real Hermes Agent tells of a file in words of its own: it sniffs the type, and renames.
_OWN_WORDS = ("kind", "filename", "mime")


def _described(said: str, wanted: dict[str, Any], target: Target) -> None:
    wanted = expand(wanted)
    if wanted["kind"] == "text":
        if said != f"echo: {wanted['text']}":
            raise Failed(
                f"the agent should echo {shortened(repr(wanted['text']))}, it said "
                f"{shortened(repr(said))}"
            )
        return
    found = _FILE.fullmatch(said)
    if found is None:
        raise Failed(f"the agent should describe a file, it said {shortened(repr(said))}")
    told = found.groupdict()
    told["filename"] = "" if told["filename"] == "-" else told["filename"]
    told["text"] = told["text"] or ""
    for name, value in wanted.items():
        if target.hermes and name in _OWN_WORDS:
            continue
        if name in told and str(value) != told[name] and not (name == "mime" and not value):
            raise Failed(
                f"the agent got {name} {shortened(repr(told[name]))}, not {shortened(repr(value))}"
            )


async def _delivered(line: Line, wanted: dict[str, Any], others: dict[str, Line]) -> None:
    shown_on = others[wanted["to"]]
    text = expand(wanted.get("text"))
    if text is not None:
        found = await read_message(shown_on, STATES)
        if found.text != text:
            raise Failed(f"the device was shown {shortened(repr(found.text))}")
    if wanted.get("media") is not None:
        file = await read_file(shown_on, STATES)
        if problem := mismatch(wanted["media"], file):
            raise Failed(f"{problem}, in {shown(file)}")
    await line.quiet()
    for other in others.values():
        await other.quiet(STATES)
