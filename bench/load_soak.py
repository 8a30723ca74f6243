"""Both doors under mixed traffic for a while: does their memory stay where it was?

Devices come, have a turn, now and then send a file, and go. Browsers start a run, watch it to its
end, and start the next. What a door keeps for a time (run logs, remembered ids) is part of it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field

import psutil

from .door import connect, leave
from .load_browsers import browser, browser_door, start
from .load_devices import LoadServer, ask, expect_size, serving, upload_frames
from .proxy.__main__ import Load, rss_of, upstream_with

_EDITS, _INTERVAL_MS = 40, 25
_FILE_BYTES = 1024 * 1024
_LOG_KEEP = 2


@dataclass
class Soaked:
    """Resident bytes over time, and what was done meanwhile."""

    door: list[int] = field(default_factory=list)
    proxy: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    turns: int = 0
    uploads: int = 0
    runs: int = 0
    failed: int = 0


def growth(samples: list[int]) -> float:
    """MiB from the second quarter's median to the last one's; the first quarter is for warming."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    return (statistics.median(late) - statistics.median(early or late)) / 2**20


async def soak(seconds: float, devices: int, browsers: int) -> Soaked:
    """Mixed traffic on both doors for so long; memory is looked at twice a second."""
    soaked = Soaked()
    load = Load(browsers, _EDITS, _INTERVAL_MS, 50)
    with (
        serving("door") as door,
        upstream_with(load) as upstream,
        browser_door(upstream, _LOG_KEEP) as (proxy, port),
    ):
        until = time.monotonic() + seconds
        work = [_device(door, number, until, soaked) for number in range(devices)]
        work += [_browser(port, number, until, soaked) for number in range(browsers)]
        watching = asyncio.create_task(_watch(door, proxy, soaked))
        try:
            await asyncio.wait_for(asyncio.gather(*work), seconds + 300)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    return soaked


async def _watch(door: LoadServer, proxy: psutil.Process, soaked: Soaked) -> None:
    while True:
        soaked.door.append(door.memory())
        soaked.proxy.append(rss_of(proxy))
        soaked.files.append(door.files() + proxy.num_fds())
        await asyncio.sleep(0.5)


async def _device(door: LoadServer, number: int, until: float, soaked: Soaked) -> None:
    turn = number
    while time.monotonic() < until:
        turn += 1
        client = await connect(door, number)
        try:
            if turn % 10 == 0:
                answered = expect_size(client, _FILE_BYTES)
                for frame in upload_frames(_FILE_BYTES, _FILE_BYTES // 4):
                    client.send(frame)
                await asyncio.wait_for(answered, 120)
                soaked.uploads += 1
            finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def got(frame: bytes, finished: asyncio.Future[None] = finished) -> None:
                if b'"final":true' in frame and not finished.done():
                    finished.set_result(None)

            client.got = got
            ask(client, _EDITS, _INTERVAL_MS)
            await asyncio.wait_for(finished, 120)
            soaked.turns += 1
        except (TimeoutError, RuntimeError):
            soaked.failed += 1
        await leave([client])


async def _browser(port: int, number: int, until: float, soaked: Soaked) -> None:
    async with browser(port) as client:
        while time.monotonic() < until:
            path = await start(client, f"mnote_doc_1_b{number}")
            async with asyncio.timeout(120), client.get(path) as stream:
                body = await stream.read()
            if body.count(b"message.delta") == _EDITS - 1 and b"run.completed" in body:
                soaked.runs += 1
            else:
                soaked.failed += 1
