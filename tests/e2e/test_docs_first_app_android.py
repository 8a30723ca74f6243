"""The protocol file of `docs/first-app-android.md`, compiled and run on a terminal of its own.

It needs Debian's `kotlin`, `libokhttp-java` and `libandroid-json-java`, and a Java runtime (which
`kotlin` brings). Where they are missing the tests are left out, except in CI: there they fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "first-app-android.md").read_text()
TERMINAL = Path(__file__).parent / "android" / "Terminal.kt"
TOKEN = "a-token-for-these-tests"
JARS = [
    Path("/usr/share/java") / f"{name}.jar"
    for name in ("okhttp", "okio", "com.android.json", "kotlin-stdlib")
]
PATIENCE = 120  # seconds; only a failure takes so long

needs_kotlin = pytest.mark.skipif(
    not (shutil.which("kotlinc") and all(jar.exists() for jar in JARS) or os.environ.get("CI")),
    reason="Kotlin is missing: apt-get install kotlin libokhttp-java libandroid-json-java",
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled sample."""
    folder = tmp_path_factory.mktemp("android")
    found = re.search(r"<!-- file: HermesAgent.kt -->\s*```kotlin\n(.*?)```", PAGE, re.DOTALL)
    assert found, "the page has no HermesAgent.kt"
    (folder / "HermesAgent.kt").write_text(found[1])
    libraries = ":".join(map(str, JARS))
    done = subprocess.run(
        ["kotlinc", "-cp", libraries, "HermesAgent.kt", str(TERMINAL), "-d", "app.jar"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return f"{folder / 'app.jar'}:{libraries}"


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[Door]:
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": str(port)}), agent)
    agent.attach(door)
    await door.start()
    try:
        yield door
    finally:
        await agent.close()
        await door.stop()


class Terminal:
    """The running sample: a command a line goes in, an event a line comes out."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[str] = []

    def type(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")

    async def event(self, pattern: str) -> re.Match[str]:
        """The next event that fits; what came before it is passed over."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while line := (await self._process.stdout.readline()).decode().rstrip("\n"):
                    self.events.append(line)
                    if found := re.fullmatch(pattern, line):
                        return found
        except TimeoutError:
            pass
        raise AssertionError(f"no {pattern!r} in {self.events}")

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), PATIENCE) == 0


Start = Callable[..., AbstractAsyncContextManager[Terminal]]


@pytest.fixture
def start(app: str, tmp_path: Path) -> Start:
    @asynccontextmanager
    async def run(port: int, token: str = TOKEN) -> AsyncIterator[Terminal]:
        command = ["java", "-cp", app, "com.example.hermes.TerminalKt"]
        process = await asyncio.create_subprocess_exec(
            *command,
            f"ws://127.0.0.1:{port}/ws",
            token,
            "my-phone",
            str(tmp_path / "outbox.json"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Terminal(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return run


@needs_kotlin
async def test_a_conversation(start: Start, tmp_path: Path) -> None:
    upload = tmp_path / "notes.bin"
    upload.write_bytes(bytes(range(256)) * 16 * 1024)  # 4 MiB: two parts
    async with listening() as door, start(door.port) as app:
        await app.event(r"state false Connected\.")
        app.type("text stream 5 10")
        await app.event(r"outgoing null")
        await app.event(r"message false word1( word2)?")
        await app.event(r"message true word1 word2 word3 word4 word5")

        app.type("text approve rm -rf build")
        card = await app.event(r"prompt (\S+) rm -rf build once,session,always,deny")
        app.type(f"answer {card[1]} deny")
        await app.event(rf"prompt_done {card[1]} deny false")
        await app.event(r"message true approval: deny")

        app.type("text image")
        media = await app.event(r"media image\.png image/png (\d+) ([0-9a-f]{64})")
        assert int(media[1]) > 0

        app.type(f"file document {upload}")
        digest = hashlib.sha256(upload.read_bytes()).hexdigest()
        await app.event(rf"message true received document: notes\.bin, .*{digest}")

        app.type("text long 9000")
        long = await app.event(r"message true (Sentence 1 .*)")
        assert len(long[1].replace(r"\n", "\n")) == 9000
        await app.end()


@needs_kotlin
async def test_a_text_of_a_killed_app_is_sent_by_its_next_life(start: Start) -> None:
    async with listening() as door:
        port = door.port
    async with start(port) as app:  # nobody is there
        await app.event(r"state false Connection lost\. Trying again …")
        app.type("text nothing is lost")
        app.type("network")
        await app.event(r"state false Connecting …")
    async with listening(port) as door, start(door.port) as app:
        await app.event(r"outgoing null")
        await app.event(r"message true echo: nothing is lost")
        await app.end()


@needs_kotlin
async def test_a_wrong_token_stops_the_app_with_a_sentence(start: Start) -> None:
    async with listening() as door, start(door.port, token="w" * 20) as app:
        await app.event(r"state true The agent does not accept this token\.")
        await app.end()
