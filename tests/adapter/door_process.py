"""A door in a process of its own, for measuring: prints its port, ends with its stdin.

Those who are slow to say who they are may stay: what is seen at this door is not the end of their
time."""

from __future__ import annotations

import asyncio
import sys

from hermes_mobile import hub, server
from hermes_mobile.server import Door
from tests.adapter.raw_client import SETTINGS, Recorder


async def main() -> None:
    hub.HELLO_TIMEOUT = server.UPGRADE_TIMEOUT = 3600.0  # type: ignore[misc]
    door = Door(SETTINGS, Recorder())
    await door.start()
    print(door.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await door.stop()


if __name__ == "__main__":
    asyncio.run(main())
