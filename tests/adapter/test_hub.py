"""Handshake, turns, waiting answers and timers of the core."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest

from hermes_mobile import hub as hub_module
from hermes_mobile import outbox
from hermes_mobile.effects import Wake
from hermes_mobile.outbox import OutboxFull, OutgoingMedia
from hermes_mobile.prompts import approval_card, clarify_card
from hermes_mobile.protocol import HELLO_TIMEOUT, Hello
from hermes_mobile.settings import Settings

from .hub_house import SETTINGS, House

# --------------------------------------------------------------------------------------------------
# Handshake


def test_ready_says_everything() -> None:
    house = House(Settings(token="main", public_url="https://agent.example.com"))
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel-1", "name": "Телефон"})
    (ready,) = house.frames(conn)
    assert ready == {
        "t": "ready",
        "v": 1,
        "session": "mobile:tel-1",
        "device": {"id": "tel-1", "name": "Телефон"},
        "avatar_url": "https://agent.example.com/avatar/",
        "capabilities": {
            "text": True,
            "voice": True,
            "typing": True,
            "avatar_states": ["idle", "thinking", "speaking"],
            "media_in": ["image", "video", "document", "audio"],
            "media_out": ["image", "voice", "video", "document", "animation"],
            "prompts": ["exec_approval", "slash_confirm", "clarify"],
            "edit": True,
            "max_media_bytes": 8388608,
            "max_text_chars": 12000,
        },
    }


@pytest.mark.parametrize(
    ("supports", "answered"),
    [
        ([], []),
        (["accepted"], ["accepted"]),
        (["partial_edits", "time_travel", "accepted"], ["accepted", "partial_edits"]),
    ],
)
def test_additions_are_answered(supports: list[str], answered: list[str]) -> None:
    house = House()
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"}, supports=supports)
    assert house.frames(conn)[0]["capabilities"]["extensions"] == answered


def test_a_device_without_an_id_gets_one() -> None:
    house = House()
    first, second = house.join(None), house.join(None)
    ids = [house.hub.connections[c].device.id for c in (first, second)]  # type: ignore[union-attr]
    assert all(id.startswith("dev-") for id in ids) and ids[0] != ids[1]
    bound = house.join(None, token="bound")
    device = house.hub.connections[bound].device
    assert device is not None and device.id == "tab"


FATAL = [
    (b'{"t":"text","id":"a","text":"hi"}', "bad_frame"),
    (b'{"t":"news"}', "bad_frame"),
    (b"nonsense", "bad_frame"),
    (b"{}", "bad_frame"),
    (b'{"t":"hello","token":5}', "bad_frame"),
    (b'{"t":"hello","token":"main","device":[]}', "bad_frame"),
    (b'{"t":"hello","token":"main","device":{"id":5}}', "bad_frame"),
    (b'{"t":"hello","token":"main","user":"me"}', "bad_frame"),
    (b'{"t":"hello","token":"main","supports":"accepted"}', "bad_frame"),
    (b'{"t":"hello","token":"main","device":{"id":"a:b"}}', "bad_frame"),
    (b'{"t":"hello"}', "auth_failed"),
    (b'{"t":"hello","token":null}', "auth_failed"),
    (b'{"t":"hello","token":""}', "auth_failed"),
    (b'{"t":"hello","token":"wrong","device":{"id":"a:b"}}', "auth_failed"),
    (b'{"t":"hello","token":"bound","device":{"id":"tel"}}', "forbidden"),
    (b'{"t":"hello","token":"main","device":{"id":"tab"}}', "forbidden"),
]


@pytest.mark.parametrize(("raw", "code"), FATAL)
def test_before_ready_every_error_is_the_end(raw: bytes, code: str) -> None:
    house = House()
    conn = house.open()
    house.raw(conn, raw)
    assert house.closes() == [(conn, 1008, code)]
    last = house.last_frame(conn)
    assert (last["t"], last["code"], last["fatal"]) == ("error", code, True)
    house.send(conn, t="hello", token="main")  # nothing more is read
    assert house.frames(conn) == []
    house.close(conn)
    assert not house.hub.connections and not house.hub.devices


def test_no_hello_in_time() -> None:
    house = House()
    conn = house.open()
    house.wait(HELLO_TIMEOUT - 0.01)
    assert house.closes() == []
    house.wait(0.01)
    assert house.closes() == [(conn, 1008, "bad_frame")]
    assert house.last_frame(conn)["fatal"]


@pytest.mark.parametrize("start", [0.0, 0.1, 1.1, 12345.678, 1e9 + 0.3])
def test_the_hello_timer_never_rings_in_vain(start: float) -> None:
    house = House()
    house.now = start
    conn = house.open()
    due = house.hub.due
    assert due is not None
    house.hub.tick(due)
    house.settle()
    assert house.closes() == [(conn, 1008, "bad_frame")]
    assert house.hub.due is None


def test_a_second_hello_costs_nothing() -> None:
    house = House()
    conn = house.join()
    house.send(conn, t="hello", token="main", device={"id": "pc"})
    (error,) = house.frames(conn)
    assert (error["code"], error["fatal"]) == ("bad_frame", False)
    assert house.hub.online("tel")


def test_a_late_hello_of_an_older_connection_takes_nothing_over() -> None:
    house = House()
    old = house.open()
    new = house.join()
    house.send(old, t="hello", token="main", device={"id": "tel"})
    assert house.closes() == [(old, 4001, "replaced")]
    house.close(old)
    assert house.hub.online("tel")
    house.hub.say("tel", "hi", now=house.now)
    assert house.kinds(new) == ["message", "avatar"]


def test_the_same_token_takes_the_device_over() -> None:
    house = House()
    old = house.join()
    new = house.join()
    assert house.closes() == [(old, 4001, "replaced")]
    house.close(old)
    assert house.hub.online("tel")
    house.hub.say("tel", "hi", now=house.now)
    assert house.kinds(old) == [] and house.kinds(new)[0] == "message"


def test_another_token_leaves_the_living_connection() -> None:
    house = House()
    old = house.join()
    other = house.open()
    house.send(other, t="hello", token="second", device={"id": "tel"})
    assert house.closes() == [(other, 1008, "forbidden")]
    assert house.hub.online("tel")
    house.close(old)
    third = house.open()  # for the life of the process
    house.send(third, t="hello", token="second", device={"id": "tel"})
    assert house.closes()[-1] == (third, 1008, "forbidden")


def test_guessers_wait_and_leave_nothing_behind() -> None:
    house = House()
    for _ in range(20):
        house.raw(house.open(), b'{"t":"hello","token":"no"}')
    assert len(house.closes()) == 20
    late = house.open()
    house.raw(late, b'{"t":"hello","token":"no","supports":["' + b'x","' * 5000 + b'"]}')
    assert len(house.closes()) == 20
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, Hello) and o.token == "no"]
    house.wait(5.0)
    assert house.closes()[20:] == [(late, 1008, "auth_failed")]
    # From another address nobody waits, and one who knows the token never does.
    house.raw(house.open("10.0.0.2"), b'{"t":"hello","token":"no"}')
    assert len(house.closes()) == 22
    assert house.hub.connections[house.join()].device is not None


def test_the_answer_to_a_guesser_comes_before_the_hello_timeout() -> None:
    house = House()
    for _ in range(40):
        house.raw(house.open(), b'{"t":"hello","token":"no"}')
    conn = house.open()
    house.wait(HELLO_TIMEOUT - 1.0)
    house.raw(conn, b'{"t":"hello","token":"no"}')
    house.wait(1.0)
    assert house.closes()[-1] == (conn, 1008, "auth_failed")


def test_strangers_are_bounded_the_oldest_goes() -> None:
    house = House()
    conns = [house.open(f"10.0.{n // 250}.{n % 250}") for n in range(300)]
    assert house.closes() == [(c, 1013, "too many connections without hello") for c in conns[:44]]
    house.send(conns[-1], t="hello", token="main", device={"id": "tel"})
    assert house.kinds(conns[-1])[0] == "ready"


def test_hello_logs_fingerprints_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    house = House(Settings(token="geheimes-wort"))
    house.join(token="geheimes-wort")
    house.raw(house.open(), b'{"t":"hello","token":"geraten"}')
    assert "hello: device=tel" in caplog.text
    assert "geheim" not in caplog.text and "geraten" not in caplog.text


# --------------------------------------------------------------------------------------------------
# A turn


def test_a_turn_in_the_order_of_the_reference() -> None:
    house = House()
    conn = house.join()
    hub = house.hub
    hub.turn_started("tel", house.now)
    assert [(f["t"], f.get("state")) for f in house.frames(conn)] == [
        ("avatar", "thinking"),
        ("typing", None),
    ]
    id = hub.say("tel", "one", final=False, now=house.now)
    assert [(f["t"], f.get("state")) for f in house.frames(conn)] == [
        ("message", None),
        ("avatar", "speaking"),
    ]
    hub.say("tel", "one two", edit_of=id, final=False, now=house.now)
    (edit,) = house.frames(conn)
    assert edit["edit"] and not edit["final"]
    house.wait(10)  # a pause within the turn is no end
    assert house.frames(conn) == []
    hub.turn_ended("tel", house.now)
    final, typing, avatar = house.frames(conn)
    assert (final["id"], final["text"], final["final"], final["edit"]) == (
        id,
        "one two",
        True,
        True,
    )
    assert typing == {"t": "typing", "stop": True}
    assert avatar == {"t": "avatar", "state": "idle"}
    house.wait(10)
    assert house.frames(conn) == []


def test_words_outside_of_a_turn_end_in_a_pause() -> None:
    house = House()
    conn = house.join()
    house.hub.say("tel", "by the way", now=house.now)
    assert house.kinds(conn) == ["message", "avatar"]
    house.wait(2.0)
    house.hub.say("tel", "and", now=house.now)
    assert house.kinds(conn) == ["message"]
    house.wait(2.9)
    assert house.frames(conn) == []
    house.wait(0.1)
    assert house.frames(conn) == [{"t": "avatar", "state": "idle"}]


def test_the_person_typing_ends_the_pause() -> None:
    house = House()
    conn = house.join()
    house.send(conn, t="typing")
    assert house.frames(conn) == []
    house.hub.say("tel", "by the way", now=house.now)
    house.frames(conn)
    house.send(conn, t="typing")
    assert house.frames(conn) == [{"t": "avatar", "state": "idle"}]
    house.hub.turn_started("tel", house.now)
    house.frames(conn)
    house.send(conn, t="typing")
    assert house.frames(conn) == []


def test_typing_stays_on_while_a_card_is_open() -> None:
    house = House()
    conn = house.join()
    house.hub.turn_started("tel", house.now)
    house.hub.cards.ask("tel", approval_card("ls", "", "s", 60), house.now)
    assert house.kinds(conn) == ["avatar", "typing", "prompt"]
    house.wait(59)
    assert house.frames(conn) == []


def test_only_changes_are_told() -> None:
    house = House()
    conn = house.join()
    for _ in range(3):
        house.hub.turn_started("tel", house.now)
    assert house.kinds(conn) == ["avatar", "typing"]
    for _ in range(3):
        house.hub.turn_ended("tel", house.now)
    assert house.kinds(conn) == ["typing", "avatar"]


@pytest.mark.parametrize("gap", [1.0, 1000.0])
def test_a_device_that_comes_back_hears_how_it_is(gap: float) -> None:
    house = House()
    conn = house.join()
    house.hub.turn_started("tel", house.now)
    house.frames(conn)
    house.close(conn)
    house.wait(gap)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    assert house.kinds(conn) == ["ready", "avatar", "typing"]
    house.close(conn)
    house.hub.turn_ended("tel", house.now)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    assert [f for f in house.frames(conn) if f["t"] != "ready"] == [
        {"t": "typing", "stop": True},
        {"t": "avatar", "state": "idle"},
    ]


def test_a_withdrawn_draft_is_final_as_it_was_shown() -> None:
    house = House()
    conn = house.join()
    id = house.hub.say("tel", "half a sen", final=False, now=house.now)
    house.frames(conn)
    house.hub.withdraw("tel", id, house.now)
    (frame,) = house.frames(conn)
    assert (frame["text"], frame["final"]) == ("half a sen", True)
    house.hub.withdraw("tel", id, house.now)
    house.hub.withdraw("tel", "unknown", house.now)
    house.hub.withdraw("nobody", id, house.now)
    assert house.frames(conn) == []


def test_lone_surrogates_of_an_agent_reach_no_device() -> None:
    house = House()
    conn = house.join()
    house.hub.say("tel", "a\ud800b", now=house.now)
    assert house.frames(conn)[0]["text"] == "a\ufffdb"


# --------------------------------------------------------------------------------------------------
# Away


def test_answers_wait_in_order_for_the_device() -> None:
    house = House()
    house.close(house.join())
    one = house.hub.say("tel", "one", final=False, now=house.now)
    two = house.hub.say("tel", "two", now=house.now)
    file = house.hub.show("tel", OutgoingMedia("image", "image/png", "a.png", b"1"), house.now)
    for text in ("one a", "one a b"):
        house.hub.say("tel", text, edit_of=one, final=False, now=house.now)
    house.hub.turn_ended("tel", house.now)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    frames = [f for f in house.frames(conn) if f["t"] in {"ready", "message", "media"}]
    assert [(f["t"], f.get("id"), f.get("text")) for f in frames] == [
        ("ready", None, None),
        ("message", one, "one a b"),
        ("message", two, "two"),
        ("media", file, None),
    ]
    assert frames[1]["final"] and "edit" not in frames[1]


def test_a_final_answer_is_not_told_again_whichever_way_the_line_ends() -> None:
    house = House()
    conn = house.join()
    house.hub.say("tel", "done", now=house.now)
    house.frames(conn)
    again = house.open()
    house.send(again, t="hello", token="main", device={"id": "tel"})  # replaces
    assert "message" not in house.kinds(again)
    house.close(again)
    once_more = house.open()
    house.send(once_more, t="hello", token="main", device={"id": "tel"})
    assert "message" not in house.kinds(once_more)


def test_an_open_answer_is_stated_again_before_it_grows() -> None:
    house = House()
    conn = house.join(supports=["partial_edits"])
    id = house.hub.say("tel", "x" * 4000, final=False, now=house.now)
    house.frames(conn)
    house.close(conn)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"}, supports=["partial_edits"])
    house.hub.say("tel", "x" * 4000 + "y", edit_of=id, final=True, now=house.now)
    messages = [f for f in house.frames(conn) if f["t"] == "message"]
    assert [(f["chunk"]["index"], f["final"], f["edit"]) for f in messages] == [
        (0, False, True),
        (1, True, True),
    ]


def test_a_device_that_takes_nothing_is_cut_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_OUTBOX_FRAMES", 20)
    house = House()
    slow, other = house.join("tel"), house.join("pc")
    with pytest.raises(OutboxFull):
        for number in range(100):
            house.hub.say("tel", str(number), now=house.now)
    house.settle()
    assert house.closes() == [(slow, 1013, "too slow")]
    house.hub.say("pc", "hi", now=house.now)
    assert house.kinds(other)[0] == "message"
    # What did fit is not lost, and there is room again afterwards.
    house.close(slow)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    texts = [f["text"] for f in house.frames(conn) if f["t"] == "message"]
    assert texts == [str(number) for number in range(len(texts))] and len(texts) >= 18
    house.hub.say("tel", "more", now=house.now)


@pytest.mark.parametrize("end", ["the agent's last word", "the end of the turn"])
def test_a_message_on_the_screen_is_completed_after_the_box_was_full(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The agent hears of no failure, so that it repeats nothing; the newest text is told once."""
    monkeypatch.setattr(outbox, "MAX_OUTBOX_FRAMES", 20)
    house = House()
    conn = house.join()
    house.hub.turn_started("tel", house.now)
    id = house.hub.say("tel", "half", final=False, now=house.now)
    house.frames(conn)
    with pytest.raises(OutboxFull):
        for number in range(50):
            house.hub.show("tel", OutgoingMedia("image", "a/b", str(number), b"1"), house.now)
    house.settle()
    house.hub.say("tel", "half and", edit_of=id, final=False, now=house.now)
    house.close(conn)
    if end == "the agent's last word":
        house.hub.say("tel", "half and whole", edit_of=id, final=True, now=house.now)
    house.hub.turn_ended("tel", house.now)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    frames = house.frames(conn)
    (told,) = [f for f in frames if f["t"] == "message"]
    whole = "half and whole" if end == "the agent's last word" else "half and"
    assert (told["id"], told["text"], told["final"], told["edit"]) == (id, whole, True, True)
    house.close(conn)
    house.hub.deliver("tel", "room again", None, house.now)
    conn = house.open()
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    assert [f["text"] for f in house.frames(conn) if f["t"] == "message"] == ["room again"]


