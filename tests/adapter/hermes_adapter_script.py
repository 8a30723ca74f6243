"""Run inside a Hermes environment by `test_adapter_hermes.py`: the adapter object by itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading

os.environ["HERMES_HOME"] = tempfile.mkdtemp()
os.environ.update(MOBILE_TOKEN="script-token-0123456789", MOBILE_PORT="0")

from gateway.config import PlatformConfig  # noqa: E402
from gateway.platform_registry import platform_registry  # noqa: E402
from hermes_cli.plugins import discover_plugins  # noqa: E402

with open(os.path.join(os.environ["HERMES_HOME"], "config.yaml"), "w") as file:
    json.dump({"plugins": {"enabled": ["mobile-platform"]}}, file)
discover_plugins()
from picows.websockets.asyncio.client import connect  # noqa: E402

from hermes_mobile.adapter import MobileAdapter, running  # noqa: E402


async def frames(port: int, count: int) -> list[dict[str, object]]:
    """Sign in as `dev1` and read some frames."""
    async with connect(f"ws://127.0.0.1:{port}/ws", proxy=None, compression=None) as socket:
        hello = {"t": "hello", "token": "script-token-0123456789", "device": {"id": "dev1"}}
        await socket.send(json.dumps(hello))
        return [json.loads(await socket.recv()) for _ in range(count)]


async def main() -> None:
    entry = platform_registry.get("mobile")
    assert entry is not None and entry.check_fn()
    adapter = entry.adapter_factory(PlatformConfig(enabled=True))
    assert isinstance(adapter, MobileAdapter) and adapter.authorization_is_upstream
    assert await adapter.connect()
    assert running() is adapter
    port = adapter._kept.door.port

    # From a loop of another thread, as cron may do it, to a device that is away.
    results = []
    thread = threading.Thread(
        target=lambda: results.append(asyncio.run(adapter.send("dev1", "from another loop")))
    )
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.01)
    assert results[0].success and results[0].message_id
    blank = await adapter.send("dev1", "\n\n")
    assert blank.success and blank.message_id

    # A reconnect: a new object, the same port, and what waited is still there.
    await adapter.disconnect()
    closed = await adapter.send("dev1", "nobody hears this")
    assert not closed.success and closed.retryable
    successor = entry.adapter_factory(PlatformConfig(enabled=True))
    assert await successor.connect(is_reconnect=True)
    assert running() is successor and successor._kept.door.port == port
    late = await adapter.send("dev1", "from the old object")
    assert late.success
    got = await frames(port, 3)
    texts = [frame["text"] for frame in got if frame["t"] == "message"]
    assert texts == ["from another loop", "from the old object"], got

    # Two at once on one port: the second says why.
    third = entry.adapter_factory(PlatformConfig(enabled=True, extra={"prompt_ttl": 5}))
    os.environ["MOBILE_PORT"] = str(port)
    assert not await third.connect()
    assert third.has_fatal_error and str(port) in third.fatal_error_message
    assert third.fatal_error_retryable
    await successor.disconnect()
    assert await third.connect()
    await third.disconnect()
    assert running() is None
    print("everything holds")


asyncio.run(main())
sys.exit(0)
