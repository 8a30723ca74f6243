"""``hermes-client-proxy doctor``: the command line and what it shows."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .conformance.command import add_sign_in, headers_of, origin_of, sign_in

if TYPE_CHECKING:
    from rich.console import Console

    from .doctor import Finding
    from .settings import Settings

FINE, SICK, CANNOT = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    parser.add_argument("--url", help="examine this address from outside as well: https://HOST")
    add_sign_in(parser)
    parser.add_argument("--document", metavar="ID", help="a document that this user may use")
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="start no run (a real one spends a few tokens of the model on it)",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=40.0,
        metavar="SECONDS",
        help="how long an event stream is left silent, where the agent knows the scripted words "
        "(40; 0: not at all)",
    )
    parser.add_argument("--only-outside", action="store_true", help="leave this machine out")
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """0: no problem. 1: a problem was found. 2: it was asked wrongly."""
    try:
        origin = origin_of(args.url) if args.url is not None else None
        headers = headers_of(args.header)
        if args.only_outside and origin is None:
            raise ValueError("--only-outside needs --url")
    except ValueError as error:
        print(f"hermes-client-proxy: {error}", file=sys.stderr)
        return CANNOT
    return asyncio.run(_run(args, origin, headers))


async def _run(args: argparse.Namespace, origin: str | None, headers: dict[str, str]) -> int:
    from rich.console import Console

    from . import doctor

    console = Console(stderr=args.json, width=None if sys.stdout.isatty() else 100)
    found: list[Finding] = []
    settings = None
    if not args.only_outside:
        with _busy(console, "looking at this machine"):
            settings, found = await doctor.inside(os.environ)
        _show(console, "This machine", found)
    if origin is not None:
        try:
            with _busy(console, "from outside") as told:
                outside = await _outside(args, origin, headers, settings, told)
        except ValueError as error:
            print(f"hermes-client-proxy: {error}", file=sys.stderr)
            return CANNOT
        _show(console, f"From outside, at {origin}", outside)
        found += outside
    elif not args.json:
        console.print(
            "\n[dim]What strangers can do is found out with --url https://YOUR.NAME[/]",
            highlight=False,
        )
    if args.json:
        rows = [{**dataclasses.asdict(f), "level": f.level.value} for f in found]
        print(json.dumps({"findings": rows}, ensure_ascii=False, indent=2))
    problems = sum(finding.level is doctor.Level.PROBLEM for finding in found)
    warnings = sum(finding.level is doctor.Level.WARNING for finding in found)
    color = "red" if problems else "yellow" if warnings else "green"
    told_end = f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}"
    console.print(f"\n[{color} bold]{told_end if problems + warnings else 'All well.'}[/]")
    return SICK if problems else FINE


async def _outside(
    args: argparse.Namespace,
    origin: str,
    headers: dict[str, str],
    settings: Settings | None,
    told: Any,
) -> list[Finding]:
    import aiohttp

    from .conformance.browser import Page
    from .doctor_outside import HERMES_PORT, Visit, examine

    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as client:
        cookie, line = args.cookie or "", None
        if args.login:
            cookie, line = await sign_in(client, args.login, origin)
        upstream = urlsplit(settings.upstream_url or "") if settings is not None else None
        visit = Visit(
            Page(origin, client, cookie, headers, document=args.document),
            signed_in=bool(cookie or headers),
            set_cookie=line,
            key=settings.api_key if settings is not None else None,
            run=not args.no_run,
            idle=args.idle,
            hermes_port=(upstream.port if upstream is not None else None) or HERMES_PORT,
        )
        return await examine(visit, told)


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