def test_all_absent_devices_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_ABSENT_BYTES", 10_000)
    monkeypatch.setattr(hub_module, "FREE_ABSENT_BYTES", 1_000)
    house = House()
    for device in ("a", "b", "c"):
        house.hub.say(device, "x" * 3_000, now=house.now)
    with pytest.raises(OutboxFull):
        house.hub.say("d", "x" * 3_000, now=house.now)
    with pytest.raises(OutboxFull):
        house.hub.show("e", OutgoingMedia("image", "image/png", "x", bytes(3_000)), house.now)
    house.hub.say("d", "short", now=house.now)
    conn = house.join("a")
    assert [f["text"] for f in house.frames(conn) if f["t"] == "message"] == []
    house.hub.say("a", "x" * 20_000, now=house.now)  # it is here: this bound is not its own
    house.hub.say("f", "x" * 3_000, now=house.now)  # what a took has made room


def test_an_absent_device_is_bounded_whatever_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_OUTBOX_FRAMES", 20)
    house = House()
    puts: list[Callable[[], object]] = [
        lambda: house.hub.say("tel", "text", now=house.now),
        lambda: house.hub.cards.ask("tel", approval_card("ls", "", "s", 9), house.now),
        lambda: house.hub.show("tel", OutgoingMedia("image", "a/b", "f", b"1"), house.now),
    ]
    for put in puts:
        with pytest.raises(OutboxFull):
            for _ in range(50):
                put()
    assert house.hub.devices["tel"].box.frames <= 20
    assert len(house.hub.cards.prompts.open) <= 20


