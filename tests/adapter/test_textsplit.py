"""Chunks join back to the text, keep the limit and tear no visible character."""

from __future__ import annotations

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_mobile.protocol import DEFAULT_CHUNK_LIMIT
from hermes_mobile.textsplit import split

PIECES = [
    "a", "b", "word ", "Satz. ", "Ende! ", "文。", "\n", "\n\n", "\r\n", "\r", "\t", " ", "\u2028",
    "e\u0301", "\u0301", "\u200d", "\ufe0f", "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "🇫", "한",
    "\u1100", "\u1161", "\u11a8", "\u0600", "\u0903", "क्ष", "\u0e33", "?\" ", "…", "\x00", "\ud800",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=60).map("".join)
LIMITS = st.integers(min_value=1, max_value=40)


def clusters(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in regex.finditer(r"\X", text)]


def torn(text: str, chunks: list[str], limit: int) -> list[int]:
    """Cuts inside a cluster that would have fitted into a chunk."""
    cuts, at = set(), 0
    for chunk in chunks[:-1]:
        at += len(chunk)
        cuts.add(at)
    return [
        cut
        for start, end in clusters(text)
        for cut in cuts
        if start < cut < end and end - start <= limit
    ]


@given(TEXTS, LIMITS)
@example("\u0600\u0600\u0600🇩🇪🇫🇷", 4)
@example("🇩🇪" * 20, 3)
@example("\r\n" * 20, 3)
@example("", 1)
def test_chunks_join_to_the_text_within_the_limit(text: str, limit: int) -> None:
    chunks = split(text, limit)
    assert "".join(chunks) == text
    assert all(len(chunk) <= limit for chunk in chunks)
    assert all(chunks) or chunks == [""]
    assert torn(text, chunks, limit) == []


@given(TEXTS, TEXTS, LIMITS)
@example("ab ", "\u0301cdefg", 3)
@example("abc\r", "\ndefg", 4)
def test_a_grown_text_keeps_its_finished_chunks(text: str, more: str, limit: int) -> None:
    before = split(text, limit)
    grown = text + more
    chunks = split(grown, limit, previous=before)
    assert "".join(chunks) == grown
    assert all(len(chunk) <= limit for chunk in chunks)
    assert torn(grown, chunks, limit) == []
    kept = before[:-1]
    assert chunks[: len(kept)] == kept


@given(TEXTS, TEXTS, LIMITS, LIMITS)
@example("abcdef", "abc\u0301def", 3, 3)
@example("abcdefgh", "abcdefgh", 4, 2)
@example("ab\u1100xyz", "ab\u1100\u1161yz", 3, 3)
@example("ab🇩xyz", "ab🇩🇪yz", 3, 3)
@example("a👩\u200dxyz", "a👩\u200d👧yz", 3, 4)
def test_any_earlier_chunks_never_break_the_rules(
    earlier: str, text: str, then: int, limit: int
) -> None:
    previous = split(earlier, then)
    chunks = split(text, limit, previous=previous)
    assert "".join(chunks) == text
    assert all(len(chunk) <= limit for chunk in chunks)
    assert all(chunks) or chunks == [""]
    if torn(earlier, previous, 0) == torn(earlier, previous, len(earlier)):  # no monster was cut
        assert torn(text, chunks, limit) == []


@given(st.lists(st.text(max_size=6), max_size=8), TEXTS, LIMITS)
def test_chunks_that_no_split_made_are_harmless(previous: list[str], text: str, limit: int) -> None:
    chunks = split(text, limit, previous=previous)
    assert "".join(chunks) == text
    assert all(len(chunk) <= limit for chunk in chunks)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("aaaa.\n\nbbb ccc. ddd\neee fff", "aaaa.\n\n"),
        ("aaaaaaa\nbbb. ccc ddd eee", "aaaaaaa\n"),
        ("aaaaa bb. ccc ddd eee", "aaaaa bb. "),
        ("aaaaa bbb ccccccccccc", "aaaaa bbb "),
        ("aaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaa"),
        ("文文文文文。文文文文文文文文文", "文文文文文。"),
        ('He said "no." And left', 'He said "no." '),
    ],
)
def test_the_cut_falls_at_the_best_place(text: str, first: str) -> None:
    limit = 14 if "He" in text else 12
    assert split(text, limit)[0] == first


def test_the_limit_holds_exactly() -> None:
    assert split("x" * DEFAULT_CHUNK_LIMIT) == ["x" * DEFAULT_CHUNK_LIMIT]
    assert [len(c) for c in split("x" * (DEFAULT_CHUNK_LIMIT + 1))] == [DEFAULT_CHUNK_LIMIT, 1]
    assert [len(c) for c in split("e\u0301" * 1750)] == [3500]
    assert [len(c) for c in split("ab" * 1749 + "ae\u0301")] == [3499, 2]


def test_a_cluster_longer_than_a_chunk_is_cut() -> None:
    monster = "e" + "\u0301" * 20_000
    chunks = split(monster)
    assert "".join(chunks) == monster
    assert max(map(len, chunks)) == DEFAULT_CHUNK_LIMIT


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        split("abc", 0)
