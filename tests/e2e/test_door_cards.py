"""Cards over a real Hermes: an answer reaches the request on the screen, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.door_client import DoorClient, Frame
from tests.e2e.hermes_process import HermesProcess


def device_on(hermes: HermesProcess) -> DoorClient:
    return DoorClient(hermes.door_url, hermes.token, f"card-{uuid4().hex[:8]}", ["accepted"])


async def greeted(client: DoorClient) -> int:
    """Have the onboarding of a first message behind us; how many frames there are by then."""
    await client.text("hello")
    await client.idle()
    return len(client.frames)


def options(prompt: Frame) -> list[str]:
    return [option["id"] for option in prompt["options"]]


@pytest.mark.parametrize("choice", ["once", "deny", "session"])
async def test_an_approval_is_answered(hermes: HermesProcess, choice: str) -> None:
    """The card shows the exact command; the choice reaches Hermes; its end precedes the text."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text(f"approve echo {choice}-it")
        prompt = await client.prompt(since=mark, kind="exec_approval")
        assert prompt["command"] == f"echo {choice}-it"
        assert options(prompt) == ["once", "session", "always", "deny"]
        assert 50 < prompt["timeout_seconds"] <= 60  # Hermes' own limit is the smaller one
        assert prompt["session"] == f"agent:main:mobile:dm:{client.device}"
        assert client.typing

        await client.answer(prompt, choice)
        done = await client.done(prompt)
        answer = await client.message(f"approval: {choice}", since=mark)

        assert done == {"t": "prompt_done", "id": prompt["id"], "option_id": choice}
        assert client.frames.index(done) < client.frames.index(answer)
        await client.idle(since=mark)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_approvals_at_once(hermes: HermesProcess, order: tuple[int, int]) -> None:
    """Both wait; each answer reaches its own command, whichever comes first."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve2 echo first-a | echo second-b")
        cards = [
            await client.prompt(since=mark, command="echo first-a"),
            await client.prompt(since=mark, command="echo second-b"),
        ]
        choices = ["once", "deny"]
        for index in order:
            await client.answer(cards[index], choices[index])
            done = await client.done(cards[index])
            assert done["option_id"] == choices[index]
        await client.message("approval: once (echo first-a)", since=mark)
        await client.message("approval: deny (echo second-b)", since=mark)
        await client.idle(since=mark)


async def test_a_typed_answer_closes_the_oldest_card(hermes: HermesProcess) -> None:
    """`/approve` answers Hermes' oldest request; the other card still answers its own.

    Which is the oldest is Hermes' to say: two at once may be shown in the other order.
    """
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve2 echo typed-a | echo carded-b")
        first = await client.prompt(since=mark, command="echo typed-a")
        second = await client.prompt(since=mark, command="echo carded-b")
        await client.text("/approve")
        done = await client.wait(lambda f: f["t"] == "prompt_done", since=mark)
        assert done["option_id"] == "once"
        oldest, newer = (first, second) if done["id"] == first["id"] else (second, first)
        await client.answer(oldest, "deny")  # too late: it hears what was applied
        await client.answer(newer, "deny")
        assert (await client.done(newer))["option_id"] == "deny"
        await client.message(f"approval: once ({oldest['command']})", since=mark)
        await client.message(f"approval: deny ({newer['command']})", since=mark)


async def test_an_approval_runs_out_at_hermes_own_limit(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """Nobody answers: the card ends as expired and Hermes is told no."""
    # Long enough to be shown in on a busy machine.
    hermes = new_hermes(approval_timeout=12)
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve echo too-late")
        prompt = await client.prompt(since=mark)
        assert prompt["timeout_seconds"] <= 12
        done = await client.done(prompt)
        assert done == {
            "t": "prompt_done",
            "id": prompt["id"],
            "option_id": "deny",
            "expired": True,
        }
        # On a busy machine Hermes' own clock may be the faster one; no is what both say.
        told = await client.message("approval: ", since=mark)
        assert told["text"] in ("approval: deny", "approval: timeout")
        await client.idle(since=mark)
        await client.answer(prompt, "once")
        late = [f for f in client.frames if f["t"] == "prompt_done"]
        assert all(f["option_id"] == "deny" for f in late)


async def test_the_doors_own_limit_comes_first(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """MOBILE_PROMPT_TTL under Hermes' limits: deny, no answer, cancel, and both sides agree."""
    hermes = new_hermes(mobile={"MOBILE_PROMPT_TTL": "2"})
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve echo too-late")
        prompt = await client.prompt(since=mark)
        assert (await client.done(prompt))["expired"]
        await client.message("approval: deny", since=mark)
        await client.idle(since=mark)

        mark = len(client.frames)
        await client.text("clarify Which one?|red|blue")
        prompt = await client.prompt(since=mark, kind="clarify")
        assert (await client.done(prompt)).get("expired")
        await client.message("clarify:", since=mark)
        await client.idle(since=mark)

        mark = len(client.frames)
        await client.text("/new")
        prompt = await client.prompt(since=mark, kind="slash_confirm")
        done = await client.done(prompt)
        assert (done["option_id"], done["expired"]) == ("cancel", True)
        await client.message("cancelled", since=mark)


