"""What Hermes may write and strict JSON does not know costs no more than itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy import upstream_json


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": "x\\ud83d"}', {"a": "x\ufffd"}),
        (b'{"\\udc00": 1}', {"\ufffd": 1}),
        (b'["\\ud83d\\ude00", "\\ud800"]', ["\U0001f600", "\ufffd"]),
        (b"[NaN, Infinity, -Infinity, 1e999, 1.5]", [None, None, None, None, 1.5]),
        (b'{"a": "x\xe6\x96"}', {"a": "x\ufffd"}),
    ],
)
def test_what_is_no_character_or_number_is_replaced(raw: bytes, value: Any) -> None:
    assert upstream_json.read(raw) == value


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"{", b'{"a": 1} x', b"[" * 200_000, b"\xff\xfe", b"1" * 10_000 + b"x"]
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        upstream_json.read(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(st.characters(codec=None)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_all_that_python_writes_is_read_and_can_be_written(value: Any) -> None:
    msgspec.json.encode(upstream_json.read(json.dumps(value).encode()))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        msgspec.json.encode(upstream_json.read(raw))
    except ValueError:
        pass
