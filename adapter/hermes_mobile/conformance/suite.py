"""Which checks there are, and their run: many at once, each bounded, all within a limit."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fnmatch
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import messages, scripts
from .contract import groups
from .entering import STATES
from .extras import EXTRAS
from .line import Failed, Line, Unreachable
from .scripts import needs_agent, read_message
from .target import Needs, Target

__all__ = ["Check", "Result", "Suite", "look"]

# Checks that wait for the door's own clocks run beside all others.
AT_ONCE = 8
# A real agent works on a few turns at a time; what waits longer would be taken for lost.
HERMES_AT_ONCE = 2
WAITING_AT_ONCE = 64
HEAVY_AT_ONCE = 1
CHECK_SECONDS = 90.0
# After so many waits in vain the door is known not to answer; it need not be waited for as long.
SILENT_AFTER = 20
SHORT_PATIENCE = 6.0
HEAVY_BYTES = 1_000_000

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"

# Where docs/protocol.md tells it, by the section that a vector, scenario or check names.
SECTIONS = {
    "transport": "transport",
    "frame": "frames",
    "limits": "limits",
    "handshake": "handshake",
    "hello": "hello",
    "additions": "additions",
    "text": "text",
    "audio": "audio",
    "media (client)": "files",
    "media (server)": "files",
    "prompt (client)": "cards",
    "prompt (server)": "cards",
    "prompt_done": "prompt_done",
    "typing": "typing",
    "ping": "ping",
    "pong": "pong",
    "ack": "ack",
    "deliver": "deliveries",
    "ready": "ready",
    "message": "message",
    "error": "error-codes",
    "accepted": "accepted",
    "avatar, typing": "a-turn",
    "turns": "a-turn",
    "long": "long-and-streamed-answers",
    "sending-again": "sending-again",
    "closing": "closing",
    "pages": "pages",
}


def reference(section: str) -> str:
    """Where the protocol's document tells it."""
    return f"docs/protocol.md#{SECTIONS.get(section, 'frames')}"


@dataclass(frozen=True)
class Check:
    """One thing to find out. `missing`: why it is not run against this door."""

    number: int
    group: str
    name: str
    section: str
    play: Callable[[Target], Awaitable[None]]
    missing: str | None = None
    locks: frozenset[str] = frozenset()
    waits: bool = False
    heavy: bool = False
    alone: bool = False

    @property
    def title(self) -> str:
        """Unique in the suite."""
        return f"{self.group}: {self.name}"


@dataclass(frozen=True)
class Result:
    """What came of a check; `reason` for one that failed or was not run."""

    check: Check
    status: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Look:
    """What a first connection told. `problem`: why nothing can be checked."""

    offers: frozenset[str] = frozenset()
    problem: str | None = None
    answers: bool = True


async def look(target: Target) -> Look:
    """Is there a door, does it know the token, which additions does it offer?"""
    listed = target.settings.get("MOBILE_ALLOWED_DEVICES", "").partition(",")[0].strip()
    device = listed or target.fresh("tel-1", 0)
    try:
        line = await Line.open(target)
    except Unreachable as error:
        return Look(problem=f"{target.url}: {error}")
    try:
        await line.say(
            {
                "t": "hello",
                "token": target.token,
                "device": {"id": device, "name": "Conformance kit"},
                "supports": ["accepted", "partial_edits"],
            }
        )
        try:
            ready = await line.frame()
        except Failed:
            return Look()
        if ready["t"] == "error" and ready["code"] == "auth_failed":
            return Look(
                problem="the door does not know this token (or lists its devices, see "
                "MOBILE_ALLOWED_DEVICES): give the door's MOBILE_TOKEN"
            )
        offered = ready.get("capabilities", {}).get("extensions") or ()
        answers = True
        if target.agent:
            with contextlib.suppress(Failed):
                await line.say({"t": "text", "id": "look", "text": "are you scripted"})
                found = await read_message(line, (*STATES, "accepted"))
                answers = found.text == "echo: are you scripted"
        return Look(frozenset(offered), answers=answers)
    finally:
        await line.close()


