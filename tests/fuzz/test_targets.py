"""The fuzz targets, bounded: every input of the corpus, and what hypothesis thinks of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.run import CORPUS
from tests.fuzz.targets import TARGETS

INPUTS = sorted(path for name in TARGETS for path in (CORPUS / name).iterdir())

# Pieces from which each grammar is made: random bytes alone rarely get past its first character.
PIECES: dict[str, list[bytes]] = {
    "frames": [
        b'{"t":"text","id":"a","text":"hi"}', b'{"t":"ping","ts":', b'{"t":"media","id":"f",',
        b'"kind":"image","data":"QUJD"', b'"part":0,"parts":2', b'"part":1,"parts":2', b"}", b"\n",
        b'{"t":"prompt","prompt_id":"p","option_id":"once"}', b'{"t":"deliver","id":"d","text":"x"',
        b'{"t":"audio","id":"v","format":"wav","data":"QUJD"}', b",", b"null", b"[", b"]", b"1e999",
        b'"\\ud83d"', b"\xf0\x9f\x98\x80", b"\xff", b'"id":', b'"', b"\\u0000", b"9" * 40, b"{",
    ],
    "uploads": [bytes([n]) for n in range(0, 256, 5)],
    "textsplit": [
        b"word ", b"\n\n", b"\r\n", "é".encode(), "e\u0301".encode(), "👩‍👩‍👧".encode(),
        "🇩🇪".encode(),
        b". ", "。".encode(), "\u200d".encode(), "\u0301".encode() * 9, b"\x00", b"\x20",
    ],
    "sse": [
        b"data: ", b"data:", b"id: 3", b"id:\0", b"event: x", b"\n", b"\r", b"\r\n", b":", b"\n\n",
        b"\xef\xbb\xbf", "当".encode(), b"retry: 5", b'{"event":"x"}', b"data", b"\x10", b"\xff",
    ],
    "session_ids": [
        b"mnote_", b"_trace_", b"trace_", b"doc", b"_", b".", b"..", b":", b"-", b"|", b"a" * 60,
        b"/", b"%2f", "ı".encode(), b"\n", b"1",
    ],
    "origins": [
        b"http://", b"https://", b"localhost", b"127.0.0.1", b":8750", b"\n", b"@", b".",
        b"evil.example",
        b"notes.example.org", b"agent.example.org", b"[::1]", b"/", b"#", b"?", b"null", b"\t",
        b" ",
        b"%00", b"LOCALHOST", b"\\", b":", b"0x7f.1", b"application/json", b";charset=utf-8",
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_input_of_the_corpus(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_what_hypothesis_thinks_of(name: str) -> None:
    pieces = st.sampled_from(PIECES[name]) | st.binary(max_size=8)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(pieces, max_size=24).map(b"".join))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


def test_the_corpus_is_small() -> None:
    assert all(any(p.parent.name == name for p in INPUTS) for name in TARGETS)
    assert sum(path.stat().st_size for path in INPUTS) < 200_000
