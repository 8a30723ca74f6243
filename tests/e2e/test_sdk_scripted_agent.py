"""The Python client on the real device door, with the scripted agent behind it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_client import (
    AuthFailed,
    Avatar,
    Disconnected,
    Event,
    HermesClient,
    Media,
    MediaFailed,
    MediaProgress,
    Message,
    Prompt,
    PromptDone,
    Ready,
    RejectedError,
    Replaced,
    Typing,
)
from hermes_mobile.agents import ScriptedAgent, sample
from hermes_mobile.server import Door, Incoming
from hermes_mobile.settings import Settings

TOKEN = "a-token-for-these-tests"
MIB = 1024 * 1024


class Place:
    """A door with its agent, and clients for it."""

    def __init__(self, door: Door, agent: ScriptedAgent, folder: Path) -> None:
        self.door = door
        self.agent = agent
        self.folder = folder

    def client(self, device: str = "tablet", **options: Any) -> HermesClient:
        options.setdefault("token", TOKEN)
        options.setdefault("backoff", lambda attempt: 0.02)
        url = f"ws://127.0.0.1:{self.door.port}/ws"
        return HermesClient(url, device=device, downloads=self.folder / device, **options)


async def opened(port: int = 0) -> tuple[Door, ScriptedAgent]:
    agent = ScriptedAgent()
    settings = Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": str(port)})
    door = Door(settings, agent)
    agent.attach(door)
    await door.start()
    return door, agent


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    door, agent = await opened()
    place = Place(door, agent, tmp_path)
    yield place
    await place.agent.close()
    await place.door.stop()


async def until(client: HermesClient, wanted: Any) -> list[Event]:
    """The events up to the first that `wanted` is true for, that one last."""
    seen: list[Event] = []
    async with asyncio.timeout(60):
        async for event in client:
            seen.append(event)
            if wanted(event):
                return seen
    raise AssertionError("the events ended")


async def answer_to(client: HermesClient, words: str) -> str:
    await client.send_text(words)
    events = await until(client, lambda e: isinstance(e, Message) and e.final)
    last = events[-1]
    assert isinstance(last, Message)
    return last.text


def is_idle(event: Event) -> bool:
    return event == Avatar("idle")


async def test_a_turn_from_text_to_idle(place: Place) -> None:
    async with place.client() as client:
        await client.typing()
        await client.send_text("hello")
        events = await until(client, is_idle)
    kept = [e for e in events if isinstance(e, Avatar | Typing | Message)]
    texts = [e.text for e in kept if isinstance(e, Message)]
    assert texts == ["echo: hello"]
    assert kept.index(Avatar("thinking")) < [isinstance(e, Message) for e in kept].index(True)
    assert Typing(True) in kept and Typing(False) in kept


@pytest.mark.parametrize("length", [1, 3500, 3501, 200_000])
async def test_a_long_answer_arrives_whole(place: Place, length: int) -> None:
    async with place.client() as client:
        assert len(await answer_to(client, f"long {length}")) == length


async def test_a_streamed_answer_grows_under_one_id(place: Place) -> None:
    async with place.client() as client:
        await client.send_text("stream 30 5")
        events = await until(client, lambda e: isinstance(e, Message) and e.final)
    messages = [e for e in events if isinstance(e, Message)]
    assert len({m.id for m in messages}) == 1
    assert messages[-1].text == " ".join(f"word{n}" for n in range(1, 31))
    assert len(messages) > 2
    assert all(messages[-1].text.startswith(m.text) for m in messages)
    assert [m.edit for m in messages] == [False] + [True] * (len(messages) - 1)


async def test_texts_sent_at_once_are_answered_in_order(place: Place) -> None:
    async with place.client() as client:
        async with asyncio.timeout(60):
            await asyncio.gather(*(client.send_text(f"text {n}") for n in range(50)))
        texts: list[str] = []
        while len(texts) < 50:
            last = (await until(client, lambda e: isinstance(e, Message)))[-1]
            assert isinstance(last, Message)
            texts.append(last.text)
    assert texts == [f"echo: text {n}" for n in range(50)]


async def test_fail_is_rejected_and_the_same_id_may_be_used_again(place: Place) -> None:
    async with place.client() as client:
        with pytest.raises(RejectedError, match="internal_error"):
            await client.send_text("fail", id="m-1")
        assert await client.send_text("hello", id="m-1") == "m-1"


@pytest.mark.parametrize(
    ("words", "option", "text", "answer"),
    [
        ("approve ls", "once", None, "approval: once"),
        ("approve ls", "nonsense", None, "approval: deny"),
        ("confirm", "always", None, "confirm: always"),
        ("clarify Which?|red|blue", "c1", None, "clarify: blue"),
        ("clarify Which?|red|blue", None, "green", "clarify: green"),
        ("clarify Name?", None, "Ada", "clarify: Ada"),
    ],
)
async def test_cards(
    place: Place, words: str, option: str | None, text: str | None, answer: str
) -> None:
    async with place.client() as client:
        await client.send_text(words)
        card = (await until(client, lambda e: isinstance(e, Prompt)))[-1]
        assert isinstance(card, Prompt) and 0 < card.timeout_seconds <= 300
        async with asyncio.timeout(60):
            done = await client.answer(card.id, option, text=text)
        assert not done.expired
        events = await until(client, lambda e: isinstance(e, Message))
        assert isinstance(events[-1], Message) and events[-1].text == answer
        assert any(isinstance(e, PromptDone) for e in events[:-1]), "it closes before what follows"


async def test_other_makes_the_next_text_the_answer(place: Place) -> None:
    async with place.client() as client:
        await client.send_text("clarify Name?|Ada")
        card = (await until(client, lambda e: isinstance(e, Prompt)))[-1]
        assert isinstance(card, Prompt)
        async with asyncio.timeout(60):
            done = await client.answer(card.id, "other")
            assert done.option_id == "other"
            assert await answer_to(client, "Grace") == "clarify: Grace"


async def test_two_cards_at_once_are_told_apart(place: Place) -> None:
    async with place.client() as client:
        await client.send_text("approve2 first | second")
        cards: dict[str | None, Prompt] = {}
        while len(cards) < 2:
            card = (await until(client, lambda e: isinstance(e, Prompt)))[-1]
            assert isinstance(card, Prompt)
            cards[card.command] = card
        async with asyncio.timeout(60):
            await client.answer(cards["second"].id, "deny")
            await client.answer(cards["first"].id, "once")
        texts: list[str] = []
        while len(texts) < 2:
            last = (await until(client, lambda e: isinstance(e, Message)))[-1]
            assert isinstance(last, Message)
            texts.append(last.text)
    assert sorted(texts) == ["approval: deny (second)", "approval: once (first)"]


@pytest.mark.parametrize("size", [1, 3 * MIB, 3 * MIB + 1, 8 * MIB])
async def test_a_file_reaches_the_agent_byte_for_byte(place: Place, size: int) -> None:
    data = os.urandom(size)
    async with place.client() as client:
        async with asyncio.timeout(60):
            await client.send_file(data, filename="plan.pdf", caption="please check")
        last = (await until(client, lambda e: isinstance(e, Message)))[-1]
    assert isinstance(last, Message)
    digest = hashlib.sha256(data).hexdigest()
    assert "plan.pdf" in last.text and f"{size} bytes, sha256 {digest}" in last.text
    assert last.text.endswith("\ntext: please check")


async def test_a_voice_recording_reaches_the_agent_with_its_words(place: Place) -> None:
    data = bytes(sample("voice").data)
    async with place.client() as client:
        await client.send_voice(data, text="what I said")
        last = (await until(client, lambda e: isinstance(e, Message)))[-1]
    assert isinstance(last, Message)
    assert last.text.startswith("received voice: ")
    assert hashlib.sha256(data).hexdigest() in last.text
    assert last.text.endswith("\ntext: what I said")


@pytest.mark.parametrize("kind", ["image", "voice", "video", "document", "animation"])
async def test_media_words_are_saved_as_files(place: Place, kind: str) -> None:
    async with place.client() as client:
        await client.send_text(kind)
        last = (await until(client, lambda e: isinstance(e, Media | MediaFailed)))[-1]
        assert isinstance(last, Media) and last.path is not None
        assert last.kind == kind
        assert last.path.read_bytes() == sample(kind).data
        assert last.path.parent == place.folder / "tablet"


async def test_a_large_file_of_the_agent_comes_in_pieces(place: Place) -> None:
    from hermes_mobile.server import OutgoingMedia

    data = os.urandom(8 * MIB)
    async with place.client() as client:
        media = OutgoingMedia("document", "application/octet-stream", "../big.bin", data)
        place.door.show("tablet", media)
        events = await until(client, lambda e: isinstance(e, Media | MediaFailed))
    assert isinstance(events[-1], Media) and events[-1].path is not None
    assert events[-1].path.read_bytes() == data
    assert events[-1].path.parent == place.folder / "tablet"
    assert len([e for e in events if isinstance(e, MediaProgress)]) == 2


async def test_cancelled_uploads_leave_room_for_others(place: Place) -> None:
    def progress(sent: int, total: int) -> None:
        if sent == 2 * 4096:
            uploads[-1].cancel()

    uploads: list[asyncio.Task[str]] = []
    async with place.client() as client, asyncio.timeout(60):
        for _ in range(12):  # more than the eight uploads a device may have open
            upload = client.send_file(os.urandom(65536), chunk_bytes=4096, progress=progress)
            uploads.append(asyncio.create_task(upload))
            await asyncio.wait(uploads)
            assert uploads[-1].cancelled()
        await client.send_file(os.urandom(8 * MIB), filename="x.bin")


async def test_a_wrong_token_and_a_second_window(place: Place) -> None:
    with pytest.raises(AuthFailed):
        await place.client(token="another-token-entirely").open()
    async with place.client() as first, place.client() as second:
        with pytest.raises(Replaced):
            await until(first, lambda e: False)
        assert await answer_to(second, "mine now") == "echo: mine now"


async def test_a_restarted_door_is_found_again_and_nothing_is_lost(place: Place) -> None:
    async with place.client() as client:
        port = place.door.port
        await place.agent.close()
        await place.door.stop()
        await until(client, lambda e: isinstance(e, Disconnected))
        sending = asyncio.create_task(client.send_text("said while away"))
        place.door, place.agent = await opened(port)
        async with asyncio.timeout(60):
            await sending
        events = await until(client, lambda e: isinstance(e, Message))
        assert isinstance(events[-1], Message)
        assert events[-1].text == "echo: said while away"
        assert any(isinstance(e, Ready) for e in events)


async def test_an_open_card_is_shown_again_and_can_be_answered(place: Place) -> None:
    async with place.client() as client:
        await client.send_text("approve ls")
        first = (await until(client, lambda e: isinstance(e, Prompt)))[-1]
        assert client._socket is not None
        client._socket.transport.abort()
        again = (await until(client, lambda e: isinstance(e, Prompt)))[-1]
        assert isinstance(first, Prompt) and isinstance(again, Prompt)
        assert again.id == first.id
        async with asyncio.timeout(60):
            assert (await client.answer(again.id, "session")).option_id == "session"


async def test_drops_at_any_moment_neither_lose_double_nor_reorder_what_is_sent(
    place: Place,
) -> None:
    """What the agent is handed is exact. An answer written to a socket in the moment it dies may be
    lost, but none is shown twice or out of order."""
    handed: list[str] = []
    take = place.agent.submit

    async def written_down(incoming: Incoming) -> None:
        handed.append(incoming.text)
        await take(incoming)

    place.agent.submit = written_down  # type: ignore[method-assign]
    finished: list[str] = []

    async with place.client() as client:

        async def read() -> None:
            async for event in client:
                if isinstance(event, Message) and event.final:
                    finished.append(event.text)

        async def drop() -> None:
            pause, before = 0.03, 0
            while True:
                await asyncio.sleep(pause)
                if client._socket is not None:
                    client._socket.transport.abort()
                # A slow machine may need longer than that to get a single message through.
                pause, before = 0.03 if len(handed) > before else 2 * pause, len(handed)

        reading, dropping = asyncio.create_task(read()), asyncio.create_task(drop())
        try:
            async with asyncio.timeout(300):
                for n in range(60):
                    await client.send_text(f"text {n}")
        finally:
            dropping.cancel()
            reading.cancel()
            await asyncio.gather(reading, dropping, return_exceptions=True)
    assert handed == [f"text {n}" for n in range(60)]
    numbers = [int(text.removeprefix("echo: text ")) for text in finished]
    assert numbers == sorted(set(numbers))
