"""What a device sees of a turn: one message per answer, completed once, nothing left behind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from uuid import uuid4

from demo.words import prose
from tests.e2e.door_client import DoorClient
from tests.e2e.hermes_process import HermesProcess


def device_on(hermes: HermesProcess) -> DoorClient:
    """A new device, so that tests do not meet."""
    return DoorClient(hermes.door_url, hermes.token, f"turn-{uuid4().hex[:8]}")


async def greeted(client: DoorClient) -> int:
    """Have the onboarding of a first message behind us; how many frames there are by then."""
    await client.text("hello")
    await client.idle()
    return len(client.frames)


async def assert_clean(client: DoorClient, since: int = 0) -> None:
    """Nothing doubled, nothing half written, nobody typing once the turn is over."""
    await client.rest(since=since)
    assert client.unfinished() == []
    assert client.changed_after_end() == []
    twice = [text for text, n in Counter(client.texts(since).values()).items() if n > 1]
    assert twice == []
    assert (client.typing, client.avatar) == (False, "idle")


async def test_a_text_is_answered(hermes: HermesProcess) -> None:
    """The frames of a plain turn in the order of the reference."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("how are you")
        await client.message("echo: how are you", since=mark)
        await client.idle(since=mark)

        kinds = [
            f["t"] + f.get("state", "") + str(f.get("stop", ""))
            for f in client.frames[mark:]
            if f["t"] != "message"
        ]
        assert kinds == ["avatarthinking", "typing", "avatarspeaking", "typingTrue", "avataridle"]
        assert list(client.texts(mark).values()) == ["echo: how are you"]
        await assert_clean(client)


async def test_a_long_answer_joins_to_the_same_text(hermes: HermesProcess) -> None:
    """20,000 characters, one id, chunks within the limit."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("long 20000")
        await client.idle(since=mark)

        assert list(client.texts(mark).values()) == [prose(20000).strip()]
        frames = [f for f in client.frames[mark:] if f["t"] == "message"]
        assert max(len(f["text"]) for f in frames) <= 3500
        await assert_clean(client, mark)


async def test_a_streamed_answer_grows_under_one_id(hermes: HermesProcess) -> None:
    """Each revision begins with the one before; only the last frame is final."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("stream 30 60")
        await client.idle(since=mark)

        frames = [f for f in client.frames[mark:] if f["t"] == "message"]
        assert len({f["id"] for f in frames}) == 1
        assert [f.get("edit", False) for f in frames] == [False] + [True] * (len(frames) - 1)
        assert [f["final"] for f in frames] == [False] * (len(frames) - 1) + [True]
        for before, after in zip(frames, frames[1:], strict=False):
            assert after["text"].startswith(before["text"].rstrip())
        assert frames[-1]["text"] == " ".join(f"word{n}" for n in range(1, 31))
        assert len(frames) > 5


