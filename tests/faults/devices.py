"""Devices on the real SDKs, and the door's witness, for the scenarios with faults."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from demo.processes import free_port
from hermes_client import HermesClient, Message
from tests.faults.recording_door import TOKEN

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


class RecordingDoor:
    """`recording_door.py` in a process: to be started, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "agent.jsonl"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.recording_door",
            str(self.port),
            str(self._log),
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'adapter'}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert int(await self._process.stdout.readline()) == self.port

    async def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _told(self, what: str) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        whole = self._log.read_text().rpartition("\n")[0]  # it may be in the middle of a line
        told = [json.loads(line) for line in whole.splitlines()]
        return [line for line in told if what in line]

    @property
    def taken(self) -> list[dict[str, Any]]:
        """What the agent took (`took`, an id, and `text`), in order, over all lives of the door."""
        return self._told("took")

    @property
    def written(self) -> list[dict[str, Any]]:
        """What went to connections (`wrote`, a text, `conn` and `final`), in order."""
        return self._told("wrote")

    async def __aenter__(self) -> RecordingDoor:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.kill()


class DeviceOn(Protocol):
    """A device of either SDK. `shown`: finished answers as (id, text), in order."""

    shown: list[tuple[str, str]]
    accepted: list[str]
    change: asyncio.Condition

    async def send(self, id: str, text: str) -> None: ...

    def trouble(self) -> str:
        """What went wrong for good, or ""."""
        ...


async def until(device: DeviceOn, done: Any, seconds: float = PATIENCE) -> None:
    """Wait until `done()` about the device is true."""
    try:
        async with asyncio.timeout(seconds), device.change:
            await device.change.wait_for(lambda: device.trouble() or done())
    except TimeoutError:
        raise AssertionError(
            f"{len(device.accepted)} accepted, {len(device.shown)} shown, then nothing more came"
        ) from None
    assert not device.trouble(), device.trouble()


class PythonDevice:
    """On sdk/python/hermes_client.py."""

    def __init__(self, client: HermesClient) -> None:
        self.client = client
        self.shown: list[tuple[str, str]] = []
        self.accepted: list[str] = []
        self.drafts: dict[str, str] = {}
        self.change = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, id: str, text: str) -> None:
        task = asyncio.create_task(self._send(id, text))
        self._tasks.add(task)
        await asyncio.sleep(0)  # it has its place in the outbox now

    async def _send(self, id: str, text: str) -> None:
        try:
            await self.client.send_text(text, id=id)
            self.accepted.append(id)
        finally:
            async with self.change:
                self.change.notify_all()

    async def read(self) -> None:
        async for event in self.client:
            async with self.change:
                if isinstance(event, Message):
                    self.drafts[event.id] = event.text
                    if event.final:
                        self.shown.append((event.id, event.text))
                self.change.notify_all()

    def trouble(self) -> str:
        failed = [task.exception() for task in self._tasks if task.done()]
        return next((repr(error) for error in failed if error is not None), "")


@asynccontextmanager
async def python_device(
    port: int, folder: Path, device: str = "tel", pulse: float = 0.3
) -> AsyncIterator[PythonDevice]:
    """`pulse`: seconds between signs of life."""
    client = HermesClient(
        f"ws://127.0.0.1:{port}/ws",
        token=TOKEN,
        device=device,
        downloads=folder / "downloads",
        heartbeat=pulse,
        backoff=lambda attempt: 0.02,
        proxy=None,
    )
    async with client:
        found = PythonDevice(client)
        reading = asyncio.create_task(found.read())
        try:
            yield found
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class NodeDevice:
    """On the built sdk/typescript, in a Node.js process (device.mjs)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.shown: list[tuple[str, str]] = []
        self.accepted: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.change = asyncio.Condition()

    async def send(self, id: str, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": id, "text": text}).encode() + b"\n")
        await self._process.stdin.drain()

    async def read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            async with self.change:
                self.said.append(said)
                if "accepted" in said:
                    self.accepted.append(said["accepted"])
                elif "message" in said and said["message"]["final"]:
                    self.shown.append((said["message"]["id"], said["message"]["text"]))
                self.change.notify_all()

    def trouble(self) -> str:
        failed = [line for line in self.said if "failed" in line or line.get("state") == "stopped"]
        return json.dumps(failed[0]) if failed else ""


@asynccontextmanager
async def node_device(
    port: int, folder: Path, device: str = "tel", pulse: float = 0.3
) -> AsyncIterator[NodeDevice]:
    process = await asyncio.create_subprocess_exec(
        "node",
        str(Path(__file__).with_name("device.mjs")),
        str(ROOT),
        f"ws://127.0.0.1:{port}/ws",
        TOKEN,
        device,
        str(round(pulse * 1000)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=4 * 1024 * 1024,
    )
    found = NodeDevice(process)
    reading = asyncio.create_task(found.read())
    try:
        yield found
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


SDKS = {"python": python_device, "typescript": node_device}

_NUMBER = re.compile(r"echo: .* (\d+)\Z", re.DOTALL)


def numbers_of(texts: Sequence[str]) -> list[int]:
    """The numbers of the messages that these answers are about."""
    found = [_NUMBER.fullmatch(text) for text in texts]
    assert all(found), [text for text, one in zip(texts, found, strict=True) if one is None]
    return [int(one[1]) for one in found if one is not None]
