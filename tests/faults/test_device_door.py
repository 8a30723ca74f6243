"""500 messages through 50 faults: none lost, none doubled, none out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.devices import SDKS, RecordingDoor, numbers_of, until
from tests.faults.fault_proxy import KINDS, FaultProxy, plan
from tests.faults.seeds import fault_seed

MESSAGES = 500
FAULTS = 50
AT_ONCE = MESSAGES // FAULTS


def words(number: int) -> str:
    """A message with characters of one to four bytes, to be cut inside."""
    return f"Доброе утро, 早安 🙂 number {number}"


@pytest.mark.parametrize("sdk", SDKS)
async def test_500_messages_through_50_faults(sdk: str, tmp_path: Path) -> None:
    seed = fault_seed()
    async with (
        RecordingDoor(tmp_path) as door,
        FaultProxy(door.port, frames=True) as network,
        SDKS[sdk](network.port, tmp_path) as device,
    ):
        for batch, fault in enumerate(plan(seed, FAULTS)):
            network.arm(fault)
            for number in range(batch * AT_ONCE, (batch + 1) * AT_ONCE):
                await device.send(f"{seed}-{number}", words(number))
            # Never more than two batches under way, so that the faults meet all of them.
            await until(device, lambda b=batch: len(device.accepted) >= (b - 1) * AT_ONCE)
        await until(device, lambda: len(device.accepted) >= MESSAGES)
        # Faults that are still to come meet words that nobody asked about.
        await device.send(f"{seed}-last", words(MESSAGES))
        await until(device, lambda: any(text.endswith(f" {MESSAGES}") for _, text in device.shown))
        await until(device, lambda: len(device.accepted) > MESSAGES)

        # Up: everything once and in order, and nothing altered.
        taken = [line["text"] for line in door.taken]
        assert taken == [words(number) for number in range(MESSAGES + 1)]
        assert len(device.accepted) == len(set(device.accepted)) == MESSAGES + 1

        # Down: nothing twice, nothing altered, nothing out of order …
        shown = numbers_of([text for _, text in device.shown])
        assert len({id for id, _ in device.shown}) == len(device.shown)
        assert [text for _, text in device.shown] == [f"echo: {words(n)}" for n in shown]
        assert shown == sorted(set(shown))
        # … and what is missing is the end of what was written to a connection that broke.
        last = {line["wrote"]: line["conn"] for line in door.written}
        seen = {text for _, text in device.shown}
        for conn in set(last.values()):
            arrived = [text in seen for text, place in last.items() if place == conn]
            assert arrived == sorted(arrived, reverse=True), f"a hole in connection {conn}"
            assert all(arrived) or conn < max(last.values())
        assert set(last) == {f"echo: {words(number)}" for number in range(MESSAGES + 1)}
        assert {fault.kind for fault in network.fired} == set(KINDS)
