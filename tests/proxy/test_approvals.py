"""An answer reaches the request on the screen, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_client_proxy.approvals import Approvals
from hermes_client_proxy.contract import ProxyError


def asked(approvals: Approvals, command: str, at: float = 10.0, **more: Any) -> str:
    approvals.tool_started({"tool": "terminal", "preview": command, "timestamp": at})
    event = {"command": command, "timestamp": at + 0.1, "choices": ["once", "deny"], **more}
    return str(approvals.requested(event)["approvalId"])


def code_of(approvals: Approvals, approval_id: str, choice: str = "once") -> str:
    with pytest.raises(ProxyError) as refused:
        approvals.begin_answer(approval_id, choice)
    return refused.value.code


def test_the_upstreams_id_is_used_where_it_has_one() -> None:
    approvals = Approvals("run_1", addressed=True)
    approval_id = asked(approvals, "ls", request_id="req-1")

    assert approval_id == "req-1"
    assert approvals.begin_answer("req-1", "once").upstream_id == "req-1"


def test_where_answers_are_first_in_first_out_only_the_oldest_may_be_answered() -> None:
    approvals = Approvals("run_1", addressed=False)
    first, second = asked(approvals, "one"), asked(approvals, "two", 11.0)

    assert code_of(approvals, second) == "hermes_client_conflict"
    request = approvals.begin_answer(first, "once")
    assert code_of(approvals, first) == "hermes_client_conflict"
    assert code_of(approvals, second) == "hermes_client_conflict"
    approvals.answered(request)
    assert code_of(approvals, first) == "hermes_client_conflict"
    approvals.begin_answer(second, "deny")


def test_where_answers_are_addressed_any_may_be_answered() -> None:
    approvals = Approvals("run_1", addressed=True)
    asked(approvals, "one", request_id="r1")
    asked(approvals, "two", request_id="r2")

    approvals.answered(approvals.begin_answer("r2", "once"))
    approvals.answered(approvals.begin_answer("r1", "once"))
    assert not approvals.open


@pytest.mark.parametrize("event_first", [True, False])
def test_the_event_of_an_answer_closes_that_request_alone(event_first: bool) -> None:
    approvals = Approvals("run_1", addressed=False)
    first, second = asked(approvals, "one"), asked(approvals, "two", 11.0)
    request = approvals.begin_answer(first, "once")
    event: dict[str, Any] = {"choice": "once", "resolved": 1}
    if event_first:
        approvals.responded(event)
        approvals.answered(request)
    else:
        approvals.answered(request)
        approvals.responded(event)

    assert event["approvalId"] == first
    assert list(approvals.open) == [second]


def test_a_request_whose_tool_has_ended_is_closed() -> None:
    approvals = Approvals("run_1", addressed=False)
    first, second = asked(approvals, "one", 10.0), asked(approvals, "two", 14.0)

    gone = approvals.tool_completed({"tool": "terminal", "timestamp": 30.0, "duration": 20.0})

    assert gone == [first]
    assert code_of(approvals, first) == "hermes_client_conflict"
    approvals.begin_answer(second, "once")


def test_the_end_of_another_tool_closes_nothing() -> None:
    approvals = Approvals("run_1", addressed=False)
    approvals.tool_started({"tool": "web", "timestamp": 9.0})
    first = asked(approvals, "one")

    assert approvals.tool_completed({"tool": "web", "timestamp": 12.0, "duration": 3.0}) == []
    approvals.begin_answer(first, "once")


def test_an_answer_that_did_not_arrive_may_be_tried_again() -> None:
    approvals = Approvals("run_1", addressed=False)
    first = asked(approvals, "one")
    approvals.not_answered(approvals.begin_answer(first, "once"))

    approvals.begin_answer(first, "once")


def test_a_choice_that_was_not_offered_is_refused() -> None:
    approvals = Approvals("run_1", addressed=False)

    assert code_of(approvals, asked(approvals, "one"), "always") == "hermes_client_bad_request"


def test_a_request_whose_details_are_lost_can_only_be_denied() -> None:
    approvals = Approvals("run_1", addressed=False)
    event = approvals.lost()

    assert event is not None and approvals.lost() is None
    assert code_of(approvals, event["approvalId"]) == "hermes_client_bad_request"
    approvals.begin_answer(event["approvalId"], "deny")


def test_ids_made_here_are_the_same_when_the_run_is_read_again() -> None:
    again = [asked(Approvals("run_1", addressed=True), "ls") for _ in range(2)]

    assert again[0] == again[1]
    assert asked(Approvals("run_2", addressed=True), "ls") != again[0]


def test_after_the_end_nothing_is_open() -> None:
    approvals = Approvals("run_1", addressed=False)
    first = asked(approvals, "one")
    approvals.close()

    assert code_of(approvals, first) == "hermes_client_conflict"
