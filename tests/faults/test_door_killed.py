"""The door dies (SIGKILL) at each step of a turn: what is kept, and what is lost and seen to be.

The scripted agent lives in the door's process and dies with it; how a real Hermes fares is told by
test_hermes_killed.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes_client import RejectedError
from tests.e2e.door_client import DoorClient
from tests.faults.devices import SDKS, RecordingDoor, python_device, until
from tests.faults.fault_proxy import FaultProxy
from tests.faults.recording_door import TOKEN


@pytest.mark.parametrize("sdk", SDKS)
async def test_before_a_message_is_taken_it_is_kept(sdk: str, tmp_path: Path) -> None:
    async with RecordingDoor(tmp_path) as door, SDKS[sdk](door.port, tmp_path) as device:
        await device.send("first", "hello")
        await until(device, lambda: device.shown)
        await door.kill()
        for number in range(5):
            await device.send(f"kept-{number}", f"kept {number}")
        await door.start()
        await until(device, lambda: len(device.shown) == 6)
        assert [line["took"] for line in door.taken] == ["first", *(f"kept-{n}" for n in range(5))]
        assert [text for _, text in device.shown][1:] == [f"echo: kept {n}" for n in range(5)]


@pytest.mark.parametrize("sdk", SDKS)
async def test_between_taken_and_accepted_it_comes_twice_at_most(sdk: str, tmp_path: Path) -> None:
    async with (
        RecordingDoor(tmp_path) as door,
        FaultProxy(door.port, frames=True) as network,
        SDKS[sdk](network.port, tmp_path, pulse=60.0) as device,
    ):
        await device.send("first", "hello")
        await until(device, lambda: device.shown)
        # The door's `accepted` does not arrive, and nobody gives the silent line up meanwhile.
        network.mute = True
        await device.send("unsure", "hello again")
        while len(door.taken) < 2:
            await network.passed()
        await door.kill()
        network.mute = False
        network.break_all()
        await door.start()
        await until(device, lambda: len(device.accepted) == 2)
        # The new process knows nothing of the old one's ids: twice rather than never.
        assert [line["took"] for line in door.taken] == ["first", "unsure", "unsure"]


async def test_after_accepted_the_answer_is_lost_and_nothing_stays_open(tmp_path: Path) -> None:
    async with RecordingDoor(tmp_path) as door:
        async with DoorClient(
            f"ws://127.0.0.1:{door.port}/ws", TOKEN, "tel", ["accepted"]
        ) as before:
            await before.text("stream 500 20", "long")
            await before.wait(lambda f: f["t"] == "message")
            await door.kill()
        await door.start()
        async with DoorClient(
            f"ws://127.0.0.1:{door.port}/ws", TOKEN, "tel", ["accepted"]
        ) as after:
            # What the app has to know: no typing, no old words; and the line works.
            await after.text("hello", "next")
            await after.message("echo: hello")
            await after.idle()
            assert after.frames[0]["t"] == "ready" and "word1" not in str(after.frames)
            assert not after.typing and not after.unfinished()
        assert [line["took"] for line in door.taken] == ["long", "next"]


async def test_a_card_of_the_dead_is_closed_as_expired(tmp_path: Path) -> None:
    async with RecordingDoor(tmp_path) as door:
        url = f"ws://127.0.0.1:{door.port}/ws"
        async with DoorClient(url, TOKEN, "tel") as before:
            await before.text("approve rm -rf /")
            card = await before.prompt()
            await door.kill()
        await door.start()
        async with DoorClient(url, TOKEN, "tel") as after:
            await after.answer(card, "once")
            done = await after.done(card)
            assert done.get("expired") is True and "option_id" not in done


async def test_half_a_file_is_sent_again_whole(tmp_path: Path) -> None:
    async with (
        RecordingDoor(tmp_path) as door,
        python_device(door.port, tmp_path) as device,
    ):
        sent: list[int] = []

        async def kill_at_half() -> None:
            data = bytes(range(256)) * 2048
            await device.client.send_file(
                data,
                filename="f.bin",
                id="file",
                chunk_bytes=32 * 1024,
                progress=lambda done, total: sent.append(done),
            )

        task = asyncio.create_task(kill_at_half())
        while not sent or sent[-1] < 200_000:
            await asyncio.sleep(0)
        await door.kill()
        await door.start()
        async with asyncio.timeout(60):
            await task
        await until(device, lambda: device.shown)
        assert "524288 bytes" in device.shown[0][1]
        assert sent.count(0) >= 2 and sent[-1] == 524_288
        assert [line["took"] for line in door.taken].count("file") in (1, 2)


async def test_a_refused_hand_over_is_told_and_not_kept(tmp_path: Path) -> None:
    async with RecordingDoor(tmp_path) as door, python_device(door.port, tmp_path) as device:
        with pytest.raises(RejectedError, match="internal_error"):
            await device.client.send_text("fail", id="refused")
        assert door.taken == []
