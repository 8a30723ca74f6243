"""Every inbound frame: what reaches the agent, and what a mistake is answered with."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile import commands
from hermes_mobile import hub as hub_module
from hermes_mobile.dedup import WINDOW_SECONDS
from hermes_mobile.effects import Incoming
from hermes_mobile.outbox import File, OutgoingMedia
from hermes_mobile.protocol import (
    MAX_AUDIO_BYTES,
    MAX_FRAME_BYTES,
    MAX_MEDIA_BYTES,
    MAX_TEXT_CHARS,
)
from hermes_mobile.settings import Settings

from .hub_house import House, next_frame

MIB = 1024 * 1024


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def one(house: House, **frame: Any) -> Incoming:
    """What the agent gets from one frame."""
    house.send(1, **frame)
    assert house.frames(1) == []
    (submit,) = house.submits()
    return submit.incoming


def error(house: House, conn: int = 1, **frame: Any) -> tuple[str, str | None]:
    """Code and id of the error that one frame is answered with; the connection stays."""
    house.send(conn, **frame)
    (answer,) = house.frames(conn)
    assert answer["t"] == "error" and answer["fatal"] is False and answer["message"]
    assert house.closes() == [] and house.submits() == []
    return answer["code"], answer.get("id")


@pytest.fixture
def house() -> House:
    house = House()
    house.join("tel", user={"id": "u-1", "name": "Евгений"})
    return house


# --------------------------------------------------------------------------------------------------
# To the agent


def test_a_text(house: House) -> None:
    got = one(house, t="text", id="a", text=" hi\n")
    assert (got.chat, got.id, got.kind, got.text, got.data) == ("tel", "a", "text", " hi\n", b"")
    assert (got.device.user_id, got.device.user_name) == ("u-1", "Евгений")


def test_the_type_of_a_frame_has_no_case(house: House) -> None:
    assert one(house, t="TeXt", id="a", text="hi").text == "hi"


@pytest.mark.parametrize("format", ["wav", "ogg"])
def test_a_recording(house: House, format: str) -> None:
    got = one(house, t="audio", id="a", format=format, data=b64(b"RIFF"), text="said")
    assert (got.kind, got.text, got.data, got.format) == ("voice", "said", b"RIFF", format)
    assert got.filename == f"voice.{format}" and got.mime == f"audio/{format}"


@pytest.mark.parametrize("kind", ["image", "video", "document", "audio"])
def test_a_file(house: House, kind: str) -> None:
    got = one(
        house, t="media", id="a", kind=kind, data=b64(b"1"), filename="../x/y.pdf", caption="c"
    )
    assert (got.kind, got.text, got.data, got.filename) == (kind, "c", b"1", "y.pdf")
    assert got.mime == "application/pdf"


def test_a_file_in_parts_in_any_order(house: House) -> None:
    for part in (2, 0, 2):
        house.send(1, t="media", id="f", kind="video", part=part, parts=3, data=b64(bytes([part])))
    assert house.frames(1) == [] and house.submits() == []
    got = one(
        house, t="media", id="f", kind="video", part=1, parts=3, data=b64(b"\1"), filename="v.mp4"
    )
    assert (bytes(got.data), got.filename, got.mime) == (b"\0\1\2", "v.mp4", "video/mp4")
    assert house.hub.devices["tel"].uploads.size == 0


def test_limits_exactly(house: House) -> None:
    assert len(one(house, t="text", id="1", text="é" * MAX_TEXT_CHARS).text) == MAX_TEXT_CHARS
    assert error(house, t="text", id="2", text="é" * (MAX_TEXT_CHARS + 1)) == ("too_big", "2")
    data = b64(bytes(MAX_AUDIO_BYTES))
    assert len(one(house, t="audio", id="3", format="wav", data=data).data) == MAX_AUDIO_BYTES
    over = b64(bytes(MAX_AUDIO_BYTES + 1))
    assert error(house, t="audio", id="4", format="wav", data=over) == ("too_big", "4")
    assert len(one(house, t="media", id="5", kind="image", data=data).data) == MAX_MEDIA_BYTES
    assert error(house, t="media", id="6", kind="image", data=over) == ("too_big", "6")
    caption = "c" * (MAX_TEXT_CHARS + 1)
    assert error(house, t="media", id="7", kind="image", data="AAAA", caption=caption) == (
        "too_big",
        "7",
    )


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"t": "text", "text": "hi"}, "bad_frame"),
        ({"t": "text", "id": "", "text": "hi"}, "bad_frame"),
        ({"t": "text", "id": None, "text": "hi"}, "bad_frame"),
        ({"t": "text", "id": 5, "text": "hi"}, "bad_frame"),
        ({"t": "text", "id": "a"}, "bad_frame"),
        ({"t": "text", "id": "a", "text": ""}, "bad_frame"),
        ({"t": "text", "id": "a", "text": " \n\t\u3000"}, "bad_frame"),
        ({"t": "text", "id": "a", "text": ["hi"]}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "wav"}, "bad_frame"),
        ({"t": "audio", "id": "a", "data": "AAAA"}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "mp3", "data": "AAAA"}, "unsupported_frame"),
        ({"t": "audio", "id": "a", "format": "wav", "data": ""}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "wav", "data": "AAA"}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "wav", "data": "AA_-"}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "wav", "data": "AAAA\n"}, "bad_frame"),
        ({"t": "audio", "id": "a", "format": "wav", "data": 5}, "bad_frame"),
        ({"t": "media", "id": "a", "data": "AAAA"}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "voice", "data": "AAAA"}, "unsupported_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": None}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "parts": 0}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "parts": 2049}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "part": 1}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "part": 0.5}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "part": "0"}, "bad_frame"),
        ({"t": "media", "id": "a", "kind": "image", "data": "AAAA", "parts": True}, "bad_frame"),
        ({"t": "prompt"}, "bad_frame"),
        ({"t": "prompt", "prompt_id": "p"}, "bad_frame"),
        ({"t": "prompt", "prompt_id": "p", "option_id": "", "text": " "}, "bad_frame"),
        ({"t": "prompt", "prompt_id": "", "option_id": "once"}, "bad_frame"),
        ({"t": "ping", "ts": "x" * 2000}, "bad_frame"),
        ({"t": "hello", "token": "main"}, "bad_frame"),
        ({"t": None}, "bad_frame"),
        ({"t": 5}, "bad_frame"),
        ({}, "bad_frame"),
        ({"t": "deliver", "id": "d", "text": "x"}, "forbidden"),
    ],
)
def test_mistakes(house: House, frame: dict[str, Any], code: str) -> None:
    assert error(house, **frame)[0] == code
    assert one(house, t="text", id="after", text="it goes on").text == "it goes on"


@pytest.mark.parametrize("raw", [b"", b"[]", b"5", b"null", b"{", b"\xff", b'{"t":"text",}'])
def test_what_is_no_frame(house: House, raw: bytes) -> None:
    house.raw(1, raw)
    assert house.frames(1)[0]["code"] == "bad_frame"


def test_what_is_answered_with_nothing(house: House) -> None:
    for frame in (
        {"t": "news", "id": 5}, {"t": "ack"}, {"t": "ack", "id": [1]}, {"t": "typing", "x": {}},
    ):  # fmt: skip
        house.send(1, **frame)
    assert house.frames(1) == [] and house.effects == house.effects[:1]


@pytest.mark.parametrize("ts", ["7", "1.50", "-0", '"a"', "null", "[1, 2]", '{"a": 1}', "1e400"])
def test_ping_echoes(house: House, ts: str) -> None:
    house.raw(1, b'{"t":"ping","ts":' + ts.encode() + b"}")
    raw = next_frame(house.hub, 1, house.now)
    assert raw is not None
    if ts == "1e400":
        assert b"bad_frame" in raw
    else:
        assert raw == b'{"t":"pong","ts":' + ts.encode() + b"}"


def test_a_message_over_16_mib_is_the_end(house: House) -> None:
    frame = b'{"t":"ack","x":"'
    house.raw(1, frame + b"x" * (MAX_FRAME_BYTES - len(frame) - 2) + b'"}')
    assert house.closes() == []
    house.raw(1, frame + b"x" * (MAX_FRAME_BYTES - len(frame) - 1) + b'"}')
    assert house.closes() == [(1, 1008, "too_big")]
    assert house.last_frame(1)["fatal"]


def test_our_own_mistake_is_no_ones_end(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(house.hub, "submit", broken)
    assert error(house, t="text", id="a", text="secret words")[0] == "internal_error"
    assert "RuntimeError" in caplog.text and "RuntimeError: a bug" not in caplog.text
    assert "secret words" not in caplog.text


# --------------------------------------------------------------------------------------------------
# Once


def test_a_message_reaches_the_agent_once_whatever_its_kind() -> None:
    house = House()
    conn = house.join("tel", supports=["accepted"])
    house.send(conn, t="text", id="a", text="hi")
    house.send(conn, t="text", id="a", text="hi")  # while it is handed over
    assert house.frames(conn) == []
    house.take_all()
    assert house.frames(conn) == [{"t": "accepted", "id": "a"}]
    for frame in (
        {"t": "text", "text": "hi"},
        {"t": "audio", "format": "wav", "data": "AAAA"},
        {"t": "media", "kind": "image", "data": "AAAA"},
    ):
        house.send(conn, id="a", **frame)
        assert house.frames(conn) == [{"t": "accepted", "id": "a"}] and house.submits() == []
    house.wait(WINDOW_SECONDS - 0.1)
    house.send(conn, t="text", id="a", text="hi")
    assert house.submits() == []
    house.wait(0.1)
    house.send(conn, t="text", id="a", text="hi")
    assert len(house.submits()) == 1


def test_a_duplicate_is_silent_for_clients_without_the_addition(house: House) -> None:
    one(house, t="text", id="a", text="hi")
    house.send(1, t="text", id="a", text="hi")
    assert house.frames(1) == [] and house.submits() == []


def test_ids_of_two_devices_never_meet(house: House) -> None:
    other = house.join("pc")
    one(house, t="text", id="a", text="hi")
    house.send(other, t="text", id="a", text="hi")
    assert len(house.submits()) == 1


def test_ids_are_compared_as_they_are_cut(house: House) -> None:
    assert one(house, t="text", id="x" * 130, text="hi").id == "x" * 128
    house.send(1, t="text", id="x" * 128, text="hi")
    assert house.submits() == []


def test_a_refused_message_may_come_again(house: House) -> None:
    got = one(house, t="text", id="a", text="hi")
    house.hub.refused(got, house.now)
    (answer,) = house.frames(1)
    assert (answer["code"], answer["id"]) == ("internal_error", "a")
    assert one(house, t="text", id="a", text="hi").id == "a"


def test_a_file_is_known_as_a_whole() -> None:
    house = House()
    conn = house.join("tel", supports=["accepted"])
    parts = [
        {"t": "media", "id": "f", "kind": "image", "part": n, "parts": 2, "data": "AAAA"}
        for n in range(2)
    ]
    for frame in parts:
        house.send(conn, **frame)
    house.take_all()
    assert house.frames(conn) == [{"t": "accepted", "id": "f"}]
    for frame in parts:
        house.send(conn, **frame)
    assert house.frames(conn) == [{"t": "accepted", "id": "f"}]
    assert house.submits() == [] and not house.hub.devices["tel"].uploads.open


def test_an_upload_whose_id_was_taken_meanwhile_is_freed(house: House) -> None:
    house.send(1, t="media", id="a", kind="image", part=0, parts=2, data="AAAA")
    one(house, t="text", id="a", text="hi")
    house.send(1, t="media", id="a", kind="image", part=1, parts=2, data="AAAA")
    assert not house.hub.devices["tel"].uploads.open and house.submits() == []


def test_a_single_frame_under_an_open_uploads_id_disagrees(house: House) -> None:
    house.send(1, t="media", id="f", kind="image", part=0, parts=2, data="AAAA")
    assert error(house, t="media", id="f", kind="image", data="AAAA") == ("bad_frame", "f")
    assert len(house.hub.devices["tel"].uploads.open) == 1


def test_what_is_under_way_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_UNDER_WAY", 3)
    for number in range(3):
        one(house, t="text", id=str(number), text="hi")
    assert error(house, t="text", id="3", text="hi") == ("internal_error", "3")
    other = house.join("pc")
    house.send(other, t="text", id="3", text="hi")
    assert len(house.submits()) == 1


def test_bytes_under_way_are_bounded(house: House) -> None:
    data = b64(bytes(8 * MIB))
    for number in range(4):
        one(house, t="media", id=str(number), kind="image", data=data)
    assert error(house, t="media", id="4", kind="image", data="AAAA") == ("internal_error", "4")
    assert one(house, t="text", id="5", text="a text still goes").id == "5"


# --------------------------------------------------------------------------------------------------
# Deliveries


def messenger(house: House) -> int:
    return house.join("cron", token="deliver")


def test_a_delivery_brings_the_text_first(house: House) -> None:
    conn = messenger(house)
    house.send(
        conn, t="deliver", id="d", target="tel", text="news",
        media={"kind": "audio", "data": "AAAA", "filename": "a.ogg", "caption": "c"},
    )  # fmt: skip
    assert house.frames(conn) == []
    frames = [f for f in house.frames(1) if f["t"] in {"message", "media"}]
    assert [f["t"] for f in frames] == ["message", "media"]
    assert frames[0]["text"] == "news" and frames[0]["final"]
    assert (frames[1]["kind"], frames[1]["data"], frames[1]["caption"]) == ("voice", "AAAA", "c")
    house.send(conn, t="deliver", id="d", target="tel", text="news")
    assert house.frames(1) == [] and house.frames(conn) == []


@pytest.mark.parametrize("target", ["tel", "mobile:tel", " tel ", None, ""])
def test_whom_a_delivery_is_for(house: House, target: str | None) -> None:
    house.send(messenger(house), t="deliver", id="d", target=target, text="news")
    assert house.frames(1)[0]["text"] == "news"


def test_a_delivery_that_does_not_fit_whole_shows_nothing(house: House) -> None:
    conn = messenger(house)
    box = house.hub.devices["tel"].box
    box.keep(File("f", OutgoingMedia("document", "text/plain", "a", bytes(47 * MIB))))
    frame = {"t": "deliver", "id": "d", "target": "tel", "text": "news"}
    house.send(conn, **frame, media={"kind": "image", "data": b64(bytes(2 * MIB))})
    assert [f["code"] for f in house.frames(conn)] == ["device_offline"]
    assert len(box) == 1
    assert [code for _, code, _ in house.closes()] == [1013]


def test_without_a_home_device_it_needs_a_target() -> None:
    house = House(Settings(token="main", deliver_tokens=("deliver",)))
    conn = messenger(house)
    assert error(house, conn, t="deliver", id="d", text="x") == ("bad_frame", "d")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"id": "d", "target": "tel"}, "bad_frame"),
        ({"id": "d", "target": "tel", "text": " "}, "bad_frame"),
        ({"target": "tel", "text": "x"}, "bad_frame"),
        ({"id": "d", "target": "a:b", "text": "x"}, "bad_frame"),
        ({"id": "d", "target": "mobile:", "text": "x"}, "bad_frame"),
        ({"id": "d", "target": "nobody", "text": "x"}, "device_offline"),
        ({"id": "d", "target": "tel", "text": "x" * 12_001}, "too_big"),
        ({"id": "d", "target": "tel", "media": {}}, "bad_frame"),
        ({"id": "d", "target": "tel", "media": {"kind": "image"}}, "bad_frame"),
        (
            {"id": "d", "target": "tel", "media": {"kind": "x", "data": "AAAA"}},
            "unsupported_frame",
        ),
        ({"id": "d", "target": "tel", "media": {"kind": "image", "data": "A"}}, "bad_frame"),
        ({"id": "d", "target": "tel", "media": []}, "bad_frame"),
        (
            {
                "id": "d",
                "target": "tel",
                "text": "x",
                "media": {"kind": "image", "data": b64(bytes(8 * MIB + 1))},
            },
            "too_big",
        ),
    ],
)
def test_mistakes_of_a_messenger(house: House, frame: dict[str, Any], code: str) -> None:
    conn = messenger(house)
    assert error(house, conn, t="deliver", **frame)[0] == code
    assert house.frames(1) == [], "nothing half delivered"


def test_a_delivery_that_failed_may_come_again(house: House) -> None:
    conn = messenger(house)
    assert error(house, conn, t="deliver", id="d", target="pc", text="x")[0] == "device_offline"
    pc = house.join("pc")
    house.send(conn, t="deliver", id="d", target="pc", text="x")
    assert house.frames(pc)[0]["text"] == "x"


def test_a_messenger_may_do_nothing_else(house: House) -> None:
    conn = messenger(house)
    for frame in (
        {"t": "text", "id": "a", "text": "hi"},
        {"t": "audio", "id": "a", "format": "wav", "data": "AAAA"},
        {"t": "media", "id": "a", "kind": "image", "data": "AAAA"},
        {"t": "prompt", "prompt_id": "a", "option_id": "once"},
        {"t": "typing"},
    ):
        assert error(house, conn, **frame)[0] == "forbidden"
    house.send(conn, t="ping", ts=1)
    house.send(conn, t="ack", id="x")
    assert house.frames(conn) == [{"t": "pong", "ts": 1}]
    assert "cron" not in house.hub.devices


def test_the_keys_of_deliveries_are_their_own(house: House) -> None:
    first, second = messenger(house), house.join("other", token="deliver")
    one(house, t="text", id="d", text="hi")
    for conn in (first, second):
        house.send(conn, t="deliver", id="d", target="tel", text="news")
        assert house.frames(1)[0]["text"] == "news"


def test_the_owners_machine_may_deliver_and_chat() -> None:
    house = House()
    conn = house.open("127.0.0.1", owner_machine=True)
    house.send(conn, t="hello", token="main", device={"id": "tel"})
    house.send(conn, t="deliver", id="d", text="to myself")
    assert [f["t"] for f in house.frames(conn)][:2] == ["ready", "message"]


def test_the_gateways_own_secret_delivers_from_anywhere() -> None:
    house = House(secret="own-secret")
    tel = house.join("tel")
    conn = house.join("tel", token="own-secret")  # whatever it calls itself
    house.send(conn, t="deliver", id="d", target="tel", text="news")
    assert house.frames(conn) == [] and house.frames(tel)[0]["text"] == "news"
    assert error(house, conn, t="text", id="a", text="hi")[0] == "forbidden"


# --------------------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["t", "id", "text", "data", "kind", "format", "part", "parts", "prompt_id", "option_id", "ts",
     "target", "media", "token", "device", "user", "supports", "mime", "filename", "caption"]
)  # fmt: skip
TYPES = st.sampled_from(
    ["text", "audio", "media", "prompt", "typing", "ping", "ack", "deliver", "hello", "x", "TEXT"]
)


@given(TYPES, st.dictionaries(FIELDS, JSON, max_size=6), st.booleans())
def test_no_frame_breaks_the_door(t: str, fields: dict[str, Any], messenger: bool) -> None:
    house = House()
    conn = house.join("tel", token="deliver" if messenger else "main")
    house.raw(conn, json.dumps({"t": t, "id": "a", **fields}).encode())
    for frame in house.frames(conn):
        assert frame["t"] in {"error", "pong", "prompt_done"}
        assert frame.get("code") != "internal_error"
    assert house.closes() == []
    stranger = house.open()
    house.raw(stranger, json.dumps({"t": t, **fields}).encode())
    assert len(house.closes()) == 1


@given(st.binary(max_size=200))
def test_no_bytes_break_the_door(raw: bytes) -> None:
    house = House()
    conn = house.join()
    house.raw(conn, raw)
    assert all(frame["code"] == "bad_frame" for frame in house.frames(conn))
    house.raw(house.open(), raw)
    commands.receive(house.hub, 99, raw, house.now)
    assert len(house.closes()) == 1
