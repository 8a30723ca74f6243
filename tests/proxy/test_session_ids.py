"""A session id names one document, and reads back to it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.contract import ProxyError
from hermes_client_proxy.session_ids import check_session_id, document_of, session_id_for

VECTORS: dict[str, Any] = json.loads(
    Path(__file__)
    .parents[2]
    .joinpath("contracts/client-proxy-v1/vectors/session_ids.json")
    .read_text()
)
documents = st.from_regex(r"[A-Za-z0-9._:-]{1,40}", fullmatch=True).filter(lambda d: ".." not in d)
# Underscores and the word itself are what could confuse the reading.
awkward = st.lists(
    st.sampled_from(["doc", "1", "_", "trace", "trace_", "mnote_", "a.b", "-"]), min_size=1
).map("".join)


@pytest.mark.parametrize("case", VECTORS["read"], ids=lambda case: repr(case["sessionId"]))
def test_reads_as_in_the_contract(case: dict[str, Any]) -> None:
    assert document_of(case["sessionId"]) == case["document"]


@pytest.mark.parametrize("case", VECTORS["make"], ids=lambda case: case["sessionId"])
def test_makes_as_in_the_contract(case: dict[str, Any]) -> None:
    assert session_id_for(case["documentId"], case["traceId"]) == case["sessionId"]


@given(documents | awkward, st.none() | st.text(min_size=1, max_size=140) | awkward)
def test_what_is_made_reads_back_to_its_document(document: str, trace: str | None) -> None:
    try:
        session = session_id_for(document, trace)
    except ProxyError as error:
        assert error.code == "hermes_client_bad_request"
        return

    assert document_of(session) == document


@given(documents | awkward, documents | awkward, awkward)
def test_no_session_passes_for_one_of_another_document(a: str, b: str, trace: str) -> None:
    if a != b and len(a) < 128 and len(b) < 128:
        assert session_id_for(a, trace) != session_id_for(b, trace)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    document = document_of(text)

    assert document is None or text.startswith(f"mnote_{document}_")


def test_a_long_trace_is_kept_while_the_id_has_room() -> None:
    trace = "trace_" + "a" * 122

    assert session_id_for("doc_1", trace) == f"mnote_doc_1_{trace}"
    long = session_id_for("d" * 128, trace)
    assert document_of(long) == "d" * 128 and trace not in long


def test_the_same_trace_gives_the_same_session_and_none_a_new_one() -> None:
    assert session_id_for("d", "some trace") == session_id_for("d", "some trace")
    assert session_id_for("d", None) != session_id_for("d", None)


@pytest.mark.parametrize("document", ["", "a/b", "a b", "..", "a..b", "é", "x" * 129, "a\n"])
def test_a_document_that_cannot_be_named_is_refused(document: str) -> None:
    with pytest.raises(ProxyError):
        session_id_for(document, None)


def test_a_refused_id_is_not_repeated() -> None:
    with pytest.raises(ProxyError) as refused:
        check_session_id("private text")

    assert "private" not in refused.value.message
