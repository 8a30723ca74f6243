"""The servers of the device scenarios under load; run as `python -m bench.load_server door|bare`.

Each prints its port and serves until its standard input closes. Both understand the text
`pace N MS`: N revisions of an answer, MS milliseconds apart, the last one final. ``t=`` in each is
the monotonic clock in nanoseconds, which all processes of a machine share. The timer that paces
them is the same in both.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .door_servers import EDIT, MAX_BYTES, open_door

if TYPE_CHECKING:
    from hermes_mobile.server import Door, Incoming

_PACE = re.compile(r"pace (\d+) (\d+)")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_running: set[asyncio.Task[None]] = set()


def _pace(text: str, show: Callable[[str, bool], object]) -> bool:
    """Whether `text` asks for revisions; they are shown by a task of their own."""
    if (found := _PACE.match(text)) is None:
        return False
    task = asyncio.get_running_loop().create_task(
        _revisions(int(found[1]), int(found[2]) / 1000, show)
    )
    _running.add(task)
    task.add_done_callback(_running.discard)
    return True


async def _revisions(count: int, interval: float, show: Callable[[str, bool], object]) -> None:
    for number in range(1, count + 1):
        await asyncio.sleep(interval)
        show(f"{EDIT}{number} t={time.monotonic_ns()} ", number == count)


def _answer(door: Door, incoming: Incoming) -> None:
    chat = incoming.chat
    message: str | None = None

    def show(text: str, final: bool) -> None:
        nonlocal message
        message = door.say(chat, text, message_id=message, final=final)

    if incoming.data:
        door.say(chat, f"{len(incoming.data)} bytes")
    elif not _pace(incoming.text, show):
        door.say(chat, incoming.text)


async def door() -> int:
    """The product, with an agent that streams at a given pace and answers a file with its size."""
    return await open_door(_answer)


async def bare() -> int:
    """The library that the door uses, sending frames of the same size at the same pace."""
    import picows

    class Sender(picows.WSListener):
        def on_ws_connected(self, transport: Any) -> None:
            self.transport = transport

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), b"")
                transport.disconnect()
            elif frame.msg_type == picows.WSMsgType.TEXT:
                _pace(_decode(frame.get_payload_as_memoryview())["text"], self.show)

        def show(self, text: str, final: bool) -> None:
            said = {
                "t": "message",
                "id": "m-0123456789abcdef",
                "text": text,
                "chunk": {"index": 0, "total": 1},
                "final": final,
                "edit": True,
            }
            self.transport.send(picows.WSMsgType.TEXT, _encode(said))

    server = await picows.ws_create_server(
        lambda request: Sender(),
        "127.0.0.1",
        0,
        max_frame_size=MAX_BYTES,
        use_aiofastnet=False,
        read_buffer_init_size=2048,
    )
    return int(server.sockets[0].getsockname()[1])


async def _serve(kind: str) -> None:
    print(await {"door": door, "bare": bare}[kind](), flush=True)
    # The parent closes our standard input when it is done, also when it dies.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
