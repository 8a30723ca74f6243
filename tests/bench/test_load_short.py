"""The load scenarios at a small size: they run, nothing is lost, and memory stays in its bounds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCENARIOS = ["idle", "turns", "uploads", "streams", "tabs", "soak"]


def test_every_scenario_keeps_its_bounds(tmp_path: Path) -> None:
    """Bounds are on memory and on what is lost, never on time: a busy machine keeps them too."""
    report = tmp_path / "results.md"
    command = [sys.executable, "-m", "bench.load", "--short", "--soak", "8"]
    done = subprocess.run(
        [*command, "--output", str(report)], cwd=ROOT, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    assert re.findall(r"^## (\w+): ", text, re.MULTILINE) == SCENARIOS
    assert "not kept" not in text
    for name, section in zip(SCENARIOS, text.split("\n## ")[1:], strict=True):
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        assert rows and any(": kept" in row for row in rows), name
        assert all(row.count("|") == 6 for row in rows), name
        assert "CPUs" in section and "python -m bench.load" in section, name


def test_a_scenario_takes_the_place_of_its_last_report(tmp_path: Path) -> None:
    from bench.load import Line, put, section

    report = tmp_path / "results.md"
    for name, value in (("soak", 1.0), ("idle", 2.0), ("soak", 3.0)):
        lines = [Line("memory", value, "KiB", 2.0, "bare", bound=2.5)]
        put(report, name, section(f"{name}: x", "command", "machine", lines))
    text = report.read_text()
    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["idle", "soak"]
    assert "| memory | 2 KiB | 2 KiB (bare) | 1.00× | ≤ 2.50 KiB: kept |" in text
    assert "| memory | 3 KiB | 2 KiB (bare) | 1.50× | ≤ 2.50 KiB: **not kept** |" in text


def test_growth_is_seen_and_a_warm_up_is_not() -> None:
    from bench.load_soak import growth

    mib = 2**20
    assert growth([mib * at for at in range(40)]) == 20
    assert growth([mib * min(at, 10) for at in range(40)]) == 0
    assert growth([mib]) == 0