def test_pings_of_one_who_does_not_read_are_bounded() -> None:
    house = House()
    conn = house.join()
    for number in range(5000):
        house.send(conn, t="ping", ts=number)
    assert house.closes() == [(conn, 1013, "too slow")]
    assert house.hub.devices["tel"].box.frames <= outbox.MAX_OUTBOX_FRAMES + 1


def test_what_left_is_let_go() -> None:
    house = House()
    for number in range(300):
        conn = house.join(f"dev{number}")
        house.send(conn, t="text", id="a", text="hi")
        house.send(conn, t="media", id="f", kind="image", part=0, parts=2, data="AAAA")
        house.take_all()
        house.hub.turn_started(f"dev{number}", house.now)
        house.hub.say(f"dev{number}", "hello", now=house.now)
        house.hub.turn_ended(f"dev{number}", house.now)
        house.frames(conn)
        house.close(conn)
    house.wait(10)
    assert not house.hub.devices and not house.hub.connections and not house.hub._pausing


def test_owners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_OWNERS", 10)
    house = House()
    stays = house.join("stays")
    for number in range(30):
        house.close(house.join(f"dev{number}"))
    assert len(house.hub._owners) <= 11 and "stays" in house.hub._owners
    house.close(stays)


def test_a_connection_that_is_being_closed_counts_as_away() -> None:
    house = House()
    conn = house.join()
    house.hub.too_slow(conn)
    assert not house.hub.online("tel")


# --------------------------------------------------------------------------------------------------


def test_a_connection_is_woken_once_for_many_frames() -> None:
    house = House()
    conn = house.join()
    house.effects.clear()
    for _ in range(5):
        house.hub.say("tel", "x", now=house.now)
    house.settle()
    assert house.effects == [Wake(conn)]


def test_a_wake_for_what_was_taken_back_is_not_the_last_one() -> None:
    """The card was withdrawn before it was shown: nothing is written, and later things are."""
    house = House()
    conn = house.join()
    house.effects.clear()
    card = house.hub.cards.ask("tel", clarify_card("Which?", [], "mobile:tel", 60.0), house.now)
    house.hub.cards.close(card, now=house.now)
    house.settle()
    assert house.effects == [Wake(conn)] and house.frames(conn) == []
    house.hub.turn_ended("tel", house.now)  # nothing to tell: nobody is woken
    house.settle()
    assert house.effects == [Wake(conn)]
    house.hub.say("tel", "x", now=house.now)
    house.settle()
    assert house.effects == [Wake(conn), Wake(conn)]


def test_the_settings_of_these_tests_are_those_of_a_real_door() -> None:
    SETTINGS.check()
