"""What is on its way to a device: ordered, bounded, in its newest form, counted exactly."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile.outbox import (
    MAX_OUTBOX_BYTES,
    MAX_OUTBOX_FRAMES,
    Again,
    Answer,
    Deferred,
    File,
    Kept,
    Outbox,
    OutboxFull,
    OutgoingMedia,
    Ready,
    State,
)
from hermes_mobile.protocol import DEFAULT_CHUNK_LIMIT, MEDIA_CHUNK_BYTES

LONG = DEFAULT_CHUNK_LIMIT


def next_frame(box: Outbox, conn: int, partial: bool) -> bytes | None:
    frames = box.next_frames(conn, partial, 0.0, 1)
    assert len(frames) < 2
    return frames[0] if frames else None


def drain(box: Outbox, conn: int = 1, partial: bool = False) -> list[dict[str, Any]]:
    frames = []
    while (frame := next_frame(box, conn, partial)) is not None:
        frames.append(json.loads(frame))
    assert not box and (box.frames, box.bytes, len(box)) == (0, 0, 0)
    return frames


def frame(name: str) -> bytes:
    return json.dumps({"t": name}).encode()


def names(frames: list[dict[str, Any]]) -> list[str]:
    return [f.get("id", f["t"]) for f in frames]


def test_frames_leave_in_order() -> None:
    box = Outbox()
    assert not box and next_frame(box, 1, False) is None
    for name in "abc":
        box.put(Ready(frame(name)))
    box.put_first(Kept(frame("first")))
    assert names(drain(box)) == ["first", "a", "b", "c"]


def test_frames_leave_together_until_there_is_no_room() -> None:
    """The frame that fills the room is the last; what is larger leaves all the same, alone."""
    box, words = Outbox(), Answer("m", "x" * (2 * LONG), final=True)
    words.weigh()
    for item in (
        Ready(frame("a")),
        Deferred(lambda now: None),
        Kept(frame("b" * 100)),
        words,
        File("f", OutgoingMedia("image", "image/png", "f.png", b"1")),
        Ready(frame("z")),
    ):
        box.put(item)
    size = len(frame("a")) + len(frame("b" * 100))
    together = [box.next_frames(1, False, 0.0, room) for room in (size, 1, 10 * LONG, 1)]
    assert [names([json.loads(f) for f in frames]) for frames in together] == [
        ["a", "b" * 100],
        ["m"],
        ["m", "f", "z"],
        [],
    ]
    assert (box.frames, box.bytes) == (0, 0)


def test_a_newer_state_takes_the_place_of_an_older_one() -> None:
    box = Outbox()
    box.put(State("avatar", frame("thinking")))
    box.put(State("typing", frame("typing")))
    box.put(Ready(frame("message")))
    box.put(State("avatar", frame("speaking")))
    assert names(drain(box)) == ["typing", "message", "speaking"]


def test_an_answer_leaves_in_its_newest_form_in_its_place() -> None:
    box, answer = Outbox(), Answer("m", "one", final=False)
    box.revise(answer)
    box.put(Ready(frame("later")))
    answer.text, answer.final = "one two", True
    box.revise(answer)
    assert drain(box) == [
        {"t": "message", "id": "m", "text": "one two", "chunk": {"index": 0, "total": 1},
         "final": True},
        {"t": "later"},
    ]  # fmt: skip


def test_revisions_without_the_addition_send_all_chunks() -> None:
    box, answer = Outbox(), Answer("m", "x" * LONG + "y", final=False)
    box.revise(answer)
    first = drain(box)
    assert [(f["chunk"]["index"], f["final"], "edit" in f) for f in first] == [
        (0, False, False),
        (1, False, False),
    ]
    answer.text += "z"
    answer.final = True
    box.revise(answer)
    second = drain(box)
    assert [(f["chunk"]["index"], f["final"], f["edit"]) for f in second] == [
        (0, False, True),
        (1, True, True),
    ]
    assert "".join(f["text"] for f in second) == answer.text


def test_partial_edits_send_what_changed() -> None:
    box, answer = Outbox(), Answer("m", "x" * LONG + "y", final=False)
    box.revise(answer)
    assert len(drain(box, partial=True)) == 2
    answer.text += "z"
    box.revise(answer)
    assert [f["chunk"] for f in drain(box, partial=True)] == [{"index": 1, "total": 2}]
    box.revise(answer)  # nothing changed
    assert drain(box, partial=True) == []
    answer.final = True  # nothing but this: at least one frame
    box.revise(answer)
    (last,) = drain(box, partial=True)
    assert last["final"] and last["edit"] and last["chunk"]["index"] == 1
    answer.text = "short"
    box.revise(answer)
    (shorter,) = drain(box, partial=True)
    assert shorter["chunk"] == {"index": 0, "total": 1} and shorter["final"]


def test_a_new_connection_gets_all_chunks_first() -> None:
    box, answer = Outbox(), Answer("m", "x" * LONG + "y", final=False)
    box.revise(answer)
    drain(box, conn=1, partial=True)
    box.connection_gone()
    answer.text += "z"
    box.revise(answer)
    assert len(drain(box, conn=2, partial=True)) == 2


def test_what_had_half_left_leaves_again_whole() -> None:
    box, answer = Outbox(), Answer("m", "x" * (3 * LONG), final=True)
    box.revise(answer)
    box.put(Kept(frame("later")))
    box.put(Ready(frame("of the old connection")))
    assert next_frame(box, 1, False) is not None
    assert not box.connection_gone()
    frames = drain(box, conn=2)
    assert names(frames) == ["m", "m", "m", "later"]
    assert [f["final"] for f in frames[:3]] == [False, False, True]


def test_what_had_left_whole_does_not_leave_again() -> None:
    box = Outbox()
    for item in (Ready(frame("a")), Kept(frame("b")), Deferred(lambda now: frame("c"))):
        box.put(item)
    box.revise(Answer("d", "text", final=True))
    box.put(File("e", OutgoingMedia("image", "image/png", "e.png", b"1")))
    for _ in range(5):
        assert next_frame(box, 1, False) is not None
        box.connection_gone()
    assert not box and box.bytes == 0


def test_a_newer_revision_behind_one_that_is_leaving() -> None:
    box, answer = Outbox(), Answer("m", "x" * (2 * LONG), final=False)
    box.revise(answer)
    assert next_frame(box, 1, True) is not None
    answer.text, answer.final = "y" * (2 * LONG), True
    box.revise(answer)
    frames = drain(box, partial=True)
    assert [(f["text"][0], f["final"]) for f in frames] == [
        ("x", False),
        ("y", False),
        ("y", True),
    ]


def test_what_was_for_one_connection_goes_with_it() -> None:
    box = Outbox()
    box.put(Ready(frame("pong")))
    box.put(Again(lambda now: frame("card")))
    box.put(Deferred(lambda now: frame("new card")))
    box.put(State("typing", frame("typing")))
    assert box.connection_gone()
    assert names(drain(box)) == ["new card"]


def test_what_is_not_to_be_seen_any_more_is_left_out() -> None:
    box = Outbox()
    box.put(Deferred(lambda now: None))
    box.put(Ready(frame("a")))
    assert names(drain(box)) == ["a"]
    item = Deferred(lambda now: frame("b"))
    box.put(item)
    box.discard(item)
    box.discard(item)
    assert drain(box) == []


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, 1),
        (1, 1),
        (MEDIA_CHUNK_BYTES, 1),
        (MEDIA_CHUNK_BYTES + 1, 2),
        (8 * 1024 * 1024, 3),
    ],
)
def test_a_file_leaves_in_parts(size: int, parts: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    box = Outbox()
    box.put(File("f", OutgoingMedia("document", "a/b", "f", data[:size], caption="c")))
    frames = drain(box)
    assert [(f["part"], f["parts"], f["final"], f["size"]) for f in frames] == [
        (n, parts, n == parts - 1, size) for n in range(parts)
    ]
    assert b"".join(b64decode(f["data"]) for f in frames) == data[:size]


def test_a_file_by_its_address_has_no_data() -> None:
    box = Outbox()
    box.put(File("f", OutgoingMedia("image", "image/png", "f.png", url="https://x/f.png")))
    (only,) = drain(box)
    assert only["url"] == "https://x/f.png" and "data" not in only and only["final"]


def test_a_full_box_keeps_what_it_has() -> None:
    box = Outbox()
    for _ in range(MAX_OUTBOX_FRAMES):
        box.keep(Kept(b"{}"))
    with pytest.raises(OutboxFull):
        box.keep(Kept(b"{}"))
    with pytest.raises(OutboxFull):
        box.revise(Answer("m", "text", final=True))
    assert box.frames == MAX_OUTBOX_FRAMES and not box.full
    box.put(Ready(b"{}"))
    assert box.full


def test_bytes_are_bounded_too_but_one_alone_always_fits() -> None:
    box = Outbox()
    big = OutgoingMedia("document", "a/b", "f", bytes(MAX_OUTBOX_BYTES))
    box.keep(File("f", big))
    with pytest.raises(OutboxFull):
        box.keep(Kept(b"{}"))


BOX_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ready", "kept", "state", "card", "revise", "take", "gone", "restate"]),
        st.integers(0, 2),
        st.integers(0, 3 * LONG),
        st.booleans(),
    ),
    max_size=50,
)


@given(BOX_STEPS)
def test_the_accounts_are_exact(steps: list[tuple[str, int, int, bool]]) -> None:
    box, conn = Outbox(), 1
    answers = [Answer(f"m{n}", "", final=False) for n in range(3)]
    for step, number, length, flag in steps:
        answer = answers[number]
        if step == "ready":
            box.put(Ready(frame("r")))
        elif step == "kept":
            box.keep(Kept(frame("k")))
        elif step == "state":
            box.put(State(str(number), frame("s")))
        elif step == "card":
            box.put((Again if flag else Deferred)(lambda now: frame("c")))
        elif step == "revise":
            answer.text, answer.final = "é" * length, flag
            box.revise(answer)
        elif step == "restate":
            box.restate(answer)
        elif step == "take":
            next_frame(box, conn, flag)
        else:
            box.connection_gone()
            conn += 1
        weights = [(item.number, item.weight) for item in box._items]
        if box._leaving is not None:
            weights.append(box._leaving[3])
        assert box.frames == sum(number for number, _ in weights)
        assert box.bytes == sum(weight for _, weight in weights)
        assert bool(box) == bool(weights)
        for a in answers:
            assert a.waiting == any(i is a for i in box._items)
    drain(box, conn)
