"""The embedded scripted agent: for people without Hermes, for tests and for benchmarks.

It knows a few words and echoes everything else. The offline model of the demo knows the same
words, so that one script runs against either::

    long N              N characters (at most 200,000)
    stream N [MS]       N words by edits, MS milliseconds apart
    approve CMD         a card; then `approval: <choice>`
    approve2 CMD | CMD  two cards at once; each then `approval: <choice> (CMD)`
    clarify Q|a|b       a question with choices, `clarify Q` an open one; then `clarify: <answer>`
    confirm             a card; then `confirm: <choice>`
    image, voice, video, document, animation
                        a small file of that kind
    fail                the hand-over fails
    anything else       echo: …

A received file is described by kind, name, MIME type, size, SHA-256 and caption or transcript. A
word that is not followed by what it needs is echoed.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, get_args

from .logs import log, shown, trace
from .outbox import OutgoingMedia
from .prompts import Card, approval_card, clarify_card, confirm_card
from .protocol import MediaKind
from .server import Answered, Door, Incoming

__all__ = ["ScriptedAgent", "TooBusy", "prose", "sample"]

MAX_LONG: Final = 200_000
MAX_STREAM_WORDS: Final = 20_000
MAX_STREAM_DELAY: Final = 5.0
DEFAULT_STREAM_DELAY: Final = 0.05
MAX_WAITING: Final = 1000
MEDIA_KINDS: Final = get_args(MediaKind)

# Longer than any owner sets MOBILE_PROMPT_TTL, so that the door's limit is the one that counts.
CARD_SECONDS: Final = 100_000.0

_NUMBER = re.compile(r"0*([1-9]\d*)", re.ASCII)
_STREAM = re.compile(r"([1-9]\d{0,5})(?: +(\d{1,6}))?", re.ASCII)


class TooBusy(RuntimeError):
    """More messages of one device wait than are kept."""


class WordFail(RuntimeError):
    """The word `fail` was said: the hand-over fails as asked."""


@dataclass(frozen=True, slots=True)
class _Question:
    """The agent's own handle of a card: where the answer goes, and what the choices were."""

    answer: asyncio.Future[str | None]
    choices: tuple[str, ...] = ()


