"""The door on real sockets: what only bytes on a line can show."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hermes_mobile import hub as hub_module
from hermes_mobile import server, sockets
from hermes_mobile.effects import Incoming
from hermes_mobile.outbox import OutgoingMedia
from hermes_mobile.prompts import approval_card
from hermes_mobile.protocol import MAX_FRAME_BYTES
from hermes_mobile.server import Door, DoorError
from hermes_mobile.settings import Settings

from .raw_client import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    SETTINGS,
    TEXT,
    TOKEN,
    Client,
    Place,
    Recorder,
    frame,
    hello,
    running,
    upgrade,
)

MIB = 1024 * 1024


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with running() as place:
        yield place


async def turn(place: Place) -> None:
    """Let the door's loop do what is due."""
    for _ in range(5):
        await asyncio.sleep(0)


# --------------------------------------------------------------------------------------------------
# The upgrade


async def test_hello_and_a_turn(place: Place) -> None:
    client = await place.join()
    client.send(t="text", id="a", text="hi")
    await place.agent.wait_for(1)
    place.door.turn_started("tel")
    place.door.say("tel", "hello")
    place.door.turn_ended("tel")
    kinds = [(await client.json())["t"] for _ in range(6)]
    assert kinds == ["avatar", "typing", "message", "avatar", "typing", "avatar"]


async def test_frames_of_every_length_of_header(place: Place) -> None:
    """Around every length at which a header grows or another way of writing begins."""
    client = await place.join()
    hub = place.door.hub
    connection = hub.devices["tel"].conn
    assert connection is not None
    edges = (125, 8192, 65_535, 131_072)
    sizes = [edge + more for edge in edges for more in (-1, 0, 1)]
    for alone in (True, False):
        for size in sizes:
            start, end = b'{"t":"pong","ts":"', b'"}'
            hub.post(connection, start + b"x" * (size - len(start + end)) + end)
            if alone:
                place.door.drain()
        place.door.drain()
        for size in sizes:
            code, payload = await client.read()
            assert (code, len(payload)) == (TEXT, size)
            assert json.loads(payload)["t"] == "pong"


async def test_what_comes_after_a_card_that_was_taken_back(place: Place) -> None:
    """There was something to write, then nothing, then something."""
    client = await place.join()
    card = place.door.hub.cards.ask("tel", approval_card("ls", "", "s", 60), 0.0)
    place.door.close_card(card)
    place.door.say("tel", "later")
    assert (await client.until("message"))["text"] == "later"


async def test_hello_and_more_in_one_segment(place: Place) -> None:
    client = await place.connect()
    media = {"t": "media", "id": "f", "kind": "image", "data": "A" * 4 * MIB}
    client.write(
        upgrade()
        + hello()
        + frame(b'{"t":"ping","ts":1}')
        + frame(json.dumps(media).encode())
        + frame(b'{"t":"ping","ts":2}')
    )
    assert (await client.head())[0] == 101
    assert (await client.json())["t"] == "ready"
    assert [(await client.json())["ts"] for _ in range(2)] == [1, 2]
    await place.agent.wait_for(1)
    assert len(place.agent.got[0].data) == 3 * MIB


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 101),
        ({"Connection": "keep-alive, Upgrade"}, 101),  # Firefox
        ({"Connection": "keep-alive,upgrade", "Upgrade": "WebSocket"}, 101),
        ({"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"}, 101),
        ({"Sec_WebSocket_Protocol": "chat"}, 101),
        ({"Connection": "keep-alive"}, 400),
        ({"Sec_WebSocket_Version": "12"}, 426),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Upgrade": "h2c"}, 426),
        ({"Upgrade": "notwebsocket"}, 426),
        ({"Origin": "http://127.0.0.1:3000"}, 101),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"host": "evil.example", "Origin": "http://evil.example"}, 403),
    ],
)
async def test_who_is_upgraded(place: Place, headers: dict[str, str], status: int) -> None:
    client = await place.connect()
    client.write(upgrade(**headers))
    got, head = await client.head()
    assert got == status, head
    if status == 101:
        client.write(hello())
        assert (await client.json())["t"] == "ready"
        assert b"permessage" not in head and b"WebSocket-Protocol" not in head
    else:
        await client.eof()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 404), ("/ws/", 404), ("/wsx", 404), ("//ws", 404), ("/WS", 404), ("/ws?token=x", 101)],
)
async def test_only_ws_is_upgraded(place: Place, path: str, status: int) -> None:
    client = await place.connect()
    client.write(upgrade(path))
    assert (await client.head())[0] == status


