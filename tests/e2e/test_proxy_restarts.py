"""Either side restarts in the middle of a run, and the page still learns the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.hermes_process import HermesProcess
from tests.e2e.proxy_hermes import Door, Seen, end_of, text_of

NewHermes = Callable[..., HermesProcess]


async def read_until_closed(door: Door, page_reads: asyncio.Task[list[Seen]]) -> list[Seen]:
    await door.stop()
    return await page_reads


async def test_the_proxy_restarts_and_the_reader_gets_the_rest(
    hermes: HermesProcess, tmp_path: Path
) -> None:
    async with Door(hermes, tmp_path) as door, door.page("doc_restart") as page:
        run_id = (await page.start("stream 150 100"))["runId"]
        reading = asyncio.create_task(page.read(run_id))
        seen = await page.read_until(run_id, "message.delta", 5)
        before = await read_until_closed(door, reading)
        assert before[-1].kind == "proxy.closing"
        assert before[-1].id == before[-2].id
        await door.start()

        rest = await page.read(run_id, before[-1].id)

        assert end_of(rest).kind == "run.completed"
        whole = " ".join(f"word{n}" for n in range(1, 151))
        assert end_of(rest).data["output"] == whole
        if (await page.get("/health"))["runInterface"] == "replayable":
            assert text_of([*before, *rest]) == whole
        else:
            assert rest[0].kind == "replay.truncated"
        assert seen[0].data in [event.data for event in before]


async def test_the_proxy_is_killed_and_the_run_can_still_be_aborted(
    hermes: HermesProcess, tmp_path: Path
) -> None:
    async with Door(hermes, tmp_path) as door, door.page("doc_killed") as page:
        run_id = (await page.start("stream 800 100"))["runId"]
        await page.read_until(run_id, "message.delta", 3)
        await door.kill()
        await door.start()
        await page.post(f"/runs/{run_id}/abort", page.ids)

        assert end_of(await page.read(run_id)).kind == "run.cancelled"


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_hermes_restarts_and_the_stream_ends_truthfully(
    new_hermes: NewHermes, tmp_path: Path, way: str
) -> None:
    hermes = await asyncio.to_thread(new_hermes)
    async with Door(hermes, tmp_path) as door, door.page("doc_hermes") as page:
        run_id = (await page.start("stream 1500 100"))["runId"]
        reading = asyncio.create_task(page.read(run_id))
        await page.read_until(run_id, "message.delta", 3)
        if way == "kill":
            await asyncio.to_thread(hermes.kill)
        else:  # its API server would wait for the run, to its end or for a minute
            await asyncio.to_thread(hermes.stop, 20.0)
        await asyncio.to_thread(hermes.revive)

        end = end_of(await reading)

        assert end.kind in ("run.failed", "run.interrupted", "run.cancelled")
        if end.kind != "run.cancelled":
            assert end.data["error"].endswith((".", "way."))
        events = await page.read((await page.start("hello again"))["runId"])
        # Hermes puts the turn that was never answered in front of the new one.
        assert end_of(events).data["output"].endswith("hello again")
