"""Which waiting request of Hermes an answer reaches, on both kinds of its interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.card_desk import CardDesk
from hermes_mobile.hermes_cards import (
    Approvals,
    Clarifications,
    Confirm,
    Confirmations,
    Ended,
    asked,
)
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

S = "agent:main:mobile:dm:d"


class Entry:
    """A waiting approval as Hermes keeps it."""

    def __init__(self, command: str, **data: Any) -> None:
        self.event = threading.Event()
        self.data = {"command": command, **data}
        self.result: str | None = None
        self.reason: str | None = None


def first_in_first_out() -> Any:
    """The interface without request ids."""
    module = SimpleNamespace(_gateway_queues={}, _lock=threading.Lock())

    def resolve(
        session: str, choice: str, resolve_all: bool = False, reason: str | None = None
    ) -> int:
        with module._lock:
            queue = module._gateway_queues.get(session)
            if not queue:
                return 0
            entry = queue.pop(0)
        entry.result = choice
        entry.event.set()
        return 1

    module.resolve_gateway_approval = resolve
    return module


def by_request_id() -> Any:
    """The newer interface."""
    module = SimpleNamespace(_gateway_queues={}, _lock=threading.RLock())

    def resolve(
        session: str,
        choice: str,
        resolve_all: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> int:
        with module._lock:
            queue = module._gateway_queues.get(session, [])
            found = [e for e in queue if request_id in (None, e.data["request_id"])][:1]
            for entry in found:
                queue.remove(entry)
                entry.result, entry.reason = choice, reason
                entry.event.set()
        return len(found)

    module.resolve_gateway_approval = resolve
    return module


@pytest.fixture(params=[first_in_first_out, by_request_id])
def hermes(request: pytest.FixtureRequest) -> Any:
    make: Callable[[], Any] = request.param
    return make()


def wait(hermes: Any, command: str, session: str = S, **data: Any) -> Entry:
    """Hermes puts a request into its queue."""
    entry = Entry(command, request_id=f"r-{command}-{time.monotonic_ns()}", **data)
    hermes._gateway_queues.setdefault(session, []).append(entry)
    return entry


def claim(approvals: Approvals, command: str, **flags: bool) -> Any:
    return approvals.claim(S, command, **{"allow_permanent": True, "smart_denied": False, **flags})


def test_an_answer_reaches_its_own_request(hermes: Any) -> None:
    """Two wait; the second is answered first."""
    approvals = Approvals(hermes)
    first, second = wait(hermes, "rm a"), wait(hermes, "rm b")
    card_a, card_b = claim(approvals, "rm a"), claim(approvals, "rm b")
    assert approvals.answer(card_b, "once")
    assert (first.result, second.result) == (None, "once")
    assert approvals.answer(card_a, "deny", "no reason")
    assert (first.result, first.reason) == ("deny", "no reason")
    assert S not in hermes._gateway_queues or not hermes._gateway_queues[S]


def test_an_answer_to_a_request_that_ended_reaches_nobody(hermes: Any) -> None:
    """A typed answer came first; the newer request is not touched."""
    approvals = Approvals(hermes)
    wait(hermes, "rm a")
    card = claim(approvals, "rm a")
    hermes.resolve_gateway_approval(S, "once")
    newer = wait(hermes, "rm a")
    assert not approvals.answer(card, "always")
    assert newer.result is None
    assert approvals.state(card) == Ended("answered", "once")


def test_a_request_without_a_card_is_left_alone(hermes: Any) -> None:
    """The first request got no card: the card of the second still answers the second."""
    approvals = Approvals(hermes)
    hidden, shown = wait(hermes, "rm hidden"), wait(hermes, "rm shown")
    card = claim(approvals, "rm shown")
    assert approvals.waits(S)
    assert approvals.answer(card, "once")
    assert (hidden.result, shown.result) == (None, "once")


def test_equal_commands_get_a_card_each(hermes: Any) -> None:
    """The oldest without a card first."""
    approvals = Approvals(hermes)
    entries = [wait(hermes, "same"), wait(hermes, "same")]
    cards = [claim(approvals, "same"), claim(approvals, "same")]
    assert [card.entry for card in cards] == entries
    assert claim(approvals, "same") is None


def test_flags_tell_equal_commands_apart(hermes: Any) -> None:
    """A card that may not offer `always` is not tied to the request that may."""
    approvals = Approvals(hermes)
    wait(hermes, "same")
    denied = wait(hermes, "same", smart_denied=True)
    assert claim(approvals, "same", smart_denied=True).entry is denied


def test_masked_credentials_are_recognised(hermes: Any) -> None:
    """Hermes shows the command without its secrets."""
    approvals = Approvals(hermes, lambda command: command.replace("s3cret", "***"))
    entry = wait(hermes, "curl -H s3cret")
    assert claim(approvals, "curl -H ***").entry is entry
    assert claim(approvals, "something else") is None


def test_how_a_request_ended(hermes: Any) -> None:
    """Waiting, answered, gone without an answer, withdrawn."""
    approvals = Approvals(hermes)
    entry = wait(hermes, "rm")
    card = claim(approvals, "rm")
    assert approvals.state(card).state == "waiting"
    hermes._gateway_queues[S].remove(entry)
    assert approvals.state(card) == Ended("ended")
    entry.result = "deny"
    assert approvals.state(card) == Ended("answered", "deny")
    entry.cancelled = "the session ended"  # type: ignore[attr-defined]
    assert approvals.state(card) == Ended("ended")


def test_racing_answers_settle_one_request_each(hermes: Any) -> None:
    """Card answers and typed ones from many threads: every request is answered once."""
    approvals = Approvals(hermes)
    entries = [wait(hermes, f"rm {n}") for n in range(40)]
    cards = [claim(approvals, f"rm {n}") for n in range(40)]
    taken: list[bool] = []
    start = threading.Barrier(3)

    def by_card() -> None:
        start.wait()
        taken.extend(approvals.answer(card, "deny") for card in reversed(cards))

    def by_typing() -> None:
        start.wait()
        for _ in range(40):
            hermes.resolve_gateway_approval(S, "once")

    threads = [threading.Thread(target=by_card), threading.Thread(target=by_typing)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join(10)
    assert all(entry.result in ("deny", "once") for entry in entries)
    assert sum(taken) == sum(entry.result == "deny" for entry in entries)


def test_a_hermes_that_keeps_its_queue_elsewhere_is_named() -> None:
    """The self-check says what is missing, and no card is tied to anything."""
    strange = SimpleNamespace(resolve_gateway_approval=lambda session, choice: 1)
    approvals = Approvals(strange)
    assert approvals.missing is not None and "_gateway_queues" in approvals.missing
    assert claim(approvals, "rm") is None
    assert not approvals.waits(S)


def test_limits_are_hermes_own(hermes: Any) -> None:
    """Wherever a version keeps the function; a sane one when it has none."""
    assert Approvals(hermes).seconds() == 60
    hermes._get_approval_timeout = lambda: 20
    assert Approvals(hermes).seconds() == 20
    del hermes._get_approval_timeout
    hermes.approval_context = SimpleNamespace(_get_approval_timeout=lambda: 300)
    assert Approvals(hermes).seconds() == 300


def question(*, several: bool = False) -> tuple[Any, Any]:
    """Hermes' clarify module with one question."""
    entry = SimpleNamespace(event=threading.Event(), response=None, multi_select=several)
    module = SimpleNamespace(
        _entries={"q": entry},
        SKIP_WORD="skip",
        SKIPPED="\x00skipped",
        get_clarify_timeout=lambda: 0,
    )

    def resolve(clarify_id: str, response: str) -> bool:
        module._entries[clarify_id].response = response
        module._entries[clarify_id].event.set()
        return True

    module.resolve_gateway_clarify = resolve
    return module, entry


