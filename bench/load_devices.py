"""Many devices on one door: idle, in turns, and uploading all at once.

CPU and memory are the server process's own. A latency is the age of the last revision of an answer
when the device gets it: from the agent's saying it to the device's having it.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import psutil

from . import door as bare_doors
from .door import Client, connect, leave

PART_BYTES = 256 * 1024
_TIME = re.compile(rb"t=(\d+) ")
_encode = msgspec.json.Encoder().encode


class LoadServer(bare_doors.Server):
    """One server process of `load_server`: "door" or "bare"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        # Its limit of open files is ours, which `load` has raised.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load_server", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.url = f"ws://127.0.0.1:{int(self._process.stdout.readline())}/ws"
        self._probe = psutil.Process(self._process.pid)

    def files(self) -> int:
        """Open file descriptors."""
        return int(self._probe.num_fds())


@contextmanager
def serving(kind: str) -> Iterator[LoadServer]:
    """A server of its own, ended afterwards."""
    server = LoadServer(kind)
    try:
        yield server
    finally:
        server.end()


async def idle(server: bare_doors.Server, devices: int) -> float:
    """KiB of memory for each of so many devices that are signed in and say nothing."""
    before = server.memory()
    clients = [await connect(server, number) for number in range(devices)]
    await asyncio.sleep(0.5)
    used = server.memory() - before
    await leave(clients)
    return used / devices / 1024


@dataclass(frozen=True)
class Turns:
    """Microseconds of CPU for each revision, latencies in ms, and what did not arrive."""

    cpu: float
    p50: float
    p99: float
    revisions_missing: int
    answers_missing: int


async def turns(server: LoadServer, devices: int, edits: int, interval_ms: int) -> Turns:
    """Every device asks once; its answer is revised `edits` times."""
    clients = [await connect(server, number) for number in range(devices)]
    ages: list[int] = []
    seen = 0
    done = asyncio.Event()

    def got(frame: bytes) -> None:
        nonlocal seen
        if not frame.startswith(b'{"t":"message"'):
            return
        seen += 1
        if b'"final":true' in frame and (sent := _TIME.search(frame)) is not None:
            ages.append(time.monotonic_ns() - int(sent[1]))
            if len(ages) == devices:
                done.set()

    before = server.cpu()
    for client in clients:
        client.got = got
        ask(client, edits, interval_ms)
        # People do not all ask in the same millisecond.
        await asyncio.sleep(interval_ms / 1000 / devices)
    try:
        await asyncio.wait_for(done.wait(), edits * interval_ms / 1000 + 300)
    except TimeoutError:
        pass  # what is missing is counted below
    used = server.cpu() - before
    await leave(clients)
    ages.sort()
    return Turns(
        used / devices / edits * 1e6,
        ages[len(ages) // 2] / 1e6 if ages else float("inf"),
        ages[len(ages) * 99 // 100] / 1e6 if ages else float("inf"),
        devices * edits - seen,
        devices - len(ages),
    )


def ask(client: Client, edits: int, interval_ms: int) -> None:
    """Send a text whose answer comes in so many revisions."""
    text = f"pace {edits} {interval_ms}"
    client.send(_encode({"t": "text", "id": f"t{random.getrandbits(64):x}", "text": text}))


@dataclass(frozen=True)
class Uploaded:
    """Bytes that the memory grew by at most, and what of it is still held a second later."""

    grown: int
    kept: int


async def uploads(server: LoadServer, devices: int, size: int, part_bytes: int | None) -> Uploaded:
    """Every device sends a file of `size` bytes at the same time; None for one frame each.

    All files are at the door but for their last KiB before the first one ends: the most that so
    many uploads can hold.
    """
    clients = [await connect(server, number) for number in range(devices)]
    wire = b"".join(_on_the_wire(frame) for frame in upload_frames(size, part_bytes))
    await asyncio.sleep(0.2)
    answers = [expect_size(client, size) for client in clients]
    before = server.memory()
    server.reset_peak()
    for client in clients:
        client.transport.underlying_transport.write(wire[:-1024])
    async with asyncio.timeout(300):
        for client in clients:
            while client.transport.underlying_transport.get_write_buffer_size():
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # what the kernel still holds
        for client in clients:
            client.transport.underlying_transport.write(wire[-1024:])
        await asyncio.gather(*answers)
    grown = server.peak() - before
    await asyncio.sleep(1)
    kept = server.memory() - before
    await leave(clients)
    return Uploaded(grown, kept)


def _on_the_wire(frame: bytes) -> bytes:
    """A client's text frame, masked with zeros: one copy of it will do for every client."""
    return b"\x81\xff" + len(frame).to_bytes(8) + bytes(4) + frame


def upload_frames(size: int, part_bytes: int | None) -> list[bytes]:
    """The frames of one file with an id of its own: one, or one for each part."""
    step = part_bytes or size
    parts = -(-size // step)
    file = {"t": "media", "id": f"u{random.getrandbits(64):x}", "kind": "document"}
    frames = []
    for part in range(parts):
        data = bytes(min(step, size - part * step))
        more = {"filename": "a.bin", "data": base64.b64encode(data).decode()}
        numbers = {"part": part, "parts": parts} if parts > 1 else {}
        frames.append(_encode({**file, **numbers, **more}))
    return frames


def expect_size(client: Client, size: int) -> asyncio.Future[None]:
    """Done when the agent has told the size of the file; fails if it is another one."""
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def got(frame: bytes) -> None:
        if answered.done():
            return
        if frame.startswith(b'{"t":"error"'):
            answered.set_exception(RuntimeError(f"an upload was refused: {frame[:300]!r}"))
        elif frame.startswith(b'{"t":"message"'):
            if f'"{size} bytes"'.encode() in frame:
                answered.set_result(None)
            else:
                answered.set_exception(RuntimeError(f"not the whole file: {frame[:300]!r}"))

    client.got = got
    return answered
