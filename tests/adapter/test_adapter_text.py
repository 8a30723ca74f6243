"""Which call of Hermes belongs to which message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hermes_mobile.outgoing_text import REMEMBERED_DRAFTS, OutgoingText

ANSWER = {"expect_edits": True, "notify": True}


class FakeDoor:
    """Keeps what an app would show: id -> (text, final)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, bool]] = []

    def say(
        self,
        chat: str,
        text: str,
        *,
        message_id: str | None = None,
        final: bool = True,
        begun: Callable[[str], None] | None = None,
    ) -> str:
        message_id = message_id or f"m{len({c[0] for c in self.calls}) + 1}"
        if begun is not None:
            begun(message_id)
        self.calls.append((message_id, text, final))
        return message_id

    def withdraw(self, chat: str, message_id: str) -> None:
        text = next(c[1] for c in reversed(self.calls) if c[0] == message_id)
        self.calls.append((message_id, text, True))

    @property
    def shown(self) -> dict[str, tuple[str, bool]]:
        return {id: (text, final) for id, text, final in self.calls}


@pytest.fixture
async def stage() -> tuple[FakeDoor, OutgoingText]:
    """A door and its text, in the middle of a turn of `d`."""
    door = FakeDoor()
    text = OutgoingText(door)
    text.turn_started("d")
    return door, text


Stage = tuple[FakeDoor, OutgoingText]


async def test_drafts_and_their_completion_are_one_message(stage: Stage) -> None:
    """The same task sends the final text: same id, final once."""
    door, text = stage
    first = text.draft("d", 1, "word ▉", "consumer")
    text.draft("d", 1, "word and ▉", "consumer")
    last = text.send("d", "word and more", "u1", ANSWER, "consumer")
    assert first == last
    assert door.calls[0] == (first, "word", False)
    assert door.calls[-1] == (first, "word and more", True)
    assert sum(final for _, _, final in door.calls) == 1


async def test_a_tool_bubble_does_not_complete_the_draft(stage: Stage) -> None:
    """Another task sends between the drafts."""
    door, text = stage
    draft = text.draft("d", 1, "thinking about it", "consumer")
    bubble = text.send("d", "💻 terminal", None, None, "progress")
    assert bubble != draft
    text.edit("d", str(bubble), "💻 terminal ls", final=True)
    assert text.send("d", "thinking about it. Done.", "u", ANSWER, "consumer") == draft
    assert not door.shown[str(bubble)][1], "a bubble may be edited until the turn ends"
    text.turn_ended("d")
    assert door.shown[str(bubble)][0] in ("💻 terminal", "💻 terminal ls")


async def test_the_turn_itself_sends_what_the_consumer_could_not(stage: Stage) -> None:
    """The whole answer from another task completes the draft it begins with."""
    door, text = stage
    draft = text.draft("d", 1, "The answer is ", "consumer")
    assert text.send("d", "The answer is 42.", "u", {"notify": True}, "turn") == draft
    assert door.shown[str(draft)] == ("The answer is 42.", True)


async def test_an_interrupted_draft_is_given_up(stage: Stage) -> None:
    """A new answer begins: the old one stays as it was, and its late frames change nothing."""
    door, text = stage
    old = text.draft("d", 1, "half of an ans", "first")
    new = text.send("d", "echo: second", "u2", ANSWER, "second")
    assert new != old
    assert door.shown[str(old)] == ("half of an ans", True)
    assert text.draft("d", 1, "half of an answer", "first") is None
    assert door.shown[str(old)] == ("half of an ans", True)


async def test_stop_gives_the_draft_up(stage: Stage) -> None:
    """`/stop`, then a late frame, then the end of the turn: nothing moves any more."""
    door, text = stage
    draft = text.draft("d", 7, "half", "consumer")
    text.interrupted("d")
    assert door.shown[str(draft)] == ("half", True)
    text.turn_ended("d")
    assert text.draft("d", 7, "half and more", "consumer") is None
    assert len(door.calls) == 2


async def test_revisions_are_thinned_out_and_the_newest_is_shown(stage: Stage) -> None:
    """A burst becomes few frames; the last one of it is not lost."""
    door, text = stage
    for count in range(1, 200):
        text.draft("d", 1, "word " * count, "consumer")
    assert len(door.calls) == 1
    async with asyncio.timeout(60):
        while len(door.calls) < 2:
            await asyncio.sleep(0.01)
    assert door.calls[1][1] == "word " * 199


async def test_the_end_of_a_turn_shows_what_waited(stage: Stage) -> None:
    """A revision that waits for its time is not lost with the turn."""
    door, text = stage
    text.draft("d", 1, "one", "consumer")
    text.draft("d", 1, "one two", "consumer")
    text.turn_ended("d")
    assert door.calls[-1][1] == "one two"
    await asyncio.sleep(0)
    assert len(door.calls) == 2


