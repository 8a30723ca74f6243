"""scripts/: the first thing a person meets, on machines that lack something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.settings import ROOT

FIND = ROOT / "scripts" / "find-python"


def fake_python(folder: Path, name: str, version: str, venv: bool = True) -> None:
    """A program that answers the questions of find-python as some Python would."""
    good = version in ("3.11", "3.12", "3.13")
    script = folder / name
    script.write_text(
        "#!/bin/sh\n"
        'case "$2" in\n'
        f"*ensurepip*) exit {0 if venv else 1} ;;\n"
        f"*sys.exit*) exit {0 if good else 1} ;;\n"
        f"*) echo {version} ;;\n"
        "esac\n"
    )
    script.chmod(0o755)


def find(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(FIND)],
        env={"PATH": str(folder), **more},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.11"}, "python3"),
        ({"python3": "3.13", "python3.11": "3.11"}, "python3"),
        ({"python3": "3.14", "python3.12": "3.12", "python3.13": "3.13"}, "python3.13"),
        ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
    ],
)
def test_a_fitting_python_is_found(pythons: dict[str, str], chosen: str, tmp_path: Path) -> None:
    for name, version in pythons.items():
        fake_python(tmp_path, name, version)

    assert find(tmp_path).stdout.strip() == str(tmp_path / chosen)


def test_one_can_be_named(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "3.11")
    fake_python(tmp_path, "mine", "3.12")

    assert find(tmp_path, PYTHON=str(tmp_path / "mine")).stdout.strip().endswith("/mine")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A Python without venv is Debian's default: the package to install is named."""
    fake_python(tmp_path, "python3", "3.11", venv=False)
    fake_python(tmp_path, "python3.13", "3.14")

    result = find(tmp_path)

    assert result.returncode == 1
    assert "Python 3.11, but has no venv module" in result.stderr
    assert "is Python 3.14" in result.stderr
    assert "apt-get install python3 python3-venv" in result.stderr


def test_no_python_at_all(tmp_path: Path) -> None:
    result = find(tmp_path)

    assert result.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in result.stderr


def test_a_second_setup_has_nothing_to_do() -> None:
    """Everything is stamped: no package manager is asked again."""
    empty_path = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "setup.py"), "python"],
        env=empty_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