class Suite:
    """All checks for a door. `only`: patterns of titles; `quick`: nothing that takes its time."""

    def __init__(self, target: Target, *, only: Collection[str] = (), quick: bool = False) -> None:
        self.target = target
        self.quick = quick
        self._silent = 0
        self._count = 0
        every = [*self._vectors(), *self._scenarios(), *self._extras()]
        exact = {check.title for check in every} & set(only)
        self.checks = [
            check
            for check in every
            if not only or check.title in exact or _chosen(check.title, set(only) - exact)
        ]

    # Which checks

    def _vectors(self) -> Iterable[Check]:
        for group, section, vector in groups("vectors", "vectors", "client-"):
            failing = vector["state"] == "before_hello" and "error" in vector["expect"]
            yield self._check(
                group.removeprefix("client-"),
                vector.get("section", section),
                vector,
                lambda item, number, settle: partial(_play_vector, number, item),
                waits="wait" in vector or failing,
                slow="wait" in vector,
            )

    def _scenarios(self) -> Iterable[Check]:
        for group, section, scenario in groups("scenarios", "scenarios"):
            yield self._check(
                group if group != "deliver" else "deliveries",
                scenario.get("section", section),
                scenario,
                lambda item, number, settle: partial(_play_scenario, item, settle),
                waits=any(step.get("closed") for step in scenario["steps"]),
            )

    def _extras(self) -> Iterable[Check]:
        for group, extras in EXTRAS.items():
            for extra in extras:
                self._count += 1
                number = self._count
                missing = None
                if extra.agent and not self.target.agent:
                    missing = _NO_AGENT
                elif not self.target.offers.issuperset(extra.supports):
                    missing = _not_offered(extra.supports)
                elif self.target.settings:
                    missing = _other_settings({})
                elif extra.hermes and self.target.hermes:
                    missing = f"not with a real Hermes Agent: {extra.hermes}"
                elif extra.alone and self.quick:
                    missing = "a crowd: not with --quick"
                elif extra.slow and self.quick:
                    missing = f"takes {extra.slow:g} s: not with --quick"

                def play(target: Target, extra: Any = extra, number: int = number) -> Any:
                    return extra.play(target, number)

                yield Check(
                    number, group, extra.name, extra.section, play, missing,
                    heavy=extra.heavy, alone=extra.alone, waits=extra.waits or extra.slow > 0,
                )  # fmt: skip

    def _check(
        self,
        group: str,
        section: str,
        item: dict[str, Any],
        make: Callable[[dict[str, Any], int, bool], Callable[[Target], Awaitable[None]]],
        *,
        waits: bool,
        slow: bool = False,
    ) -> Check:
        self._count += 1
        number, target = self._count, self.target
        missing: str | None = None
        locks: frozenset[str] = frozenset()
        fitted = item
        try:
            found = target.fit(item, number)
            fitted, locks = found.item, found.locks
        except Needs as needs:
            missing = f"needs {needs}"
        named = _named(item)
        if dict(fitted.get("settings", {})) != dict(target.settings):
            missing = _other_settings(item.get("settings", {}))
        elif not target.agent and needs_agent(item):
            missing = _NO_AGENT
        elif target.hermes and "hermes" in item:
            missing = f"not with a real Hermes Agent: {item['hermes']}"
        elif missing is None and not target.offers.issuperset(named):
            missing = _not_offered(named)
        elif missing is None and slow and self.quick:
            missing = f"takes {item['wait']} s: not with --quick"
        return Check(
            number,
            group,
            item["name"],
            section,
            make(fitted, number, bool(locks)),
            missing,
            locks,
            waits=waits,
            heavy=_weight(item) > HEAVY_BYTES,
        )

    # Their run

    async def run(
        self, told: Callable[[Result], None] = lambda result: None, *, limit: float = 300.0
    ) -> list[Result]:
        """Carry out every check; `told` hears of each result. Ends after `limit` seconds."""
        results: dict[int, Result] = {}
        locks = {name: asyncio.Lock() for name in ("home", "bound")}
        some = asyncio.Semaphore(HERMES_AT_ONCE if self.target.hermes else AT_ONCE)
        waiting = asyncio.Semaphore(WAITING_AT_ONCE)
        heavy = asyncio.Semaphore(HEAVY_AT_ONCE)

        def note(result: Result) -> None:
            results[result.check.number] = result
            told(result)

        async def one(check: Check) -> None:
            async with contextlib.AsyncExitStack() as stack:
                for name in sorted(check.locks):
                    await stack.enter_async_context(locks[name])
                if check.heavy:
                    await stack.enter_async_context(heavy)
                await stack.enter_async_context(waiting if check.waits else some)
                note(await self._one(check))

        async def one_by_one(checks: list[Check], after: list[asyncio.Task[None]]) -> None:
            if after:
                await asyncio.wait(after)
            for check in checks:
                note(await self._one(check))

        tasks: list[asyncio.Task[None]] = []
        alone: list[Check] = []
        # A door answers a failed hello the later the more there were: those first of whose kind
        # only one can run at a time.
        for check in sorted(self.checks, key=lambda check: not (check.locks and check.waits)):
            if check.missing is not None:
                note(Result(check, NOT_RUN, check.missing))
            elif check.alone:
                alone.append(check)
            else:
                tasks.append(asyncio.create_task(one(check)))
        if alone:
            tasks.append(asyncio.create_task(one_by_one(alone, list(tasks))))
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=limit)
            for task in late:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error
        for check in self.checks:
            if check.number not in results:
                note(Result(check, FAILED, f"not done within the time limit of {limit:g} s"))
        return [results[check.number] for check in self.checks]

    async def _one(self, check: Check) -> Result:
        target, began = self.target, time.monotonic()
        if self._silent >= SILENT_AFTER:
            target = dataclasses.replace(target, patience=min(target.patience, SHORT_PATIENCE))
        reason = ""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await check.play(target)
        except TimeoutError:
            reason = f"it did not come to an end within {CHECK_SECONDS:g} s"
        except Failed as failed:
            reason = str(failed)
        except Exception as error:  # whatever a strange server makes of this program
            reason = f"the door's answer could not be read: {type(error).__name__}: {error}"
        self._silent += "nothing came within" in reason
        status = FAILED if reason else PASSED
        return Result(check, status, reason, time.monotonic() - began)


