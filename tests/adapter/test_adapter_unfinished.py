"""Notes of half-written messages for the start after a crash."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_mobile.unfinished import Unfinished


def test_the_next_start_finds_what_was_unfinished(tmp_path: Path) -> None:
    """Once; privately; from the first frame on; and a finished message is never among it."""
    path = tmp_path / "unfinished.json"
    notes = Unfinished(path)
    notes.begun("d", "m1", "ha")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    notes.begun("d", "m2", "whole")
    notes.begun("e", "m3", "third")
    notes.begun("e", "m4", "fourth")
    notes.grown({"d": {"m1": "half"}})
    notes.finished("m2")
    notes.finished("m3")
    assert Unfinished(path).take() == {"d": {"m1": "half"}, "e": {"m4": "fourth"}}
    assert Unfinished(path).take() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_comes_late_changes_no_other(tmp_path: Path) -> None:
    """One message finished and another began while the newer texts were on their way."""
    path = tmp_path / "unfinished.json"
    notes = Unfinished(path)
    notes.begun("d", "m1", "half")
    on_its_way = {"d": {"m1": "half a word"}}
    notes.finished("m1")
    assert not path.exists()
    notes.begun("d", "m2", "other")
    notes.grown(on_its_way)
    notes.grown({})
    assert Unfinished(path).take() == {"d": {"m2": "other"}}


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"d": 1, "e": {"m": 2}}'])
def test_a_damaged_file_is_nothing(tmp_path: Path, content: str) -> None:
    """It costs the notes, not the start."""
    path = tmp_path / "unfinished.json"
    path.write_text(content)
    assert not any(Unfinished(path).take().values())


def test_a_disk_that_does_not_work_costs_the_note_only(tmp_path: Path) -> None:
    """No folder to write to."""
    notes = Unfinished(tmp_path / "missing" / "unfinished.json")
    notes.begun("d", "m", "text")
    notes.grown({"d": {"m": "longer text"}})
    notes.finished("m")
    assert notes.take() == {}
