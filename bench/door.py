"""The device door beside a bare echo on picows, on `websockets` and on aiohttp.

CPU is the server process's own user and system time for each frame; memory is its resident set.
Every figure is the median of `ROUNDS` rounds in which all servers take turns, so that what else the
machine does falls on all of them.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import picows
import psutil

from .door_servers import KINDS, TOKEN

ROUNDS = 5
DEVICES = 50
TURNS = 1000
EDITS = 1500
IDLE = 2000
UPLOAD_BYTES = 8 * 1024 * 1024
DOORS = ("door", "door, coroutine")
BARE = ("picows", "websockets", "aiohttp")
_TEXT = picows.WSMsgType.TEXT
_encode = msgspec.json.Encoder().encode
# Message ids are never used twice: the door drops what it has seen.
_ids = itertools.count()


class Server:
    """One server process of `door_servers`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.door_servers", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=_many_files,
        )
        assert self._process.stdout is not None
        self.url = f"ws://127.0.0.1:{int(self._process.stdout.readline())}/ws"
        self._probe = psutil.Process(self._process.pid)

    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        times = self._probe.cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        """Resident bytes."""
        return int(self._probe.memory_info().rss)

    def reset_peak(self) -> None:
        """Start to watch for the highest resident set anew."""
        with open(f"/proc/{self._process.pid}/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> int:
        """The highest resident set in bytes since `reset_peak`."""
        with open(f"/proc/{self._process.pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("this kernel does not tell the highest resident set")

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Client(picows.WSListener):
    """A client that calls `got` for every text frame."""

    def __init__(self) -> None:
        self.got: Callable[[bytes], None] = lambda frame: None
        self.transport: Any = None

    def on_ws_connected(self, transport: Any) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        if frame.msg_type == _TEXT:
            self.got(frame.get_payload_as_bytes())

    def send(self, frame: bytes) -> None:
        self.transport.send(_TEXT, frame)


async def connect(server: Server, index: int) -> Client:
    """A client that is signed in where there is something to sign in to."""
    client = Client()
    await picows.ws_connect(
        lambda: client, server.url, max_frame_size=64 * 1024 * 1024, use_aiofastnet=False
    )
    if server.kind in DOORS:
        ready = asyncio.get_running_loop().create_future()
        client.got = lambda frame: None if ready.done() else ready.set_result(frame)
        client.send(_encode({"t": "hello", "token": TOKEN, "device": {"id": f"d{index}"}}))
        await ready
    return client


async def leave(clients: list[Client]) -> None:
    """Close properly and wait for the servers to have noticed."""
    for client in clients:
        client.transport.send_close(picows.WSCloseCode.OK)
        client.transport.disconnect()
    await asyncio.gather(*(client.transport.wait_disconnected() for client in clients))
    await asyncio.sleep(0.2)


async def _turns(server: Server, word: str, marks: tuple[bytes, ...]) -> float:
    """Microseconds of CPU for each text turn: a frame in, the agent's answer out."""
    clients = [await connect(server, i) for i in range(DEVICES)]
    done = asyncio.get_running_loop().create_future()
    left = DEVICES

    def drive(client: Client) -> None:
        sent = 0

        def more() -> None:
            nonlocal sent
            sent += 1
            text = f"{word} {'x' * 180} {sent}"
            client.send(_encode({"t": "text", "id": f"t{next(_ids)}", "text": text}))

        def got(frame: bytes) -> None:
            nonlocal left
            if not frame.startswith(marks):
                return
            if sent < TURNS:
                more()
            else:
                left -= 1
                if not left:
                    done.set_result(None)

        client.got = got
        more()

    before = server.cpu()
    for client in clients:
        drive(client)
    await done
    used = server.cpu() - before
    await leave(clients)
    return used / DEVICES / TURNS * 1e6


async def text_turn(server: Server) -> float:
    """A frame in, the agent is called, a frame out."""
    return await _turns(server, "say", (b'{"t":"message"', b'{"t":"text"'))


async def full_turn(server: Server) -> float:
    """The same with all that a turn shows: thinking, typing, the words, speaking, stop, idle."""
    return await _turns(server, "turn", (b'{"t":"avatar","state":"idle"', b'{"t":"text"'))


async def edit(server: Server) -> float:
    """Microseconds of CPU for each streamed edit, or for each bare send of the same size."""
    clients = [await connect(server, i) for i in range(DEVICES)]
    done = asyncio.get_running_loop().create_future()
    left = DEVICES

    def count(client: Client) -> None:
        seen = 0

        def got(frame: bytes) -> None:
            nonlocal seen, left
            seen += frame.startswith(b'{"t":"message"')
            if seen == EDITS or b'"text":"done"' in frame:
                client.got = lambda frame: None
                left -= 1
                if not left:
                    done.set_result(None)

        client.got = got

    before = server.cpu()
    for client in clients:
        count(client)
        if server.kind in DOORS:
            client.send(_encode({"t": "text", "id": f"e{next(_ids)}", "text": f"push {EDITS}"}))
        else:
            client.send(_encode({"t": "push", "n": EDITS}))
    await done
    used = server.cpu() - before
    await leave(clients)
    return used / DEVICES / EDITS * 1e6


async def idle(server: Server) -> float:
    """KiB of memory for each idle connection."""
    before = server.memory()
    clients = [await connect(server, i) for i in range(IDLE)]
    await asyncio.sleep(0.5)
    used = server.memory() - before
    await leave(clients)
    return used / IDLE / 1024


async def upload_memory(server: Server) -> float:
    """How many times the size of an 8 MiB file in one frame the memory grows while it comes."""
    client = await connect(server, 0)
    frame = _upload_frame()
    await asyncio.sleep(0.2)
    before = server.memory()
    server.reset_peak()
    await _ask(client, frame)
    grown = server.peak() - before
    await leave([client])
    return grown / UPLOAD_BYTES


async def upload_cpu(server: Server) -> float:
    """Milliseconds of CPU for an 8 MiB file in one frame."""
    client = await connect(server, 0)
    await _ask(client, _upload_frame())
    before = server.cpu()
    for _ in range(10):
        await _ask(client, _upload_frame())
    used = server.cpu() - before
    await leave([client])
    return used / 10 * 1e3


async def _ask(client: Client, frame: bytes) -> None:
    answered = asyncio.get_running_loop().create_future()

    def got(answer: bytes) -> None:
        if answer.startswith((b'{"t":"message"', b'{"t":"size"')) and not answered.done():
            answered.set_result(answer)

    client.got = got
    client.send(frame)
    await asyncio.wait_for(answered, 30)


def _upload_frame() -> bytes:
    return _encode(
        {
            "t": "media",
            "id": f"u{next(_ids)}",
            "kind": "document",
            "filename": "a.bin",
            "data": base64.b64encode(bytes(UPLOAD_BYTES)).decode(),
        }
    )


def _many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))


