"""Eight devices that read nothing, beside two hundred that talk: these notice nothing of it."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from tests.adapter.raw_client import TEXT, Client, frame, hello, upgrade
from tests.adapter.test_abuse import OtherDoor, other_door
from tests.faults.seeds import fault_seed

LIVE = 200
STALLED = 8
ROUNDS = 3
# What one stalled device is owed: far more than the kernel takes for it.
OWED = 3000


async def join(door: OtherDoor, device: str) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", door.port, limit=2**20))
    client.write(upgrade() + hello(device))
    assert (await client.head())[0] == 101
    assert (await client.json())["t"] == "ready"
    return client


async def round_trips(live: list[Client]) -> list[float]:
    """Seconds from a ping to its pong, for each device alone: one after the other."""
    times = []
    for client in live:
        began = time.perf_counter()
        client.send(t="ping", ts=began)
        while (answer := await client.json())["t"] != "pong":
            pass
        assert answer["ts"] == began
        times.append(time.perf_counter() - began)
    return times


async def stall(client: Client) -> None:
    """Ask for much and read nothing of it."""
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    ask = frame(json.dumps({"t": "ping", "ts": "x" * 1000}).encode(), TEXT)
    for _ in range(OWED // 100):
        client.write(ask * 100)
        await asyncio.sleep(0)


async def test_200_devices_beside_8_that_read_nothing() -> None:
    fault_seed()
    async with other_door() as door:
        live = [await join(door, f"live-{n}") for n in range(LIVE)]
        stalled = [await join(door, f"stalled-{n}") for n in range(STALLED)]
        try:
            await round_trips(live)
            before = door.memory()
            without, beside = [], []
            # In turns, so that whatever else this machine does meets both alike.
            for _ in range(ROUNDS):
                without += await round_trips(live)
            await asyncio.gather(*(stall(client) for client in stalled))
            for _ in range(ROUNDS):
                beside += await round_trips(live)
            held = door.memory() - before
        finally:
            for client in [*live, *stalled]:
                client.hang_up()
    calm, loaded = statistics.median(without), statistics.median(beside)
    assert loaded < 3 * calm + 0.005, f"{calm * 1e3:.2f} ms became {loaded * 1e3:.2f} ms"
    # A device has a bounded box; what it does not read is not kept without end.
    assert held < STALLED * 4 * 1024 * 1024, f"{held / 2**20:.0f} MiB are held for them"
