"""The servers that the device door is measured beside; run as `python -m bench.door_servers KIND`.

Each prints its port and serves until its standard input closes. All but the doors are bare: they
decode the JSON of a frame and write JSON back. A bare server also understands
`{"t":"push","n":N}`: N frames of the size of a streamed edit, one for each turn of the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:  # a bare server shall not hold the product in its memory
    from hermes_mobile.server import Door, Incoming

TOKEN = "bench-token-0123456789"
EDIT = "A streamed answer grows by a word at a time, and every revision is the whole text. " * 5
MAX_BYTES = 32 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _edit_frame(index: int) -> bytes:
    return _encode(
        {
            "t": "message",
            "id": "m-0123456789abcdef",
            "text": f"{EDIT}{index}",
            "chunk": {"index": 0, "total": 1},
            "final": False,
            "edit": True,
        }
    )


def _answer(frame: dict[str, Any]) -> bytes:
    if "data" in frame:  # a file: its size is answer enough
        return _encode({"t": "size", "size": len(frame["data"])})
    return _encode(frame)


async def open_door(take: Callable[[Door, Incoming], object], *, coroutine: bool = False) -> int:
    """The product, with an agent that answers a message by `take`; its port.

    `coroutine`: the agent is asked by a coroutine instead of a plain call.
    """
    from hermes_mobile.server import Answered, Door
    from hermes_mobile.settings import Settings

    class Plain:
        def submit(self, incoming: Incoming) -> Awaitable[None] | None:
            take(opened, incoming)
            return None

        async def answer(self, card: object, option_id: str, text: str | None) -> Answered:
            return Answered(False)

        async def expired(self, card: object) -> None:
            pass

    class Waiting(Plain):
        async def submit(self, incoming: Incoming) -> None:
            take(opened, incoming)

    opened = Door(Settings(token=TOKEN, port=0), Waiting() if coroutine else Plain())
    await opened.start()
    return opened.port


def _answer_at_once(door: Door, incoming: Incoming) -> None:
    chat, text = incoming.chat, incoming.text
    if incoming.data:
        door.say(chat, f"{len(incoming.data)} bytes")
    elif text.startswith("push "):
        asyncio.get_running_loop().create_task(_stream(door, chat, int(text[5:])))
    elif text.startswith("turn "):
        door.turn_started(chat)
        door.say(chat, text)
        door.turn_ended(chat)
    else:
        door.say(chat, text)


async def _stream(door: Door, chat: str, count: int) -> None:
    message = door.say(chat, EDIT, final=False)
    for index in range(1, count):
        door.say(chat, f"{EDIT}{index}", message_id=message, final=False)
        await asyncio.sleep(0)
    door.say(chat, "done", message_id=message)


async def door() -> int:
    """The product, with an agent that answers in the call."""
    return await open_door(_answer_at_once)


async def door_coroutine() -> int:
    """The product, with an agent that answers in a coroutine."""
    return await open_door(_answer_at_once, coroutine=True)


async def picows_bare() -> int:
    """A bare echo on the library that the door uses."""
    import picows

    text = picows.WSMsgType.TEXT
    loop = asyncio.get_running_loop()

    class Echo(picows.WSListener):
        def on_ws_connected(self, transport: Any) -> None:
            self.transport = transport

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), b"")
                transport.disconnect()
                return
            said = _decode(frame.get_payload_as_memoryview())
            if said.get("t") == "push":
                loop.create_task(self.push(said["n"]))
            else:
                transport.send(text, _answer(said))

        async def push(self, count: int) -> None:
            for index in range(count):
                self.transport.send(text, _edit_frame(index))
                await asyncio.sleep(0)

    server = await picows.ws_create_server(
        lambda request: Echo(),
        "127.0.0.1",
        0,
        max_frame_size=MAX_BYTES,
        use_aiofastnet=False,
        read_buffer_init_size=2048,
    )
    return int(server.sockets[0].getsockname()[1])


async def websockets_bare() -> int:
    """A bare echo on `websockets`."""
    from websockets.asyncio.server import ServerConnection, serve

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            said = _decode(message)
            if said.get("t") == "push":
                for index in range(said["n"]):
                    await connection.send(_edit_frame(index), text=True)
                    await asyncio.sleep(0)
            else:
                await connection.send(_answer(said), text=True)

    server = await serve(
        echo, "127.0.0.1", 0, compression=None, ping_interval=None, max_size=MAX_BYTES
    )
    return int(next(iter(server.sockets)).getsockname()[1])


async def aiohttp_bare() -> int:
    """A bare echo on aiohttp."""
    from aiohttp import web

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=MAX_BYTES)
        await socket.prepare(request)
        async for message in socket:
            said = _decode(message.data)
            if said.get("t") == "push":
                for index in range(said["n"]):
                    await socket.send_str(_edit_frame(index).decode())
                    await asyncio.sleep(0)
            else:
                await socket.send_str(_answer(said).decode())
        return socket

    app = web.Application()
    app.router.add_get("/ws", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


KINDS = {
    "door": door,
    "door, coroutine": door_coroutine,
    "picows": picows_bare,
    "websockets": websockets_bare,
    "aiohttp": aiohttp_bare,
}


async def _serve(kind: str) -> None:
    port = await KINDS[kind]()
    print(port, flush=True)
    # The parent closes our standard input when it is done, also when it dies.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
