"""Cards: what an answer means, how long they live, how they ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile.prompts import (
    REMEMBERED_OUTCOMES,
    Card,
    Prompts,
    State,
    approval_card,
    clarify_card,
    confirm_card,
    judge,
)


def ids(card: Card) -> list[str]:
    return [option.id for option in card.options]


@pytest.mark.parametrize(
    ("permanent", "session", "smart", "expected"),
    [
        (True, True, False, ["once", "session", "always", "deny"]),
        (False, True, False, ["once", "session", "deny"]),
        (True, False, False, ["once", "always", "deny"]),
        (False, False, False, ["once", "deny"]),
        (True, True, True, ["once", "deny"]),
        (False, False, True, ["once", "deny"]),
    ],
)
def test_what_an_approval_offers(
    permanent: bool, session: bool, smart: bool, expected: list[str]
) -> None:
    card = approval_card(
        "rm -rf /tmp/x  # exactly",
        "Deletes",
        "s",
        9,
        allow_permanent=permanent,
        allow_session=session,
        smart_denied=smart,
    )
    assert ids(card) == expected
    assert card.command == "rm -rf /tmp/x  # exactly"
    assert {o.style for o in card.options} <= {"primary", "danger", ""}
    frame = Prompts(300).add("tel", card, 0).frame(0)
    assert (frame.kind, frame.command, frame.description) == (
        "exec_approval",
        card.command,
        "Deletes",
    )


def test_what_a_confirmation_and_a_question_offer() -> None:
    assert ids(confirm_card("Reset", "All is lost", "s", 9)) == ["once", "always", "cancel"]
    assert confirm_card("Reset", "All is lost", "s", 9).text == "Reset\n\nAll is lost"
    assert ids(clarify_card("Which?", ["a", "b"], "s", 9)) == ["c0", "c1", "other"]
    assert ids(clarify_card("What?", None, "s", 9)) == ["other"]
    assert ids(clarify_card("What?", [], "s", 9)) == ["other"]


APPROVAL = approval_card("ls", "", "s", 9)
BOUNDED = approval_card("ls", "", "s", 9, allow_permanent=False)
CONFIRM = confirm_card("t", "m", "s", 9)
CLARIFY = clarify_card("q", ["x", "y"], "s", 9)
OPEN = clarify_card("q", None, "s", 9)


@pytest.mark.parametrize(
    ("card", "option", "text", "applied"),
    [
        (APPROVAL, "once", "", ("once", None)),
        (APPROVAL, "session", "", ("session", None)),
        (APPROVAL, "always", "", ("always", None)),
        (APPROVAL, "deny", "", ("deny", None)),
        (APPROVAL, "ALWAYS", "", ("deny", None)),
        (APPROVAL, " once", "", ("deny", None)),
        (APPROVAL, "cancel", "", ("deny", None)),
        (APPROVAL, "", "yes please", ("deny", None)),
        (APPROVAL, "once", "and quickly", ("once", None)),
        (BOUNDED, "always", "", ("deny", None)),
        (CONFIRM, "once", "", ("once", None)),
        (CONFIRM, "always", "", ("always", None)),
        (CONFIRM, "cancel", "", ("cancel", None)),
        (CONFIRM, "session", "", ("cancel", None)),
        (CONFIRM, "", "ok", ("cancel", None)),
        (CLARIFY, "c0", "", ("c0", None)),
        (CLARIFY, "c1", "", ("c1", None)),
        (CLARIFY, "c2", "", ("other", None)),
        (CLARIFY, "c-1", "", ("other", None)),
        (CLARIFY, "c01", "", ("other", None)),
        (CLARIFY, "c1", "mine", ("other", "mine")),
        (CLARIFY, "other", "mine", ("other", "mine")),
        (CLARIFY, "other", "", ("other", None)),
        (CLARIFY, "nonsense", "", ("other", None)),
        (CLARIFY, "", "mine", ("other", "mine")),
        (OPEN, "c0", "", ("other", None)),
        (OPEN, "other", "words", ("other", "words")),
    ],
)
def test_what_an_answer_means(
    card: Card, option: str, text: str, applied: tuple[str, str | None]
) -> None:
    assert judge(card, option, text) == applied


@given(st.sampled_from([APPROVAL, BOUNDED, CONFIRM, CLARIFY, OPEN]), st.text(), st.text())
def test_no_answer_means_more_than_was_offered(card: Card, option: str, text: str) -> None:
    applied, typed = judge(card, option, text)
    assert applied in ids(card)
    if applied != option:
        assert applied in {"deny", "cancel", "other"}
    assert typed is None or card.kind == "clarify"


def test_running_out_means() -> None:
    assert APPROVAL.unanswered == "deny"
    assert CONFIRM.unanswered == "cancel"
    assert CLARIFY.unanswered is None


@pytest.mark.parametrize(
    ("ttl", "own", "lives"), [(300, 60, 60), (30, 60, 30), (300, float("inf"), 300), (300, -5, 0)]
)
def test_a_card_lives_for_the_smaller_limit(ttl: float, own: float, lives: float) -> None:
    prompts = Prompts(ttl)
    opened = prompts.add("tel", clarify_card("q", None, "s", own), now=1000.0)
    assert opened.deadline == 1000.0 + lives
    assert opened.frame(1000.0).timeout_seconds == lives
    assert prompts.next_deadline() == 1000.0 + lives


def test_the_remaining_time_is_true() -> None:
    opened = Prompts(300).add("tel", CLARIFY, now=0.0)
    assert opened.frame(0.0).timeout_seconds == 9
    assert opened.frame(0.5).timeout_seconds == 9
    assert opened.frame(8.5).timeout_seconds == 1
    assert opened.frame(20).timeout_seconds == 0


def test_time_runs_out_except_while_the_agent_is_told() -> None:
    prompts = Prompts(300)
    early = prompts.add("tel", clarify_card("q", None, "s", 5), now=0.0)
    late = prompts.add("tel", clarify_card("q", None, "s", 8), now=0.0)
    assert prompts.expired(4.9) == []
    assert prompts.expired(5.0) == [early]
    early.state = State.ANSWERING
    assert prompts.expired(8.0) == [late]
    assert prompts.next_deadline() == 8.0
    late.state = State.ANSWERING
    assert prompts.next_deadline() is None


def test_how_a_card_ended_is_remembered_within_bounds() -> None:
    prompts = Prompts(300)
    first = prompts.add("tel", APPROVAL, 0)
    prompts.settle(first.id, "deny")
    assert first.id not in prompts.open and prompts.of("tel") == []
    outcome = prompts.outcome(first.id)
    assert outcome is not None and outcome.frame(first.id).option_id == "deny"
    for _ in range(REMEMBERED_OUTCOMES):
        prompts.settle(prompts.add("tel", APPROVAL, 0).id, None, expired=True)
    assert prompts.outcome(first.id) is None
    assert prompts.outcome("unknown") is None


def test_ids_are_never_the_same_and_cards_keep_their_order() -> None:
    prompts = Prompts(300)
    cards = [prompts.add("tel", APPROVAL, 0) for _ in range(50)]
    prompts.add("other", APPROVAL, 0)
    assert len({card.id for card in cards}) == 50
    assert prompts.of("tel") == cards
