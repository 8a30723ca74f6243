"""The log is bounded and numbered; an id continues it only where it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.runlog import Reader, RunLog
from hermes_client_proxy.sse import Decoder, ServerSentEvent


def filled(*data: str, events: int = 100, size: int = 100_000) -> RunLog:
    log = RunLog(events, size)
    for text in data:
        log.append(text.encode())
    return log


def read(log: RunLog, last_id: str | None = None, chunk: int = 1_000_000) -> list[ServerSentEvent]:
    reader = Reader(log, log.after(last_id), lambda first: b'"from %d"' % first)
    decoder = Decoder(1_000_000)
    events = []
    while data := reader.take(chunk):
        events += decoder.feed(data)
    reader.close()
    return events


def texts(events: list[ServerSentEvent]) -> list[str]:
    return [event.data.decode() for event in events]


def test_a_late_reader_sees_everything() -> None:
    assert texts(read(filled("a", "b", "c"))) == ["a", "b", "c"]


def test_a_returning_reader_sees_what_follows() -> None:
    log = filled("a", "b", "c")

    assert texts(read(log, read(log)[0].id)) == ["b", "c"]
    assert texts(read(log, read(log)[2].id)) == []


def test_an_id_of_another_life_hides_nothing() -> None:
    old, new = filled("a", "b", "c"), filled("a", "x")

    for event in read(old)[1:]:
        assert texts(read(new, event.id)) == ["a", "x"]
    for junk in ("", "7", "1-zzzzzzzz", "99999-00000000", "-1", "0-0", "é"):
        assert texts(read(new, junk)) == ["a", "x"]


def test_a_log_that_was_rebuilt_the_same_is_continued() -> None:
    old, new = filled("a", "b"), filled("a", "b", "c")

    assert texts(read(new, read(old)[1].id)) == ["c"]


def test_what_was_dropped_is_told_with_the_point_from_which_it_is_whole() -> None:
    log = filled(*"abcdefgh", events=3)

    events = read(log)

    assert texts(events) == ['"from 5"', "f", "g", "h"]
    assert texts(read(log, events[0].id)) == ["f", "g", "h"]
    assert texts(read(log, events[1].id)) == ["g", "h"]


def test_bytes_are_bounded_but_the_last_event_stays() -> None:
    log = filled("x" * 500, "y" * 500, size=600)

    assert texts(read(log)) == ['"from 1"', "y" * 500]
    assert log.size < 600
    assert texts(read(filled("z" * 5000, size=600))) == ["z" * 5000]


def test_a_reader_that_is_overtaken_is_told() -> None:
    log = filled("a", events=2)
    reader = Reader(log, 0, lambda first: b'"from %d"' % first)
    reader.take(10)
    for text in "bcdef":
        log.append(text.encode())

    assert texts(Decoder(10_000).feed(reader.take(10_000))) == ['"from 4"', "e", "f"]


@given(st.lists(st.text("ab", min_size=1), max_size=1500), st.integers(1, 600), st.integers(1, 99))
def test_however_it_is_read_the_order_is_kept(data: list[str], keep: int, chunk: int) -> None:
    log = filled(*data, events=keep)
    events = texts(read(log, chunk=chunk))

    assert events[len(events) - min(len(data), keep) :] == data[-keep:]
    assert log.next == len(data)


async def test_a_waiting_reader_is_woken() -> None:
    log = filled()
    reader = Reader(log, 0, lambda first: b"")
    waiting = reader.wait()
    log.append(b"a")
    log.notify()
    await waiting
    reader.take(10)
    waiting = reader.wait()
    log.end()
    await waiting

    assert reader.at_end
