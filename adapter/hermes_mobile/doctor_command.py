"""`hermes-mobile doctor` and `hermes mobile doctor`: the command line and what it shows."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from rich.console import Console

    from .doctor import Finding

FINE, SICK, CANNOT = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--url", help="examine this address from outside as well: wss://HOST/ws")
    parser.add_argument(
        "--token", help="an ordinary token of that door (else MOBILE_TOKEN); best one made for this"
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=90.0,
        metavar="SECONDS",
        help="how long a silent connection has to live (default: %(default)g)",
    )
    parser.add_argument(
        "--no-turn",
        action="store_true",
        help="send the agent no message (a real one spends a few tokens of its model on it)",
    )
    parser.add_argument(
        "--try-query-token",
        action="store_true",
        help="try your token in the address of a public door, too: it will stand in access logs",
    )
    parser.add_argument("--only-outside", action="store_true", help="leave this machine out")
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """0: no problem. 1: a problem was found. 2: it was asked wrongly."""
    url = args.url
    token = (args.token or os.environ.get("MOBILE_TOKEN", "")).strip()
    if url is not None and not _is_address(url):
        print("doctor: --url must look like wss://HOST/ws or ws://HOST:PORT/ws", file=sys.stderr)
        return CANNOT
    if url is not None and not token:
        print("doctor: --url needs a token: --token, or MOBILE_TOKEN", file=sys.stderr)
        return CANNOT
    if args.only_outside and url is None:
        print("doctor: --only-outside needs --url", file=sys.stderr)
        return CANNOT
    return asyncio.run(_run(args, url, token))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and not parts.query and "@" not in parts.netloc


async def _run(args: argparse.Namespace, url: str | None, token: str) -> int:
    from rich.console import Console

    from . import doctor, door_files

    console = Console(stderr=args.json, width=None if sys.stdout.isatty() else 100)
    found: list[Finding] = []
    settings = None
    if not args.only_outside:
        with _busy(console, "looking at this machine"):
            config = hermes_config()
            settings, found = await doctor.inside(environment(), extra(config), config)
        _show(console, "This machine", found)
    if url is not None:
        from .doctor_outside import Visit, examine

        parts = urlsplit(url)
        visit = Visit(
            url if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/ws",
            token,
            idle=args.idle,
            own=doctor.address_is_own(url, settings, door_files.hermes_home()),
            turn=not args.no_turn,
            leak=args.try_query_token,
        )
        with _busy(console, "from outside") as told:
            outside = await examine(visit, told)
        _show(console, f"From outside, at {visit.url}", outside)
        found += outside
    elif not args.json:
        console.print(
            "\n[dim]What strangers can do is found out with --url wss://YOUR.NAME/ws[/]",
            highlight=False,
        )
    if args.json:
        print(as_json(found))
    problems = sum(finding.level is doctor.Level.PROBLEM for finding in found)
    warnings = sum(finding.level is doctor.Level.WARNING for finding in found)
    color = "red" if problems else "yellow" if warnings else "green"
    told_end = f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}"
    console.print(f"\n[{color} bold]{told_end if problems + warnings else 'All well.'}[/]")
    return SICK if problems else FINE


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _busy(console: Console, what: str) -> Iterator[Any]:
    """Shows what is being done, on a terminal."""
    if not console.is_terminal:
        yield lambda what: None
        return
    with console.status(f"{what} …") as status:
        yield lambda now: status.update(f"{now} …")


def _show(console: Console, title: str, found: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from .doctor import Level

    marks = {
        Level.GOOD: "[green]✓[/]",
        Level.NOTE: "[cyan]·[/]",
        Level.WARNING: "[yellow]![/]",
        Level.PROBLEM: "[red]✗[/]",
    }
    console.print(f"\n[bold]{escape(title)}[/]", highlight=False)
    for finding in found:
        strong = finding.level in (Level.WARNING, Level.PROBLEM)
        what = f"[bold]{escape(finding.what)}[/]" if strong else escape(finding.what)
        lines = [what]
        if finding.why:
            lines.append(f"[dim]{escape(finding.why)}[/]")
        if finding.change:
            lines.append(f"→ {escape(finding.change)}")
        row = Table.grid(padding=(0, 1))
        row.add_row(f"  {marks[finding.level]}", "\n".join(lines))
        console.print(row, highlight=False)


def as_json(found: list[Finding]) -> str:
    """The findings for programs."""
    rows = [{**dataclasses.asdict(f), "level": f.level.value} for f in found]
    return json.dumps({"findings": rows}, ensure_ascii=False, indent=2)


# --------------------------------------------------------------------------------------------------
# What Hermes knows of the platform


def environment() -> dict[str, str]:
    """The environment as the door will see it: Hermes has read the `.env` of its home into it."""
    return dict(os.environ)


def hermes_config() -> Mapping[str, Any] | None:
    """Hermes' config.yaml; None where there is no Hermes."""
    try:
        config = importlib.import_module("hermes_cli.config").load_config()
    except Exception:
        return None
    return config if isinstance(config, dict) else None


def extra(config: Mapping[str, Any] | None) -> dict[str, object]:
    """The door's keys of `platforms.mobile`."""
    from . import SETTING_NAMES

    platforms = (config or {}).get("platforms")
    mobile = platforms.get("mobile") if isinstance(platforms, dict) else None
    if not isinstance(mobile, dict):
        return {}
    below = mobile.get("extra")
    sources = [below if isinstance(below, dict) else {}, mobile]
    return {name: source[name] for source in sources for name in SETTING_NAMES if name in source}
