"""Many browsers on one browser door: a run each, or all on the same run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import aiohttp
import psutil

from demo.processes import free_port

from .proxy.__main__ import Load, cpu_of, rss_of, running, upstream_with
from .proxy.reader import Seen, open_all

_USER = {"X-User": "bench"}
_AT_ONCE = 16


@contextmanager
def browser_door(upstream: str, log_keep: int = 300) -> Iterator[tuple[psutil.Process, int]]:
    """The proxy's own command before `upstream`, and its port; a run's log is kept `log_keep` s."""
    port = free_port()
    settings = {
        "MNOTE_WEB_HERMES_UPSTREAM_URL": upstream,
        "MNOTE_WEB_HERMES_API_KEY": "bench-api-key-0123456789abcdef",
        "MNOTE_WEB_AUTH": "trusted-header",
        "MNOTE_WEB_AUTH_HEADER": "X-User",
        "MNOTE_WEB_TRUSTED_PROXIES": "127.0.0.1",
        "MNOTE_WEB_HERMES_LOG_KEEP_SECONDS": str(log_keep),
    }
    for limit in ("RUNS", "RUNS_PER_USER", "STREAMS", "STREAMS_PER_USER"):
        settings[f"MNOTE_WEB_HERMES_MAX_{limit}"] = "100000"
    command = [sys.executable, "-m", "hermes_client_proxy", "serve", "--port", str(port)]
    with running(command, port, settings) as process:
        yield process, port


async def start(client: aiohttp.ClientSession, session: str) -> str:
    """Start a run; the path of its event stream."""
    body = {"workspaceId": "w", "documentId": "doc_1", "sessionId": session, "message": "x"}
    async with client.post("/api/hermes/client/runs", json=body) as answer:
        if answer.status != 200:
            raise RuntimeError(f"a run was refused: {answer.status} {await answer.text()}")
        run_id = (await answer.json())["runId"]
    return f"/api/hermes/client/events/{run_id}?sessionId={session}"


def browser(port: int) -> aiohttp.ClientSession:
    """A client of the door, signed in."""
    return aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=_USER)


async def _start_all(port: int, names: Sequence[str]) -> list[str]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(client: aiohttp.ClientSession, name: str) -> str:
        async with gate:
            return await start(client, name)

    async with browser(port) as client:
        return await asyncio.gather(*(one(client, name) for name in names))


@dataclass(frozen=True)
class Watched:
    """Microseconds of CPU for each event to each browser, ages in ms, KiB for each stream."""

    cpu: float
    p50: float
    p99: float
    lost: int
    memory: float


class _TooEarly(Exception):
    """Events came before every stream was open."""


async def through_the_door(load: Load, runs: int) -> Watched:
    """`load.streams` browsers share out `runs` runs; a slow machine gets a longer delay."""
    for delay in (load.delay, 3 * load.delay):
        try:
            return await _through_the_door(replace(load, delay=delay), runs)
        except _TooEarly:
            continue
    raise RuntimeError(f"{load.streams} streams were not open within {3 * load.delay} ms")


async def _through_the_door(load: Load, runs: int) -> Watched:
    with ExitStack() as stack:
        upstream = stack.enter_context(upstream_with(load))
        process, port = stack.enter_context(browser_door(upstream))
        # What the first request of all allocates belongs to none of the streams.
        await _start_all(port, ["mnote_doc_1_warm"])
        empty = rss_of(process)
        paths = await _start_all(port, [f"mnote_doc_1_s{number}" for number in range(runs)])
        paths = [paths[number % runs] for number in range(load.streams)]
        seen = Seen()
        await open_all(port, paths, seen)
        await asyncio.wait_for(seen.all_opened.wait(), 300)
        if seen.ages:
            raise _TooEarly
        memory = (rss_of(process) - empty) / 1024 / load.streams
        before = cpu_of(process)
        await _all_closed(seen, load)
        used = cpu_of(process) - before
    return _watched(seen, load, used, memory)


async def directly(load: Load) -> Watched:
    """The same read from the upstream itself; CPU and memory are not a relay's then."""
    with upstream_with(load) as upstream:
        seen = Seen()
        paths = [f"/v1/runs/run_{number}/events" for number in range(load.streams)]
        await open_all(int(upstream.rpartition(":")[2]), paths, seen)
        await _all_closed(seen, load)
    return _watched(seen, load, 0.0, 0.0)


async def _all_closed(seen: Seen, load: Load) -> None:
    limit = (load.delay + load.events * load.interval) / 1000 + 300
    try:
        await asyncio.wait_for(seen.all_closed.wait(), limit)
    except TimeoutError:
        pass  # what did not come is counted as lost


def _watched(seen: Seen, load: Load, used: float, memory: float) -> Watched:
    ages = sorted(seen.ages)
    if not ages:
        raise RuntimeError("not one event has arrived")
    return Watched(
        used * 1e6 / len(ages),
        ages[len(ages) // 2] / 1e6,
        ages[len(ages) * 99 // 100] / 1e6,
        load.streams * load.events - len(ages),
        memory,
    )