@pytest.mark.parametrize(
    ("answer", "applied", "heard"),
    [
        ({"option": "c1"}, "c1", "blue"),
        ({"text": "green"}, "other", "green"),
        ({"option": "c0", "text": "neither"}, "other", "neither"),
    ],
)
async def test_a_question_is_answered(
    hermes: HermesProcess, answer: dict[str, Any], applied: str, heard: str
) -> None:
    """A choice, a text, and a text beside a choice."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("clarify Which one?|red|blue")
        prompt = await client.prompt(since=mark, kind="clarify")
        assert prompt["text"] == "Which one?"
        labels = [o["label"].removesuffix(" (Recommended)") for o in prompt["options"]]
        assert labels[:2] == ["red", "blue"]
        await client.answer(prompt, **answer)
        assert (await client.done(prompt))["option_id"] == applied
        await client.message(f"clarify: {heard}", since=mark)
        await client.idle(since=mark)


async def test_other_waits_for_the_typed_answer(hermes: HermesProcess) -> None:
    """`other` without a text: the next text of the device is the answer, not a message."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("clarify Which one?|red|blue")
        prompt = await client.prompt(since=mark)
        await client.answer(prompt, "other")
        assert (await client.done(prompt))["option_id"] == "other"
        await client.text("something else")
        await client.message("clarify: something else", since=mark)
        await client.idle(since=mark)
        assert not [t for t in client.texts(mark).values() if t.startswith("echo")]


WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + b"\0" * 40
FILES: list[tuple[Frame, bytes]] = [
    ({"t": "media", "kind": "document", "filename": "a.txt"}, b"words in a file"),
    ({"t": "media", "kind": "document", "filename": "b.bin", "caption": "yes"}, b"\x00\x01"),
    ({"t": "audio", "format": "wav", "text": "yes"}, WAV),
]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def taken(client: DoorClient, frame: Frame, data: bytes) -> None:
    """Send a file and wait until the agent has it."""
    id = uuid4().hex
    await client.file({**frame, "id": id}, data)
    await client.wait(lambda f: f["t"] == "accepted" and f["id"] == id)


@pytest.mark.parametrize(("frame", "data"), FILES)
async def test_a_file_is_no_answer_to_a_question(
    hermes: HermesProcess, frame: Frame, data: bytes
) -> None:
    """After `other` the next text is the answer; a file that comes before it is a message."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("clarify Which one?|red|blue")
        prompt = await client.prompt(since=mark)
        await client.answer(prompt, "other")
        await client.done(prompt)
        await taken(client, frame, data)
        await client.text("something else")
        await client.message("clarify: something else", since=mark)
        shown = await client.message(digest(data), since=mark)
        await client.idle(since=client.frames.index(shown))
        assert len(client.texts(mark)) == 2


@pytest.mark.parametrize("asked", ["clarify What is it?", "clarify Which?|red|yes"])
@pytest.mark.parametrize(("frame", "data"), FILES)
async def test_a_file_leaves_a_question_open(
    hermes: HermesProcess, frame: Frame, data: bytes, asked: str
) -> None:
    """Also before anybody chose `other`, and for a question without choices."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text(asked)
        prompt = await client.prompt(since=mark)
        await taken(client, frame, data)
        await taken(client, frame, data + b"\x02")
        await client.answer(prompt, text="by the card")
        assert (await client.done(prompt))["option_id"] == "other"
        await client.message("clarify: by the card", since=mark)
        await client.message(digest(data), since=mark)
        await client.message(digest(data + b"\x02"), since=mark)