async def test_a_token_in_the_address_opens_nothing(place: Place) -> None:
    client = await place.connect()
    client.write(upgrade(f"/ws?token={TOKEN}") + frame(b'{"t":"hello","device":{"id":"tel"}}'))
    await client.head()
    code, reason, (error,) = await client.closed()
    assert (code, reason, error["code"]) == (1008, "auth_failed", "auth_failed")


async def test_health(place: Place) -> None:
    await place.join()
    client = await place.connect()
    client.write(b"GET /health?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    status, head = await client.head()
    body = json.loads(await client.reader.read())
    assert status == 200 and b"application/json" in head
    assert body["status"] == "ok" and body["protocol"] == 1 and body["connections"] == 1
    assert TOKEN not in json.dumps(body) and "tel" not in json.dumps(body)


async def test_no_upgrade_asked_for(place: Place) -> None:
    client = await place.connect()
    client.write(b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.head())[0] == 426


# --------------------------------------------------------------------------------------------------
# Ends


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (frame(b'{"t":"text","id":"a","text":"x"}'), "bad_frame"),
        (frame(b"\xff\xfe"), "bad_frame"),
        (hello(token="wrong"), "auth_failed"),
        (hello(token=""), "auth_failed"),
        (hello("a/b"), "bad_frame"),
    ],
)
async def test_the_error_comes_before_the_end(place: Place, first: bytes, code: str) -> None:
    client = await place.open()
    client.write(first)
    status, reason, (error,) = await client.closed()
    assert (status, reason) == (1008, code)
    assert (error["t"], error["code"], error["fatal"]) == ("error", code, True)
    client.write(frame(b"\x03\xf0" + reason.encode(), CLOSE))
    await client.eof()


async def test_a_device_is_taken_over_by_its_token_alone(place: Place) -> None:
    old = await place.join()
    thief = await place.open()
    thief.write(hello(token="second-token"))
    assert (await thief.closed())[:2] == (1008, "forbidden")
    old.send(t="ping", ts=1)
    assert (await old.json())["ts"] == 1
    new = await place.join()
    assert await old.closed() == (4001, "replaced", [])
    new.send(t="ping", ts=2)
    assert (await new.json())["ts"] == 2


async def test_a_close_is_answered_with_a_code_that_may_be_written(place: Place) -> None:
    """A browser's `close()` sends no code at all."""
    for payload, answer in ((b"", 1000), (b"\x03\xe8", 1000), (b"\x0f\xa0bye", 4000)):
        client = await place.join()
        client.write(frame(payload, CLOSE))
        assert (await client.closed())[0] == answer
        await client.eof()


async def test_one_who_closes_and_reads_nothing_is_let_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LINGER", 0.2)
    client = await place.join()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(4):
        place.door.show("tel", OutgoingMedia("video", "video/mp4", "v", bytes(8 * MIB)))
    client.write(frame(b"\x03\xe8", CLOSE))
    async with asyncio.timeout(60):
        while place.door.online("tel"):
            await asyncio.sleep(0.01)


