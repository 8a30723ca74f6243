"""What the door counts and logs over a session with everything in it, and who may read it."""

from __future__ import annotations

import asyncio
import base64
import builtins
import json
import logging
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hermes_mobile import counters, logs, metrics
from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.hub import end_reasons
from hermes_mobile.protocol import Code
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings, SettingsError
from tests.adapter.hub_house import House
from tests.adapter.raw_client import Client, Place, Recorder, frame, hello, running

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
TOKENS = ("geheim-token-of-the-apps", "geheim-token-of-the-cron", "geheim-token-of-graphs")
SETTINGS = Settings(port=0, token=TOKENS[0], deliver_tokens=(TOKENS[1],))

Samples = dict[tuple[str, ...], float]


@dataclass
class Scraped:
    """The samples of one scrape, by name and label values."""

    text: str

    def __post_init__(self) -> None:
        self.samples: Samples = {}
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                self.samples[(sample.name, *sample.labels.values())] = sample.value

    def __call__(self, name: str, *labels: str) -> float:
        return self.samples["hermes_mobile_" + name, *labels]

    @property
    def names(self) -> set[str]:
        return {key[0] for key in self.samples}


async def get(door: Door, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{door.port}{path}"
        async with session.get(url, headers=named) as answer:
            return answer.status, await answer.text()


async def scrape(door: Door) -> Scraped:
    status, text = await get(door)
    assert status == 200, text
    return Scraped(text)


@asynccontextmanager
async def scripted(settings: Settings = SETTINGS) -> AsyncIterator[Place]:
    """A door with the scripted agent."""
    agent = ScriptedAgent()
    door = Door(settings, agent)
    agent.attach(door)
    await door.start()
    place = Place(door, Recorder())
    try:
        yield place
    finally:
        for client in place.clients:
            client.hang_up()
        await agent.close()
        await door.stop()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


async def turn(client: Client, id: str, text: str) -> list[dict[str, Any]]:
    """Say `text` and read to the end of the turn."""
    client.send(t="text", id=id, text=text)
    return await rest_of_turn(client)


async def rest_of_turn(client: Client) -> list[dict[str, Any]]:
    said = []
    while (found := await client.json()) != {"t": "avatar", "state": "idle"}:
        said.append(found)
    return said


def data(size: int) -> str:
    return base64.b64encode(b"g" * size).decode()


async def everything(place: Place) -> None:
    """A session with everything in it; every secret word begins with `geheim`."""
    wrong = await place.open()
    wrong.write(hello(token="geheim-falsch"))
    await wrong.closed()
    wrong.hang_up()
    broken = await place.open()
    broken.write(frame(b'{"t":"text","text":"geheim-davor"}'))
    await broken.closed()
    broken.hang_up()
    foreign = await place.connect()
    foreign.write(
        b"GET /ws?token=geheim HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Origin: https://geheim.example\r\nConnection: Upgrade\r\n\r\n"
    )
    assert (await foreign.head())[0] == 403
    assert (await get(place.door, "/geheim-seite"))[0] == 404

    tel = await place.join(
        "tel",
        TOKENS[0],
        user={"id": "u", "name": "geheim-person"},
        supports=["accepted", "partial_edits"],
    )
    await turn(tel, "m1", "geheim-worte")
    tel.send(t="text", id="m1", text="geheim-worte")
    await tel.until("accepted")
    await turn(tel, "m2", "stream 5 1")
    tel.send(t="audio", id="m3", format="wav", data=data(9), text="geheim-transkript")
    await rest_of_turn(tel)
    media = {"t": "media", "kind": "document", "filename": "geheim-datei.pdf"}
    tel.send(**media, id="m4", caption="geheim-bild", data=data(700))
    await rest_of_turn(tel)
    for part in (1, 0):
        tel.send(**media, id="m5", part=part, parts=2, data=data(500))
    await rest_of_turn(tel)
    tel.send(**media, id="big", part=0, parts=2, data=data(8 * 1024 * 1024 + 1))
    assert (await tel.until("error"))["code"] == "too_big"
    tel.send(**media, id="open", part=0, parts=2, data=data(3000))
    await turn(tel, "m6", "image")

    tel.send(t="text", id="m7", text="approve rm -rf geheim-ordner")
    card = await tel.until("prompt")
    tel.send(t="prompt", prompt_id=card["id"], option_id="once")
    await rest_of_turn(tel)
    tel.send(t="text", id="m8", text="clarify geheim-frage|geheim-a|geheim-b")
    card = await tel.until("prompt")
    tel.send(t="prompt", prompt_id=card["id"], option_id="c1")
    await rest_of_turn(tel)
    tel.send(t="text", id="m9", text="clarify geheim-frage")
    card = await tel.until("prompt")
    tel.send(t="prompt", prompt_id=card["id"], text="geheim-antwort")
    await rest_of_turn(tel)

    tel.send(t="text", id="m10", text="fail")
    assert (await tel.until("error"))["code"] == "internal_error"
    tel.write(frame(b'{"t":"text","text":"geheim-kaputt'))
    tel.send(t="geheim-art", text="geheim")
    tel.send(t="typing")
    tel.send(t="ack", id="geheim")
    tel.send(t="ping", ts="geheim-zeit")
    await tel.until("pong")

    cron = await place.join("cron", TOKENS[1])
    attached = {"kind": "document", "filename": "geheim-bericht.pdf", "data": data(10)}
    for _ in range(2):
        cron.send(t="deliver", id="d1", target="tel", text="geheim-meldung", media=attached)
    cron.send(t="deliver", id="d2", target="away", text="geheim-meldung")
    assert (await cron.until("error"))["code"] == "device_offline"
    await tel.until("media")
    cron.hang_up()
    await until(lambda: not place.door.hub.online("cron") and len(place.door.hub.connections) == 1)


async def test_everything_is_counted() -> None:
    async with scripted() as place:
        await everything(place)
        got = await scrape(place.door)

        assert got("connections", "chat") == 1 and got("connections", "unsigned") == 0
        assert got("connections_opened_total") == 4
        assert got("connections_closed_total", "auth_failed") == 1
        assert got("connections_closed_total", "bad_frame") == 1
        assert got("connections_closed_total", "client") == 1
        assert got("connection_seconds_count") == 3
        assert [got("hellos_total", of) for of in ("chat", "deliver")] == [1, 1]
        assert [got("hellos_total", of) for of in ("auth_failed", "bad_frame")] == [1, 1]
        assert [got("http_refused_total", of) for of in ("403", "404")] == [1, 1]
        assert got("devices", "online") == 1

        sent = {"text": 9, "audio": 1, "media": 5, "prompt": 3, "deliver": 3, "hello": 3}
        sent |= {"typing": 1, "ack": 1, "ping": 1, "other": 1, "invalid": 1}
        # The frame before hello is one of the texts: it was understood, and refused.
        assert {of: got("frames_total", "in", of) for of in sent} == sent
        assert got("frames_total", "out", "ready") == 2
        assert got("frames_total", "out", "pong") == 1
        assert (
            got("frames_total", "out", "prompt") == got("frames_total", "out", "prompt_done") == 3
        )
        assert got("frames_total", "out", "media") == 2
        assert got("frames_total", "out", "error") == 6
        assert got("frames_total", "out", "accepted") == 10
        assert got("frames_total", "out", "message") >= 9
        assert got("frames_total", "out", "other") == 0
        assert got("bytes_total", "in") > 8 * 1024 * 1024
        assert 1000 < got("bytes_total", "out") < 1024 * 1024
        assert got("errors_total", "device_offline") == got("errors_total", "too_big") == 1

        assert got("turn_seconds_count") == got("turn_first_words_seconds_count") == 9
        assert got("turns_open") == 0
        assert got("messages_total", "text") == 6 and got("messages_total", "document") == 2
        assert got("messages_total", "voice") == 1 and got("messages_not_taken_total") == 1
        assert got("dedup_hits_total", "message") == got("dedup_hits_total", "delivery") == 1
        assert got("dedup_entries") == 10 and got("deliveries_total") == 1

        assert got("uploads_total", "complete") == 2 and got("uploads_total", "dropped") == 1
        assert got("upload_bytes_total") == 1700
        assert got("uploads_open") == 1 and got("upload_buffer_bytes") == 3000
        assert got("queue_frames") == got("queue_bytes") == got("queue_bytes_max") == 0
        assert got("cuts_total") == got("not_kept_total") == 0
        assert got("cards_total", "clarify") == 2 and got("cards_open", "clarify") == 0
        assert got("card_outcomes_total", "exec_approval", "once") == 1
        assert got("card_outcomes_total", "clarify", "choice") == 1
        assert got("card_outcomes_total", "clarify", "other") == 1
        assert got.samples[("process_resident_memory_bytes",)] > 0
        assert [key for key in got.samples if key[0] == "hermes_mobile_build_info"]

        place.clients[-2].hang_up()  # the telephone, in the middle of an upload
        await until(lambda: not place.door.hub.connections)
        got = await scrape(place.door)
        assert got("uploads_total", "abandoned") == 1 and got("uploads_total", "dropped") == 1
        assert got("uploads_open") == 0 and got("connections", "chat") == 0


async def test_labels_come_from_closed_lists_whatever_clients_send() -> None:
    async with scripted() as place:
        before = set((await scrape(place.door)).samples)
        await everything(place)
        other = await place.join("geheim device ä", TOKENS[0])
        other.send(t="geheim-neu", x=1)
        other.send(t="text", id="geheim-id", text="x")
        await rest_of_turn(other)
        after = set((await scrape(place.door)).samples)

    assert before == after
    assert not any("geheim" in part or "tel" == part for key in after for part in key)


async def test_one_line_for_each_connection_and_turn_and_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in (None, "hermes_mobile", "hermes_mobile.socket", "picows", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    async with scripted(replace(SETTINGS, metrics_token=TOKENS[2])) as place:
        await everything(place)
        assert (await get(place.door, Authorization=f"Bearer {TOKENS[2]}"))[0] == 200
        assert (await get(place.door, Authorization="Bearer geheim-falsch"))[0] == 401
        place.clients[-2].hang_up()
        await until(lambda: not place.door.hub.connections)

    for record in caplog.records:
        assert "geheim" not in record.getMessage() and "geheim" not in str(record.args)
        assert "geheim" not in str(record.exc_text) and record.exc_info is None
    assert data(9) not in caplog.text
    ends = fields_of(caplog, "connection ended")
    ends.sort(key=lambda end: int(end["connection"]))
    assert [end["reason"] for end in ends] == ["auth_failed", "bad_frame", "client", "client"]
    assert [end["device"] for end in ends] == ["-", "-", "tel", "cron"]
    tel = ends[2]
    assert int(tel["bytes_in"]) > 8 * 1024 * 1024 and int(tel["bytes_out"]) > 1000
    assert int(tel["frames_in"]) == 23 and int(tel["frames_out"]) > 50
    assert float(tel["seconds"]) > 0 and tel["address"] == "127.0.0.1"
    turns = fields_of(caplog, "turn ended")
    assert [turn["last_message"] for turn in turns] == [f"m{n}" for n in range(1, 10)]
    assert {turn["device"] for turn in turns} == {"tel"}
    assert {turn["connection"] for turn in turns} == {tel["connection"]}
    streamed, picture, approved = turns[1], turns[5], turns[6]
    assert streamed["messages"] == "1" and streamed["answers"] == "1"
    assert float(streamed["seconds"]) >= float(streamed["first_words"]) >= 0
    assert int(streamed["frames_out"]) > 6 and int(streamed["bytes_out"]) > 300
    assert picture["files"] == "1" and approved["cards"] == "1"
    assert all(turn["waiting_frames"] == turn["waiting_bytes"] == "0" for turn in turns)


def fields_of(caplog: pytest.LogCaptureFixture, start: str) -> list[dict[str, str]]:
    """The fields of the lines that begin with `start`."""
    lines = [m for m in (r.getMessage() for r in caplog.records) if m.startswith(start + ": ")]
    return [dict(part.split("=", 1) for part in line[len(start) + 2 :].split()) for line in lines]


async def test_an_exception_of_the_agent_is_logged_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as place:
        place.agent.fails = ValueError("geheim-worte cannot be sent")
        client = await place.join()
        client.send(t="text", id="a", text="geheim-worte")
        await client.until("error")

    assert "the agent did not take a message: device=tel error=builtins.ValueError" in caplog.text
    assert "in submit" in caplog.text and "geheim" not in caplog.text


def test_an_id_forges_no_field_and_no_line() -> None:
    assert logs.shown("pixel-9") == "pixel-9" and logs.shown("dev:é") == '"dev:\\u00e9"'
    for text in ("a b", "a=b", "a\nb", 'a"b', ""):
        shown = logs.shown(text)
        assert json.loads(shown) == text and "\n" not in shown


def test_a_turn_over_two_connections_counts_both(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="hermes_mobile")
    house = House()
    first = house.join()
    before = house.hub.connections[first].bytes_out
    house.hub.turn_started("tel", house.now)
    message = house.hub.say("tel", "a" * 50, final=False, now=house.now)
    shown = len(house.frames(first))
    left = house.hub.connections[first].bytes_out - before
    house.close(first)
    second = house.join()
    house.hub.say("tel", "a" * 60, edit_of=message, now=house.now)
    device = house.hub.turn_ended("tel", house.now + 2)
    assert device is not None
    shown += len(house.frames(second)) + 1 + 4  # ready, and what `join` read for us
    house.hub.note_turn(device, house.now + 2)

    (line,) = fields_of(caplog, "turn ended")
    assert int(line["bytes_out"]) == left + house.hub.connections[second].bytes_out
    assert int(line["frames_out"]) == shown - 1
    assert line["seconds"] == "2.000" and line["answers"] == "1"
    assert house.hub.turn_ended("tel", house.now) is None


# --------------------------------------------------------------------------------------------------
# Who may read


def reader(host: str = "127.0.0.1:8787", **headers: str) -> dict[str, list[str]]:
    return {"host": [host], **{n.replace("_", "-"): [v] for n, v in headers.items()}}


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, reader(), 200),
        ({}, reader("localhost"), 200),
        ({}, reader("[::1]:8787"), 200),
        ({}, reader("rebound.example"), 403),
        ({}, {}, 403),
        ({}, reader(origin="http://127.0.0.1:8787"), 403),
        ({}, reader(x_forwarded_for="127.0.0.1"), 403),
        ({}, reader(forwarded="for=1.2.3.4"), 403),
        ({}, reader(via="1.1 tunnel"), 403),
        ({}, reader(cf_ray="x"), 403),
        ({"public_url": "https://agent.example.com"}, reader(), 403),
        ({"trusted_proxies": "127.0.0.1"}, reader(), 403),
        ({"host": "0.0.0.0"}, reader(), 403),
        ({"loopback_deliver": "off"}, reader(), 200),
        ({"metrics_token": TOKENS[2]}, reader(), 401),
        ({"metrics_token": TOKENS[2]}, reader(authorization="Bearer wrong"), 401),
        ({"metrics_token": TOKENS[2]}, reader(authorization="Bearer "), 401),
        ({"metrics_token": TOKENS[2]}, reader(authorization=f"Basic {TOKENS[2]}"), 401),
        ({"metrics_token": TOKENS[2]}, reader(authorization=f"Bearer {TOKENS[0]}"), 401),
        ({"metrics_token": TOKENS[2]}, reader(authorization=f"bearer {TOKENS[2]}"), 200),
        (
            {"metrics_token": TOKENS[2], "public_url": "https://agent.example.com"},
            reader("agent.example.com", authorization=f"Bearer {TOKENS[2]}", via="1.1 nginx"),
            200,
        ),
    ],
)
def test_who_may_read(settings: dict[str, str], headers: Any, status: int) -> None:
    environ = {f"MOBILE_{name.upper()}": value for name, value in settings.items()}
    built = Settings.from_sources({"MOBILE_TOKEN": TOKENS[0], **environ})
    found = 200
    try:
        metrics.check_reader(headers, built)
    except metrics.Refused as refusal:
        found = refusal.status
        assert "MOBILE_METRICS_TOKEN" in refusal.message and "geheim" not in refusal.message

    assert found == status


