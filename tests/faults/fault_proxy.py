"""A bad network: a TCP proxy on loopback that breaks what passes through it, as planned by a seed.

    async with FaultProxy(door_port, frames=True) as network:
        for fault in plan(seed, 50):
            network.arm(fault)
        ...                          # talk to 127.0.0.1, port network.port
        await network.quiet()        # every armed fault has happened

With `frames` it knows the frames of a WebSocket, so that it can double one and cut inside one;
without, it passes HTTP. Faults happen one after the other, each after so many bytes in its
direction, on whichever connection these bytes pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

UP, DOWN = "up", "down"

KINDS = (
    "reset",  # both sides get a reset, and what was under way is gone
    "cut",  # some bytes of a frame still pass, up to the inside of a character; then the end
    "delay",  # the next few pieces pass late
    "trickle",  # the next piece passes byte by byte
    "stall",  # nothing is read for a while: what is sent piles up
    "vanish",  # half-open: the client is reset, the server hears nothing of it
    "freeze",  # half-open: both stay connected, and nothing passes any more
    "duplicate",  # one frame (or, in HTTP, the whole request) arrives twice
    "reorder",  # the last frame of an old connection arrives after the next one stands
    "refuse",  # a reset, and the next two connections are reset at once
)
ENDS = frozenset({"reset", "cut", "vanish", "freeze", "reorder", "refuse"})
"""Kinds after which a connection is of no use to its client."""


@dataclass(frozen=True)
class Fault:
    """What happens, in which direction, after how many bytes of it, and for how many seconds."""

    kind: str
    way: str
    after: int
    seconds: float = 0.0


def plan(seed: int, count: int, kinds: Sequence[str] = KINDS, spread: int = 600) -> list[Fault]:
    """The same faults for the same seed; every kind comes before one comes twice."""
    dice = random.Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        for kind in dice.sample(list(kinds), len(kinds)):
            way = UP if kind == "reorder" else dice.choice((UP, DOWN))
            after = dice.randrange(spread if way == UP else 3 * spread)
            faults.append(Fault(kind, way, after, dice.uniform(0.01, 0.15)))
    return faults[:count]


@dataclass(eq=False)
class Line:
    """One connection through the proxy. `down`: all that was taken from the server."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)
    ended_by: Fault | None = None
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    late: int = 0
    """How many pieces still pass late."""