@dataclass(frozen=True)
class Scenario:
    """A line of the report. `fresh`: every round needs a server of its own.

    `door`: the server that stands for the door in it.
    """

    name: str
    unit: str
    measure: Callable[[Server], Awaitable[float]]
    fresh: bool = False
    rounds: int = ROUNDS
    door: str = "door"


SCENARIOS = (
    Scenario("text turn", "µs CPU", text_turn),
    Scenario("text turn, the agent a coroutine", "µs CPU", text_turn, door="door, coroutine"),
    Scenario("full turn, six frames out", "µs CPU", full_turn),
    Scenario("streamed edit / bare send", "µs CPU", edit),
    Scenario(f"idle connection ({IDLE})", "KiB", idle, fresh=True, rounds=3),
    Scenario("8 MiB upload, extra memory", "× its size", upload_memory, fresh=True),
    Scenario("8 MiB upload", "ms CPU", upload_cpu),
)


def run() -> dict[str, dict[str, float]]:
    """Measure everything; scenario name -> server kind -> median."""
    _many_files()
    # That a client writes faster than a server reads is what the uploads are for.
    logging.getLogger("picows").setLevel(logging.ERROR)
    servers = {kind: Server(kind) for kind in KINDS}
    results: dict[str, dict[str, float]] = {}
    try:
        for scenario in SCENARIOS:
            kinds = (scenario.door, *BARE)
            rounds: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(scenario.rounds):
                for kind in kinds:
                    server = Server(kind) if scenario.fresh else servers[kind]
                    try:
                        rounds[kind].append(asyncio.run(_measured(scenario, server)))
                    finally:
                        if scenario.fresh:
                            server.end()
            results[f"{scenario.name}, {scenario.unit}"] = {
                "door" if kind in DOORS else kind: statistics.median(values)
                for kind, values in rounds.items()
            }
    finally:
        for server in servers.values():
            server.end()
    return results


async def _measured(scenario: Scenario, server: Server) -> float:
    return await asyncio.wait_for(scenario.measure(server), 120)


def report(results: dict[str, dict[str, float]]) -> str:
    """The results as a Markdown table; in brackets the door's share of each."""
    lines = [
        "| device door | door | bare picows | bare websockets | bare aiohttp |",
        "|---|---|---|---|---|",
    ]
    for name, row in results.items():
        door = row["door"]
        cells = [f"{door:.1f}"]
        for kind in BARE:
            cells.append(f"{row[kind]:.1f} ({door / row[kind]:.2f}×)" if row[kind] > 0 else "0")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(run()))
