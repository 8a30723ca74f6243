"""Hermes dies (SIGKILL) at each step of a turn, with the door inside it and the proxy before it.

What is kept and what is lost is written down in docs/faults.md; here it is made to happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.e2e.door_client import DoorClient
from tests.e2e.hermes_process import HermesProcess
from tests.e2e.proxy_hermes import Door, end_of

WORDS = " ".join(f"word{number}" for number in range(1, 201))
NewHermes = Callable[..., HermesProcess]


async def killed_and_revived(hermes: HermesProcess) -> None:
    await asyncio.to_thread(hermes.kill)
    await asyncio.to_thread(hermes.revive)


async def test_hermes_killed_at_each_step(new_hermes: NewHermes, tmp_path: Path) -> None:
    hermes = await asyncio.to_thread(new_hermes)

    def device(name: str) -> DoorClient:
        return DoorClient(hermes.door_url, hermes.token, name, ["accepted"])

    async with Door(hermes, tmp_path) as proxy, proxy.page("doc_killed") as page:
        # While an answer grows on the device, and a run on the page.
        run_id = (await page.start("stream 1500 100"))["runId"]
        reading = asyncio.create_task(page.read(run_id))
        await page.read_until(run_id, "message.delta", 3)
        async with device("tel") as before:
            await before.text("stream 200 100", "growing")
            draft = await before.wait(lambda f: f["t"] == "message" and "word2" in f["text"])
            await before.wait(lambda f: f["t"] == "accepted")
            await killed_and_revived(hermes)
        # The page hears a truthful end; nothing is made up about the rest.
        assert end_of(await reading).kind in ("run.failed", "run.interrupted", "run.cancelled")
        async with device("tel") as after:
            # The half answer is closed as it stood a moment before, under its own id.
            end = await after.wait(
                lambda f: f["t"] == "message" and f["id"] == draft["id"] and f["final"]
            )
            assert end["text"].strip() and WORDS.startswith(end["text"].strip())
            assert draft["id"] not in after.unfinished()
        # While a card waits for an answer. (Another device: some Hermes take the turn of the first
        # one up again by themselves.)
        async with device("pad") as asked:
            await asked.text("approve rm -rf /tmp/nothing-of-this-name", "asks")
            card = await asked.prompt()
            await killed_and_revived(hermes)
        async with device("pad") as last:
            await last.answer(card, "once")
            done = await last.done(card)
            assert done.get("expired") is True
            # Hermes remembers that it was about to do this and may ask anew, with another card.
            mark = len(last.frames)
            await last.text("hello again", "next")
            anew = await last.wait(
                lambda f: f["t"] == "prompt" or (f["t"] == "message" and f["final"]), since=mark
            )
            if anew["t"] == "prompt":
                assert anew["id"] != card["id"]
                await last.answer(anew, "deny")
            await last.rest(since=mark)
        # Another conversation notices nothing.
        async with device("new") as fresh:
            await fresh.text("hello")
            await fresh.message("hello")
        events = await page.read((await page.start("still there?"))["runId"])
        assert end_of(events).kind == "run.completed"


async def test_the_proxy_killed_before_in_and_after_a_run(
    new_hermes: NewHermes, tmp_path: Path
) -> None:
    hermes = await asyncio.to_thread(new_hermes, door=False)
    async with Door(hermes, tmp_path) as proxy, proxy.page("doc_proxy") as page:
        # Between the start and the first event: the run goes on, and its end can be had.
        run_id = (await page.start("stream 5 50"))["runId"]
        await proxy.kill()
        await proxy.start()
        events = await page.read(run_id)
        assert end_of(events).kind == "run.completed"
        assert end_of(events).data["output"] == "word1 word2 word3 word4 word5"

        # In the middle: as in the end-to-end tests. After the end: the same end, or none at all.
        await proxy.kill()
        await proxy.start()
        again = await page.read(run_id)
        assert end_of(again).data["output"] == end_of(events).data["output"]
        listed = await page.get(f"/sessions/{page.session}")
        assert "word5" in str(listed["messages"])
