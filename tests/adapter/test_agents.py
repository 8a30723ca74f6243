"""The scripted agent, word by word, with a door that writes down what it is asked to do."""

from __future__ import annotations

import asyncio
import hashlib
import io
import struct
import wave
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hermes_mobile import agents
from hermes_mobile.agents import ScriptedAgent, TooBusy, WordFail, prose, sample
from hermes_mobile.outbox import OutgoingMedia
from hermes_mobile.prompts import Card
from hermes_mobile.server import Answered, DeviceInfo, Incoming

CHAT = "tablet"


class WrittenDoor:
    """What an agent may do to devices, written down in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.cards: list[Card] = []
        self.changed = asyncio.Event()
        self.fails_once = False

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self.changed.set()

    def turn_started(self, chat: str) -> None:
        self._note("started", chat)

    def turn_ended(self, chat: str) -> None:
        self._note("ended", chat)

    def say(
        self,
        chat: str,
        text: str,
        *,
        message_id: str | None = None,
        final: bool = True,
        reply_to: str | None = None,
    ) -> str:
        if self.fails_once:
            self.fails_once = False
            raise RuntimeError("the box is full")
        id = message_id or f"m-{len(self.calls)}"
        self._note("say", chat, text, id, final)
        return id

    def show(self, chat: str, media: OutgoingMedia) -> str:
        self._note("show", chat, media)
        return "f-1"

    def close_card(self, card_id: str, option_id: str | None = None) -> None:
        self._note("close_card", card_id, option_id)

    def ask(self, chat: str, card: Card) -> str:
        self.cards.append(card)
        self._note("ask", chat, card)
        return f"p-{len(self.cards)}"

    async def until(self, kind: str, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while sum(call[0] == kind for call in self.calls) < count:
                self.changed.clear()
                await self.changed.wait()

    @property
    def said(self) -> list[str]:
        return [call[2] for call in self.calls if call[0] == "say"]


@pytest.fixture
def door() -> WrittenDoor:
    return WrittenDoor()


@pytest.fixture
async def agent(door: WrittenDoor) -> AsyncIterator[ScriptedAgent]:
    agent = ScriptedAgent()
    agent.attach(door)  # type: ignore[arg-type]
    yield agent
    await agent.close()


def text(words: str, *, chat: str = CHAT, id: str = "t-1") -> Incoming:
    return Incoming(chat, id, "text", words, DeviceInfo(chat))


async def turn(agent: ScriptedAgent, door: WrittenDoor, words: str) -> list[str]:
    await agent.submit(text(words))
    await door.until("ended")
    return door.said


@pytest.mark.parametrize(
    "words",
    [
        "hello",
        "  hello \n there ",
        "Long 5",
        "long",
        "long x",
        "long 0",
        "long -5",
        "long ５",
        "stream",
        "stream 0",
        "stream x 5",
        "stream 5 5 5",
        "approve",
        "approve2 only one",
        "approve2 | b",
        "approve2 a |",
        "clarify",
        "clarify |a|b",
        "confirm it",
        "image please",
        "failure",
        "fail now",
    ],
)
async def test_anything_else_is_echoed_as_it_is(
    agent: ScriptedAgent, door: WrittenDoor, words: str
) -> None:
    assert await turn(agent, door, words) == [f"echo: {words}"]
    assert [call[0] for call in door.calls] == ["started", "say", "ended"]
    assert door.calls[1][4] is True


@pytest.mark.parametrize(
    ("asked", "length"),
    [("1", 1), ("68", 68), ("3501", 3501), ("200000", 200_000), ("0007", 7)]
    + [("200001", 200_000), ("9" * 50, 200_000)],
)
async def test_long_has_exactly_that_many_characters_up_to_the_limit(
    agent: ScriptedAgent, door: WrittenDoor, asked: str, length: int
) -> None:
    (answer,) = await turn(agent, door, f"long {asked}")
    assert len(answer) == length


def test_prose_ends_in_no_blank_that_something_could_trim() -> None:
    for length in range(1, 700):
        assert len(prose(length).strip()) == length


async def test_stream_grows_one_message_word_by_word(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    assert await turn(agent, door, "stream 4 1") == [
        "word1", "word1 word2", "word1 word2 word3", "word1 word2 word3 word4",
    ]  # fmt: skip
    says = [call for call in door.calls if call[0] == "say"]
    assert len({call[3] for call in says}) == 1
    assert [call[4] for call in says] == [False, False, False, True]


async def test_stream_of_one_word_is_final_at_once(agent: ScriptedAgent, door: WrittenDoor) -> None:
    await turn(agent, door, "stream 1")
    assert [call[4] for call in door.calls if call[0] == "say"] == [True]


@pytest.mark.parametrize("choice", ["once", "session", "always", "deny"])
async def test_approve_asks_with_the_exact_command(
    agent: ScriptedAgent, door: WrittenDoor, choice: str
) -> None:
    await agent.submit(text("approve rm -rf  'a | b' # x"))
    await door.until("ask")
    (card,) = door.cards
    assert card.kind == "exec_approval"
    assert card.command == "rm -rf  'a | b' # x"
    assert card.session == "mobile:tablet"
    assert choice in [option.id for option in card.options]
    assert door.said == []
    assert await agent.answer(card, choice, None) == Answered(taken=True)
    await door.until("ended")
    assert door.said == [f"approval: {choice}"]
    assert await agent.answer(card, "once", None) == Answered(taken=False)


async def test_approve2_has_two_cards_at_once_and_each_answer_names_its_command(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    await agent.submit(text("approve2 first | second"))
    await door.until("ask", 2)
    first, second = door.cards
    assert (first.command, second.command) == ("first", "second")
    await agent.answer(second, "deny", None)
    await door.until("say")
    assert door.said == ["approval: deny (second)"]
    await agent.answer(first, "once", None)
    await door.until("ended")
    assert door.said == ["approval: deny (second)", "approval: once (first)"]


async def test_clarify_answers_with_the_choice_or_the_text(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    await agent.submit(text("clarify Which one? | red|blue "))
    await door.until("ask")
    (card,) = door.cards
    assert card.text == "Which one?"
    assert [(o.id, o.label) for o in card.options][:2] == [("c0", "red"), ("c1", "blue")]
    await agent.answer(card, "c1", None)
    await door.until("ended")
    assert door.said == ["clarify: blue"]


async def test_clarify_waits_for_the_text_that_other_announces(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    await agent.submit(text("clarify Your name?"))
    await door.until("ask")
    (card,) = door.cards
    assert await agent.answer(card, "other", None) == Answered(taken=True)
    assert door.said == []
    assert await agent.answer(card, "other", "Ada") == Answered(taken=True)
    await door.until("ended")
    assert door.said == ["clarify: Ada"]


async def test_a_plain_text_answers_an_open_question(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    """As in Hermes; beside choices it is a message of its own."""
    await agent.submit(text("clarify Your name?"))
    await door.until("ask")
    await agent.submit(text("Ada"))
    await agent.submit(text("clarify Which?|a|b"))
    await door.until("ask", 2)
    assert door.said == ["clarify: Ada"]
    assert ("close_card", "p-1", "other") in door.calls
    await agent.submit(text("hello"))
    await agent.answer(door.cards[1], "c0", None)
    await door.until("say", 3)
    assert door.said == ["clarify: Ada", "clarify: a", "echo: hello"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("approve x", "approval: deny"),
        ("confirm", "confirm: cancel"),
        ("clarify Q|a", "clarify: no answer"),
    ],
)
async def test_a_card_that_runs_out_counts_as_the_safe_answer(
    agent: ScriptedAgent, door: WrittenDoor, words: str, answer: str
) -> None:
    await agent.submit(text(words))
    await door.until("ask")
    await agent.expired(door.cards[0])
    await agent.expired(door.cards[0])
    await door.until("ended")
    assert door.said == [answer]


async def test_confirm_tells_the_choice(agent: ScriptedAgent, door: WrittenDoor) -> None:
    await agent.submit(text("confirm"))
    await door.until("ask")
    assert door.cards[0].kind == "slash_confirm"
    await agent.answer(door.cards[0], "always", None)
    await door.until("ended")
    assert door.said == ["confirm: always"]


async def test_fail_is_not_taken(agent: ScriptedAgent, door: WrittenDoor) -> None:
    with pytest.raises(WordFail):
        await agent.submit(text(" fail\n"))
    assert door.calls == []


async def test_texts_sent_during_a_turn_stay_in_order(
    agent: ScriptedAgent, door: WrittenDoor
) -> None:
    await agent.submit(text("approve wait"))
    await door.until("ask")
    for n in range(5):
        await agent.submit(text(f"text {n}", id=f"t-{n}"))
    await agent.submit(text("elsewhere", chat="phone"))
    await door.until("ended")
    assert door.said == ["echo: elsewhere"], "another device does not wait"
    await agent.answer(door.cards[0], "once", None)
    await door.until("ended", 7)
    assert door.said[1:] == ["approval: once", *(f"echo: text {n}" for n in range(5))]
    kinds = [call[0] for call in door.calls if call[1] == CHAT]
    assert kinds == ["started", "ask", "say", "ended"] + ["started", "say", "ended"] * 5


async def test_waiting_messages_are_bounded(
    agent: ScriptedAgent, door: WrittenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "MAX_WAITING", 3)
    await agent.submit(text("confirm"))
    await door.until("ask")
    for n in range(3):
        await agent.submit(text(str(n)))
    with pytest.raises(TooBusy):
        await agent.submit(text("too much"))


async def test_a_turn_that_fails_ends_and_the_next_one_works(
    agent: ScriptedAgent, door: WrittenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    door.fails_once = True
    assert await turn(agent, door, "lost") == []
    await agent.submit(text("kept"))
    await door.until("ended", 2)
    assert door.said == ["echo: kept"]
    assert "could not answer: device=tablet" in caplog.text
    assert "lost" not in caplog.text


async def test_closing_ends_turns_that_wait_for_an_answer(door: WrittenDoor) -> None:
    agent = ScriptedAgent()
    agent.attach(door)  # type: ignore[arg-type]
    await agent.submit(text("confirm"))
    await door.until("ask")
    await asyncio.wait_for(agent.close(), 60)
    assert door.calls[-1] == ("ended", CHAT)
    assert await agent.answer(door.cards[0], "once", None) == Answered(taken=False)


@pytest.mark.parametrize(
    ("kind", "words", "mime", "filename", "format", "line"),
    [
        ("image", "look", "image/png", "a.png", "", "image: a.png, image/png"),
        ("document", "", "", "плащ.pdf", "", "document: плащ.pdf, application/pdf"),
        ("document", "", "", "", "", "document: -, application/octet-stream"),
        ("voice", "what I said", "", "", "ogg", "voice: -, audio/ogg"),
        ("video", "", "video/mp4", "v.mp4", "", "video: v.mp4, video/mp4"),
    ],
)
async def test_a_received_file_is_described(
    agent: ScriptedAgent,
    door: WrittenDoor,
    kind: str,
    words: str,
    mime: str,
    filename: str,
    format: str,
    line: str,
) -> None:
    data = bytes(range(256))
    await agent.submit(
        Incoming(CHAT, "f-1", kind, words, DeviceInfo(CHAT), data, mime, filename, format)
    )
    await door.until("ended")
    digest = hashlib.sha256(data).hexdigest()
    expected = f"received {line}, 256 bytes, sha256 {digest}"
    assert door.said == [expected + (f"\ntext: {words}" if words else "")]


async def test_a_caption_is_no_word(agent: ScriptedAgent, door: WrittenDoor) -> None:
    await agent.submit(Incoming(CHAT, "f", "image", "fail", DeviceInfo(CHAT), b"x", "image/png"))
    await door.until("ended")
    assert door.said[0].endswith("\ntext: fail")


@pytest.mark.parametrize(
    ("kind", "mime"),
    [
        ("image", "image/png"),
        ("voice", "audio/wav"),
        ("video", "video/mp4"),
        ("document", "application/pdf"),
        ("animation", "image/gif"),
    ],
)
async def test_media_words_show_a_file(
    agent: ScriptedAgent, door: WrittenDoor, kind: str, mime: str
) -> None:
    assert await turn(agent, door, kind) == []
    (shown,) = [call[2] for call in door.calls if call[0] == "show"]
    assert (shown.kind, shown.mime, shown.reply_to) == (kind, mime, "t-1")
    assert shown.filename == f"{kind}.{shown.filename.rpartition('.')[2]}"
    assert 0 < len(shown.data) < 20_000


def test_the_picture_is_a_whole_png() -> None:
    data = bytes(sample("image").data)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, kinds = 8, []
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        body = data[place + 4 : place + 8 + length]
        assert zlib.crc32(body) == struct.unpack(">I", data[place + 8 + length :][:4])[0]
        kinds.append(body[:4])
        place += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]


def test_the_voice_is_a_whole_recording() -> None:
    with wave.open(io.BytesIO(bytes(sample("voice").data))) as recording:
        assert recording.getnframes() / recording.getframerate() == pytest.approx(0.6)
        assert len(recording.readframes(10_000)) == recording.getnframes() * 2


def test_the_video_is_a_whole_mp4() -> None:
    data, place, boxes = bytes(sample("video").data), 0, []
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        boxes.append(kind)
        place += length
    assert place == len(data)
    assert boxes[0] == b"ftyp" and {b"moov", b"mdat"} <= set(boxes)


def test_the_document_is_a_whole_pdf() -> None:
    data = bytes(sample("document").data)
    assert data.startswith(b"%PDF-1.4") and data.endswith(b"%%EOF\n")
    start = int(data.rpartition(b"startxref\n")[2].split()[0])
    assert data[start:].startswith(b"xref")


def test_the_animation_has_several_pictures() -> None:
    data = bytes(sample("animation").data)
    assert data[:6] == b"GIF89a" and data[-1:] == b";"
    assert data.count(b"\x21\xf9\x04") >= 3
