"""The scenarios: steps on several connections, each in its order."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .contract import message, mismatch, shortened, with_names
from .line import Failed, Line, shown
from .target import DELIVER, ELSEWHERE, Target

MAX_CHUNK = 3500
# The pause after words outside of a turn (3 s), and a little for a slow machine.
SPEAKING_SECONDS = 3.5
_AGENT_FRAMES = ("message", "media", "prompt", "accepted", "avatar", "typing", "prompt_done")


async def play(target: Target, scenario: dict[str, Any], *, settle: bool = False) -> None:
    """One scenario, in the words of this door. Raises `Failed`, with the step in its text.

    `settle`: its devices are known to the door, which may tell them what is over by now.
    """
    script = Script(target, scenario, settle=settle)
    try:
        steps = scenario["steps"]
        for number, step in enumerate(steps, start=1):
            try:
                await script.run(step)
            except Failed as error:
                raise type(error)(
                    f"step {number} of {len(steps)} ({_step(step)}): {error}"
                ) from None
    finally:
        await script.end()


def _step(step: Mapping[str, Any]) -> str:
    verb = next(iter(step))
    kind = step.get("frame", {}).get("t") if isinstance(step.get("frame"), dict) else None
    return f"{verb} {step[verb]}" + (f", `{kind}`" if isinstance(kind, str) else "")


def needs_agent(item: Mapping[str, Any]) -> bool:
    """Whether a scenario or vector only goes on when the scripted agent answers."""
    if "expect" in item:
        return "after" in item or "taken" in item["expect"]
    chats: set[str] = set()
    said = False
    for step in item["steps"]:
        frame = step.get("frame")
        if "send" in step and isinstance(frame, dict):
            if str(frame.get("t")).lower() == "hello" and frame.get("token") != DELIVER:
                chats.add(step["send"])
            if str(frame.get("t")).lower() in ("text", "audio", "media"):
                said = said or step["send"] in chats
        if "send" in step and "binary" in step:
            said = True
        answered = "message" in step or "file" in step
        if "expect" in step and isinstance(frame, dict):
            answered = answered or frame.get("t") in _AGENT_FRAMES
        if said and answered:
            return True
    return False


def needs_forwarding(target: Target, item: Mapping[str, Any]) -> bool:
    """Whether the door must not take us for its owner's own machine: it would let us deliver."""
    return "MOBILE_LOOPBACK_DELIVER" not in target.settings and any(
        isinstance(frame, dict) and str(frame.get("t")).lower() == "deliver"
        for frame in _frames(item)
    )


def _frames(item: Mapping[str, Any]) -> Iterator[Any]:
    yield item.get("frame")
    for step in item.get("steps", ()):
        if "send" in step:
            yield step.get("frame")


@dataclass
class Message:
    """One message of the agent, whole."""

    id: str
    text: str
    chunks: int
    frames: list[dict[str, Any]] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def accepted(self, id: str) -> bool:
        """Whether `accepted` for this id came while the message did."""
        return id in self.taken


async def read_message(
    line: Line, ignore: Collection[str], first: dict[str, Any] | None = None
) -> Message:
    """The next frames: one message up to its final one, with the rules of chunks and revisions."""
    chunks: list[str | None] = []
    frames: list[dict[str, Any]] = []
    taken: list[str] = []
    ignored = tuple(kind for kind in ignore if kind != "accepted")
    frame = first
    while True:
        if frame is None:
            frame = await line.frame(ignored)
        if frame["t"] == "accepted" and "accepted" in ignore:
            taken.append(frame["id"])
            frame = None
            continue
        if frame["t"] != "message":
            raise Failed(f"a message was to go on, but there came {shown(frame)}")
        if frames and frame["id"] != frames[0]["id"]:
            raise Failed(f"the message changed its id, in {shown(frame)}")
        if len(frame["text"]) > MAX_CHUNK:
            raise Failed(f"a chunk of {len(frame['text'])} characters, more than {MAX_CHUNK}")
        index, total = frame["chunk"]["index"], frame["chunk"]["total"]
        if index >= total:
            raise Failed(f"there is no chunk {index} of {total}, in {shown(frame)}")
        chunks = [*chunks[:total], *[None] * (total - len(chunks))]
        chunks[index] = frame["text"]
        frames.append(frame)
        if frame["final"]:
            break
        frame = None
    if None in chunks:
        raise Failed(f"chunk {chunks.index(None)} of {total} is missing at the final frame")
    if index != total - 1:
        raise Failed(f"the final frame is chunk {index} of {total}, not the last, {shown(frame)}")
    text = "".join(piece for piece in chunks if piece is not None)
    return Message(frames[0]["id"], text, total, frames, taken)