async def test_a_message_at_the_limit_and_one_past(place: Place) -> None:
    client = await place.join()
    head = b'{"t":"ack","x":"'
    client.write(frame(head + b"x" * (MAX_FRAME_BYTES - len(head) - 2) + b'"}'))
    client.send(t="ping", ts=1)
    assert (await client.json())["ts"] == 1
    client.write(frame(head + b"x" * (MAX_FRAME_BYTES - len(head) - 1) + b'"}'))
    code, reason, (error,) = await client.closed()
    assert (code, reason, error["code"]) == (1008, "too_big", "too_big")


async def test_fragments_past_the_limit(place: Place) -> None:
    client = await place.join()
    client.write(frame(b"x" * MAX_FRAME_BYTES, fin=False))
    client.write(frame(b"x", CONTINUATION, fin=False))
    code, reason, (error,) = await client.closed()
    assert (code, reason, error["code"]) == (1008, "too_big", "too_big")


async def test_what_is_announced_far_too_big_is_cut_at_once(place: Place) -> None:
    client = await place.join()
    client.write(frame(b"")[:1] + b"\xff" + (2 * MAX_FRAME_BYTES + 1).to_bytes(8, "big"))
    assert (await client.closed())[0] == 1009
    await client.eof()


async def test_before_ready_little_is_read(place: Place) -> None:
    client = await place.open()
    client.write(frame(b"x" * MIB))
    assert (await client.closed())[:2] == (1009, "too_big")
    await client.eof()


async def test_fragments_and_binary_frames(place: Place) -> None:
    client = await place.open()
    whole = hello()[6:] if len(hello()) < 126 + 6 else hello()[8:]
    for index in range(len(whole)):
        last = index == len(whole) - 1
        opcode = CONTINUATION if index else TEXT
        client.write(frame(whole[index : index + 1], opcode, fin=last))
    assert (await client.json())["t"] == "ready"
    client.write(frame(b'{"t":"ping",', BINARY, fin=False))
    client.write(frame(b"in between", PING))
    client.write(frame(b'"ts":7}', CONTINUATION))
    assert await client.read() == (PONG, b"in between")
    assert (await client.json())["ts"] == 7


async def test_before_ready_few_frames_are_read(place: Place) -> None:
    for flood in (frame(b"x", PING) * 2000, frame(b"{", fin=False)):
        client = await place.open()
        client.write(flood + frame(b"x", CONTINUATION, fin=False) * 2000)
        code, reason, before = await client.closed()
        assert (code, reason, before[-1]["code"]) == (1008, "bad_frame", "bad_frame")


@pytest.mark.parametrize(
    "wrong",
    [
        frame(b"x", CONTINUATION),
        frame(b"x", TEXT, fin=False) + frame(b"y", TEXT),
        frame(b"x", 3),
        b"\x81\x01x",  # not masked
        frame(b"x" * 126, PING),
        frame(b"x", PING, fin=False),
        frame(b"x", CLOSE),
    ],
)
async def test_broken_frames_end_one_connection(place: Place, wrong: bytes) -> None:
    client, other = await place.join(), await place.join("pc")
    client.write(wrong)
    assert (await client.closed())[0] == 1002
    other.send(t="ping", ts=1)
    assert (await other.json())["ts"] == 1


async def test_guessers_wait_and_a_client_does_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(20):
        client = await place.open()
        client.write(hello(token="guess"))
        await client.closed()
    late = await place.open()
    began = loop.time()
    late.write(hello(token="guess"))
    await place.join()
    assert (await late.closed())[:2] == (1008, "auth_failed")
    assert loop.time() - began >= 0.2


async def test_no_hello_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "HELLO_TIMEOUT", 0.1)
    async with running() as place:
        client = await place.open()
        code, reason, (error,) = await client.closed()
        assert (code, reason, error["fatal"]) == (1008, "bad_frame", True)


# --------------------------------------------------------------------------------------------------
# Those who do not read, and those who are gone


