"""Both doors under load, with a report: `python -m bench.load [--only NAME] [--soak SECONDS]`.

Prints a table for each scenario and puts it into the report in place of that scenario's last one;
ends with 1 if a bound was not kept. Real server processes, loopback only. Read the ratios: what
stands beside a figure was measured in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import platform
import resource
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import psutil
import uvloop

from . import door, load_browsers, load_devices, load_soak
from .proxy.__main__ import Load

RESULTS = Path(__file__).with_name("results.md")
_MIB = 2**20


@dataclass(frozen=True)
class Sizes:
    """How much of everything; intervals and delays in milliseconds, the soak in seconds."""

    rounds: int = 3
    idle: int = 2000
    talking: int = 500
    edits: int = 40
    edit_interval: int = 100
    uploads: int = 50
    upload_bytes: int = 8 * _MIB
    streams: int = 1000
    events: int = 20
    event_interval: int = 500
    delay: int = 20_000
    tabs: int = 200
    tab_events: int = 60
    tab_delay: int = 5000
    soak: float = 600
    soak_devices: int = 40
    soak_browsers: int = 20


SHORT = Sizes(
    rounds=1,
    idle=200,
    talking=40,
    edit_interval=20,
    uploads=5,
    streams=40,
    event_interval=50,
    delay=3000,
    tabs=20,
    tab_events=20,
    tab_delay=3000,
    soak=20,
    soak_devices=10,
    soak_browsers=5,
)


@dataclass(frozen=True)
class Line:
    """One figure. `beside` is what it is a multiple of, `bound` what it must not exceed."""

    figure: str
    value: float
    unit: str = ""
    beside: float | None = None
    name: str = ""
    bound: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the figure is within its bound."""
        return self.bound is None or self.value <= self.bound

    def row(self) -> str:
        """The line of the table."""
        beside = f"{_short(self.beside)} {self.unit} ({self.name})" if self.beside else ""
        ratio = f"{self.value / self.beside:.2f}×" if self.beside else ""
        bound = ""
        if self.bound is not None:
            bound = f"≤ {_short(self.bound)} {self.unit}".rstrip()
            bound += ": kept" if self.kept else ": **not kept**"
        value = f"{_short(self.value)} {self.unit}".rstrip()
        return f"| {self.figure} | {value} | {beside} | {ratio} | {bound} |"


