"""Measures the browser door beside its bare counterparts, all in one run.

    python -m bench.proxy [--streams 200] [--events 60] [--interval 100] [--memory 1000]

The same upstream is read directly, through nginx with buffering off, through a relay on Starlette
and httpx, and through the browser door; these two on uvloop, which uvicorn takes where it is
installed, and on asyncio's own loop. CPU is the relay's own user and system time per event, the
median of the rounds. Latency is the age of an event when its reader gets it; "added" is what is
above the direct reading.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import uvloop

from bench.proxy.reader import Seen, open_all
from demo.processes import free_port

ROOT = Path(__file__).parents[2]
_NGINX = """\
daemon off; pid {folder}/nginx.pid; error_log stderr warn; worker_processes 1;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass {upstream}; proxy_buffering off; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_read_timeout 1h;
    }}
  }}
}}
"""


# Runs a module as where uvloop is not installed.
_ON_ASYNCIO = """\
import runpy, sys
sys.modules["uvloop"] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Load:
    """How many streams, events of each, milliseconds between them and before the first."""

    streams: int
    events: int
    interval: int
    delay: int


@dataclass(frozen=True)
class Result:
    """Microseconds of CPU per event, and ages in milliseconds."""

    name: str
    cpu: float | None
    p50: float
    p99: float
    lost: int