@pytest.mark.parametrize(
    ("option", "text", "said", "applied"),
    [
        ("c1", None, "blue", "c1"),
        ("other", "green", "green", "other"),
        ("other", "red", "red", "c0"),
        ("other", "skip", "\x00skipped", None),
    ],
)
def test_a_question_is_answered(
    option: str, text: str | None, said: str, applied: str | None
) -> None:
    """A choice by its number, a text as it is, the word that skips."""
    module, entry = question()
    clarifications = Clarifications(module)
    card = clarifications.claim(S, "q", ("red", "blue"))
    assert clarifications.state(card).state == "waiting"
    assert clarifications.answer(card, option, text)
    assert entry.response == said
    assert clarifications.state(card).option_id == applied
    assert not clarifications.answer(card, "c0", None), "it does not wait any more"


def test_several_choices_are_a_list() -> None:
    """One button is a list of one; typed text goes through Hermes' own reading."""
    module, entry = question(several=True)
    module._coerce_multi_select_text = lambda entry, text: '["red", "blue"]'
    clarifications = Clarifications(module)
    card = clarifications.claim(S, "q", ("red", "blue"))
    assert card.several
    assert clarifications.answer(card, "c0", None)
    assert entry.response == '["red"]'
    entry.event.clear()
    assert clarifications.answer(card, "other", "1, 2")
    assert entry.response == '["red", "blue"]'


def test_a_question_that_ran_out_is_gone() -> None:
    """Hermes takes the entry away without an event; no limit is an endless one."""
    module, _ = question()
    clarifications = Clarifications(module)
    card = clarifications.claim(S, "q", ())
    assert clarifications.seconds() == float("inf")
    del module._entries["q"]
    assert clarifications.state(card) == Ended("ended")
    assert not clarifications.no_answer(card)


