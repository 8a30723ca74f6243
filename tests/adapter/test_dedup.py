"""Reserve, hand over, keep; release on failure; bounded in time and number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile.dedup import MAX_ENTRIES, WINDOW_SECONDS, Dedup, Seen


def test_an_id_is_taken_once() -> None:
    dedup = Dedup()
    assert dedup.reserve("a", 0) is Seen.NEW
    assert dedup.reserve("a", 1) is Seen.RESERVED
    dedup.keep("a", 2)
    assert dedup.reserve("a", 3) is Seen.TAKEN


def test_a_failed_hand_over_frees_the_id() -> None:
    dedup = Dedup()
    dedup.reserve("a", 0)
    dedup.release("a")
    assert dedup.reserve("a", 0) is Seen.NEW
    dedup.release("never seen")


def test_the_window_ends_exactly() -> None:
    dedup = Dedup()
    dedup.keep("a", 100.0)
    assert dedup.look("a", 100.0 + WINDOW_SECONDS - 0.001) is Seen.TAKEN
    assert dedup.look("a", 100.0 + WINDOW_SECONDS) is Seen.NEW


def test_a_long_hand_over_outlives_the_window() -> None:
    dedup = Dedup()
    dedup.reserve("slow", 0)
    assert dedup.look("slow", 10 * WINDOW_SECONDS) is Seen.RESERVED


def test_the_oldest_goes_past_the_bound() -> None:
    dedup = Dedup()
    for number in range(MAX_ENTRIES + 1):
        dedup.keep(str(number), number / 100)
    assert len(dedup) == MAX_ENTRIES
    assert dedup.look("0", 40.0) is Seen.NEW
    assert dedup.look("1", 40.0) is Seen.TAKEN


def test_it_says_about_4000_entries_and_600_seconds() -> None:
    assert (MAX_ENTRIES, WINDOW_SECONDS) == (4000, 600.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "keep", "release", "look", "wait"]),
            st.sampled_from("abcde"),
            st.floats(0, 700, allow_nan=False),
        ),
        max_size=80,
    )
)
def test_against_a_model(steps: list[tuple[str, str, float]]) -> None:
    dedup, now = Dedup(entries=3), 0.0
    reserved: set[str] = set()
    taken: list[tuple[str, float]] = []
    for step, key, seconds in steps:
        if step == "wait":
            now += seconds
        elif step == "keep" and key in reserved:
            dedup.keep(key, now)
            reserved.discard(key)
            taken = [t for t in taken if t[0] != key] + [(key, now)]
        elif step == "release" and key in reserved:
            dedup.release(key)
            reserved.discard(key)
        taken = [t for t in taken if now - t[1] < WINDOW_SECONDS][-3:]
        expected = (
            Seen.RESERVED
            if key in reserved
            else Seen.TAKEN
            if any(t[0] == key for t in taken)
            else Seen.NEW
        )
        if step == "reserve":
            assert dedup.reserve(key, now) is expected
            if expected is Seen.NEW:
                reserved.add(key)
        else:
            assert dedup.look(key, now) is expected
        assert len(dedup) <= len(reserved) + 3
