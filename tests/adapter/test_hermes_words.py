"""Hermes' own words where its language files are missing: in each supported Hermes, and without."""

from __future__ import annotations

import ast
import string
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_mobile import hermes_words
from tests.e2e.hermes_process import VERSIONS, environment_of


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def calls(version: str) -> Iterator[tuple[str, set[str]]]:
    """Every literal `t("name", field=...)` in this Hermes: the name and its fields."""
    (packages,) = (environment_of(version) / "lib").glob("python3*/site-packages")
    for file in [
        *(packages / "gateway").rglob("*.py"),
        *(packages / "tools").rglob("*.py"),
        packages / "hermes_cli" / "commands.py",
    ]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "t" and node.args:
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value, {word.arg or "**" for word in node.keywords}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_text_asks_for_a_field_that_hermes_does_not_give(version: str) -> None:
    """A field too many would show its braces to the person."""
    for name, given in calls(version):
        text = hermes_words.ENGLISH.get(name)
        if text is not None and "**" not in given:
            assert fields(text) <= given, name


def test_the_newest_hermes_knows_the_names() -> None:
    known = {name for name, _ in calls(VERSIONS[-1])}
    beginnings = tuple(name for name in known if name.endswith("."))
    chosen = {  # put together or looked up where they are used
        "gateway.approval_expired", "gateway.confirm.destructive_optout",
        "gateway.busy.action_restarting",
    }  # fmt: skip
    names = {n for n in hermes_words.ENGLISH if not n.startswith(("gateway.deny", *beginnings))}
    assert names - known <= chosen | {"gateway.deny.stale"}


@pytest.mark.parametrize("has_file", [True, False])
def test_only_what_is_missing_is_added(
    has_file: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    if has_file:
        (tmp_path / "en.yaml").write_text("gateway: {}")
    own = {"gateway.help.header": "Own words"}
    module = SimpleNamespace(
        _locales_dir=lambda: tmp_path, t=lambda name, lang: own.get(name, name)
    )
    monkeypatch.setitem(sys.modules, "agent", SimpleNamespace(i18n=module))
    monkeypatch.setitem(sys.modules, "agent.i18n", module)
    added: dict[str, Any] = {}
    ctx = SimpleNamespace(register_locale=lambda lang, texts: added.update({lang: texts}))
    hermes_words.add_to(ctx)
    if has_file:
        assert not added
    else:
        assert "gateway.help.header" not in added["en"]
        assert added["en"]["gateway.stop.stopped"].startswith("⚡")


def test_a_hermes_without_the_call_or_with_another_one_is_left_alone() -> None:
    assert hermes_words.add_to(SimpleNamespace()) == 0
    assert hermes_words.add_to(SimpleNamespace(register_locale=None)) == 0
    assert hermes_words.add_to(SimpleNamespace(register_locale=lambda: None)) == 0
