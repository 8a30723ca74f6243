"""500 questions of a page through 50 faults, on both sides of the proxy, answered once each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.faults.devices import PATIENCE, ROOT
from tests.faults.fault_proxy import FaultProxy, plan
from tests.faults.seeds import fault_seed
from tests.proxy.running import SESSION, browsing, data_of
from tests.proxy.small_hermes import SmallHermes

QUESTIONS = 500
FAULTS = 50
AT_ONCE = QUESTIONS // FAULTS


def words(number: int) -> str:
    return f"Вопрос 早安 🙂 {number}"


class AnsweringHermes(SmallHermes):
    """Answers every run by itself, word by word."""

    def __init__(self) -> None:
        super().__init__(replayable=True)
        self._answered: set[str] = set()

    async def _start(self, request: web.Request) -> web.Response:
        answer = await super()._start(request)
        for run in list(self.runs.values()):
            if run.run_id not in self._answered:
                self._answered.add(run.run_id)
                for word in run.body["input"].split():
                    run.say("message.delta", delta=word + " ")
                run.end(output=run.body["input"])
        return answer


class Panel:
    """A page on the TypeScript SDK (panel.mjs)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, number: int) -> None:
        assert self._process.stdin is not None
        line = {"number": number, "message": words(number), "sessionId": SESSION}
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        await self._process.stdin.drain()

    async def answer(self, number: int) -> list[dict[str, Any]]:
        """All events of one question, its end last."""
        assert self._process.stdout is not None
        events: list[dict[str, Any]] = []
        troubles: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE):
                async for line in self._process.stdout:
                    said = json.loads(line)
                    assert said["number"] == number and "gone" not in said, said
                    if "trouble" in said:
                        troubles.append(said["trouble"])
                    if "event" in said:
                        events.append(said["event"])
                        if events[-1]["event"].startswith("run."):
                            return events
        except TimeoutError:
            pass
        raise AssertionError(f"question {number} was not answered: {events[-3:]} {troubles[-5:]}")


@asynccontextmanager
async def panel(port: int) -> AsyncIterator[Panel]:
    process = await asyncio.create_subprocess_exec(
        "node",
        str(Path(__file__).with_name("panel.mjs")),
        str(ROOT),
        f"http://127.0.0.1:{port}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Panel(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_500_questions_through_50_faults() -> None:
    seed = fault_seed()
    quick = {"heartbeat": 0.2, "silence": 0.8, "answer_timeout": 0.6, "connect_timeout": 0.6}
    async with AnsweringHermes() as hermes, FaultProxy(hermes.port, frames=False) as behind:
        async with browsing(f"http://127.0.0.1:{behind.port}", **quick) as browser:
            door = int(browser.url.rpartition(":")[2])
            async with FaultProxy(door, frames=False) as before, panel(before.port) as page:
                for batch, fault in enumerate(plan(seed, FAULTS, spread=1500)):
                    (before if batch % 2 else behind).arm(fault)
                    for number in range(batch * AT_ONCE, (batch + 1) * AT_ONCE):
                        await page.ask(number)
                        events = await page.answer(number)
                        assert events[-1]["event"] == "run.completed"
                        assert events[-1]["output"] == words(number)
                        said = "".join(e["delta"] for e in events if e["event"] == "message.delta")
                        assert said.split() == words(number).split(), events
                assert len(before.fired) + len(behind.fired) >= FAULTS - 2
    # However often a start was sent, Hermes ran it once, and one after the other.
    assert [run.body["input"] for run in hermes.runs.values()] == [
        words(number) for number in range(QUESTIONS)
    ]


async def test_a_line_that_breaks_again_loses_nothing_of_a_run_that_has_ended() -> None:
    broken = 0

    async def breaks(request: web.Request) -> web.StreamResponse:
        nonlocal broken
        if broken == 2:
            return await hermes._events(request)
        broken += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with AnsweringHermes() as hermes, browsing(hermes.url) as browser:
        hermes.answers["GET /v1/runs/*/events"] = breaks
        events = data_of(await browser.read((await browser.start(words(1)))["runId"]))
    assert broken == 2
    assert "".join(e["delta"] for e in events[:-1]).split() == words(1).split()
    assert events[-1]["event"] == "run.completed"