@pytest.mark.parametrize(("frame", "data"), FILES)
async def test_a_file_allows_no_command(hermes: HermesProcess, frame: Frame, data: bytes) -> None:
    """A caption or transcript that says yes is not the answer to an approval."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve echo not-by-a-file")
        prompt = await client.prompt(since=mark)
        await taken(client, frame, data)
        await client.answer(prompt, "deny")
        done = await client.done(prompt)
        assert done["option_id"] == "deny"
        await client.message("approval: deny", since=mark)
        await client.message(digest(data), since=mark)


@pytest.mark.parametrize("word", ["once", "always", "cancel"])
async def test_a_file_confirms_no_command(hermes: HermesProcess, word: str) -> None:
    """Hermes takes these words of any message for the answer to `/new`."""
    frame = {"t": "media", "kind": "document", "filename": "b.bin", "caption": word}
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("/new")
        prompt = await client.prompt(since=mark, kind="slash_confirm")
        await taken(client, frame, b"\x00\x01")
        shown = await client.message(digest(b"\x00\x01"), since=mark)
        assert word in client.texts(mark)[shown["id"]].rpartition("\n")[2]
        await client.answer(prompt, "cancel" if word != "cancel" else "once")
        done = await client.done(prompt)
        assert done["option_id"] == ("cancel" if word != "cancel" else "once")
        assert client.frames.index(shown) < client.frames.index(done)


async def test_an_open_question_takes_a_plain_text(hermes: HermesProcess) -> None:
    """A typed message answers a question, and its card is closed."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("clarify What is your name?")
        prompt = await client.prompt(since=mark, kind="clarify")
        await client.text("Ada")
        await client.message("clarify: Ada", since=mark)
        assert (await client.done(prompt))["option_id"] == "other"


@pytest.mark.parametrize("choice", ["once", "cancel"])
async def test_a_destructive_command_asks_first(hermes: HermesProcess, choice: str) -> None:
    """`/new`: the text of what Hermes did comes behind the card's end."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("/new")
        prompt = await client.prompt(since=mark, kind="slash_confirm")
        assert options(prompt) == ["once", "always", "cancel"]
        await client.answer(prompt, choice)
        done = await client.done(prompt)
        assert done["option_id"] == choice
        shown = await client.wait(lambda f: f["t"] == "message" and f["final"], since=mark)
        assert client.frames.index(done) < client.frames.index(shown)
        assert ("cancelled" in shown["text"]) == (choice == "cancel")
        await client.idle(since=client.frames.index(shown))


async def test_a_typed_confirmation_closes_the_card(hermes: HermesProcess) -> None:
    """`/cancel` typed while the card is open."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("/new")
        prompt = await client.prompt(since=mark, kind="slash_confirm")
        await client.text("/cancel")
        assert (await client.done(prompt))["option_id"] == "cancel"
        await client.message("cancelled", since=mark)


async def test_an_open_card_survives_a_reconnect(hermes: HermesProcess) -> None:
    """The device goes and comes back: the card is shown again and can be answered."""
    client = device_on(hermes)
    async with client:
        mark = await greeted(client)
        await client.text("approve echo patient")
        prompt = await client.prompt(since=mark)
    mark = len(client.frames)
    async with client:
        again = await client.prompt(since=mark)
        assert again["id"] == prompt["id"]
        assert again["timeout_seconds"] <= prompt["timeout_seconds"]
        assert client.typing
        await client.answer(again, "once")
        await client.message("approval: once", since=mark)
        await client.idle(since=mark)


async def test_only_the_device_that_was_asked_may_answer(hermes: HermesProcess) -> None:
    """Another device's answer is refused and changes nothing."""
    async with device_on(hermes) as client, device_on(hermes) as stranger:
        mark = await greeted(client)
        await client.text("approve echo mine")
        prompt = await client.prompt(since=mark)
        await stranger.answer(prompt, "once")
        refusal = await stranger.wait(lambda f: f["t"] == "error")
        assert refusal["code"] == "forbidden"
        await client.answer(prompt, "deny")
        await client.message("approval: deny", since=mark)


async def test_stop_closes_the_card(hermes: HermesProcess) -> None:
    """`/stop` while an approval waits: the card does not stay open."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("approve echo stopped")
        prompt = await client.prompt(since=mark)
        await client.text("/stop")
        await client.done(prompt)
        await client.idle(since=mark)
        await client.text("and now?")
        await client.message("and now?", since=mark)
