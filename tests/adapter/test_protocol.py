"""Decoding never fails in another way than with a `ProtocolError`, and fields keep their rules."""

from __future__ import annotations

import base64
import json
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes_mobile import protocol
from hermes_mobile.commands import receive
from hermes_mobile.effects import Close, Wake
from hermes_mobile.hub import Hub
from hermes_mobile.protocol import (
    MAX_DEVICE_CHARS,
    MAX_FILENAME_CHARS,
    ProtocolError,
    base64_field,
    clean_filename,
    decode,
    device_id,
    device_text,
    echoed_ts,
    mime_type,
    well_formed,
)
from hermes_mobile.settings import Settings
from hermes_mobile.tokens import Peer

from .contract import complaint, load
from .hub_house import drained, next_frame

DOOR = load("door.json")
FAST = settings(max_examples=200, deadline=None)
# Any code point, halves of surrogate pairs included.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)

NAMES = (
    "t", "id", "text", "token", "device", "user", "supports", "format", "data", "kind", "mime",
    "filename", "caption", "part", "parts", "prompt_id", "option_id", "ts", "target", "media",
)  # fmt: skip
TYPES = ("hello", "text", "audio", "media", "prompt", "typing", "ping", "ack", "deliver", "MEDIA")
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3000),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ("image", "wav", "AAAA", "AAA", "once", "c0", "mobile:tel-1", "tel-1", "", " ")
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=6,
)
FRAMES = st.builds(
    lambda kind, fields: {"t": kind, **fields},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(NAMES[1:]), VALUES, max_size=8),
)


@FAST
@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b'{"t":"text","id":"a","text":"\xed\xa0\x80"}')
def test_any_bytes_are_a_frame_or_a_protocol_error(raw: bytes) -> None:
    """What is no frame is `bad_frame`, and nothing else happens."""
    try:
        decode(raw)
    except ProtocolError as error:
        assert error.code == "bad_frame"


@FAST
@given(FRAMES, st.data())
def test_a_cut_or_torn_frame_is_bad(frame: dict[str, Any], data: st.DataObject) -> None:
    """A frame that breaks off anywhere is `bad_frame`."""
    raw = json.dumps(frame).encode()
    with pytest.raises(ProtocolError, match="bad_frame"):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@FAST
@given(FRAMES)
def test_text_bytes_and_views_are_read_alike(frame: dict[str, Any]) -> None:
    """A message as text, bytes, bytearray or view has one outcome."""
    text = json.dumps(frame)
    outcomes = set()
    for raw in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        try:
            outcomes.add(type(decode(raw)).__name__)
        except ProtocolError as error:
            outcomes.add(str(error))

    assert len(outcomes) == 1


@settings(max_examples=400, deadline=None)
@given(st.lists(FRAMES, max_size=6), st.sampled_from(("open", "deliver_only")))
def test_no_frame_makes_the_core_fail(frames: list[dict[str, Any]], state: str) -> None:
    """Whatever a client writes, what it hears keeps to the schema and is no failure of ours."""
    hub = Hub(Settings.from_sources(DOOR["settings"]))
    hub.opened(1, Peer("192.0.2.1"), 0.0)
    for frame in (DOOR["hello"][state], *frames):
        receive(hub, 1, json.dumps(frame).encode(), 0.0)
        for effect in drained(hub):
            assert not isinstance(effect, Close)
            if isinstance(effect, Wake):
                while (raw := next_frame(hub, 1, 0.0)) is not None:
                    told = json.loads(raw)
                    assert complaint("ServerFrame", told) is None
                    assert told.get("code") != "internal_error"