class FaultProxy:
    """Listens on a free port of 127.0.0.1 and passes everything on to `target` there."""

    def __init__(self, target: int, *, frames: bool) -> None:
        self.target = target
        self.port = 0
        self.fired: list[Fault] = []
        self.lines: list[Line] = []
        self.mute = False
        """While true, nothing of the server's reaches a client; it is taken all the same."""
        self._frames = frames
        self._armed: deque[Fault] = deque()
        self._left = 0
        self._refuse = 0
        self._held: list[tuple[Line, bytes]] = []
        self._change = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self.lines:
            self._hang_up(line)
        await self._server.wait_closed()

    # What a test says

    def arm(self, fault: Fault) -> None:
        """Let it happen after those that are armed already."""
        self._armed.append(fault)
        if len(self._armed) == 1:
            self._left = fault.after

    async def quiet(self, left: int = 0, seconds: float = 60.0) -> None:
        """Wait until no more than `left` armed faults have still to happen."""
        async with asyncio.timeout(seconds), self._change:
            await self._change.wait_for(lambda: len(self._armed) <= left)

    async def passed(self) -> None:
        """Let the network do a little of its work."""
        await asyncio.sleep(0.01)

    def break_all(self) -> None:
        """Reset every connection now."""
        for line in self.lines:
            self._hang_up(line)

    # Inside

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuse:
            self._refuse -= 1
            _reset(writer)
            return
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # nobody listens there now: the client learns it as it would directly
            _reset(writer)
            return
        for end in (writer, forth):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = Line(len(self.lines), writer, forth)
        self.lines.append(line)
        pumps = [
            asyncio.ensure_future(self._pump(line, reader, forth, UP)),
            asyncio.ensure_future(self._pump(line, back, writer, DOWN)),
        ]
        try:
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            if not _half_open(line):
                self._hang_up(line)

    async def _pump(
        self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        first = True
        try:
            while True:
                piece, whole = await self._piece(reader, head=first and self._frames)
                if not piece:
                    break
                first = False
                (line.up if way == UP else line.down).extend(piece)
                if line.dead.is_set():
                    if way == DOWN and _half_open(line) != "freeze":
                        continue  # the server is not to notice: someone still takes its words
                    return
                if way == DOWN and self.mute:
                    continue
                if way == DOWN and self._held and line is not self._held[0][0]:
                    if line.down.count(b"\n") >= 2 and len(line.down) > 400:
                        await self._release()
                fault = self._due(line, way, len(piece), whole)
                if line.late:
                    line.late -= 1
                    await asyncio.sleep(0.02)
                if fault is None:
                    await _write(writer, piece)
                else:
                    await self._happen(fault, line, piece, writer)
            if not line.dead.is_set() and writer.can_write_eof():
                writer.write_eof()
        except (OSError, RuntimeError):  # RuntimeError: written to after its end
            if not _half_open(line):
                self._hang_up(line)

    async def _piece(self, reader: asyncio.StreamReader, *, head: bool) -> tuple[bytes, bool]:
        """The next unit of the wire, and whether it is a whole frame."""
        if not self._frames:
            return await reader.read(65536), True
        try:
            if head:
                return await reader.readuntil(b"\r\n\r\n"), False
            return await _frame(reader), True
        except asyncio.IncompleteReadError as rest:
            return rest.partial, False

    def _due(self, line: Line, way: str, size: int, whole: bool) -> Fault | None:
        if not self._armed or self._armed[0].way != way:
            return None
        self._left -= size
        if self._left > 0 or not whole:
            return None
        if self._armed[0].kind == "freeze" and len(line.down) < 1000:
            return None  # a handshake that hangs is given up after many seconds only
        return self._armed[0]

    async def _fire(self, fault: Fault) -> None:
        self.fired.append(fault)
        self._armed.popleft()
        self._left = self._armed[0].after if self._armed else 0
        async with self._change:
            self._change.notify_all()

    async def _happen(
        self, fault: Fault, line: Line, piece: bytes, writer: asyncio.StreamWriter
    ) -> None:
        await self._fire(fault)
        if fault.kind in ENDS:
            line.ended_by = fault
            line.dead.set()
        match fault.kind:
            case "reset" | "refuse":
                self._refuse += 2 if fault.kind == "refuse" else 0
                self._hang_up(line)
            case "cut":
                await _write(writer, piece[: inside_character(piece, fault.after)])
                line.client.close()
                line.server.close()
            case "delay":
                line.late = 5
                await _write(writer, piece)
            case "trickle":
                for byte in piece[:1500]:
                    await _write(writer, bytes([byte]))
                await _write(writer, piece[1500:])
            case "stall":
                await asyncio.sleep(fault.seconds)
                await _write(writer, piece)
            case "vanish":
                _reset(line.client)
            case "freeze":
                pass
            case "duplicate" if self._frames:
                await _write(writer, piece + piece)
            case "duplicate":
                await self._repeat(bytes(line.up))
                await _write(writer, piece)
            case "reorder":
                self._held.append((line, piece))
                _reset(line.client)

    async def _repeat(self, request: bytes) -> None:
        """Send a request once more, and read its answer for nobody."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        writer.write(request)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(0.1):
                while await reader.read(65536):
                    pass
        _reset(writer)

    async def _release(self) -> None:
        held, self._held = self._held, []
        for line, piece in held:
            with contextlib.suppress(OSError, RuntimeError):
                await _write(line.server, piece)
                line.server.close()

    def _hang_up(self, line: Line) -> None:
        line.dead.set()
        _reset(line.client)
        _reset(line.server)


def _half_open(line: Line) -> str:
    """The kind of fault after which the other side is not told, or ""."""
    kind = "" if line.ended_by is None else line.ended_by.kind
    return kind if kind in ("vanish", "freeze", "reorder") else ""


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset, whatever waits in it."""
    if writer.is_closing():
        writer.transport.abort()
        return
    end = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """One whole WebSocket frame as it is on the wire (RFC 6455 section 5.2)."""
    head = await reader.readexactly(2)
    size = head[1] & 0x7F
    if size > 125:
        head += await reader.readexactly(2 if size == 126 else 8)
        size = int.from_bytes(head[2:], "big")
    if head[1] & 0x80:
        size += 4
    return head + await reader.readexactly(size)


def payload_of(frame: bytes) -> tuple[int, bytes]:
    """Where the payload of a frame begins, and what it says without its mask."""
    start = 2 + {126: 2, 127: 8}.get(frame[1] & 0x7F, 0)
    if not frame[1] & 0x80:
        return start, frame[start:]
    mask, start = frame[start : start + 4], start + 4
    return start, bytes(byte ^ mask[n % 4] for n, byte in enumerate(frame[start:]))


def inside_character(piece: bytes, hint: int) -> int:
    """Where to cut a piece: inside a character of several bytes if it has one, chosen by `hint`."""
    if len(piece) < 3:
        return 1
    start, text = payload_of(piece)
    places = [start + n for n, byte in enumerate(text) if 0x80 <= byte < 0xC0]
    return places[hint % len(places)] if places else 1 + hint % (len(piece) - 1)