async def read_file(line: Line, ignore: Collection[str]) -> dict[str, Any]:
    """The next frames: one file; its last frame with the `sha256` of the whole."""
    data, part = b"", 0
    while True:
        frame = await line.frame(ignore)
        if frame["t"] != "media":
            raise Failed(f"a file was to go on, but there came {shown(frame)}")
        if frame["part"] != part:
            raise Failed(f"part {part} of the file was due, but there came {shown(frame)}")
        try:
            data += base64.b64decode(frame["data"], validate=True)
        except (KeyError, binascii.Error):
            raise Failed(f"`data` is no base64, in {shown(frame)}") from None
        part += 1
        if frame["final"]:
            break
    if frame["size"] != len(data):
        raise Failed(f"`size` is {frame['size']}, the parts hold {len(data)} bytes")
    return {**frame, "sha256": hashlib.sha256(data).hexdigest()}


class Script:
    """Carries out the steps of one scenario."""

    def __init__(self, target: Target, scenario: Mapping[str, Any], *, settle: bool) -> None:
        self._settle = settle
        self._target = target
        self._ignore: list[str] = scenario.get("ignore", [])
        self._elsewhere = needs_forwarding(target, scenario)
        self._lines: dict[str, Line] = {}
        self._names: dict[str, Any] = {}

    async def run(self, step: dict[str, Any]) -> None:
        """One step. Raises `Failed`."""
        match step:
            case {"connect": name}:
                headers = {**(ELSEWHERE if self._elsewhere else {}), **step.get("headers", {})}
                path = step.get("path", "/ws")
                self._lines[name] = await Line.open(self._target, path, headers)
            case {"send": name}:
                await self._lines[name].send(message(step, self._names))
            case {"expect": name, "frame": pattern}:
                pattern = with_names(pattern, self._names)
                found = await self._lines[name].expect(pattern, self._names, self._ignore)
                if self._settle and found["t"] == "ready":
                    if "avatar" not in self._ignore:
                        # What was last said to this device is over after the avatar's pause.
                        await asyncio.sleep(SPEAKING_SECONDS)
                    await self._lines[name].quiet(("avatar", "typing"))
            case {"message": name}:
                await self._message(self._lines[name], step)
            case {"file": name, "frame": pattern}:
                file = await read_file(self._lines[name], self._ignore)
                self._fits(pattern, file)
            case {"quiet": name}:
                await self._lines[name].quiet(self._ignore)
            case {"close": name}:
                await self._lines.pop(name).close()
            case {"closed": name, "code": code}:
                await self._lines[name].closed(code, step.get("reason"), self._ignore)
            case _:
                raise Failed(f"this kit does not know the step {shown(step)}")

    async def end(self) -> None:
        """Close what is still open."""
        for line in self._lines.values():
            await line.close()

    def _fits(self, pattern: Any, value: Any) -> None:
        problem = mismatch(with_names(pattern, self._names), value, self._names)
        if problem is not None:
            raise Failed(problem)

    async def _message(self, line: Line, step: dict[str, Any]) -> None:
        found = await read_message(line, self._ignore)
        wanted = step["text"]
        if isinstance(wanted, dict) and "$length" in wanted:
            if len(found.text) != wanted["$length"]:
                raise Failed(
                    f"the message has {len(found.text)} characters, not {wanted['$length']}: "
                    f"{shortened(repr(found.text), 120)}"
                )
        else:
            self._fits(wanted, found.text)
        if "chunks" in step:
            self._fits(step["chunks"], found.chunks)