async def test_a_confirmation_is_its_own() -> None:
    """A newer confirmation of the session replaces the older; an old one is over."""
    pending: dict[str, Any] = {"confirm_id": "1", "created_at": time.time()}

    async def resolve(session: str, confirm_id: str, choice: str) -> str | None:
        return f"did {choice}" if confirm_id == pending["confirm_id"] else None

    module = SimpleNamespace(get_pending=lambda session: dict(pending), resolve=resolve)
    confirmations = Confirmations(module)
    assert confirmations.missing is None
    assert confirmations.state(Confirm(S, "1")).state == "waiting"
    assert await confirmations.answer(Confirm(S, "1"), "once") == "did once"
    pending["confirm_id"] = "2"
    assert confirmations.state(Confirm(S, "1")).state == "ended"
    pending["created_at"] -= 301
    assert confirmations.state(Confirm(S, "2")).state == "ended"


def test_a_name_without_its_text_is_left_out() -> None:
    """A Hermes without its language files puts a key behind the question."""
    assert asked("Which one?\ngateway.clarify.skip_hint") == "Which one?"
    assert asked("Which one?\n(type skip)") == "Which one?\n(type skip)"


@pytest.mark.parametrize("seen_by_hermes", [True, False])
async def test_a_stopped_turn_asks_nothing_more(hermes: Any, seen_by_hermes: bool) -> None:
    """Its approval is denied and its card closed at once; another session's stays."""
    module = SimpleNamespace(_entries={}, resolve_gateway_clarify=lambda id, said: True)
    confirm = SimpleNamespace(get_pending=lambda session: None, resolve=None)
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": "t" * 32, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    desk = CardDesk(
        door, Approvals(hermes), Clarifications(module), Confirmations(confirm), lambda chat: None
    )
    other = "agent:main:mobile:dm:other"
    try:
        entries = {}
        for session, chat in ((S, "d"), (other, "other")):
            entries[session] = wait(hermes, "rm a", session=session)
            flags = {"allow_permanent": True, "allow_session": True, "smart_denied": False}
            assert desk.approval(chat, session, "rm a", "", **flags) is not None
        if seen_by_hermes:
            entry = hermes._gateway_queues[S].pop()
            entry.result = "deny"
            entry.event.set()
        desk.stopped(S)
        assert entries[S].result == "deny" and entries[S].event.is_set()
        assert entries[other].result is None
        assert [opened.chat for opened in door.hub.cards.prompts.open.values()] == ["other"]
    finally:
        desk.close()
        await door.stop()


async def test_in_which_session_a_device_is_asked(hermes: Any) -> None:
    """By an approval or a question that waits; a command's confirmation takes no plain words."""
    module, entry = question()
    pending = {"confirm_id": "1", "created_at": time.time()}
    confirm = SimpleNamespace(get_pending=lambda session: pending, resolve=None)
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": "t" * 32, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    desk = CardDesk(
        door, Approvals(hermes), Clarifications(module), Confirmations(confirm), lambda chat: None
    )
    in_thread = S + ":thread"
    try:
        desk.confirmation("d", S, "Sure?", "", "1")
        assert desk.asking("d") is None
        assert desk.confirming("d") and not desk.confirming("other")
        pending["confirm_id"] = "2"  # a newer one has taken its place
        assert not desk.confirming("d")
        desk.question("d", in_thread, "Which?", ["red"], "q")
        assert desk.asking("d") == in_thread
        assert desk.asking("other") is None
        entry.event.set()  # answered elsewhere, and not looked at yet
        assert desk.asking("d") is None
        waiting = wait(hermes, "rm a")
        flags = {"allow_permanent": True, "allow_session": True, "smart_denied": False}
        desk.approval("d", S, "rm a", "", **flags)
        assert desk.asking("d") == S
        hermes._gateway_queues[S].remove(waiting)
        assert desk.asking("d") is None
    finally:
        desk.close()
        await door.stop()


@pytest.mark.parametrize(
    ("typed", "applied"),
    [
        ("/approve", "once"),
        ("/ok then", "once"),
        ("/Remember", "always"),
        ("/deny", "cancel"),
        ("once", "once"),
        (" Always approve ", "always"),
        ("No", "cancel"),
        ("!cancel", "cancel"),
        ("no, thank you", None),
        ("/help", None),
        (None, None),
    ],
)
async def test_what_was_typed_to_a_confirmation_is_told(
    hermes: Any, typed: str | None, applied: str | None
) -> None:
    """Hermes forgets it. What was typed before the question is no answer to it."""
    pending: dict[str, Any] = {"confirm_id": "1", "created_at": time.time()}
    confirm = SimpleNamespace(get_pending=lambda session: pending, resolve=None)
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": "t" * 32, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    desk = CardDesk(
        door,
        Approvals(hermes),
        Clarifications(question()[0]),
        Confirmations(confirm),
        lambda chat: None,
    )
    try:
        desk.typed("d", "/cancel")
        card_id = desk.confirmation("d", S, "Sure?", "", "1")
        if typed is not None:
            desk.typed("d", typed)
        pending["confirm_id"] = ""
        desk.look()
        outcome = door.hub.cards.prompts.outcome(card_id)
        assert outcome is not None
        assert (outcome.option_id, outcome.expired) == (applied or "cancel", applied is None)
    finally:
        desk.close()
        await door.stop()
