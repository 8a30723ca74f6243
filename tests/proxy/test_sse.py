"""Any split of the bytes gives the same events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.sse import Decoder, EventTooLarge, ServerSentEvent, comment, encode

STREAM = (
    '\ufeff: open\r\n\r\nid: 0\ndata: {"delta": "当前页"}\n\nevent: x\rdata:one\rdata: two\r\r'
    "data\n\nretry: 5\nid: 1\n\nid: 2\ndata:  😀\r\n\r\ndata: cut off"
).encode()
EVENTS = [
    ServerSentEvent("", '{"delta": "当前页"}'.encode(), "0"),
    ServerSentEvent("x", b"one\ntwo", None),
    ServerSentEvent("", b"", None),
    ServerSentEvent("", " 😀".encode(), "2"),
]


def decode(chunks: list[bytes], limit: int = 1_000_000) -> list[ServerSentEvent]:
    decoder = Decoder(limit)
    return list(itertools.chain.from_iterable(map(decoder.feed, chunks)))


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def test_the_example_is_read() -> None:
    assert decode([STREAM]) == EVENTS


def test_byte_by_byte_is_the_same() -> None:
    assert decode([bytes([byte]) for byte in STREAM]) == EVENTS


@given(st.lists(st.integers(min_value=0), max_size=30))
def test_any_split_is_the_same(cuts: list[int]) -> None:
    assert decode(split(STREAM, cuts)) == EVENTS


lines = st.sampled_from(
    [b"data: a", b"data:", b"id: 7", b"event: e", b":", b"", b"", b"x", b"data: \xe5\xbd\x93"]
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(lines, ends)), st.lists(st.integers(min_value=0), max_size=20))
def test_any_split_of_any_stream_is_the_same(
    parts: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(line + end for line, end in parts)

    assert decode(split(stream, cuts)) == decode([stream])


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=20))
def test_any_bytes_are_read_the_same_however_split(data: bytes, cuts: list[int]) -> None:
    assert decode(split(data, cuts)) == decode([data])


def test_what_is_encoded_is_decoded() -> None:
    data = '{"delta":"当前页"}'.encode()

    assert decode([comment("hello"), encode(data, id="3-ab", event="heartbeat")]) == [
        ServerSentEvent("heartbeat", data, "3-ab")
    ]


@pytest.mark.parametrize("chunks", [[b"data: " + b"x" * 200], [b"data: xxxxx\n"] * 30])
def test_an_event_above_the_limit_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(EventTooLarge):
        decode(chunks, limit=100)


def test_many_events_below_the_limit_are_not() -> None:
    assert len(decode([b"data: " + b"x" * 80 + b"\n\n"] * 50, limit=100)) == 50