async def test_one_who_reads_nothing_is_cut_off_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEARTBEAT", 0.05)
    monkeypatch.setattr(sockets, "STALL_AFTER", 1.5)
    async with running() as place:
        slow, other = await place.join("slow"), await place.join("other")
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(4):
            place.door.show("slow", OutgoingMedia("video", "video/mp4", "v", bytes(8 * MIB)))
        place.door.say("other", "hi")
        assert (await other.until("message"))["text"] == "hi"
        async with asyncio.timeout(60):
            while place.door.online("slow"):
                await asyncio.sleep(0.01)
        other.send(t="ping", ts=1)
        assert (await other.until("pong"))["ts"] == 1


async def test_a_flood_of_pings_by_one_who_does_not_read(place: Place) -> None:
    client, other = await place.join(), await place.join("pc")
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    sock = next(s for s in place.door._sockets.values() if s.conn == 1)
    flood = frame(b"p" * 125, PING) * 4000
    for _ in range(40):
        client.write(flood)
        async with asyncio.timeout(60):
            await client.writer.drain()
    other.send(t="ping", ts=1)
    await other.json()
    assert sock._transport.underlying_transport.get_write_buffer_size() < MIB


async def test_the_silent_are_asked_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEARTBEAT", 0.05)
    monkeypatch.setattr(sockets, "PING_AFTER", 0.1)
    monkeypatch.setattr(sockets, "GIVE_UP_AFTER", 3.0)
    async with running() as place:
        silent, talking = await place.join("silent"), await place.join("talking")
        asked: list[bytes] = []

        async def answer() -> None:
            while True:
                opcode, payload = await talking.read()
                if opcode == PING:
                    asked.append(payload)
                    talking.write(frame(payload, PONG))

        answering = asyncio.create_task(answer())
        code, reason, _ = await silent.closed()
        assert (code, reason) == (1001, "no sign of life")
        assert place.door.online("talking") and len(asked) >= 2
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def test_a_slow_upload_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEARTBEAT", 0.05)
    monkeypatch.setattr(sockets, "PING_AFTER", 0.1)
    monkeypatch.setattr(sockets, "GIVE_UP_AFTER", 2.0)
    async with running() as place:
        client = await place.join()
        whole = frame(b'{"t":"ack","x":"' + b"x" * 30_000 + b'"}') + frame(b'{"t":"ping","ts":1}')
        for start in range(0, len(whole), 1000):  # longer under way than the silence that ends it
            client.write(whole[start : start + 1000])
            await asyncio.sleep(0.1)
        assert (await client.json())["ts"] == 1


async def test_answers_for_one_who_is_gone_wait(place: Place) -> None:
    client = await place.join()
    client.hang_up()
    async with asyncio.timeout(60):
        while place.door.online("tel"):
            await asyncio.sleep(0.01)
    id = place.door.say("tel", "x" * 10_000)
    card = place.door.ask("tel", approval_card("ls", "", "s", 60))
    client = await place.join()
    parts = [await client.until("message") for _ in range(3)]
    assert {p["id"] for p in parts} == {id}
    assert "".join(p["text"] for p in parts) == "x" * 10_000
    assert (await client.until("prompt"))["id"] == card


# --------------------------------------------------------------------------------------------------
# The agent


async def test_messages_are_handed_over_in_their_order(place: Place) -> None:
    client = await place.join()
    for number in range(50):
        client.send(t="text", id=str(number), text=str(number))
    await place.agent.wait_for(50)
    assert [i.text for i in place.agent.got] == [str(n) for n in range(50)]