_NO_AGENT = "needs the scripted agent"


def _not_offered(named: Iterable[str]) -> str:
    return f"the door does not offer {' and '.join(sorted(named))}"


def _other_settings(settings: dict[str, str]) -> str:
    if not settings:
        return "needs a door without the settings named by --setting"
    named = " ".join(f"--setting {name}={value}" for name, value in sorted(settings.items()))
    return f"needs a door with other settings: {named}"


def _named(item: dict[str, Any]) -> set[str]:
    """The additions that an item needs in force."""
    if item.get("expect", {}).get("accepted") is None and "expect" in item:
        wanted = item["expect"].get("ready", {}).get("capabilities", {}).get("extensions", ())
        found = wanted.get("$set", ()) if isinstance(wanted, dict) else wanted
        return set(found)
    named = set(item.get("supports", ()))
    for step in item.get("steps", ()):
        frame = step.get("frame")
        if "send" in step and isinstance(frame, dict):
            named.update(name for name in frame.get("supports") or () if name in _ADDITIONS)
    return named


_ADDITIONS = ("accepted", "partial_edits")


def _weight(item: dict[str, Any]) -> int:
    """Roughly how many bytes an item sends."""
    found = 0

    def add(value: Any) -> None:
        nonlocal found
        if isinstance(value, dict):
            found += value["$zeros"] if isinstance(value.get("$zeros"), int) else 0
            found += value["times"] if isinstance(value.get("times"), int) else 0
            for inner in value.values():
                add(inner)
        elif isinstance(value, list):
            for inner in value:
                add(inner)

    add(item)
    return found


def _chosen(title: str, only: Collection[str]) -> bool:
    low = title.lower()
    return any(wanted.lower() in low or fnmatch.fnmatch(low, wanted.lower()) for wanted in only)


async def _play_vector(number: int, item: dict[str, Any], target: Target) -> None:
    await messages.play(target, number, item)


async def _play_scenario(item: dict[str, Any], settle: bool, target: Target) -> None:
    await scripts.play(target, item, settle=settle)


def summary(results: Iterable[Result]) -> dict[str, int]:
    """How many checks came to which end."""
    counted = {PASSED: 0, FAILED: 0, NOT_RUN: 0}
    for result in results:
        counted[result.status] += 1
    return counted


def as_json(
    target: Target, results: Iterable[Result], seconds: float, *, problem: str | None = None
) -> str:
    """The report for programs. `problem`: why nothing could be checked."""
    results = list(results)
    return json.dumps(
        {
            "protocol": 1,
            "url": target.url,
            "seconds": round(seconds, 1),
            "problem": problem,
            "summary": {name.replace(" ", "_"): n for name, n in summary(results).items()},
            "checks": [
                {
                    "group": result.check.group,
                    "name": result.check.name,
                    "status": result.status.replace(" ", "_"),
                    "reason": result.reason or None,
                    "reference": reference(result.check.section),
                    "seconds": round(result.seconds, 3),
                }
                for result in results
            ],
        },
        ensure_ascii=False,
        indent=2,
    )
