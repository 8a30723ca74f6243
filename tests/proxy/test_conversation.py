"""What Hermes stores, in the words of the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_client_proxy import conversation

VECTORS: dict[str, Any] = json.loads(
    Path(__file__).parents[2].joinpath("contracts/client-proxy-v1/vectors/answers.json").read_text()
)


def name_of(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", VECTORS["sessions"], ids=name_of)
def test_a_session_is_as_in_the_contract(case: dict[str, Any]) -> None:
    found = conversation.summary(case["upstream"], "doc_1")

    assert msgspec.to_builtins(found) == case["contract"]


@pytest.mark.parametrize("case", VECTORS["messages"], ids=name_of)
def test_a_message_is_as_in_the_contract(case: dict[str, Any]) -> None:
    assert msgspec.to_builtins(conversation.message(case["upstream"])) == case["contract"]


@pytest.mark.parametrize("case", VECTORS["usage"], ids=name_of)
def test_the_usage_is_as_in_the_contract(case: dict[str, Any]) -> None:
    assert msgspec.to_builtins(conversation.usage(case["upstream"])) == case["contract"]


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("  a\n\tb\x00c  ", "a b c"),
        ("می\u200cخواهم", "میخواهم"),
        ("👨\u200d👩", "👨👩"),
        ("\u202eabc\u2028d", "abc d"),
        ("\u200b \n", ""),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 99 + "…"),
    ],
)
def test_a_title_is_what_hermes_takes(given: str, title: str) -> None:
    assert conversation.clean_title(given) == title


def test_a_title_with_a_suffix_stays_short_enough() -> None:
    assert conversation.title_with_suffix("Plan", "ab12") == "Plan (ab12)"
    assert len(conversation.title_with_suffix("x" * 100, "ab12")) == 100
