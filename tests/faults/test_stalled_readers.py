"""Eight devices that read nothing, beside two hundred that talk: these notice nothing of it."""

from __future__ import annotations

import asyncio
import json

from tests.adapter.raw_client import TEXT, Client, frame, hello, upgrade
from tests.adapter.test_abuse import OtherDoor, other_door
from tests.faults.seeds import fault_seed

LIVE = 200
STALLED = 8
ROUNDS = 10
# What one stalled device is owed: far more than the kernel takes for it.
OWED = 3000


async def join(door: OtherDoor, device: str) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", door.port, limit=2**20))
    client.write(upgrade() + hello(device))
    assert (await client.head())[0] == 101
    assert (await client.json())["t"] == "ready"
    return client


async def round_trips(live: list[Client], door: OtherDoor) -> float:
    """A ping and its pong for each device alone, one after the other: the door's CPU seconds."""
    began = door.work()
    for number, client in enumerate(live):
        client.send(t="ping", ts=number)
        while (answer := await client.json())["t"] != "pong":
            pass
        assert answer["ts"] == number
    return door.work() - began


async def connections(door: OtherDoor) -> int:
    """How many there are at the door now."""
    client = Client(*await asyncio.open_connection("127.0.0.1", door.port))
    try:
        client.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.head())[0] == 200
        return int(json.loads(await client.reader.read())["connections"])
    finally:
        client.hang_up()


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
            await round_trips(live, door)
            before = door.memory()
            calm = sum([await round_trips(live, door) for _ in range(ROUNDS)])
            await asyncio.gather(*(stall(client) for client in stalled))
            # Nobody waits for those who do not read: they are still there when all have an answer.
            await round_trips(live[:10], door)
            assert await connections(door) == LIVE + STALLED
            beside = sum([await round_trips(live, door) for _ in range(ROUNDS)])
            held = door.memory() - before
        finally:
            for client in [*live, *stalled]:
                client.hang_up()
    # A live device costs the door no more than before. In CPU time: the clock on the wall would
    # tell of whatever else this machine does.
    assert beside < 3 * calm + 0.1, f"{calm:.2f} s of work became {beside:.2f} s"
    # A device has a bounded box; what it does not read is not kept without end.
    assert held < STALLED * 4 * 1024 * 1024, f"{held / 2**20:.0f} MiB are held for them"