@contextmanager
def running(
    command: Sequence[str], port: int, more: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """A program that listens on *port*, ended with everything it started."""
    path = f"{ROOT}:{ROOT / 'proxy'}"
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path, **(more or {})},
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(5000):
            with socket.socket() as probe:
                probe.settimeout(0.1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended with {process.returncode}")
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def cpu_of(process: psutil.Process) -> float:
    """User and system seconds so far, children included."""
    return sum(sum(one.cpu_times()[:2]) for one in family(process))


def rss_of(process: psutil.Process) -> int:
    return sum(one.memory_info().rss for one in family(process))


@contextmanager
def relay(
    name: str, upstream: str, loop: str = "uvloop"
) -> Iterator[tuple[psutil.Process | None, int]]:
    """The relay and its port; for "direct" none and the upstream's own."""
    port = free_port()
    python = [sys.executable, "-m"] if loop == "uvloop" else [sys.executable, "-c", _ON_ASYNCIO]
    if name == "direct":
        yield None, int(upstream.rpartition(":")[2])
    elif name == "nginx":
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "nginx.conf"
            config.write_text(_NGINX.format(folder=folder, port=port, upstream=upstream))
            program = shutil.which("nginx") or "/usr/sbin/nginx"
            command = [program, "-p", folder, "-e", "stderr", "-c", str(config)]
            with running(command, port) as process:
                yield process, port
    elif name == "Starlette + httpx":
        command = [*python, "bench.proxy.httpx_relay", str(port), upstream]
        with running(command, port) as process:
            yield process, port
    else:
        settings = {
            "MNOTE_WEB_HERMES_UPSTREAM_URL": upstream,
            "MNOTE_WEB_HERMES_API_KEY": "bench-api-key-0123456789abcdef",
            "MNOTE_WEB_AUTH": "trusted-header",
            "MNOTE_WEB_AUTH_HEADER": "X-User",
            "MNOTE_WEB_TRUSTED_PROXIES": "127.0.0.1",
        }
        for limit in ("RUNS", "RUNS_PER_USER", "STREAMS", "STREAMS_PER_USER"):
            settings[f"MNOTE_WEB_HERMES_MAX_{limit}"] = "100000"
        command = [*python, "hermes_client_proxy", "serve", "--port", str(port)]
        with running(command, port, settings) as process:
            yield process, port


async def paths_of(name: str, port: int, streams: int) -> list[str]:
    """Where each stream is; for the door the runs are started first."""
    if name != "browser door":
        return [f"/v1/runs/run_{number}/events" for number in range(streams)]
    paths = []
    headers = {"X-User": "bench"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:
        for number in range(streams):
            session = f"mnote_doc_1_s{number}"
            body = {"workspaceId": "w", "documentId": "doc_1", "sessionId": session, "message": "x"}
            async with client.post("/api/hermes/client/runs", json=body) as answer:
                started = await answer.json()
                assert answer.status == 200, started
            paths.append(f"/api/hermes/client/events/{started['runId']}?sessionId={session}")
    return paths


@contextmanager
def upstream_with(load: Load) -> Iterator[str]:
    port = free_port()
    numbers = [port, load.events, load.interval, load.delay]
    command = [sys.executable, "-m", "bench.proxy.upstream", *map(str, numbers)]
    with running(command, port):
        yield f"http://127.0.0.1:{port}"


async def measure(name: str, load: Load, loop: str = "uvloop") -> Result:
    """CPU and ages of one relay under this load."""
    with ExitStack() as stack:
        upstream = stack.enter_context(upstream_with(load))
        process, port = stack.enter_context(relay(name, upstream, loop))
        seen = Seen()
        paths = await paths_of(name, port, load.streams)
        await open_all(port, paths, seen)
        await asyncio.wait_for(seen.all_opened.wait(), 60)
        assert not seen.ages, "the events began before every stream was open: raise --delay"
        before = cpu_of(process) if process is not None else 0.0
        await asyncio.wait_for(seen.all_closed.wait(), 300)
        after = cpu_of(process) if process is not None else 0.0
    ages = sorted(seen.ages)
    expected = load.streams * load.events
    return Result(
        name,
        (after - before) * 1e6 / len(ages) if process is not None else None,
        ages[len(ages) // 2] / 1e6,
        ages[len(ages) * 99 // 100] / 1e6,
        expected - len(ages),
    )


def middle(rounds: list[Result]) -> Result:
    """The median of each figure; what was lost is added up."""
    cpus = [one.cpu for one in rounds if one.cpu is not None]
    return Result(
        rounds[0].name,
        statistics.median(cpus) if cpus else None,
        statistics.median(one.p50 for one in rounds),
        statistics.median(one.p99 for one in rounds),
        sum(one.lost for one in rounds),
    )


async def memory(name: str, streams: int, loop: str = "uvloop") -> float:
    """KiB of the relay's memory for each of so many open streams that say nothing."""
    with ExitStack() as stack:
        upstream = stack.enter_context(upstream_with(Load(streams, 0, 1000, 3_600_000)))
        process, port = stack.enter_context(relay(name, upstream, loop))
        assert process is not None
        warm = Seen()
        await open_all(port, await paths_of(name, port, 1), warm)
        await asyncio.wait_for(warm.all_opened.wait(), 60)
        before = rss_of(process)
        seen = Seen()
        paths = (await paths_of(name, port, streams + 1))[1:] if name != "browser door" else None
        paths = paths or await _more_paths(port, streams)
        await open_all(port, paths, seen)
        await asyncio.wait_for(seen.all_opened.wait(), 120)
        await asyncio.sleep(1)
        return (rss_of(process) - before) / 1024 / streams


async def _more_paths(port: int, streams: int) -> list[str]:
    headers = {"X-User": "bench"}
    paths = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:
        for number in range(streams):
            session = f"mnote_doc_2_s{number}"
            body = {"workspaceId": "w", "documentId": "doc_2", "sessionId": session, "message": "x"}
            async with client.post("/api/hermes/client/runs", json=body) as answer:
                run_id = (await answer.json())["runId"]
            paths.append(f"/api/hermes/client/events/{run_id}?sessionId={session}")
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description=__doc__)
    parser.add_argument("--streams", type=int, default=200, help="open streams (200)")
    parser.add_argument("--events", type=int, default=60, help="events of each stream (60)")
    parser.add_argument("--interval", type=int, default=100, help="ms between events (100)")
    parser.add_argument("--delay", type=int, default=3000, help="ms before the first event (3000)")
    parser.add_argument("--memory", type=int, default=1000, help="streams for memory (1000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median (3)")
    parser.add_argument(
        "--loop", choices=("uvloop", "asyncio"), help="the loop of the relays in Python (both)"
    )
    options = parser.parse_args()
    loops = [options.loop] if options.loop else ["uvloop", "asyncio"]
    rows = [("direct", ""), ("nginx", "")]
    rows += [(name, loop) for name in ("Starlette + httpx", "browser door") for loop in loops]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 16_384), hard), hard))
    load = Load(options.streams, options.events, options.interval, options.delay)
    if shutil.which("nginx") is None and not Path("/usr/sbin/nginx").exists():
        print("nginx is not installed: its row is left out (apt-get install nginx-light).")
        rows.remove(("nginx", ""))
    print(
        f"{load.streams} streams, {load.events} events each, {load.interval} ms apart, "
        f"{os.cpu_count()} cores, {options.rounds} rounds\n"
    )
    rounds: dict[tuple[str, str], list[Result]] = {row: [] for row in rows}
    for _ in range(options.rounds):
        for name, loop in rows:
            rounds[name, loop].append(uvloop.run(measure(name, load, loop or "uvloop")))
    results = {row: middle(found) for row, found in rounds.items()}
    print(
        f"{'relay':28}{'CPU/event':>12}{'/ nginx':>10}{'/ httpx':>10}{'p50':>10}{'p99':>10}"
        f"{'added p50':>12}{'added p99':>12}{'memory/stream':>16}",
        flush=True,
    )
    direct = results["direct", ""]
    for (name, loop), result in results.items():
        cpu, kib = "-", "-"
        beside = ["-", "-"]
        if result.cpu is not None:
            cpu = f"{result.cpu:.1f} µs"
            others = (results.get(("nginx", "")), results.get(("Starlette + httpx", loop)))
            beside = [f"{result.cpu / o.cpu:.2f}" if o and o.cpu else "-" for o in others]
            if options.memory:
                kib = f"{uvloop.run(memory(name, options.memory, loop or 'uvloop')):.1f} KiB"
        added = [f"{a - b:.2f} ms" for a, b in ((result.p50, direct.p50), (result.p99, direct.p99))]
        lost = f"  {result.lost} events lost" if result.lost else ""
        print(
            f"{f'{name}, {loop}' if loop else name:28}{cpu:>12}{beside[0]:>10}{beside[1]:>10}"
            f"{result.p50:>7.2f} ms{result.p99:>7.2f} ms{added[0]:>12}{added[1]:>12}"
            f"{kib:>16}{lost}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
