"""``hermes-client-proxy conform URL``: the kit's command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import aiohttp
    from rich.console import Console

    from .suite import Result

PASSED, FAILED, CANNOT = 0, 1, 2


def add_sign_in(parser: argparse.ArgumentParser) -> None:
    """The options that say who the page's user is."""
    parser.add_argument("--cookie", metavar="NAME=VALUE", help="the cookies of a signed-in browser")
    parser.add_argument("--login", metavar="LINK", help="the one-use link that `serve` prints")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="a header that signs in (a bearer token, or what a proxy in front sets)",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``conform``."""
    parser.add_argument("url", help="the origin of the door under test, like http://127.0.0.1:8750")
    add_sign_in(parser)
    parser.add_argument("--workspace", default="conform", metavar="ID", help="a workspace id")
    parser.add_argument(
        "--document", metavar="ID", help="the document that this user may use (else fresh ones)"
    )
    parser.add_argument(
        "--no-agent",
        action="store_true",
        help="start no runs: Hermes' model does not know the scripted agent's words",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only checks whose `group: name` holds or fits this (may be repeated)",
    )
    parser.add_argument("--list", action="store_true", help="show the checks, run none")
    parser.add_argument("--quick", action="store_true", help="leave out what takes 20 seconds")
    parser.add_argument("--brief", action="store_true", help="show failures only")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON (`-`: to stdout)")
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")
    parser.add_argument(
        "--patience",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="the longest wait for one answer (15)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="the longest time for the whole run (300)",
    )


def origin_of(url: str) -> str:
    """The origin of an address. Raises ValueError with a sentence."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc:
        raise ValueError("the address must look like http://127.0.0.1:8750")
    return f"{parts.scheme}://{parts.netloc}"


def headers_of(items: list[str]) -> dict[str, str]:
    """What --header was given. Raises ValueError with a sentence."""
    found = {}
    for item in items:
        name, colon, value = item.partition(":")
        if not colon or not name.strip():
            raise ValueError("--header takes NAME: VALUE")
        found[name.strip()] = value.strip()
    return found


async def sign_in(
    client: aiohttp.ClientSession, link: str, origin: str | None = None
) -> tuple[str, str]:
    """Redeem a sign-in link: the Cookie header to send, and the Set-Cookie line as it came.

    With ``origin`` it is redeemed there, as a browser of that address would: the cookie has the
    name and the flags that it has there. Where that gives none, as it is written.

    Raises ValueError with a sentence.
    """
    there = link
    if origin is not None:
        parts = urlsplit(link)
        there = f"{origin}{parts.path}?{parts.query}"
    try:
        return await _redeem(client, there)
    except ValueError:
        if there == link:
            raise
    return await _redeem(client, link)


async def _redeem(client: aiohttp.ClientSession, link: str) -> tuple[str, str]:
    import aiohttp as http

    try:
        async with client.get(
            link, allow_redirects=False, timeout=http.ClientTimeout(total=15)
        ) as answer:
            lines = answer.headers.getall("Set-Cookie", [])
            status = answer.status
    except (http.ClientError, TimeoutError, ValueError) as error:
        raise ValueError(f"the sign-in link cannot be opened ({type(error).__name__})") from None
    for line in lines:
        jar = SimpleCookie(line)
        for name, morsel in jar.items():
            return f"{name}={morsel.value}", line
    raise ValueError(
        f"the sign-in link gave no cookie (HTTP {status}): it works once, take a new one"
    )


def run(args: argparse.Namespace) -> int:
    """0: what was run passed. 1: something failed. 2: nothing could be checked."""
    try:
        origin, headers = origin_of(args.url), headers_of(args.header)
    except ValueError as error:
        print(f"hermes-client-proxy: {error}", file=sys.stderr)
        return CANNOT
    return asyncio.run(_run(args, origin, headers))


async def _run(args: argparse.Namespace, origin: str, headers: dict[str, str]) -> int:
    import aiohttp
    from rich.console import Console
    from rich.markup import escape

    from . import report
    from .browser import Failed, Page
    from .suite import Suite, summary

    # With the report on stdout, people read stderr.
    console = Console(stderr=args.json == "-", soft_wrap=True)
    suite = Suite(
        only=args.only,
        agent=not args.no_agent,
        quick=args.quick,
        one_document=args.document is not None,
    )
    if args.list:
        for check in suite.checks:
            console.print(escape(check.title), highlight=False)
        return PASSED
    if not suite.checks:
        console.print("[red]No check fits --only.[/] See --list.")
        return CANNOT
    console.print(f"Client proxy contract v1 at [bold]{escape(origin)}[/]", highlight=False)
    connector = aiohttp.TCPConnector(limit=0)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as client:
        cookie = args.cookie or ""
        try:
            if args.login:
                cookie, _ = await sign_in(client, args.login, origin)
            page = Page(
                origin,
                client,
                cookie,
                headers,
                workspace=args.workspace,
                document=args.document,
                patience=args.patience,
            )
            problem = await _look(page)
        except (ValueError, Failed) as error:
            problem = str(error)
        if problem is not None:
            console.print(f"[red]Nothing can be checked.[/] {escape(problem)}", highlight=False)
            _write(args, console, origin, [], 0.0, problem)
            return CANNOT
        began = time.monotonic()
        with report.Screen(console, suite, brief=args.brief) as screen:
            results = await suite.run(page, screen.told, limit=args.limit)
        seconds = time.monotonic() - began
        failed = {result.check.name for result in results if result.status == "failed"}
        scripted = "a run from its start to its end" not in failed
        report.conclude(console, results, seconds, scripted=scripted)
    if not _write(args, console, origin, results, seconds):
        return CANNOT
    counted = summary(results)
    if counted["failed"]:
        return FAILED
    return PASSED if counted["passed"] else CANNOT


def _write(
    args: argparse.Namespace,
    console: Console,
    origin: str,
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
            told = as_json(origin, results, seconds, problem=problem)
            if args.json == "-":
                print(told)
            else:
                Path(args.json).write_text(told + "\n", encoding="utf-8")
        if args.junit:
            report.write_junit(Path(args.junit), origin, results, seconds, problem=problem)
    except OSError as error:
        console.print(f"[red]The report could not be written:[/] {escape(str(error))}")
        return False
    return True


async def _look(page: object) -> str | None:
    """Why nothing can be checked, None when it can."""
    from .browser import Page, shortened

    assert isinstance(page, Page)
    answer = await page.ask("GET", "/models")
    where = f"{page.url}/api/hermes/client"
    if 300 <= answer.status < 400:
        to = shortened(answer.headers.get("location", "nowhere"))
        return f"{where} sends on to {to} (HTTP {answer.status}): give the address it is at"
    if answer.status == 401:
        return "this sign-in is not good: give --cookie, --login or --header of a signed-in user"
    if not _says_ok(answer.raw) and not _says_ok((await page.ask("GET", "/health")).raw):
        return f"there is no browser door at {where} (HTTP {answer.status})"
    if answer.status == 503 and b"hermes_client_unconfigured" in answer.raw:
        return f"the door has no Hermes behind it: {shortened(answer.body['message'])}"
    return None


def _says_ok(raw: bytes) -> bool:
    """Whether this is JSON as the door writes it, however wrong: an object with `ok`."""
    try:
        found = json.loads(raw)
    except ValueError:
        return False
    return isinstance(found, dict) and "ok" in found
