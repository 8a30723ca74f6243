"""Cards in the core: shown, answered, typed, settled elsewhere, run out, shown again."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_mobile import outbox
from hermes_mobile.effects import Expired
from hermes_mobile.outbox import OutboxFull
from hermes_mobile.prompts import approval_card, clarify_card, confirm_card

from .hub_house import House


def ask(house: House, kind: str = "clarify", chat: str = "tel", timeout: float = 60.0) -> str:
    card = {
        "clarify": clarify_card("q", ["x", "y"], chat, timeout),
        "open": clarify_card("q", None, chat, timeout),
        "approval": approval_card("ls", "", chat, timeout),
        "confirm": confirm_card("t", "m", chat, timeout),
    }[kind]
    id = house.hub.cards.ask(chat, card, house.now)
    house.settle()
    return id


def answered(house: House, taken: bool = True, then: str | None = None) -> tuple[str, str | None]:
    (tell,) = house.tells()
    house.hub.cards.answered(tell.card_id, taken, then, house.now)
    house.settle()
    return tell.option_id, tell.text


def done(frames: list[dict[str, Any]]) -> list[tuple[str, str | None, bool]]:
    return [
        (f["id"], f.get("option_id"), f.get("expired", False))
        for f in frames
        if f["t"] == "prompt_done"
    ]


def test_a_card_closes_when_the_agent_has_the_answer() -> None:
    house = House()
    conn = house.join()
    id = ask(house, "confirm")
    assert house.kinds(conn) == ["prompt"]
    house.send(conn, t="prompt", prompt_id=id, option_id="once")
    house.send(conn, t="prompt", prompt_id=id, option_id="cancel")  # the first one counts
    assert house.frames(conn) == []
    assert answered(house, then="It is done.") == ("once", None)
    frames = house.frames(conn)
    assert [f["t"] for f in frames][:2] == ["prompt_done", "message"]
    assert done(frames) == [(id, "once", False)]
    house.send(conn, t="prompt", prompt_id=id, option_id="cancel")
    assert done(house.frames(conn)) == [(id, "once", False)]


def test_an_agent_that_no_longer_waits() -> None:
    house = House()
    conn = house.join()
    id = ask(house)
    house.frames(conn)
    house.send(conn, t="prompt", prompt_id=id, option_id="c1")
    answered(house, taken=False)
    assert done(house.frames(conn)) == [(id, None, True)]


def test_a_text_is_the_answer_beside_any_option() -> None:
    house = House()
    conn = house.join()
    id = ask(house)
    house.frames(conn)
    house.send(conn, t="prompt", prompt_id=id, option_id="c1", text="mine")
    assert answered(house) == ("other", "mine")
    assert done(house.frames(conn)) == [(id, "other", False)]


def test_other_asks_for_the_next_text() -> None:
    house = House()
    conn = house.join(supports=["accepted"])
    id = ask(house, "open")
    house.send(conn, t="prompt", prompt_id=id, option_id="nonsense")
    assert answered(house) == ("other", None)
    assert done(house.frames(conn)) == [(id, "other", False)]
    house.send(conn, t="text", id="a", text="typed")
    assert house.submits() == []
    assert answered(house, then="I see.") == ("other", "typed")
    frames = house.frames(conn)
    assert [f["t"] for f in frames][:2] == ["accepted", "message"]
    assert done(frames) == [], "its end was told already"
    house.send(conn, t="text", id="b", text="again")
    assert [s.incoming.text for s in house.submits()] == ["again"]


def test_a_text_typed_while_the_agent_hears_of_other() -> None:
    house = House()
    conn = house.join()
    id = ask(house)
    house.send(conn, t="prompt", prompt_id=id, option_id="other")
    house.send(conn, t="text", id="a", text="typed")
    assert house.submits() == []
    assert answered(house) == ("other", None)
    assert answered(house) == ("other", "typed")
    assert done(house.frames(conn)) == [(id, "other", False)]
    assert house.hub.devices["tel"].under_way == 0


def test_an_answer_that_nobody_waits_for_is_an_ordinary_text() -> None:
    house = House()
    conn = house.join()
    id = ask(house)
    house.frames(conn)
    house.send(conn, t="prompt", prompt_id=id, option_id="other")
    answered(house)
    house.send(conn, t="text", id="a", text="typed")
    answered(house, taken=False)
    assert [s.incoming.text for s in house.submits()] == ["typed"]
    assert done(house.frames(conn)) == [(id, "other", False), (id, None, True)]


def test_when_the_agent_cannot_be_told_the_card_stays_as_it_was() -> None:
    house = House()
    conn = house.join()
    id = ask(house)
    house.frames(conn)
    house.send(conn, t="prompt", prompt_id=id, option_id="other")
    house.send(conn, t="text", id="a", text="typed")
    (tell,) = house.tells()
    house.hub.cards.answer_failed(tell.card_id, house.now)
    errors = house.frames(conn)
    assert {(f["code"], f["id"]) for f in errors} == {
        ("internal_error", "a"),
        ("internal_error", id),
    }
    house.send(conn, t="text", id="b", text="no answer: the card shows its buttons")
    assert len(house.submits()) == 1
    house.send(conn, t="prompt", prompt_id=id, option_id="other")
    answered(house)
    house.send(conn, t="prompt", prompt_id=id, text="mine")
    (tell,) = house.tells()
    house.hub.cards.answer_failed(tell.card_id, house.now)
    house.send(conn, t="text", id="c", text="still the answer")
    assert house.submits() == [] and answered(house) == ("other", "still the answer")


def test_another_device_may_not_answer() -> None:
    house = House()
    tel, pc = house.join("tel"), house.join("pc")
    id = ask(house)
    assert house.kinds(pc) == [] and house.kinds(tel) == ["prompt"]
    for _ in range(2):
        house.send(pc, t="prompt", prompt_id=id, option_id="c0")
        (error,) = house.frames(pc)
        assert (error["code"], error["fatal"], error["id"]) == ("forbidden", False, id)
        assert house.tells() == []
        house.hub.cards.close(id, now=house.now)  # and not afterwards either
    assert done(house.frames(tel)) == [(id, None, False)]


def test_an_unknown_card_is_expired() -> None:
    house = House()
    conn = house.join()
    house.send(conn, t="prompt", prompt_id="p-nothing", option_id="once")
    assert done(house.frames(conn)) == [("p-nothing", None, True)]


@pytest.mark.parametrize(
    ("kind", "option"), [("approval", "deny"), ("confirm", "cancel"), ("clarify", None)]
)
def test_running_out_is_told_to_both(kind: str, option: str | None) -> None:
    house = House()
    conn = house.join()
    id = ask(house, kind, timeout=5.0)
    assert house.frames(conn)[0]["timeout_seconds"] == 5
    house.wait(5.0)
    assert done(house.frames(conn)) == [(id, option, True)]
    assert len([e for e in house.effects if isinstance(e, Expired)]) == 1
    house.send(conn, t="prompt", prompt_id=id, option_id="once")
    assert done(house.frames(conn)) == [(id, option, True)]
    assert house.tells() == []


def test_open_cards_are_shown_again_once_each() -> None:
    house = House()
    conn = house.join()
    first = ask(house, timeout=100.0)
    second = ask(house, "approval", timeout=100.0)
    house.frames(conn)
    for _ in range(3):  # lines that break before anything is read
        house.close(conn)
        conn = house.open()
        house.send(conn, t="hello", token="main", device={"id": "tel"})
    house.wait(30.0)
    cards = [f for f in house.frames(conn) if f["t"] == "prompt"]
    assert [(c["id"], c["timeout_seconds"]) for c in cards] == [(first, 70), (second, 70)]
    house.send(conn, t="prompt", prompt_id=first, option_id="c0")
    assert answered(house) == ("c0", None)


def test_a_card_nobody_saw_is_never_shown_late_and_takes_no_room() -> None:
    house = House()
    for _ in range(3 * outbox.MAX_OUTBOX_FRAMES):
        ask(house, "approval", timeout=1.0)
        house.wait(1.0)
    assert not house.hub.devices and not house.hub.cards._unseen
    assert house.kinds(house.join()) == []


def test_cards_of_an_absent_device_show_the_time_that_is_left() -> None:
    house = House()
    house.close(house.join())
    id = ask(house, timeout=60.0)
    house.wait(45.0)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    (card,) = [f for f in house.frames(conn) if f["t"] == "prompt"]
    assert (card["id"], card["timeout_seconds"]) == (id, 15)


def test_what_was_settled_while_away_is_told() -> None:
    house = House()
    conn = house.join()
    id = ask(house, "approval")
    house.frames(conn)
    house.close(conn)
    house.hub.cards.close(id, "once", now=house.now)
    house.hub.cards.close(id, "deny", now=house.now)
    house.hub.cards.close("unknown", now=house.now)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    frames = house.frames(conn)
    assert done(frames) == [(id, "once", False)]
    assert "prompt" not in [f["t"] for f in frames]


def test_two_cards_at_once_each_get_their_own_answer() -> None:
    house = House()
    conn = house.join()
    first, second = ask(house, "approval"), ask(house, "approval")
    house.send(conn, t="prompt", prompt_id=second, option_id="deny")
    house.send(conn, t="prompt", prompt_id=first, option_id="once")
    assert [(t.card_id, t.option_id) for t in house.tells()] == [
        (second, "deny"),
        (first, "once"),
    ]


def test_a_text_after_the_answer_does_not_break_a_full_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_OUTBOX_FRAMES", 20)
    house = House()
    conn = house.join()
    id = ask(house, "confirm")
    house.frames(conn)
    house.send(conn, t="prompt", prompt_id=id, option_id="once")
    with pytest.raises(OutboxFull):
        for _ in range(50):
            house.hub.say("tel", "text", now=house.now)
    answered(house, then="too much")
    assert id not in house.hub.cards.prompts.open