@pytest.mark.parametrize("depth", [1, 100, 200])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")])
def test_unknown_fields_may_nest(depth: int, pair: tuple[str, str]) -> None:
    """The depth that the protocol document promises is read."""
    nested = pair[0] * depth + "1" + pair[1] * depth

    assert decode('{"t":"text","id":"a","text":"b","x":' + nested + "}") is not None
    assert decode('{"t":"hologram","x":' + nested + "}") is None


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"t":', '{"t":"ping","ts":[', '{"id":['])
def test_bottomless_nesting_is_bad(opening: str) -> None:
    """A million levels neither crash the door nor pass."""
    with pytest.raises(ProtocolError, match="bad_frame"):
        decode(opening * 1_000_000)


@FAST
@given(st.binary(max_size=60))
def test_base64_size_is_known_before_decoding(data: bytes) -> None:
    """What is said of the size is true, and at the limit it still passes."""
    raw = msgspec.Raw(json.dumps(base64.b64encode(data).decode()).encode())
    if not data:
        with pytest.raises(ProtocolError, match="`data` is empty"):
            base64_field(raw, "data", 60, None)
        return

    body = base64_field(raw, "data", len(data), None)

    assert (body.size, body()) == (len(data), data)
    with pytest.raises(ProtocolError, match="too_big"):
        base64_field(raw, "data", len(data) - 1, None)


@FAST
@given(ANY_TEXT)
def test_base64_is_the_standard_alphabet_with_padding(text: str) -> None:
    """Whatever decodes is what the standard's own strict decoder takes too."""
    raw = msgspec.Raw(json.dumps(text).encode())
    try:
        data = base64_field(raw, "data", 1000, None)()
    except ProtocolError as error:
        assert error.code == "bad_frame"
    else:
        assert data == base64.b64decode(text, validate=True)
        assert len(text) % 4 == 0


@FAST
@given(ANY_TEXT)
@example("../../etc/passwd")
@example("a" * 300 + ".pdf")
@example("a." + "b" * 300)
@example("CON\x00.txt")
def test_filenames_are_one_clean_component(name: str) -> None:
    """No path, no control character, no climbing, at most 200 characters."""
    cleaned = clean_filename(name)

    assert len(cleaned) <= MAX_FILENAME_CHARS
    assert not set(cleaned) & {"/", "\\", "\0", "\n"}
    assert cleaned not in (".", "..")
    assert all(unicodedata.category(character) != "Cc" for character in cleaned)
    assert clean_filename(cleaned) == cleaned


@pytest.mark.parametrize("extension", ["pdf", "tar", "jpeg", "x" * 20])
def test_a_long_filename_keeps_its_extension(extension: str) -> None:
    """The name is cut, not what tells its type."""
    cleaned = clean_filename("ф" * 500 + "." + extension)

    assert len(cleaned) == MAX_FILENAME_CHARS
    assert cleaned.endswith("." + extension)


@FAST
@given(ANY_TEXT)
def test_device_ids_can_be_part_of_addresses(text: str) -> None:
    """A device id is refused or has no character that would break an address."""
    try:
        cleaned = device_id(text)
    except ProtocolError as error:
        assert error.code == "bad_frame"
    else:
        assert len(cleaned) <= MAX_DEVICE_CHARS
        assert not set(cleaned) & {":", "/", "\0", "\n", "\u2028", "\u200b"}
        assert device_id(cleaned) == cleaned


@FAST
@given(ANY_TEXT)
def test_device_texts_are_printable_and_short(text: str) -> None:
    """Names of people and devices can stand in one line of a log."""
    cleaned = device_text(text)

    assert len(cleaned) <= MAX_DEVICE_CHARS
    assert all(unicodedata.category(character) not in ("Cc", "Zl", "Zp") for character in cleaned)


@FAST
@given(VALUES)
def test_ts_comes_back_byte_for_byte(value: Any) -> None:
    """Any plain JSON value is echoed as it was written."""
    for written in (json.dumps(value), json.dumps(value, indent=1)):
        assert bytes(echoed_ts(msgspec.Raw(written.encode()))) == written.encode()


@pytest.mark.parametrize(
    ("said", "filename", "type_"),
    [
        ("image/png", "a.jpg", "image/png"),
        ("IMAGE/PNG", "", "image/png"),
        ("text/plain;charset=utf-8", "", "text/plain"),
        ("image/svg+xml", "", "image/svg+xml"),
        ("image", "a.png", "image/png"),
        ("image/png\r\nX: y", "a.gif", "image/gif"),
        ("../../etc", "", "application/octet-stream"),
        (None, "A.PNG", "image/png"),
        (None, "", "application/octet-stream"),
    ],
)
def test_mime_types(said: str | None, filename: str, type_: str) -> None:
    """As said if it is a type, else by the name, else unknown."""
    assert mime_type(said, filename) == type_


@FAST
@given(ANY_TEXT)
def test_what_the_agent_says_can_always_be_written(text: str) -> None:
    """Half a surrogate pair of the agent does not break the frame."""
    made = well_formed(text)

    made.encode()
    if not any(unicodedata.category(character) == "Cs" for character in text):
        assert made == text


def test_error_codes_are_those_of_the_reference() -> None:
    """Eight codes, no more."""
    assert set(protocol.Code.__args__) == {  # type: ignore[attr-defined]
        "bad_frame", "auth_failed", "forbidden", "unsupported_frame", "too_big",
        "device_offline", "auth_required", "internal_error",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["tel\n", "\ttel", "\n", "\x1f", "tel\x85", "\u2028tel", "tel\r"])
def test_control_characters_at_the_ends_are_no_spaces(value: str) -> None:
    """`str.strip` takes control characters for white space: they are `bad_frame` anywhere."""
    with pytest.raises(ProtocolError, match="bad_frame"):
        device_id(value)
