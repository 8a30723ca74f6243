"""The conformance kit against the door of a real Hermes Agent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from demo.settings import ROOT
from hermes_mobile.conformance.contract import load
from tests.e2e.hermes_process import HermesProcess

SETTINGS = load("door.json")["settings"]
# What Hermes itself does otherwise, and the contract says so.
NOT_HERMES = {
    "cards: two approvals at once: each answer reaches its own",
    "cards: the frames around a card, in their order",
    "crowds: who reads nothing is cut off, and holds nobody up",
    "text: white space inside and around is kept",
    "turns: the frames of a turn, in their order",
    "turns: texts that are sent at once are answered in order",
    "turns: a streamed answer: one id, edits, final at the end",
    "turns: a hundred texts at once behind a large file are all taken, in order",
}


async def test_the_kit_finds_no_fault(
    new_hermes: Callable[..., HermesProcess], tmp_path: Path
) -> None:
    """Every check that does not need other settings runs and passes, but for what Hermes itself
    does otherwise: exactly those are left out, and each says why."""
    hermes = new_hermes(
        # The home device of a chat command comes first: none was chosen here.
        mobile={**SETTINGS, "MOBILE_HOME_CHANNEL": SETTINGS["MOBILE_HOME_DEVICE"]},
        approval_timeout=300,
        clarify_timeout=300,
    )
    report = tmp_path / "report.json"
    bound, second = SETTINGS["MOBILE_EXTRA_TOKENS"].split(",")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_mobile.cli", "conform", hermes.door_url, "--hermes",
        "--token", SETTINGS["MOBILE_TOKEN"], "--extra", bound, "--extra", second,
        "--deliver", SETTINGS["MOBILE_DELIVER_TOKENS"], "--home", SETTINGS["MOBILE_HOME_DEVICE"],
        "--brief", "--json", str(report), "--patience", "60",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
    )  # fmt: skip
    said, _ = await process.communicate()

    assert process.returncode == 0, said.decode()
    checks = json.loads(report.read_text())["checks"]
    passed = [check for check in checks if check["status"] == "passed"]
    left = [check for check in checks if check["status"] == "not_run"]
    assert len(passed) + len(left) == len(checks)
    assert len(passed) > 490
    assert NOT_HERMES == {
        f"{check['group']}: {check['name']}"
        for check in left
        if check["reason"].startswith("not with a real Hermes Agent: ")
    }
    assert all(
        "--setting" in check["reason"] or "not with a real Hermes Agent" in check["reason"]
        for check in left
    )
