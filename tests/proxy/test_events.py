"""Upstream events become contract events: same kinds, closed errors, no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.approvals import Approvals
from hermes_client_proxy.events import LOST, Translator
from hermes_client_proxy.redact import Redactor

KEY = "sk-hermes-0123456789abcdef"
VECTORS: dict[str, Any] = json.loads(
    Path(__file__).parents[2].joinpath("contracts/client-proxy-v1/vectors/events.json").read_text()
)


def translator(*, addressed: bool = True) -> Translator:
    approvals = Approvals("run_1", addressed)
    return Translator("run_1", "mnote_doc_1_trace_1", Redactor([KEY]), approvals)


def run(*events: dict[str, Any]) -> list[dict[str, Any]]:
    found = translator()
    return [json.loads(out) for event in events for out in found.translate(event)]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_as_in_the_contract(case: dict[str, Any]) -> None:
    assert run(case["upstream"]) == case["contract"]


def test_nothing_follows_the_end() -> None:
    assert len(run({"event": "run.cancelled"}, {"event": "message.delta", "delta": "x"})) == 1


@pytest.mark.parametrize("kind", ["run.failed", "run.completed", "tool.completed", "strange.kind"])
def test_error_words_are_closed_at_any_depth(kind: str) -> None:
    words = "secret words"
    event = {"event": kind, "error": words, "result": [{"error": {"message": words}}, {"x": 1}]}

    out = run({**event, "traceback": [words]})[0]

    assert words not in json.dumps(out)
    assert out["result"][1] == {"x": 1}


def test_a_failed_runs_reason_stays_if_it_is_a_code() -> None:
    out = run({"event": "run.failed", "reason": "iteration_limit", "message": "words of others"})[0]

    assert out["reason"] == "iteration_limit"
    assert out["message"] != "words of others"


@pytest.mark.parametrize(
    "event",
    [
        {"event": "tool.completed", "error": True},
        {"event": "tool.completed", "error": "words of others"},
        {"event": "tool.completed", "error": False, "is_error": True},
        {"event": "tool.failed"},
        {"event": "subagent.complete", "status": "failed", "goal": "its own"},
        {"event": "subagent.complete", "status": "error"},
        {"event": "x.error"},
    ],
)
def test_what_a_failed_step_left_is_closed_and_its_own_words_stay(event: dict[str, Any]) -> None:
    left = ("preview", "result", "output", "output_tail", "summary", "text", "message", "detail")
    words = {name: "words of others" for name in left}
    nested: dict[str, Any] = {"content": [{"text": "words of others"}], "stderr": {"a": "words of"}}

    (out,) = run({"tool": "terminal", "command": "its own", **event, **words, **nested})

    assert "words of" not in json.dumps(out)
    assert out["tool"] == "terminal" and out["command"] == "its own"
    assert out.get("goal") == event.get("goal") and out.get("status") == event.get("status")


def test_times_are_whole_seconds_and_durations_are_not() -> None:
    times = {"timestamp": 5.75, "created_at": 6.5, "expires_at": 7.25, "duration": 0.25}
    for kind in ("approval.request", "run.steered", "run.completed"):
        (out,) = run({"event": kind, **times})
        assert [out[name] for name in times] == [5, 6, 7, 0.25]
        assert not any(isinstance(out[name], float) for name in list(times)[:3])


def test_what_a_good_step_left_stays() -> None:
    for status in ("completed", None, ["failed"]):
        event = {"event": "subagent.complete", "status": status, "summary": "all is well"}
        assert run({**event, "error": None})[0]["summary"] == "all is well"
    (out,) = run({"event": "tool.completed", "tool": "t", "error": False, "result": "fine"})
    assert out["result"] == "fine"
    (out,) = run({"event": "run.failed", "error": "words", "output": "the agent's own text"})
    assert out["output"] == "the agent's own text"


def test_sentences_of_our_own_stay() -> None:
    found = translator()

    assert json.loads(found.finish("run.failed", error=LOST)[0])["error"] == LOST


def test_a_secret_split_over_deltas_does_not_leave() -> None:
    deltas = [{"event": "message.delta", "delta": letter} for letter in f"key: {KEY}."]
    tool = {"event": "tool.started", "tool": "t", "preview": f"curl -H {KEY}"}
    middle = len(deltas) // 2

    events = run(
        *deltas[:middle], tool, *deltas[middle:], {"event": "run.completed", "output": KEY}
    )

    text = "".join(event.get("delta", "") for event in events)
    assert text == "key: sk-[redacted]."
    assert KEY[3:] not in json.dumps(events)


def test_an_ending_with_half_a_secret_is_shown_before_the_end() -> None:
    events = run({"event": "message.delta", "delta": "sk-hermes"}, {"event": "run.completed"})

    assert [event["event"] for event in events][-1] == "run.completed"
    assert "".join(event.get("delta", "") for event in events) == "sk-hermes"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=10) | st.just(KEY),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.just(KEY), inner, max_size=3)
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    [
        "message.delta",
        "tool.started",
        "tool.completed",
        "approval.request",
        "approval.responded",
        "run.completed",
        "run.failed",
        "reasoning.available",
        "x",
    ]
)
fields = st.sampled_from(
    [
        "delta",
        "tool",
        "preview",
        "timestamp",
        "duration",
        "error",
        "usage",
        "choices",
        "command",
        "request_id",
        "output",
        "text",
        "run_id",
        "session_id",
        "seq",
        KEY,
    ]
)
events = st.builds(
    lambda kind, rest: {**rest, "event": kind},
    kinds | json_values,
    st.dictionaries(fields, json_values, max_size=5),
)


@given(st.lists(events, max_size=6), st.booleans())
def test_any_event_is_translated_and_no_secret_leaves(
    upstream: list[dict[str, Any]], addressed: bool
) -> None:
    found = translator(addressed=addressed)
    for event in upstream:
        for out in found.translate(event):
            assert KEY.encode() not in out and b"\n" not in out
            contract = json.loads(out)
            assert contract["run_id"] == "run_1"
            assert contract["session_id"] == "mnote_doc_1_trace_1"
            assert isinstance(contract["event"], str)
