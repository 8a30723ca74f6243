"""A door in a process of its own, for measuring: prints its port, ends with its stdin."""

from __future__ import annotations

import asyncio
import sys

from hermes_mobile.server import Door
from tests.adapter.raw_client import SETTINGS, Recorder


async def main() -> None:
    door = Door(SETTINGS, Recorder())
    await door.start()
    print(door.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await door.stop()


if __name__ == "__main__":
    asyncio.run(main())