async def test_text_behind_a_tool_is_a_message_of_its_own(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """Tool bubbles and the answer are separate, and the answer has no blank lines before it."""
    hermes = new_hermes(tool_progress="all")
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("run sleep 1; echo from-the-tool")
        await client.message("from-the-tool", since=mark)
        await client.idle(since=mark)

        texts = list(client.texts(mark).values())
        assert len(texts) == 2
        assert "sleep 1" in texts[0]
        assert texts[1] == texts[1].strip()
        await assert_clean(client, mark)


async def test_stop_freezes_the_answer(hermes: HermesProcess) -> None:
    """After `/stop` the half-written answer is final and the turn is over."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("stream 200 100")
        await client.wait(lambda f: f["t"] == "message" and "word6" in f["text"], since=mark)
        await client.text("/stop")
        await client.message("⚡ Stopped", since=mark)
        await client.idle(since=mark)

        texts = list(client.texts(mark).values())
        assert len(texts) == 2
        assert texts[0].startswith("word1 word2")
        await assert_clean(client, mark)
        await client.text("still there?")
        # Hermes may hand the stopped question over again, before this one.
        await client.message("still there?", since=mark)


async def test_a_second_message_interrupts_the_first(hermes: HermesProcess) -> None:
    """The first answer stays as it was, the second is complete."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("stream 200 100")
        await client.wait(lambda f: f["t"] == "message" and "word6" in f["text"], since=mark)
        await client.text("second message")
        # Hermes may hand the interrupted question over again, before this one.
        answer = await client.message("second message", since=mark)
        await client.idle(since=client.frames.index(answer))

        await assert_clean(client, mark)
        answers = [t for t in client.texts(mark).values() if "second message" in t]
        assert len(answers) == 1


async def test_a_failing_model_is_told_once(hermes: HermesProcess) -> None:
    """Hermes 0.19 reports the failure twice with one text; the app shows no text twice."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("fail model")
        told = await client.wait(lambda f: f["t"] == "message", since=mark)
        assert "failed" in told["text"] or "rejected" in told["text"]
        await client.idle(since=mark)

        if hermes.version == "0.19.0":
            assert len(client.texts(mark)) == 1
        await assert_clean(client, mark)
        mark = len(client.frames)
        await client.text("once more")
        await client.message("once more", since=mark)


async def test_a_hand_over_that_fails_is_told_and_leaves_the_id_free(hermes: HermesProcess) -> None:
    """Nothing is shown or kept of it; the same id may be used again."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("fail", id="refused")
        told = await client.wait(lambda f: f["t"] == "error", since=mark)
        assert (told["code"], told["fatal"], told["id"]) == ("internal_error", False, "refused")
        await client.text("and now", id="refused")
        await client.message("echo: and now", since=mark)
        await client.idle(since=mark)

        assert list(client.texts(mark).values()) == ["echo: and now"]


async def test_a_repeated_id_reaches_the_agent_once(hermes: HermesProcess) -> None:
    """The window of seen ids, with Hermes behind it."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("only once", id="same-id")
        await client.text("only once", id="same-id")
        await client.message("echo: only once", since=mark)
        await client.idle(since=mark)
        await client.text("and then", id="another-id")
        await client.message("echo: and then", since=mark)

        assert sum("only once" in t for t in client.texts(mark).values()) == 1


async def test_nobody_with_a_token_is_asked_for_a_pairing_code(hermes: HermesProcess) -> None:
    """The token is the permission: the first message of an unknown person is answered."""
    async with device_on(hermes) as client:
        await client.text("am I known?")
        await client.message("am I known?")
        await client.idle()

        shown = " ".join(client.texts().values()).lower()
        assert "pairing" not in shown and "don't recognize" not in shown


async def test_a_message_right_after_the_start_is_one_turn(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """While Hermes restores its sessions it starts and ends a turn twice; the app sees one."""
    hermes = new_hermes()
    async with device_on(hermes) as client:
        await client.text("early")
        await client.message("early")
        await client.idle()

        states = [f["state"] for f in client.frames if f["t"] == "avatar"]
        assert states == ["thinking", "speaking", "idle"]
        await assert_clean(client)


async def test_hermes_own_words_are_words(hermes: HermesProcess) -> None:
    """Also where Hermes comes without its language files: no `gateway.stop.no_active`."""
    async with DoorClient(hermes.door_url, hermes.token, "words") as client:
        for command in ("/status", "/stop", "/nonsense", "/title Trip", "/help", "/whoami"):
            mark = len(client.frames)
            await client.text(command)
            await client.idle(since=mark)
            for text in client.texts(mark).values():
                assert not re.search(r"\b(gateway|slash)(\.\w+){2}", text), text
        await client.text("/new")
        card = await client.wait(lambda f: f["t"] == "prompt")
        assert "gateway." not in card["text"]
        await client.answer(card, "cancel")
        done = await client.message("ancelled")
        assert "gateway." not in client.texts()[done["id"]]
