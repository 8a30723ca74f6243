"""Which checks there are, and their run: some at once, each bounded, all within a limit."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from .asking import Play, rows
from .browser import Failed, Page
from .conversations import ROWS as CONVERSATIONS
from .running import NO_AGENT_NEEDED, ROWS, SLOW

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
AT_ONCE = 4
RUNS_AT_ONCE = 2
CHECK_SECONDS = 120.0


@dataclass(frozen=True)
class Check:
    """One thing to find out. `missing`: why it is not run."""

    number: int
    group: str
    name: str
    heading: str
    play: Play
    missing: str | None = None
    run: bool = False

    @property
    def title(self) -> str:
        """Unique in the suite."""
        return f"{self.group}: {self.name}"

    @property
    def reference(self) -> str:
        """Where the contract's document tells it."""
        return f"docs/client-proxy.md#{self.heading}"


@dataclass(frozen=True)
class Result:
    """What came of a check; `reason` for one that failed or was not run."""

    check: Check
    status: str
    reason: str = ""
    seconds: float = 0.0


class Suite:
    """All checks. `agent` False: nothing that needs Hermes' answer; `quick`: nothing slow."""

    def __init__(
        self,
        *,
        only: Collection[str] = (),
        agent: bool = True,
        quick: bool = False,
        one_document: bool = False,
    ) -> None:
        every: list[Check] = []
        for group, found in rows().items():
            for name, heading, play in found:
                missing = None
                if one_document and group == "session ids":
                    missing = "needs a user who may use every document: not with --document"
                every.append(Check(len(every), group, name, heading, play, missing))
        for name, heading, play in (*ROWS, *CONVERSATIONS):
            missing = None
            if not agent and name not in NO_AGENT_NEEDED:
                missing = "needs Hermes with the scripted agent"
            elif quick and name in SLOW:
                missing = "takes 20 s: not with --quick"
            every.append(Check(len(every), "runs", name, heading, play, missing, run=True))
        exact = {check.title for check in every} & set(only)
        self.checks = [
            check
            for check in every
            if not only or check.title in exact or _chosen(check.title, set(only) - exact)
        ]

    async def run(
        self, page: Page, told: Callable[[Result], None] = lambda result: None, *, limit: float
    ) -> list[Result]:
        """Carry out every check; `told` hears of each result. Ends after `limit` seconds."""
        results: dict[int, Result] = {}
        some, runs = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(RUNS_AT_ONCE)

        def note(result: Result) -> None:
            results[result.check.number] = result
            told(result)

        async def one(check: Check) -> None:
            async with runs if check.run else some:
                note(await _one(check, page))

        tasks = []
        # What takes longest begins first.
        for check in sorted(self.checks, key=lambda check: check.name not in SLOW):
            if check.missing is not None:
                note(Result(check, NOT_RUN, check.missing))
            else:
                tasks.append(asyncio.create_task(one(check)))
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=limit)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for check in self.checks:
            if check.number not in results:
                note(Result(check, FAILED, f"not done within the time limit of {limit:g} s"))
        return [results[check.number] for check in self.checks]


async def _one(check: Check, page: Page) -> Result:
    began = time.monotonic()
    reason = ""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check.play(page)
    except TimeoutError:
        reason = f"it did not come to an end within {CHECK_SECONDS:g} s"
    except Failed as failed:
        reason = str(failed)
    except Exception as error:  # whatever a strange server makes of this program
        reason = f"the answer could not be read: {type(error).__name__}: {error}"
    return Result(check, FAILED if reason else PASSED, reason, time.monotonic() - began)


def _chosen(title: str, only: Collection[str]) -> bool:
    low = title.lower()
    return any(w.lower() in low or fnmatch.fnmatch(low, w.lower()) for w in only)


def summary(results: Iterable[Result]) -> dict[str, int]:
    """How many checks came to which end."""
    counted = {PASSED: 0, FAILED: 0, NOT_RUN: 0}
    for result in results:
        counted[result.status] += 1
    return counted


def as_json(
    url: str, results: Iterable[Result], seconds: float, *, problem: str | None = None
) -> str:
    """The report for programs. `problem`: why nothing could be checked."""
    results = list(results)
    return json.dumps(
        {
            "contract": "client-proxy-v1",
            "url": url,
            "seconds": round(seconds, 1),
            "problem": problem,
            "summary": {name.replace(" ", "_"): n for name, n in summary(results).items()},
            "checks": [
                {
                    "group": result.check.group,
                    "name": result.check.name,
                    "status": result.status.replace(" ", "_"),
                    "reason": result.reason or None,
                    "reference": result.check.reference,
                    "seconds": round(result.seconds, 3),
                }
                for result in results
            ],
        },
        ensure_ascii=False,
        indent=2,
    )
