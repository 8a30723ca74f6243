"""Notes of half-written messages for the start after a crash."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_mobile.unfinished import Unfinished


def test_the_next_start_finds_what_was_unfinished(tmp_path: Path) -> None:
    """Once; privately; and a finished message is never among it."""
    path = tmp_path / "unfinished.json"
    notes = Unfinished(path)
    notes.note({"d": {"m1": "half", "m2": "whole"}, "e": {"m3": "third"}})
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    notes.finished("m2")
    notes.finished("m3")
    assert Unfinished(path).take() == {"d": {"m1": "half"}}
    assert Unfinished(path).take() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_comes_late_does_not_bring_a_message_back(tmp_path: Path) -> None:
    """It finished while the note was on its way to the disk."""
    path = tmp_path / "unfinished.json"
    notes = Unfinished(path)
    on_its_way = {"d": {"m1": "half", "m2": "other"}}
    notes.finished("m1")
    notes.note(on_its_way)
    assert Unfinished(path).take() == {"d": {"m2": "other"}}
    notes.note({})
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"d": 1, "e": {"m": 2}}'])
def test_a_damaged_file_is_nothing(tmp_path: Path, content: str) -> None:
    """It costs the notes, not the start."""
    path = tmp_path / "unfinished.json"
    path.write_text(content)
    assert not any(Unfinished(path).take().values())


def test_a_disk_that_does_not_work_costs_the_note_only(tmp_path: Path) -> None:
    """No folder to write to."""
    notes = Unfinished(tmp_path / "missing" / "unfinished.json")
    notes.note({"d": {"m": "text"}})
    notes.finished("m")
    assert notes.take() == {}
