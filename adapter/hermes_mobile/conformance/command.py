"""`hermes-mobile conform URL`: the kit's command line."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from .suite import Result
    from .target import Target

PASSED, FAILED, CANNOT = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `conform`."""
    parser.add_argument("url", help="the door under test: ws://HOST:PORT/ws or wss://HOST/ws")
    parser.add_argument(
        "--token", help="a token that may chat under any device id (else MOBILE_TOKEN)"
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        metavar="[DEVICE=]TOKEN",
        help="a second token, or one that is bound to a device (else MOBILE_EXTRA_TOKENS)",
    )
    parser.add_argument(
        "--deliver",
        default=None,
        metavar="TOKEN",
        help="a token that may only deliver (else MOBILE_DELIVER_TOKENS)",
    )
    parser.add_argument(
        "--home",
        default=None,
        metavar="DEVICE",
        help="the home device of the door (else MOBILE_HOME_DEVICE)",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting in which this door differs from the contract's: the checks that were "
        "written for it are run, and only those",
    )
    parser.add_argument(
        "--no-agent",
        action="store_true",
        help="there is no scripted agent behind this door: leave out what needs its words",
    )
    parser.add_argument(
        "--hermes",
        action="store_true",
        help="a real Hermes Agent stands behind this door, with a model that knows the scripted "
        "agent's words (`make run`): fewer checks at a time, more patience, and left out is what "
        "Hermes itself does otherwise",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only checks whose `group: name` holds or fits this (may be repeated)",
    )
    parser.add_argument("--list", action="store_true", help="show the checks, run none")
    parser.add_argument("--quick", action="store_true", help="leave out what waits for 15 seconds")
    parser.add_argument("--brief", action="store_true", help="show failures only")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON (`-`: to stdout)")
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")
    parser.add_argument(
        "--patience",
        type=float,
        default=None,
        metavar="SECONDS",
        help="the longest wait for one answer (default: 10, with --hermes 30)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=None,
        metavar="SECONDS",
        help="the longest time for the whole run (default: 300, with --hermes 900)",
    )


def run(args: argparse.Namespace) -> int:
    """0: what was run passed. 1: something failed. 2: nothing could be checked."""
    from .target import Target, TargetError

    from_environment = args.token is None
    environ = os.environ if from_environment else {}
    try:
        settings = dict(_setting(item) for item in args.setting)
        target = Target.of(
            args.url,
            (args.token or environ.get("MOBILE_TOKEN", "")).strip(),
            extra=",".join(args.extra) or environ.get("MOBILE_EXTRA_TOKENS", ""),
            deliver=_first(args.deliver, environ.get("MOBILE_DELIVER_TOKENS")),
            home=_first(args.home, environ.get("MOBILE_HOME_DEVICE")),
            settings=settings,
            agent=not args.no_agent,
            hermes=args.hermes,
            patience=args.patience or (30.0 if args.hermes else 10.0),
        )
    except TargetError as error:
        print(f"hermes-mobile: {error}", file=sys.stderr)
        return CANNOT
    # What a strange server does to the WebSocket library is told as a failed check.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    return asyncio.run(_run(target, args))


def _first(*values: str | None) -> str:
    return next((value for value in values if value), "")


def _setting(item: str) -> tuple[str, str]:
    from .target import TargetError

    name, equals, value = item.partition("=")
    if not equals or not name.startswith("MOBILE_"):
        raise TargetError(f"--setting takes NAME=VALUE, like MOBILE_PROMPT_TTL=1, not {item!r}")
    return name, value


async def _run(target: object, args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markup import escape

    from . import report
    from .suite import Suite, look, summary
    from .target import Target

    assert isinstance(target, Target)
    # With the report on stdout, people read stderr.
    console = Console(stderr=args.json == "-", soft_wrap=True)
    if args.list:
        for check in Suite(target, only=args.only, quick=args.quick).checks:
            console.print(escape(check.title), highlight=False)
        return PASSED
    console.print(f"Protocol v1 at [bold]{escape(target.url)}[/]", highlight=False)
    found = await look(target)
    if found.problem is not None:
        console.print(f"[red]Nothing can be checked.[/] {escape(found.problem)}", highlight=False)
        _write(args, console, target, [], 0.0, found.problem)
        return CANNOT
    offers = ", ".join(sorted(found.offers)) or "none"
    console.print(f"[dim]additions on offer: {offers}[/]", highlight=False)
    target = dataclasses.replace(target, offers=found.offers)
    suite = Suite(target, only=args.only, quick=args.quick)
    if not suite.checks:
        console.print("[red]No check fits --only.[/] See --list.")
        return CANNOT
    began = time.monotonic()
    with report.Screen(console, suite, brief=args.brief) as screen:
        limit = args.limit or (900.0 if target.hermes else 300.0)
        results = await suite.run(screen.told, limit=limit)
    seconds = time.monotonic() - began
    report.conclude(console, results, seconds, scripted=found.answers)
    if not _write(args, console, target, results, seconds):
        return CANNOT
    counted = summary(results)
    if counted["failed"]:
        return FAILED
    return PASSED if counted["passed"] else CANNOT


def _write(
    args: argparse.Namespace,
    console: Console,
    target: Target,
    results: list[Result],
    seconds: float,
    problem: str | None = None,
) -> bool:
    """The reports that were asked for, also of a run that could check nothing."""
    from rich.markup import escape

    from . import report
    from .suite import as_json

    try:
        if args.json:
            told = as_json(target, results, seconds, problem=problem)
            if args.json == "-":
                print(told)
            else:
                Path(args.json).write_text(told + "\n", encoding="utf-8")
        if args.junit:
            report.write_junit(Path(args.junit), target, results, seconds, problem=problem)
    except OSError as error:
        console.print(f"[red]The report could not be written:[/] {escape(str(error))}")
        return False
    return True
