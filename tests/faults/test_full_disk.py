"""A disk that takes nothing more: told, cleaned up, and nothing else suffers.

RLIMIT_FSIZE stands for it in a process of its own: a write beyond it fails as on a full disk (only
the error's name differs), without needing to be root or to own a small file system.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.outbox import OutgoingMedia
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings
from tests.faults.devices import ROOT
from tests.faults.recording_door import TOKEN

LIMIT = 200_000

DOWNLOADER = f"""
import asyncio, json, resource, signal, sys
from hermes_client import HermesClient, Media, MediaFailed, Message

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))

async def main(url, token, folder):
    async with HermesClient(url, token=token, device="tel", downloads=folder, proxy=None) as client:
        await client.send_text("hello")
        async for event in client:
            if isinstance(event, Media):
                print(json.dumps(["media", event.filename, event.path.stat().st_size]), flush=True)
            elif isinstance(event, MediaFailed):
                print(json.dumps(["failed", event.filename, event.reason]), flush=True)
            elif isinstance(event, Message) and event.final:
                print(json.dumps(["message", event.text]), flush=True)
                if event.text == "the end":
                    break

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_download_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    folder = tmp_path / "downloads"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        DOWNLOADER,
        f"ws://127.0.0.1:{door.port}/ws",
        TOKEN,
        str(folder),
        env={"PYTHONPATH": f"{ROOT / 'sdk' / 'python'}", "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    said: list[list[Any]] = []
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            said.append(json.loads(await process.stdout.readline()))
            for name, size in (("small.bin", 1000), ("large.bin", LIMIT + 1), ("next.bin", 2000)):
                data = bytes(size)
                door.show("tel", OutgoingMedia("document", "application/x", name, data))
            # In parts too: the second one does not fit any more.
            parts = bytes(3 * 1024 * 1024 + 1000)
            door.show("tel", OutgoingMedia("document", "application/x", "parts.bin", parts))
            door.say("tel", "the end")
            while said[-1] != ["message", "the end"]:
                said.append(json.loads(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await agent.close()
        await door.stop()
    told = [tuple(line[:2]) for line in said]
    assert ("media", "small.bin") in told and ("media", "next.bin") in told
    failed = {line[1]: line[2] for line in said if line[0] == "failed"}
    assert set(failed) == {"large.bin", "parts.bin"}
    assert all("could not be written" in reason for reason in failed.values())
    # Nothing half-written stays behind, hidden or not.
    assert sorted(path.name for path in folder.iterdir()) == ["next.bin", "small.bin"]


NOTER = """
import os, resource, signal, sys
from pathlib import Path
from hermes_mobile.unfinished import Unfinished

folder = Path(sys.argv[1])
kept = Unfinished(folder / "unfinished.json")
kept.begun("tel", "m-1", "short")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for number in range(20):
    kept.grown({"tel": {"m-1": "x" * (10_000 + number)}})
kept.finished("m-1")
print(sorted(os.listdir(folder)))
"""


async def test_notes_that_cannot_be_made_leave_nothing_behind(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        NOTER,
        str(tmp_path),
        env={"PYTHONPATH": f"{ROOT / 'adapter'}", "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0 and said == b"[]\n"