class ScriptedAgent:
    """Answers by the words above. One turn of a device after the other, in order.

    Example::

        agent = ScriptedAgent()
        door = Door(settings, agent)
        agent.attach(door)
        await door.start()
        ...
        await agent.close()
        await door.stop()
    """

    def __init__(self, *, card_seconds: float = CARD_SECONDS) -> None:
        self._card_seconds = card_seconds
        self._door: Door | None = None
        self._waiting: dict[str, deque[Incoming]] = {}
        self._turns: set[asyncio.Task[None]] = set()
        # Questions without choices, by device: the card and where the answer goes.
        self._asked: dict[str, tuple[str, _Question]] = {}

    def attach(self, door: Door) -> None:
        """Say through this door. Call it before the door starts."""
        self._door = door

    async def close(self) -> None:
        """End every turn."""
        turns = list(self._turns)
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)

    # What the door calls

    async def submit(self, incoming: Incoming) -> None:
        """Take one message. Raises `WordFail` for `fail`, `TooBusy` when too many wait."""
        if incoming.kind == "text" and incoming.text.strip() == "fail":
            raise WordFail("the word `fail` makes the hand-over fail")
        if incoming.kind == "text" and self._answers(incoming):
            return
        waiting = self._waiting.get(incoming.chat)
        if waiting is None:
            self._waiting[incoming.chat] = deque([incoming])
            turn = asyncio.get_running_loop().create_task(self._work(incoming.chat))
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)
        elif len(waiting) < MAX_WAITING:
            waiting.append(incoming)
        else:
            raise TooBusy(f"{len(waiting)} messages of this device wait already")

    def _answers(self, incoming: Incoming) -> bool:
        """Whether this text answers an open question, as it does in Hermes."""
        card_id, question = self._asked.get(incoming.chat, ("", None))
        if question is None or question.answer.done() or self._door is None:
            return False
        question.answer.set_result(incoming.text)
        self._door.close_card(card_id, "other")
        return True

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        """Take the answer to a card; `other` without a text is only the announcement of one."""
        question = card.reference
        if not isinstance(question, _Question) or question.answer.done():
            return Answered(taken=False)
        if card.kind != "clarify":
            question.answer.set_result(option_id)
        elif text is not None:
            question.answer.set_result(text)
        elif option_id != "other":
            question.answer.set_result(question.choices[int(option_id.removeprefix("c"))])
        return Answered(taken=True)

    async def expired(self, card: Card) -> None:
        """Nobody answered in time: deny, cancel, or no answer."""
        question = card.reference
        if isinstance(question, _Question) and not question.answer.done():
            question.answer.set_result(card.unanswered)

    # Turns

    async def _work(self, chat: str) -> None:
        """Answer a device's messages one after the other until none waits."""
        door, waiting = self._door, self._waiting[chat]
        assert door is not None, "attach the agent to a door first"
        try:
            while waiting:
                incoming = waiting.popleft()
                door.turn_started(chat)
                try:
                    await self._turn(door, incoming)
                except Exception as error:
                    log.error(
                        "the scripted agent could not answer: device=%s error=%s",
                        shown(chat),
                        trace(error),
                    )
                finally:
                    door.turn_ended(chat)
        finally:
            del self._waiting[chat]

    async def _turn(self, door: Door, incoming: Incoming) -> None:
        if incoming.kind != "text":
            door.say(incoming.chat, described(incoming))
            return
        chat, text = incoming.chat, incoming.text
        word, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        match word:
            case "long" if (found := _NUMBER.fullmatch(rest)) is not None:
                door.say(chat, prose(min(int(found[1][:7]), MAX_LONG)))
            case "stream" if (found := _STREAM.fullmatch(rest)) is not None:
                delay = int(found[2]) / 1000 if found[2] else DEFAULT_STREAM_DELAY
                await self._stream(door, incoming, min(int(found[1]), MAX_STREAM_WORDS), delay)
            case "approve" if rest:
                door.say(chat, f"approval: {await self._approval(door, chat, rest)}")
            case "approve2" if all(commands := [part.strip() for part in rest.split("|", 1)]) and (
                len(commands) == 2
            ):
                await asyncio.gather(*(self._one_of_two(door, chat, c) for c in commands))
            case "clarify" if rest.partition("|")[0].strip():
                door.say(chat, f"clarify: {await self._clarify(door, chat, rest)}")
            case "confirm" if not rest:
                door.say(chat, f"confirm: {await self._confirm(door, chat)}")
            case _ if word in MEDIA_KINDS and not rest:
                door.show(chat, sample(word, reply_to=incoming.id))
            case _:
                door.say(chat, f"echo: {text}")

    async def _stream(self, door: Door, incoming: Incoming, count: int, delay: float) -> None:
        said, message_id = "", None
        for number in range(1, count + 1):
            if number > 1:
                await asyncio.sleep(min(delay, MAX_STREAM_DELAY))
            said += f" word{number}" if said else f"word{number}"
            message_id = door.say(incoming.chat, said, message_id=message_id, final=number == count)

    # Cards

    async def _approval(self, door: Door, chat: str, command: str) -> str:
        question = _question()
        card = approval_card(
            command,
            "The scripted agent asks; nothing is run.",
            f"mobile:{chat}",
            self._card_seconds,
            reference=question,
        )
        door.ask(chat, card)
        return str(await question.answer)

    async def _one_of_two(self, door: Door, chat: str, command: str) -> None:
        choice = await self._approval(door, chat, command)
        door.say(chat, f"approval: {choice} ({command})")

    async def _confirm(self, door: Door, chat: str) -> str:
        question = _question()
        card = confirm_card(
            "Confirm?",
            "The scripted agent asks; nothing is done.",
            f"mobile:{chat}",
            self._card_seconds,
            reference=question,
        )
        door.ask(chat, card)
        return str(await question.answer)

    async def _clarify(self, door: Door, chat: str, rest: str) -> str:
        asked, *listed = (part.strip() for part in rest.split("|"))
        choices = tuple(choice for choice in listed if choice)
        question = _question(choices)
        card_id = door.ask(
            chat,
            clarify_card(asked, choices, f"mobile:{chat}", self._card_seconds, reference=question),
        )
        if not choices:
            self._asked[chat] = card_id, question
        try:
            answer = await question.answer
        finally:
            self._asked.pop(chat, None)
        return "no answer" if answer is None else answer


def _question(choices: tuple[str, ...] = ()) -> _Question:
    return _Question(asyncio.get_running_loop().create_future(), choices)


def described(incoming: Incoming) -> str:
    """One line about a received file, and its caption or transcript."""
    mime = incoming.mime or mimetypes.guess_type(incoming.filename)[0] or ""
    if not mime:
        mime = f"audio/{incoming.format}" if incoming.format else "application/octet-stream"
    digest = hashlib.sha256(incoming.data).hexdigest()
    line = (
        f"received {incoming.kind}: {incoming.filename or '-'}, {mime}, "
        f"{len(incoming.data)} bytes, sha256 {digest}"
    )
    return f"{line}\ntext: {incoming.text}" if incoming.text else line


def prose(length: int) -> str:
    """Exactly `length` characters in numbered sentences and paragraphs, none at its end blank."""
    parts: list[str] = []
    size = number = 0
    while size < length:
        number += 1
        end = "\n\n" if number % 5 == 0 else " "
        parts.append(f"Sentence {number} of a long answer, with nothing in it but words.{end}")
        size += len(parts[-1])
    text = "".join(parts)[:length]
    kept = text.rstrip()
    return kept + "." * (length - len(kept))


def sample(kind: str, *, reply_to: str | None = None) -> OutgoingMedia:
    """The small real file of this kind that the package carries. Raises KeyError for none."""
    media_kind, name, mime, data = _samples()[kind]
    return OutgoingMedia(media_kind, mime, name, data, reply_to=reply_to)


# Not asked of the system: its table may know less, or call them otherwise.
_MIME: Final = {
    ".png": "image/png",
    ".wav": "audio/wav",
    ".mp4": "video/mp4",
    ".pdf": "application/pdf",
    ".gif": "image/gif",
}


@cache
def _samples() -> dict[str, tuple[MediaKind, str, str, bytes]]:
    found: dict[str, tuple[MediaKind, str, str, bytes]] = {}
    for file in (Path(__file__).parent / "samples").iterdir():
        for kind in MEDIA_KINDS:
            if kind == file.stem:
                found[kind] = (kind, file.name, _MIME[file.suffix], file.read_bytes())
    return found
