"""No known secret leaves, whole, cut, encoded, or in pieces."""

from __future__ import annotations

import base64
import itertools
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.redact import MASK, Redactor, TextStream

KEY = "sk-hermes/0123+456789=abcdef"
redactor = Redactor([KEY])


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"Bearer {KEY}",
        f"key={quote(KEY, safe='')}&x=1",
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        json.dumps({"k": KEY}),
        KEY[:-4] + "…",
    ],
)
def test_every_spelling_is_masked(text: str) -> None:
    masked = redactor.text(text)

    assert MASK in masked
    assert KEY[3:20] not in masked
    assert redactor.data(text.encode()) == masked.encode()


def test_keys_of_objects_and_deep_values_are_masked() -> None:
    assert redactor.value({KEY: [{"a": KEY}, 1, None]}) == {MASK: [{"a": MASK}, 1, None]}


def test_other_text_stays_the_same() -> None:
    assert redactor.text("sk-hermes is a prefix") == "sk-hermes is a prefix"
    assert Redactor([None, "", "abc"]).text("abc") == "abc"


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


def passed(parts: list[str], secrets: list[str]) -> list[str]:
    stream = TextStream(Redactor(secrets))
    return [*map(stream.push, parts), stream.close()]


@given(
    st.lists(st.sampled_from(["hello ", KEY, KEY[:9], "s", "sk-", "当前页", KEY[:-1]]), max_size=8),
    st.lists(st.integers(min_value=0), max_size=60),
)
def test_a_secret_over_several_pieces_never_leaves(words: list[str], cuts: list[int]) -> None:
    out = "".join(passed(pieces("".join(words), cuts), [KEY]))

    assert KEY[3:-8] not in out


@given(st.text("sk-ab ", max_size=30), st.lists(st.integers(min_value=0), max_size=20))
def test_a_text_without_a_secret_arrives_whole(text: str, cuts: list[int]) -> None:
    assert "".join(passed(pieces(text, cuts), [KEY])) == text


@given(
    st.text("ab", min_size=8, max_size=12),
    st.text("ab", max_size=40),
    st.lists(st.integers(min_value=0), max_size=40),
)
def test_secrets_that_overlap_themselves_do_not_leave_either(
    secret: str, text: str, cuts: list[int]
) -> None:
    out = "".join(passed(pieces(text, cuts), [secret]))

    assert secret not in out


def test_a_word_is_not_kept_waiting_for_its_last_letters() -> None:
    stream = TextStream(redactor)

    assert [stream.push(word) for word in ("clas", "s ", "desk", " sk-h", "otel")] == [
        "clas",
        "s ",
        "desk",
        " sk-",
        "hotel",
    ]


def test_letter_by_letter_at_most_three_letters_leave() -> None:
    out = passed(list(f"the key {KEY} is it"), [KEY])

    assert "".join(out) == f"the key sk-{MASK} is it"


@given(st.text("sk-hermes/0123+456789=abcdefZXN "), st.integers(0, len(KEY)))
def test_what_is_plain_has_nothing_to_hold_back(text: str, cut: int) -> None:
    for piece in (text, text + KEY[:cut]):
        if redactor.clean(piece):
            assert not redactor.found_in(piece) and not redactor.open_tail(piece)
    assert not redactor.clean(text + KEY)
    assert cut == 0 or not redactor.clean(text + KEY[:cut])


@pytest.mark.parametrize("length", [6, 7, 16, 17, 63, 255, 257, 600, 2500])
def test_a_secret_may_be_long(length: int) -> None:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
    secret = "".join(letters[(at * at + at // 7) % len(letters)] for at in range(length))
    redactor = Redactor([secret])
    text = f"it is {secret}, no less"

    assert (
        redactor.text(text) == redactor.data(text.encode()).decode() == "it is [redacted], no less"
    )
    for size in (1, 5, 200, 10_000):
        stream = TextStream(redactor)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        left = "".join(map(stream.push, pieces)) + stream.close()
        assert left.startswith("it is ") and left.endswith("[redacted], no less")
        assert len(left) <= len("it is xxx[redacted], no less")
    most = secret[: max(16, (length * 3 + 3) // 4)]
    assert secret[: length // 2] not in redactor.text(f"cut off: {most}") or length < 16
