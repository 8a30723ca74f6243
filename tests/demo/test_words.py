"""demo/words.py: one chat request in, one plan out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo.words import MAX_LONG, PAIR_TOOL, Plan, ToolCall, choice_of, plan, prose
from hermes_mobile import agents as scripted_agent

MEDIA = {"image": "/media/image.png", "voice": "/media/voice.wav"}
TERMINAL = {"terminal": ("command",)}


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "You are an agent."}] + [
        {"role": "user", "content": text} for text in texts
    ]


def after(calls: list[tuple[str, str, dict[str, Any], Any]]) -> list[dict[str, Any]]:
    """A turn whose tool calls (id, name, arguments, result) have been answered."""
    turn: list[dict[str, Any]] = said("whatever")
    turn.append(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": i, "function": {"name": n, "arguments": json.dumps(a)}}
                for i, n, a, _ in calls
            ],
        }
    )
    turn += [{"role": "tool", "tool_call_id": i, "content": json.dumps(r)} for i, _, _, r in calls]
    return turn


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("hello", "echo: hello"),
        ("  two\n\nparagraphs ", "echo: two\n\nparagraphs"),
        ("long", "echo: long"),
        ("long -3", "echo: long -3"),
        ("long 0", "echo: long 0"),
        ("long 000", "echo: long 000"),
        ("stream 0", "echo: stream 0"),
        ("stream 012", "echo: stream 012"),
        ("stream 5 5 5", "echo: stream 5 5 5"),
        ("stream ５", "echo: stream ５"),
        ("long 12", prose(12)),
        ("approve", "echo: approve"),
        ("approve2 only one", "echo: approve2 only one"),
        ("clarify", "echo: clarify"),
        ("clarify |a|b", "echo: clarify |a|b"),
        ("image of a cat", "echo: image of a cat"),
        ("image", "MEDIA:/media/image.png"),
        ("voice", "[[audio_as_voice]]\nMEDIA:/media/voice.wav"),
        ("video", "echo: video"),
    ],
)
def test_text_words(text: str, answer: str) -> None:
    """A word with what it needs is obeyed; anything else is echoed."""
    assert plan(said(text), TERMINAL, MEDIA) == Plan(text=answer)


@pytest.mark.parametrize("length", [1, 59, 299, 3500, 12_001, 200_000])
def test_long_has_exactly_that_many_characters(length: int) -> None:
    """The same that the scripted agent says; nothing at an end for Hermes to strip."""
    text = plan(said(f"long {length}"), {}, {}).text
    assert len(text.strip()) == length
    assert text == scripted_agent.prose(length)


def test_long_is_bounded() -> None:
    assert len(plan(said("long 999999999"), {}, {}).text) == MAX_LONG


def test_stream_says_words_with_a_delay_in_milliseconds() -> None:
    assert plan(said("stream 3 40"), {}, {}) == Plan(text="word1 word2 word3", delay=0.04)
    assert plan(said("stream 2"), {}, {}).delay > 0


def test_approve_calls_the_terminal_with_that_very_command() -> None:
    call = ToolCall("terminal", {"command": "rm -rf  /tmp/a | cat"}, asks=True)

    assert plan(said("approve rm -rf  /tmp/a | cat"), TERMINAL, {}) == Plan(calls=(call,))


def test_approve2_uses_the_demos_tool_for_two_at_once_and_two_calls_without_it() -> None:
    pair = plan(said("approve2 a | b"), {**TERMINAL, PAIR_TOOL: ("commands",)}, {})
    plain = plan(said("approve2 a | b"), TERMINAL, {})

    assert pair.calls == (ToolCall(PAIR_TOOL, {"commands": ["a", "b"]}, asks=True),)
    assert [call.arguments for call in plain.calls] == [{"command": "a"}, {"command": "b"}]


def test_clarify_fits_the_tool_that_is_offered() -> None:
    one = {"question": "Tea?", "choices": ["yes", "no"]}

    old = plan(said("clarify Tea?|yes|no"), {"clarify": ("question", "choices")}, {})
    new = plan(said("clarify Tea?|yes|no"), {"clarify": ("questions",)}, {})
    open_question = plan(said("clarify Why?"), {"clarify": ("question", "choices")}, {})

    assert old.calls == (ToolCall("clarify", one),)
    assert new.calls == (ToolCall("clarify", {"questions": [one]}),)
    assert open_question.calls == (ToolCall("clarify", {"question": "Why?"}),)


def test_fail_is_an_error_and_its_text_does_not_stick_to_the_next_message() -> None:
    """Hermes merges the text of a failed turn into the next user message."""
    assert plan(said("fail"), {}, {}).status == 400
    assert plan(said("fail\n\nhello"), {}, {}).text == "echo: hello"
    assert plan(said("fail model"), {}, {}).status == 400
    assert plan(said("fail model\n\nhello"), {}, {}).text == "echo: hello"


def test_the_notes_of_hermes_are_not_echoed() -> None:
    note = "[System note: This is the user's first message. Introduce yourself.]"

    assert plan(said(f"hello\n\n{note}"), {}, {}).text == "echo: hello"
    assert plan(said(f"{note}\n\nlong 5"), {}, {}).text == prose(5)
    assert plan(said('[Replying to: "x"]\n\nhello'), {}, {}).text == "echo: hello"


@pytest.mark.parametrize(
    ("result", "choice"),
    [
        ({"output": "", "choice": "session"}, "session"),
        ({"output": "x", "approval": "… was approved by the user."}, "once"),
        ({"error": "BLOCKED: Command denied by user. Do not retry."}, "deny"),
        ({"error": "BLOCKED: Command timed out without user response."}, "timeout"),
        ({"error": "BLOCKED (hardline): never", "status": "blocked"}, "blocked"),
        ({"output": "x", "exit_code": 0}, "not asked"),
        ({}, "not asked"),
    ],
)
def test_the_choice_is_read_from_the_tools_result(result: dict[str, Any], choice: str) -> None:
    assert choice_of(result) == choice


def test_the_final_text_names_the_choice() -> None:
    """One command: the choice; several: each with its command."""
    done = {"output": "", "choice": "once"}
    one = after([("ask_1", "terminal", {"command": "a"}, done)])
    two = after(
        [
            ("ask_1", "terminal", {"command": "a"}, done),
            ("ask_2", "terminal", {"command": "b"}, {"choice": "deny"}),
        ]
    )
    pair = {"results": [{"command": "a", "choice": "deny"}, {"command": "b", "choice": "always"}]}
    both = after([("ask_3", PAIR_TOOL, {"commands": ["a", "b"]}, pair)])

    assert plan(one, {}, {}).text == "approval: once"
    assert plan(two, {}, {}).text == "approval: once (a)\n\napproval: deny (b)"
    assert plan(both, {}, {}).text == "approval: deny (a)\n\napproval: always (b)"


def test_the_final_text_names_the_answer_to_a_question() -> None:
    old = after([("call_1", "clarify", {}, {"question": "Q", "user_response": "tea"})])
    new = after(
        [("call_1", "clarify", {}, {"responses": [{"user_response": "tea"}], "outcome": "x"})]
    )
    none = after([("call_1", "clarify", {}, {"responses": [{"user_response": None}]})])

    assert plan(old, {}, {}).text == "clarify: tea"
    assert plan(new, {}, {}).text == "clarify: tea"
    assert plan(none, {}, {}).text == "clarify: no answer"


def test_a_tool_that_was_not_asked_about_shows_its_output() -> None:
    turn = after([("call_1", "terminal", {"command": "echo hi"}, {"output": "hi\n"})])

    assert plan(turn, {}, {}).text == "terminal: hi"


def test_a_request_for_a_title_gets_one() -> None:
    """Hermes names a session with a call of its own, without tools."""
    messages = [
        {"role": "system", "content": "Write a short title for this conversation."},
        {"role": "user", "content": "User: good morning"},
    ]

    assert plan(messages, {}, {}).text == "Talk: good morning"


@pytest.mark.parametrize(
    "messages", [[], [{}], [{"role": "user"}], [{"role": "user", "content": 3}]]
)
def test_odd_requests_are_answered(messages: list[dict[str, Any]]) -> None:
    assert plan(messages, {}, {}).text == "echo: "