def _short(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def idle(sizes: Sizes) -> list[Line]:
    """Devices that are signed in and say nothing."""
    used: dict[str, list[float]] = {"door": [], "picows": []}
    for _ in range(sizes.rounds):
        for kind, values in used.items():
            server = door.Server(kind)
            try:
                values.append(asyncio.run(load_devices.idle(server, sizes.idle)))
            finally:
                server.end()
    ours, bare = (statistics.median(values) for values in used.values())
    # The first devices also pay for what the process needs once.
    bound = 45 if sizes.idle >= 1000 else 90
    return [Line(f"memory of a device ({sizes.idle:,})", ours, "KiB", bare, "bare picows", bound)]


def turns(sizes: Sizes) -> list[Line]:
    """Devices whose answers are streamed to them."""
    measured: dict[str, list[load_devices.Turns]] = {"door": [], "bare": []}
    for _ in range(sizes.rounds):
        for kind, values in measured.items():
            with load_devices.serving(kind) as server:
                turn = load_devices.turns(server, sizes.talking, sizes.edits, sizes.edit_interval)
                values.append(asyncio.run(turn))

    def both(what: Callable[[load_devices.Turns], float]) -> tuple[float, float]:
        ours, bare = (statistics.median(map(what, values)) for values in measured.values())
        return ours, bare

    cpu, p50, p99 = both(lambda it: it.cpu), both(lambda it: it.p50), both(lambda it: it.p99)
    ours = measured["door"]
    return [
        Line("CPU of an edit", cpu[0], "µs", cpu[1], "bare sends"),
        Line("age of the final edit, p50", p50[0], "ms", p50[1], "bare sends"),
        Line("age of the final edit, p99", p99[0], "ms", p99[1], "bare sends"),
        Line("answers without their final edit", sum(it.answers_missing for it in ours), bound=0),
        Line("edits not shown", sum(it.revisions_missing for it in ours), bound=0),
    ]


def uploads(sizes: Sizes) -> list[Line]:
    """Files that are all on their way at once: none ends before all but its last KiB has come."""
    together = sizes.uploads * sizes.upload_bytes
    lines = []
    for name, part in (("parts of 256 KiB", load_devices.PART_BYTES), ("one frame each", None)):
        measured = []
        for _ in range(sizes.rounds):
            with load_devices.serving("door") as server:
                sent = load_devices.uploads(server, sizes.uploads, sizes.upload_bytes, part)
                measured.append(asyncio.run(sent))
        grown = statistics.median(it.grown for it in measured) / _MIB
        kept = statistics.median(it.kept for it in measured) / _MIB
        size = together / _MIB
        lines += [
            Line(f"extra memory, {name}", grown, "MiB", size, "the files", 2.5 * size),
            Line(f"still held a second later, {name}", kept, "MiB", size, "the files"),
        ]
    return lines


def streams(sizes: Sizes) -> list[Line]:
    """Browsers with a run each."""
    load = Load(sizes.streams, sizes.events, sizes.event_interval, sizes.delay)
    direct = uvloop.run(load_browsers.directly(load))
    ours = uvloop.run(load_browsers.through_the_door(load, load.streams))
    return [
        Line("CPU of an event", ours.cpu, "µs"),
        Line("age of an event, p50", ours.p50, "ms", direct.p50, "read directly"),
        Line("age of an event, p99", ours.p99, "ms", direct.p99, "read directly"),
        Line("memory of a run and its stream", ours.memory, "KiB"),
        Line("events lost", ours.lost, bound=0),
    ]


def tabs(sizes: Sizes) -> list[Line]:
    """Browsers that all watch the same run."""
    load = Load(sizes.tabs, sizes.tab_events, 100, sizes.tab_delay)
    each = uvloop.run(load_browsers.through_the_door(load, load.streams))
    shared = uvloop.run(load_browsers.through_the_door(load, 1))
    name = "a run each"
    return [
        Line("CPU of an event to a tab", shared.cpu, "µs", each.cpu, name),
        Line("age of an event, p50", shared.p50, "ms", each.p50, name),
        Line("age of an event, p99", shared.p99, "ms", each.p99, name),
        Line("memory of a tab", shared.memory, "KiB", each.memory, name),
        Line("events lost", shared.lost + each.lost, bound=0),
    ]


def soak(sizes: Sizes) -> list[Line]:
    """Mixed traffic for a while."""
    done = asyncio.run(load_soak.soak(sizes.soak, sizes.soak_devices, sizes.soak_browsers))
    lines = []
    # Shorter than a minute, what is remembered for minutes still fills up.
    bound = 8 if sizes.soak >= 60 else 16
    for name, samples in (("device door", done.door), ("browser door", done.proxy)):
        lines += [
            Line(f"{name}, median memory", statistics.median(samples) / _MIB, "MiB"),
            Line(f"{name}, growth", load_soak.growth(samples), "MiB", bound=bound),
        ]
    return [
        *lines,
        Line("open files, at most", max(done.files)),
        Line("turns of 40 edits", done.turns),
        Line("uploads of 1 MiB", done.uploads),
        Line("runs watched to their end", done.runs),
        Line("turns, uploads and runs that failed", done.failed, bound=0),
    ]


SCENARIOS: dict[str, Callable[[Sizes], list[Line]]] = {
    "idle": idle,
    "turns": turns,
    "uploads": uploads,
    "streams": streams,
    "tabs": tabs,
    "soak": soak,
}


def titles(sizes: Sizes) -> dict[str, str]:
    """What each scenario is, in the order of the report."""
    paced = f"turns of {sizes.edits} edits, {sizes.edit_interval} ms apart"
    size = f"{sizes.upload_bytes // _MIB} MiB"
    return {
        "idle": f"idle: {sizes.idle:,} idle devices",
        "turns": f"turns: {sizes.talking:,} devices in {paced}",
        "uploads": f"uploads: {sizes.uploads} uploads of {size} at once",
        "streams": f"streams: {sizes.streams:,} event streams, {sizes.event_interval} ms apart",
        "tabs": f"tabs: {sizes.tabs} tabs on one run, events 100 ms apart",
        "soak": f"soak: {sizes.soak:g} s, {sizes.soak_devices} devices, "
        f"{sizes.soak_browsers} browsers",
    }


def machine() -> str:
    """What the figures are measured on, and how busy it is."""
    load = ", ".join(f"{value:.1f}" for value in psutil.getloadavg())
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{psutil.cpu_count()} CPUs, {psutil.virtual_memory().total // 2**30} GiB; "
        f"load average at the start {load}"
    )


def section(title: str, command: str, described: str, lines: list[Line]) -> str:
    """One scenario of the report."""
    table = "\n".join(line.row() for line in lines)
    head = "| figure | median | beside it | ratio | bound |\n|---|---|---|---|---|"
    return f"## {title}\n\n`{command}`, {date.today()}, on {described}.\n\n{head}\n{table}\n"


def put(path: Path, name: str, text: str) -> None:
    """Put a scenario's section into the report in place of its last one."""
    known: dict[str, str] = {}
    if path.exists():
        for old in path.read_text().split("\n## ")[1:]:
            known[old.partition(":")[0]] = f"## {old.rstrip()}\n"
    known[name] = text
    intro = f"# Load\n\n{_INTRO}\n"
    path.write_text("\n".join([intro, *(known[one] for one in SCENARIOS if one in known)]))


_INTRO = """\
Written by `make load`. Each scenario says when it was last measured, and on what: absolute figures
are that machine's, so read the ratios. Where there are rounds, a figure is their median, and the
servers take turns. CPU and memory are the server process's own. What stands beside a figure: a
server on the same WebSocket library that only sends, the upstream read without a relay, or the size
of the files. Growth in a soak is from the median of its second quarter to that of its last."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario instead of all")
    parser.add_argument("--soak", type=float, help="seconds of the soak (600; 20 with --short)")
    parser.add_argument("--short", action="store_true", help="small sizes, for a quick check")
    parser.add_argument("--output", type=Path, help="the report (bench/results.md)")
    options = parser.parse_args()
    if options.short and options.output is None:
        parser.error("--short needs --output: its figures are not for bench/results.md")
    base = SHORT if options.short else Sizes()
    sizes = Sizes(**{**vars(base), "soak": options.soak or base.soak})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 16_384), hard), hard))
    # That a client writes faster than the door reads is what the uploads are for.
    logging.getLogger("picows").setLevel(logging.ERROR)
    command = shlex.join(["python", "-m", "bench.load", *sys.argv[1:]])
    kept = True
    for name, scenario in SCENARIOS.items():
        if options.only in (None, name):
            described = machine()
            lines = scenario(sizes)
            text = section(titles(sizes)[name], command, described, lines)
            print(text, flush=True)
            put(options.output or RESULTS, name, text)
            kept = kept and all(line.kept for line in lines)
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