@pytest.mark.parametrize("failure", [RuntimeError("no"), asyncio.CancelledError(), TimeoutError()])
async def test_a_hand_over_that_fails_whatever_way(place: Place, failure: BaseException) -> None:
    client = await place.join(supports=["accepted"])
    place.agent.fails = failure
    client.send(t="text", id="a", text="hi")
    error = await client.until("error")
    assert (error["code"], error["id"], error["fatal"]) == ("internal_error", "a", False)
    card = place.door.ask("tel", approval_card("ls", "", "s", 60))
    await client.until("prompt")
    client.send(t="prompt", prompt_id=card, option_id="once")
    assert (await client.until("error"))["id"] == card
    place.agent.fails = None
    client.send(t="prompt", prompt_id=card, option_id="once")
    assert (await client.until("prompt_done"))["option_id"] == "once"
    client.send(t="text", id="a", text="hi")
    assert (await client.until("accepted"))["id"] == "a"


class Plain(Recorder):
    """Takes a message in a plain call, answers in it, and begins something for a `later`."""

    door: Door

    def submit(self, incoming: Incoming) -> Any:  # type: ignore[override]
        if self.fails is not None:
            raise self.fails
        self.got.append(incoming)
        if incoming.text == "later":
            return self._later(incoming)
        for number in range(int(incoming.text or 1)):
            self.door.say(incoming.chat, f"{incoming.id}-{number}")
        return None

    async def _later(self, incoming: Incoming) -> None:
        await asyncio.sleep(0.05)
        self.door.say(incoming.chat, f"{incoming.id}-later")


async def test_an_agent_that_answers_in_the_call() -> None:
    """In order, also behind a message it works on, and more than the box would hold at once."""
    agent = Plain()
    door = agent.door = Door(SETTINGS, agent)
    await door.start()
    place = Place(door, agent)
    try:
        client = await place.join(supports=["accepted"])
        for id, text in (("a", "1"), ("b", "later"), ("c", "1"), ("d", "5000")):
            client.send(t="text", id=id, text=text)
        said, taken = [], []
        while len(said) < 5003:
            frame = await client.json()
            if frame["t"] == "message":
                said.append(frame["text"])
            elif frame["t"] == "accepted":
                taken.append(frame["id"])
        assert said == ["a-0", "b-later", "c-0", *(f"d-{n}" for n in range(5000))]
        assert taken == ["a", "b", "c"] and (await client.until("accepted"))["id"] == "d"
        for failure in (RuntimeError("no"), asyncio.CancelledError()):
            agent.fails = failure
            client.send(t="text", id="e", text="1")
            assert (await client.until("error"))["id"] == "e"
        agent.fails = None
        client.send(t="text", id="e", text="1")
        assert (await client.until("accepted"))["id"] == "e"
    finally:
        client.hang_up()
        await door.stop()


# --------------------------------------------------------------------------------------------------
# Opening and closing the door


async def test_stop_frees_the_port_and_ends_everything() -> None:
    door = Door(SETTINGS, Recorder())
    await door.start()
    place = Place(door, door.agent)  # type: ignore[arg-type]
    client = await place.join()
    door.ask("tel", approval_card("ls", "", "s", 60))
    await client.until("prompt")
    stopping = asyncio.create_task(door.stop())
    assert (await client.closed())[:2] == (1001, "the door closes")
    client.hang_up()
    await stopping
    assert door._timer is None and not door._tasks and not door._sockets
    door.say("tel", "into the void")
    door.turn_ended("tel")
    assert door._timer is None
    again = Door(replace(SETTINGS, port=door.port), Recorder())
    await again.start()
    assert again.port == door.port
    await again.stop()
    mine = {t for t in asyncio.all_tasks() if t is not asyncio.current_task()}
    assert not mine


async def test_what_nobody_took_when_the_door_closed_may_be_sent_again() -> None:
    class Slow(Recorder):
        async def submit(self, incoming: Incoming) -> None:
            self.came.set()
            await asyncio.Event().wait()

    slow = Slow()
    door = Door(SETTINGS, slow)
    await door.start()
    client = await Place(door, slow).join()
    client.send(t="text", id="a", text="under way")
    client.send(t="text", id="b", text="behind it")
    async with asyncio.timeout(60):
        await slow.came.wait()
    stopping = asyncio.create_task(door.stop())
    await client.closed()
    client.hang_up()
    await stopping
    assert not door._queues and not door._hand_overs

    door.agent = agent = Recorder()
    await door.start()
    try:
        client = await Place(door, agent).join()
        client.send(t="text", id="a", text="again")
        client.send(t="text", id="b", text="again")
        await agent.wait_for(2)
        client.hang_up()
    finally:
        await door.stop()