async def test_the_refusals_on_the_socket() -> None:
    async with running(replace(SETTINGS, metrics_token=TOKENS[2])) as place:
        assert (await get(place.door))[0] == 401
        assert (await get(place.door, f"/metrics?token={TOKENS[2]}"))[0] == 401
        status, text = await get(place.door, Authorization=f"Bearer {TOKENS[2]}")
        assert status == 200 and Scraped(text)("http_refused_total", "401") == 2
    async with running(SETTINGS) as place:
        assert (await get(place.door, X_Forwarded_For="1.2.3.4"))[0] == 403


@pytest.mark.parametrize("name", ["MOBILE_TOKEN", "MOBILE_EXTRA_TOKENS", "MOBILE_DELIVER_TOKENS"])
def test_a_token_of_the_door_is_none_for_the_metrics(name: str) -> None:
    environ = {"MOBILE_TOKEN": "another-token-of-apps", name: TOKENS[0]}
    with pytest.raises(SettingsError, match=f"also in {name}") as refused:
        Settings.from_sources({**environ, "MOBILE_METRICS_TOKEN": TOKENS[0]})
    assert TOKENS[0] not in str(refused.value)


def test_a_short_token_on_a_public_address() -> None:
    environ = {"MOBILE_TOKEN": TOKENS[0], "MOBILE_METRICS_TOKEN": "short"}
    assert Settings.from_sources(environ).metrics_token == "short"
    with pytest.raises(SettingsError, match="MOBILE_METRICS_TOKEN has 5"):
        Settings.from_sources({**environ, "MOBILE_HOST": "0.0.0.0"})
    assert "short" not in repr(Settings.from_sources(environ))