async def test_a_failure_is_shown_once(stage: Stage) -> None:
    """The notice and the answer have the same text."""
    door, text = stage
    first = text.send("d", "⚠️ The model failed.", None, None, "run")
    second = text.send("d", "⚠️ The model failed.", "u", {"notify": True}, "turn")
    assert first == second
    assert list(door.shown.values()) == [("⚠️ The model failed.", True)]
    text.turn_ended("d")
    text.turn_started("d")
    third = text.send("d", "⚠️ The model failed.", "u", {"notify": True}, "turn")
    assert third != first, "the next turn's failure is its own message"


async def test_two_equal_replies_of_different_messages_are_both_shown(stage: Stage) -> None:
    """Only the answer that repeats the newest notice is one message with it."""
    door, text = stage
    first = text.send("d", "done", "u1", {"notify": True}, "a")
    between = text.send("d", "something else", "u2", {"notify": True}, "a")
    second = text.send("d", "done", "u3", {"notify": True}, "a")
    assert len({first, between, second}) == 3


@pytest.mark.parametrize(
    ("metadata", "reply_to", "final"),
    [
        (ANSWER, "u", True),
        ({"notify": True}, "u", True),
        (None, "u", True),
        (None, None, False),
        ({"expect_edits": True}, "u", False),
    ],
)
async def test_what_is_complete_at_once(
    stage: Stage, metadata: dict[str, Any] | None, reply_to: str | None, final: bool
) -> None:
    """Final in its only frame, where no edit can follow."""
    door, text = stage
    message = text.send("d", "some text", reply_to, metadata, "task")
    assert door.shown[str(message)] == ("some text", final)


async def test_outside_a_turn_everything_is_complete(stage: Stage) -> None:
    """Cron results and edits of old messages."""
    door, text = stage
    message = text.send("other", "\n\ncron result", None, {"job_id": "1"}, "cron")
    assert door.shown[str(message)] == ("cron result", True)
    text.edit("other", str(message), "cron result, corrected", final=False)
    assert door.shown[str(message)] == ("cron result, corrected", True)


async def test_blank_text_is_shown_nowhere(stage: Stage) -> None:
    """Hermes sends line breaks before the text behind a tool."""
    door, text = stage
    assert text.send("d", "\n\n", None, ANSWER, "task") is None
    assert text.draft("d", 1, " ▉", "task") is None
    assert door.calls == []


async def test_edits_of_a_streamed_message(stage: Stage) -> None:
    """The transport without drafts: one id, the cursor is taken off, the end closes it."""
    door, text = stage
    message = text.send("d", "word ▉", "u", {"expect_edits": True}, "consumer")
    text.edit("d", str(message), "word and word ▉", final=False)
    text.turn_ended("d")
    assert door.calls[-1] == (message, "word and word", False)


async def test_only_so_many_old_drafts_are_remembered(stage: Stage) -> None:
    """Memory of a chat does not grow with its answers."""
    _, text = stage
    for number in range(3 * REMEMBERED_DRAFTS):
        text.draft("d", number, f"answer {number}", "consumer")
        text.send("d", f"answer {number}", "u", ANSWER, "consumer")
    assert len(text._chats["d"].over) == REMEMBERED_DRAFTS
    assert text._chats["d"].open == {}


async def test_two_answers_with_the_same_words_are_two_messages(stage: Stage) -> None:
    """Hermes 0.22 sends a fast answer without drafts and without `expect_edits`; a queued message
    is answered inside the same turn, perhaps with the very same words."""
    door, text = stage
    first = text.send("d", "echo: yes", "u1", {"notify": True}, "first")
    second = text.send("d", "echo: yes", "u2", {"notify": True}, "second")
    assert first != second
    assert list(door.shown.values()) == [("echo: yes", True)] * 2


async def test_two_streamed_answers_with_the_same_words(stage: Stage) -> None:
    """The same, the first by drafts."""
    door, text = stage
    text.draft("d", 1, "echo:", "first")
    first = text.send("d", "echo: yes", "u1", {"notify": True}, "first")
    second = text.send("d", "echo: yes", "u2", {"notify": True}, "second")
    assert first != second


async def test_the_consumer_completes_its_draft_whatever_the_final_text(stage: Stage) -> None:
    """Hermes 0.22 leaves `expect_edits` out of the final send: the task tells."""
    door, text = stage
    first = text.draft("d", 1, "half of a sent", "consumer")
    last = text.send("d", "Other words in the end.", "u1", {"notify": True}, "consumer")
    assert first == last
    assert list(door.shown.values()) == [("Other words in the end.", True)]
