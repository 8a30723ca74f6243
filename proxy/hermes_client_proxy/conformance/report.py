"""What the checks found: lines for people, JSON and JUnit for programs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from .suite import FAILED, NOT_RUN, PASSED, Result, Suite, summary

MARKS = {PASSED: "[green]✓[/]", FAILED: "[red]✗[/]", NOT_RUN: "[yellow]–[/]"}

# So many checks that failed alike have one cause.
SHARED, MOST_SHARED = 4, 3
# The answer in which it came about: what differs from check to check.
_WHERE = re.compile(r"(?:, in|:) \{.*$", re.DOTALL)


def _allowed(character: str) -> bool:
    """Whether an XML document may hold it (XML 1.0 section 2.2)."""
    code = ord(character)
    return character in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code not in (0xFFFE, 0xFFFF)


class Screen:
    """Shows each group as soon as all its checks are done; failures with reason and section."""

    def __init__(self, console: Console, suite: Suite, *, brief: bool = False) -> None:
        self._console = console
        self._brief = brief
        self._open: Counter[str] = Counter(check.group for check in suite.checks)
        self._found: dict[str, list[Result]] = defaultdict(list)
        self._all = len(suite.checks)
        self._done = 0
        self._failed = 0
        self._status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def told(self, result: Result) -> None:
        """One check has come to its end."""
        self._done += 1
        self._failed += result.status == FAILED
        group = result.check.group
        self._found[group].append(result)
        if self._status is not None:
            failed = f", [red]{self._failed} failed[/]" if self._failed else ""
            self._status.update(f"{self._done} of {self._all} checks{failed}")
        if len(self._found[group]) == self._open[group]:
            self._group(group, self._found.pop(group))

    def _group(self, group: str, results: list[Result]) -> None:
        results.sort(key=lambda result: result.check.number)
        counted = summary(results)
        ran = len(results) - counted[NOT_RUN]
        told = [f"{counted[PASSED]} of {ran} passed"] if ran else []
        if counted[NOT_RUN]:
            told.append(f"{counted[NOT_RUN]} not run")
        self._console.print(f"\n[bold]{escape(group)}[/]  [dim]{', '.join(told)}[/]")
        for result in results:
            self._line(result)

    def _line(self, result: Result) -> None:
        if self._brief and result.status != FAILED:
            return
        name = escape(result.check.name)
        if result.status == PASSED:
            self._console.print(f"  {MARKS[PASSED]} {name}", highlight=False)
        elif result.status == NOT_RUN:
            why = escape(result.reason)
            self._console.print(f"  {MARKS[NOT_RUN]} [dim]{name}  ({why})[/]", highlight=False)
        else:
            self._console.print(f"  {MARKS[FAILED]} [bold]{name}[/]", highlight=False)
            self._console.print(f"      {escape(result.reason)}", highlight=False)
            self._console.print(f"      [dim]see {result.check.reference}[/]", highlight=False)


def conclude(
    console: Console, results: Sequence[Result], seconds: float, *, scripted: bool
) -> None:
    """The last lines: how many, what failed, and what would let the rest run."""
    counted = summary(results)
    failed = [result for result in results if result.status == FAILED]
    console.print()
    if failed:
        console.print(f"[red bold]{len(failed)} of {_ran(results)} checks failed:[/]")
        for result in failed[:40]:
            console.print(f"  {MARKS[FAILED]} {escape(result.check.title)}", highlight=False)
        if len(failed) > 40:
            console.print(f"  … and {len(failed) - 40} more, above")
        for told, number in shared_reasons(failed):
            console.print(
                f"[bold]{number} of them for one reason:[/] {escape(told)}", highlight=False
            )
    elif counted[PASSED]:
        console.print(f"[green bold]All {_ran(results)} checks passed[/] in {seconds:.0f} s.")
    else:
        console.print("[yellow]No check was run.[/]")
    if counted[NOT_RUN]:
        console.print(f"[yellow]{counted[NOT_RUN]} checks were not run:[/]")
        reasons = Counter(result.reason for result in results if result.status == NOT_RUN)
        for reason, number in reasons.most_common():
            console.print(f"  {number:3}  {escape(reason)}", highlight=False)
    if failed and not scripted:
        console.print(
            "There seems to be no scripted agent behind this door: Hermes with the demo's offline "
            "model is one (make run); --no-agent leaves its checks out.",
            highlight=False,
        )


def shared_reasons(failed: Sequence[Result]) -> list[tuple[str, int]]:
    """What many checks failed for alike: one fault of a server that every check comes across."""
    told = Counter(_WHERE.sub("", result.reason) for result in failed)
    return [(why, number) for why, number in told.most_common(MOST_SHARED) if number >= SHARED]


def _ran(results: Sequence[Result]) -> int:
    return sum(result.status != NOT_RUN for result in results)


def write_junit(
    path: Path,
    url: str,
    results: Sequence[Result],
    seconds: float,
    *,
    problem: str | None = None,
) -> None:
    """The report in the form that CI servers read. `problem`: why nothing could be checked."""
    counted = summary(results)
    root = ElementTree.Element(
        "testsuites",
        name=f"client proxy contract v1: {url}",
        tests=str(len(results)),
        failures=str(counted[FAILED]),
        skipped=str(counted[NOT_RUN]),
        time=f"{seconds:.3f}",
    )
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.check.group].append(result)
    for group, members in groups.items():
        told = summary(members)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(members)),
            failures=str(told[FAILED]),
            skipped=str(told[NOT_RUN]),
            errors="0",
            time=f"{sum(result.seconds for result in members):.3f}",
        )
        for result in members:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"client-proxy-v1.{group}",
                name=_xml(result.check.name),
                time=f"{result.seconds:.3f}",
            )
            if result.status == FAILED:
                text = _xml(f"{result.reason} (see {result.check.reference})")
                ElementTree.SubElement(case, "failure", message=text).text = text
            elif result.status == NOT_RUN:
                ElementTree.SubElement(case, "skipped", message=_xml(result.reason))
    if problem is not None:
        cannot = ElementTree.SubElement(
            root, "testsuite", name="door", tests="1", failures="0", errors="1", skipped="0"
        )
        case = ElementTree.SubElement(
            cannot, "testcase", classname="client-proxy-v1.door", name="there is a door to check"
        )
        ElementTree.SubElement(case, "error", message=_xml(problem)).text = _xml(problem)
        root.set("tests", "1")
        root.set("errors", "1")
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _xml(text: str) -> str:
    return "".join(
        character if _allowed(character) else "\N{REPLACEMENT CHARACTER}" for character in text
    )
