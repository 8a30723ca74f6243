"""The clock jumps: a machine that slept, a step of NTP. Time is an argument of the core.

The door counts on the monotonic clock, which never goes back; a machine that slept finds it far
ahead. The wall clock is not asked for anything that decides.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hermes_mobile.dedup import WINDOW_SECONDS
from hermes_mobile.prompts import approval_card
from tests.adapter.hub_house import House

DAY = 86_400.0


@pytest.mark.parametrize("jump", [1.0, 600.0, DAY, 3650 * DAY])
def test_after_a_jump_ahead_what_was_open_ends_as_its_time_says(jump: float) -> None:
    house = House()
    conn = house.join(supports=["accepted"])
    house.send(conn, t="text", id="m-1", text="hello")
    house.take_all()
    card = house.hub.cards.ask("tel", approval_card("ls", "", "mobile:tel", 300.0), house.now)
    house.frames(conn)
    house.wait(jump)
    frames = house.frames(conn)
    done = [frame for frame in frames if frame["t"] == "prompt_done"]
    if jump >= 300.0:
        assert [(d["id"], d["option_id"], d["expired"]) for d in done] == [(card, "deny", True)]
    else:
        assert not done
    # The line lives on, and an id counts as seen for as long as it is promised.
    house.send(conn, t="text", id="m-1", text="hello")
    assert len(house.submits()) == (1 if jump >= WINDOW_SECONDS else 0)
    house.send(conn, t="text", id="m-2", text="hello again")
    assert [submit.incoming.id for submit in house.submits()][-1:] == ["m-2"]


@pytest.mark.parametrize("jump", [0.001, 30.0, DAY])
def test_a_clock_that_goes_back_breaks_nothing(jump: float) -> None:
    house = House()
    conn = house.join(supports=["accepted"])
    house.send(conn, t="text", id="m-1", text="hello")
    house.take_all()
    card = house.hub.cards.ask("tel", approval_card("ls", "", "mobile:tel", 300.0), house.now)
    house.hub.turn_started("tel", house.now)
    house.now -= jump
    house.hub.tick(house.now)
    house.settle()
    house.send(conn, t="text", id="m-1", text="hello")
    assert house.submits() == []
    house.send(conn, t="text", id="m-2", text="more")
    assert [submit.incoming.id for submit in house.submits()] == ["m-2"]
    other = house.join()
    shown = [frame for frame in house.frames(other) if frame["t"] == "prompt"]
    assert all(frame["id"] == card and frame["timeout_seconds"] > 0 for frame in shown)
    house.hub.turn_ended("tel", house.now)
    house.send(other, t="prompt", prompt_id=card, option_id="once")
    assert [tell.option_id for tell in house.tells()] == ["once"]
    assert house.closes() == [(conn, 4001, "replaced")]


def test_nobody_is_thrown_out_for_a_hello_that_fell_into_the_jump() -> None:
    house = House()
    signed_in, knocking = house.join(), house.open()
    house.wait(DAY)
    assert [close[:2] for close in house.closes()] == [(knocking, 1008)]
    assert house.hub.online("tel") and signed_in not in [c for c, _, _ in house.closes()]


@pytest.mark.parametrize("package", ["adapter/hermes_mobile", "proxy/hermes_client_proxy"])
def test_the_wall_clock_decides_nothing_but_what_others_read(package: str) -> None:
    """`time.time()` stands only where a moment is told to others: stamps, dates, cookies."""
    allowed = {
        "hermes_cards.py",  # Hermes notes when it asked by the wall clock
        "auth.py",  # a signed cookie has a date of expiry
        "runs.py",  # the time stamp of an event
        "streams.py",
        "events.py",
        "upstream.py",  # Retry-After as a date
    }
    root = Path(__file__).parents[2] / package
    users = set()
    for path in root.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                "time.time",
                "datetime.now",
                "datetime.utcnow",
            ):
                users.add(path.name)
    assert users <= allowed
