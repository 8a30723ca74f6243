"""The samples of `docs/first-app-python.md`, run as a reader runs them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "first-app-python.md").read_text()
HELLO, APP = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TOKEN = "a-token-for-these-tests"


@pytest.fixture
async def environ() -> AsyncIterator[dict[str, str]]:
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    yield os.environ | {
        "MOBILE_URL": f"ws://127.0.0.1:{door.port}/ws",
        "MOBILE_TOKEN": TOKEN,
        "PYTHONUNBUFFERED": "1",  # as in a terminal, which the pipes stand for
        "PYTHONPATH": str(ROOT / "sdk" / "python"),
    }
    await agent.close()
    await door.stop()


class Running:
    """A sample while it runs: type, and read up to what is expected."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = ""

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def until(self, text: str) -> str:
        """What came up to `text`, which is then behind us."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            while text not in self.output:
                piece = await self.process.stdout.read(4096)
                assert piece, f"it ended before {text!r}: {self.output}"
                self.output += piece.decode()
        before, _, self.output = self.output.partition(text)
        return before


@asynccontextmanager
async def sample(code: str, folder: Path, environ: dict[str, str]) -> AsyncIterator[Running]:
    (folder / "sample.py").write_text(code)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "sample.py",
        cwd=folder,
        env=environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_hello(tmp_path: Path, environ: dict[str, str]) -> None:
    async with sample(HELLO, tmp_path, environ) as app:
        await app.until("echo: hello\n")
        assert await asyncio.wait_for(app.process.wait(), 60) == 0


async def test_the_whole_app_does_what_the_page_says(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "notes.txt").write_bytes(b"notes")
    async with sample(APP, tmp_path, environ) as app:
        await app.until("[connected as mobile:my-first-app]\n")
        app.type("stream 5 10")
        grown = await app.until("[your turn]")
        assert "word1 word2 word3 word4 word5\n" in grown
        app.type("approve rm -rf build")
        card = await app.until("4: Deny\n")
        assert "'rm -rf build'" in card
        app.type("4")
        await app.until("[deny]")
        await app.until("approval: deny")
        await app.until("[your turn]")
        app.type("clarify Which colour?|red|blue")
        await app.until("2: blue\n")
        app.type("green")
        await app.until("clarify: green")
        await app.until("[your turn]")
        app.type("image")
        await app.until(f"[image saved as {tmp_path}/from-agent/image.png]")
        await app.until("[your turn]")
        app.type("/file notes.txt")
        await app.until("[sent 5 of 5 bytes]")
        await app.until(hashlib.sha256(b"notes").hexdigest())
        app.type("/file missing.txt")
        await app.until("[not sent: ")
        assert app.process.stdin is not None
        app.process.stdin.close()
        assert await asyncio.wait_for(app.process.wait(), 60) == 0


async def test_a_wrong_token_ends_the_app_with_a_sentence(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    async with sample(APP, tmp_path, environ | {"MOBILE_TOKEN": "w" * 20}) as app:
        await app.until("the server refused the token")
        assert await asyncio.wait_for(app.process.wait(), 60) == 1
    assert "Traceback" not in app.output


def test_the_samples_are_typed_and_tidy(tmp_path: Path) -> None:
    import subprocess

    for name, code in (("hello", HELLO), ("app", APP)):
        file = tmp_path / f"{name}.py"
        file.write_text(code)
        for command in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]):
            done = subprocess.run(
                [sys.executable, "-m", *command, "--config", "pyproject.toml", str(file)]
                if command[0] == "ruff"
                else [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(file)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stdout + done.stderr
