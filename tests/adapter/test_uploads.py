"""Parts in any order become the file; limits hold before decoding and drop one upload alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile.protocol import (
    MAX_MEDIA_PARTS,
    MAX_OPEN_UPLOADS,
    MAX_UPLOAD_BUFFER_BYTES,
    ProtocolError,
)
from hermes_mobile.uploads import Upload, Uploads, check_parts

MIB = 1024 * 1024


def put(
    uploads: Uploads,
    id: str,
    part: int,
    parts: int,
    data: bytes = b"x",
    *,
    kind: str = "document",
    size: int | None = None,
    **said: str,
) -> tuple[Upload, bytearray] | None:
    return uploads.receive(
        id,
        kind=kind,
        mime=said.get("mime", ""),
        filename=said.get("filename", ""),
        caption=said.get("caption", ""),
        part=part,
        parts=parts,
        size=len(data) if size is None else size,
        decode=lambda: data,
    )


def refused(code: str, uploads: Uploads, *args: object, **kwargs: object) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        put(uploads, *args, **kwargs)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not caught.value.fatal
    return caught.value


def never() -> bytes:
    raise AssertionError("decoded beyond a limit")


@given(st.data(), st.lists(st.binary(max_size=20), min_size=2, max_size=12))
def test_any_order_with_repeats_gives_the_file(data: st.DataObject, parts: list[bytes]) -> None:
    order = data.draw(st.permutations(range(len(parts))))
    repeats = data.draw(st.lists(st.sampled_from(order), max_size=6))
    uploads = Uploads()
    sent: list[int] = []
    done = None
    for number in order:
        for again in [r for r in repeats if r in sent]:
            before = uploads.size
            assert put(uploads, "f", again, len(parts), parts[again]) is None
            assert uploads.size == before
        done = put(uploads, "f", number, len(parts), parts[number])
        sent.append(number)
        if done is None:
            assert uploads.size == sum(len(parts[n]) for n in sent)
    assert done is not None
    assert bytes(done[1]) == b"".join(parts)
    assert uploads.size == 0 and not uploads.open


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefghijk"),
            st.integers(0, 3),
            st.integers(1, 4),
            st.sampled_from([0, 1, MIB, 3 * MIB, 4 * MIB, 8 * MIB, 8 * MIB + 1]),
            st.sampled_from(["image", "video"]),
        ),
        max_size=60,
    )
)
def test_limits_hold_whatever_comes(frames: list[tuple[str, int, int, int, str]]) -> None:
    """Against a model: which parts of which upload are there, with which sizes."""
    uploads = Uploads()
    model: dict[str, tuple[str, int, dict[int, int]]] = {}
    for id, part, parts, size, kind in frames:
        decoded: list[int] = []

        def decode(size: int = size, decoded: list[int] = decoded) -> bytes:
            decoded.append(size)
            return bytes(size)

        held_before = dict(model)
        total = sum(sum(sizes.values()) for _, _, sizes in model.values())
        try:
            done = uploads.receive(
                id,
                kind=kind,
                mime="",
                filename="",
                caption="",
                part=part,
                parts=parts,
                size=size,
                decode=decode,
            )
        except ProtocolError as error:
            if error.code == "too_big":
                model.pop(id, None)
                assert not decoded
            else:
                assert part >= parts or model[id][:2] != (kind, parts)
            # No other upload suffers.
            assert {k for k in held_before if k != id} <= set(uploads.open)
        else:
            entry = model.setdefault(id, (kind, parts, {}))
            if part not in entry[2]:
                assert total + size <= MAX_UPLOAD_BUFFER_BYTES
                entry[2][part] = size
            if len(entry[2]) == parts:
                assert done is not None
                del model[id]
            else:
                assert done is None
        assert set(uploads.open) == set(model)
        assert len(uploads.open) <= MAX_OPEN_UPLOADS
        assert uploads.size == sum(sum(s.values()) for _, _, s in model.values())
        assert uploads.size <= MAX_UPLOAD_BUFFER_BYTES
    uploads.clear()
    assert uploads.size == 0


@pytest.mark.parametrize("parts", [0, -1, MAX_MEDIA_PARTS + 1, 10**30, -(10**30)])
def test_a_count_of_parts_outside_the_range(parts: int) -> None:
    refused("bad_frame", Uploads(), "f", 0, parts)


@pytest.mark.parametrize(("part", "parts"), [(-1, 2), (2, 2), (1, 1), (2048, 2048), (10**30, 2)])
def test_a_part_outside_the_count(part: int, parts: int) -> None:
    refused("bad_frame", Uploads(), "f", part, parts)


def test_the_edges_of_the_range_pass() -> None:
    check_parts(0, 1, "f")
    check_parts(MAX_MEDIA_PARTS - 1, MAX_MEDIA_PARTS, "f")


def test_as_many_parts_as_may_be() -> None:
    uploads = Uploads()
    for part in reversed(range(1, MAX_MEDIA_PARTS)):
        assert put(uploads, "f", part, MAX_MEDIA_PARTS, bytes([part % 256])) is None
    done = put(uploads, "f", 0, MAX_MEDIA_PARTS, b"\0")
    assert done is not None
    assert bytes(done[1]) == bytes(n % 256 for n in range(MAX_MEDIA_PARTS))


def test_one_upload_more_than_may_be_open() -> None:
    uploads = Uploads()
    for number in range(MAX_OPEN_UPLOADS):
        put(uploads, f"f{number}", 0, 2)
    with pytest.raises(ProtocolError) as caught:
        uploads.receive(
            "one more", kind="image", mime="", filename="", caption="", part=0, parts=2, size=1,
            decode=never,
        )  # fmt: skip
    assert caught.value.code == "too_big" and caught.value.frame_id == "one more"
    assert len(uploads.open) == MAX_OPEN_UPLOADS
    # A place gets free and the refused one may begin anew.
    assert put(uploads, "f0", 1, 2) is not None
    assert put(uploads, "one more", 0, 2) is None


def test_the_buffer_at_the_limit_and_one_past() -> None:
    uploads = Uploads()
    put(uploads, "a", 0, 3, bytes(5 * MIB))
    put(uploads, "b", 0, 2, bytes(3 * MIB - 1))
    put(uploads, "a", 1, 3, b"1")
    assert uploads.size == MAX_UPLOAD_BUFFER_BYTES
    with pytest.raises(ProtocolError) as caught:
        uploads.receive(
            "b", kind="document", mime="", filename="", caption="", part=1, parts=2, size=1,
            decode=never,
        )  # fmt: skip
    assert caught.value.code == "too_big"
    assert list(uploads.open) == ["a"] and uploads.size == 5 * MIB + 1


def test_a_whole_file_of_the_limit_in_parts() -> None:
    uploads = Uploads()
    put(uploads, "f", 0, 3, bytes(3 * MIB))
    put(uploads, "f", 2, 3, bytes(2 * MIB))
    done = put(uploads, "f", 1, 3, bytes(3 * MIB))
    assert done is not None and len(done[1]) == 8 * MIB
    assert uploads.size == 0


def test_late_parts_of_a_dropped_upload_do_not_open_it_anew() -> None:
    uploads = Uploads()
    put(uploads, "f", 0, 4, bytes(5 * MIB))
    refused("too_big", uploads, "f", 1, 4, bytes(5 * MIB))
    assert uploads.size == 0
    refused("too_big", uploads, "f", 2, 4)
    assert not uploads.open
    assert put(uploads, "f", 0, 2) is None
    assert put(uploads, "f", 1, 2) is not None


def test_an_upload_that_was_dropped_begins_anew_in_any_order() -> None:
    uploads = Uploads()
    for part in (5, 4):
        put(uploads, "f", part, 6, bytes(3 * MIB))
    refused("too_big", uploads, "f", 3, 6, bytes(3 * MIB))
    for part in (2, 1, 0):  # they were on their way: nothing is held for them
        refused("too_big", uploads, "f", part, 6, bytes(3 * MIB))
    assert not uploads.open
    for part in (1, 2):
        assert put(uploads, "f", part, 3, b"x") is None
    assert put(uploads, "f", 0, 3, b"x") is not None


def test_the_ninth_upload_is_taken_later_from_its_last_part() -> None:
    uploads = Uploads()
    for number in range(8):
        put(uploads, f"f{number}", 0, 2)
    refused("too_big", uploads, "late", 1, 2)
    assert put(uploads, "f0", 1, 2) is not None
    assert put(uploads, "late", 1, 2) is None
    assert put(uploads, "late", 0, 2) is not None


@pytest.mark.parametrize(("kind", "parts"), [("image", 3), ("video", 2), ("video", 1)])
def test_parts_that_disagree_leave_the_upload_open(kind: str, parts: int) -> None:
    uploads = Uploads()
    put(uploads, "f", 0, 2, b"first ", kind="image")
    refused("bad_frame", uploads, "f", parts - 1, parts, kind=kind)
    done = put(uploads, "f", 1, 2, b"second", kind="image")
    assert done is not None and bytes(done[1]) == b"first second"


def test_what_does_not_decode_is_neither_kept_nor_opened() -> None:
    def broken() -> bytes:
        raise ProtocolError("bad_frame", "no base64")

    uploads = Uploads()
    for part in (0, 1):
        with pytest.raises(ProtocolError):
            uploads.receive(
                "f", kind="image", mime="", filename="", caption="", part=part, parts=2, size=9,
                decode=broken,
            )  # fmt: skip
        assert uploads.size == part  # nothing; then the one good byte below
        put(uploads, "f", 0, 2, kind="image")
    with pytest.raises(ProtocolError):  # a broken repeat is a broken frame too
        uploads.receive(
            "f", kind="image", mime="", filename="", caption="", part=0, parts=2, size=9,
            decode=broken,
        )  # fmt: skip
    assert uploads.size == 1


def test_any_part_may_describe_the_file() -> None:
    uploads = Uploads()
    put(uploads, "f", 1, 3, caption="first said")
    put(uploads, "f", 2, 3, caption="second", mime="image/png")
    done = put(uploads, "f", 0, 3, mime="image/gif", filename="cat.png")
    assert done is not None
    assert (done[0].caption, done[0].mime, done[0].filename) == (
        "first said",
        "image/png",
        "cat.png",
    )


def test_forgetting_frees() -> None:
    uploads = Uploads()
    put(uploads, "f", 0, 2, bytes(100))
    put(uploads, "g", 0, 2, bytes(10))
    uploads.forget("f")
    uploads.forget("unknown")
    assert uploads.size == 10