async def test_stop_waits_for_no_one() -> None:
    async with running() as place:
        client = await place.join()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(4):
            place.door.show("tel", OutgoingMedia("video", "video/mp4", "v", bytes(8 * MIB)))
        async with asyncio.timeout(60):
            await place.door.stop()


async def test_a_port_in_use_is_explained(place: Place) -> None:
    with pytest.raises(DoorError, match=r"in use.*MOBILE_PORT"):
        await Door(replace(SETTINGS, port=place.door.port), Recorder()).start()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a" * 80 + ".example", "."])
async def test_an_address_that_cannot_be_is_explained(host: str) -> None:
    with pytest.raises(DoorError, match="MOBILE_HOST"):
        await Door(replace(SETTINGS, host=host), Recorder()).start()


async def test_ipv6() -> None:
    probe = socket.socket(socket.AF_INET6)
    with probe:
        try:
            probe.bind(("::1", 0))
        except OSError:  # this machine has none: the door says so and `localhost` still opens
            with pytest.raises(DoorError, match="MOBILE_HOST"):
                await Door(replace(SETTINGS, host="::1"), Recorder()).start()
            return
    async with running(replace(SETTINGS, host="::1")) as place:
        client = await place.connect("::1")
        client.write(upgrade(host=f"[::1]:{place.door.port}") + hello())
        assert (await client.head())[0] == 101
        assert (await client.json())["t"] == "ready"
        client.send(t="deliver", id="d", target="tel", text="to myself")
        assert (await client.until("message"))["text"] == "to myself"


async def test_localhost_opens_where_a_family_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(replace(SETTINGS, host="localhost")) as place:
        client = await place.connect("127.0.0.1")
        client.write(upgrade() + hello())
        assert (await client.head())[0] == 101

    async def both(*_: object, **__: object) -> list[tuple[object, ...]]:
        tcp = socket.IPPROTO_TCP
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, tcp, "", ("2001:db8::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, tcp, "", ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    async with running(replace(SETTINGS, host="localhost")) as place:
        assert len(place.door._servers) == 1


# --------------------------------------------------------------------------------------------------
# Logs and memory


async def test_no_token_and_no_word_reaches_a_log(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ("token-of-these", "geheimes", "c2VjcmV0")
    for name in (None, "hermes_mobile", "hermes_mobile.socket", "picows", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    async with running() as place:
        client = await place.connect()
        client.write(upgrade(f"/ws?token={TOKEN}", Authorization=f"Bearer {TOKEN}"))
        await client.head()
        client.write(hello())
        await client.json()
        client.send(t="text", id="a", text="geheimes Wort")
        client.send(t="media", id="b", kind="image", data="c2VjcmV0")
        await place.agent.wait_for(2)
        place.door.say("tel", "geheimes Wort")
        await client.until("message")
        wrong = await place.open()
        wrong.write(hello(token="geheimes-token-falsch"))
        await wrong.closed()
        broken = await place.open()
        broken.write(frame(b"geheimes", 3))
        await broken.closed()
        noise = await place.connect()
        noise.write(f"GET /?token={TOKEN} SPDY/9\r\nX: geheimes\r\n\r\n".encode())
        await noise.eof()
    assert "hello: device=tel" in caplog.text
    for secret in secrets:
        assert secret not in caplog.text


def test_settings_of_these_tests_hold() -> None:
    SETTINGS.check()
    assert isinstance(SETTINGS, Settings) and issubclass(Client, object)