async def test_without_the_package_the_answer_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    async with running(SETTINGS) as place:
        status, text = await get(place.door)
        client = await place.join("tel", TOKENS[0])  # the door itself needs it for nothing
        client.send(t="ping")
        await client.until("pong")

    assert status == 501 and "pip install 'hermes-mobile[metrics]'" in text


# --------------------------------------------------------------------------------------------------
# The counters themselves


def test_every_frame_of_ours_has_a_place_of_its_own() -> None:
    assert len(set(metrics._OUT.values())) == len(metrics._OUT) == 10
    assert {"": "client", **dict.fromkeys(get_args(Code))}.keys() - {""} <= {*end_reasons()}


def test_a_spread_counts_below_and_above() -> None:
    spread = counters.Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        spread.add(value)

    assert metrics._buckets(spread) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)] and spread.sum == 12


def test_counting_keeps_nothing_for_each_frame() -> None:
    house = House()
    conn = house.join()
    for n in range(200):
        house.send(conn, t="ping", ts=n)
    house.frames(conn)
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        for n in range(2000):
            house.send(conn, t="ping", ts=n)
            house.frames(conn)
        house.effects.clear()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    here = tracemalloc.Filter(True, counters.__file__)
    grown = after.filter_traces([here]).compare_to(before.filter_traces([here]), "filename")
    assert sum(line.size_diff for line in grown) < 1024
    assert house.hub.counters.received.keys() <= {*metrics._IN, type(None)}


# --------------------------------------------------------------------------------------------------
# The dashboard


def queries() -> list[str]:
    """Every query of the dashboard's panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


async def test_the_dashboard_asks_for_what_is_there() -> None:
    async with scripted() as place:
        await everything(place)
        got = await scrape(place.door)
    asked = set(re.findall(r"\bhermes_mobile_\w+", " ".join(queries())))
    labels = {
        (key, value)
        for family in text_string_to_metric_families(got.text)
        for sample in family.samples
        for key, value in sample.labels.items()
    }

    assert asked and asked <= got.names
    for query in queries():
        for name, matchers in re.findall(r"\bhermes_mobile_(\w+)\{([^}]*)\}", query):
            for label, value in re.findall(r'(\w+)="([^"$]*)"', matchers):
                assert (label, value) in labels, (name, label, value)


def test_the_page_names_every_metric() -> None:
    text = DASHBOARD.with_name("metrics.md").read_text()
    scraped = metrics.Scrape(House().hub, "1", 0.0)
    for family in metrics.families(scraped):
        name = family.name + ("_total" if family.total else "")
        assert f"`{name}`" in text, name
