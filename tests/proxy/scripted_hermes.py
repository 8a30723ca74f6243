"""A small Hermes that answers by itself, with the words of the scripted agent."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from tests.proxy.small_hermes import SmallHermes, SmallRun, message_row, session_row


class ScriptedHermes(SmallHermes):
    """`stream N MS` word by word, `approve CMD` after an approval, anything else is echoed."""

    def __init__(self, *, replayable: bool = False) -> None:
        super().__init__(replayable=replayable)
        self._turns: set[asyncio.Task[None]] = set()
        self._answered: dict[str, asyncio.Event] = {}

    async def close(self) -> None:
        for turn in list(self._turns):
            turn.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        await super().close()

    async def _start(self, request: web.Request) -> web.Response:
        before = len(self.runs)
        answer = await super()._start(request)
        if len(self.runs) > before:
            turn = asyncio.create_task(self._turn(self.last))
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)
        return answer

    async def _turn(self, run: SmallRun) -> None:
        said = str(run.body["input"])
        word, _, rest = said.partition(" ")
        output = f"echo: {said}"
        try:
            if word == "stream":
                count, _, pause = rest.partition(" ")
                output = " ".join(f"word{number}" for number in range(1, int(count) + 1))
                for number in range(1, int(count) + 1):
                    if run.status["status"] == "stopping":
                        break
                    run.say("message.delta", delta=f"{' ' * (number > 1)}word{number}")
                    await asyncio.sleep(int(pause or 50) / 1000)
            elif word == "approve":
                answered = self._answered[run.run_id] = asyncio.Event()
                run.say(
                    "approval.request",
                    request_id=f"req-{run.run_id}",
                    command=rest,
                    description="The scripted agent asks.",
                )
                await answered.wait()
            else:
                run.say("message.delta", delta=output)
        finally:
            self._store(run, said, output)
        if run.status["status"] == "stopping":
            run.end("cancelled")
        else:
            run.end(
                output=output, usage={"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
            )

    def _store(self, run: SmallRun, said: str, output: str) -> None:
        session = str(run.body["session_id"])
        rows = self.messages.setdefault(session, [])
        for role, content in (("user", said), ("assistant", output)):
            row = message_row(len(rows) + 1, session, role, content)
            rows.append({**row, "timestamp": time.time()})
        self.sessions[session] = session_row(session, time.time())

    async def _approve(self, request: web.Request) -> web.Response:
        answer = await super()._approve(request)
        run: Any = self.runs.get(request.path.split("/")[3])
        if run is not None:
            self._answered[run.run_id].set()
        return answer
