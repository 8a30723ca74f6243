"""One WebSocket of the door, between picows and the core.

picows is the WebSocket layer (RFC 6455, stock asyncio transports). It keeps what it read in one
buffer for each connection, which makes two things necessary that are marked below: a count of what
comes before `ready`, and giving the memory of a large frame back to the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Callable
from typing import Any, Protocol

import picows

from .commands import receive, too_big
from .devices import ConnId
from .doorstep import let_in
from .hub import Hub
from .protocol import CLOSE_TOO_BIG, MAX_FRAME_BYTES, MAX_HELLO_BYTES, ProtocolError
from .tokens import Headers

# After a close frame the client has this long to close its side, so that it reads our last frame.
LINGER = 3.0
# Without any byte for this long the client is asked for a sign of life, then given up.
PING_AFTER = 15.0
GIVE_UP_AFTER = 45.0
# A client that takes nothing of what waits for it for this long is cut off.
STALL_AFTER = 30.0
# Before `ready` a client may send this many WebSocket frames: a hello in pieces, and pings.
MAX_HELLO_FRAMES = 512
# From this size on a frame's memory is given back.
LARGE_FRAME = 256 * 1024
# Messages up to this size are copied, by us on their way in and by picows on their way out.
COPIED_FRAME = 8192
# What stands before a text message of this many bytes.
_SHORT_HEADERS = [bytes((0x81, size)) for size in range(126)]

_TEXT = picows.WSMsgType.TEXT
_BINARY = picows.WSMsgType.BINARY
_CONTINUATION = picows.WSMsgType.CONTINUATION
_CLOSE = picows.WSMsgType.CLOSE
_PING = picows.WSMsgType.PING
# A close frame without a code, as browsers send it; no code to write (RFC 6455 section 7.4.1).
_NO_CODE = picows.WSCloseCode.NO_INFO


class Keeper(Protocol):
    """What a socket needs of the door."""

    hub: Hub
    loop: asyncio.AbstractEventLoop

    def drain(self) -> None:
        """Carry out what the hub has decided."""

    def socket_opened(self, sock: Socket, remote: str, headers: Headers) -> ConnId:
        """The upgrade of `sock` is done, from the address `remote`; its number."""

    def socket_leaves(self, sock: Socket) -> None:
        """A stranger is being closed: those who take their time hold memory too."""

    def socket_closed(self, conn: ConnId) -> None:
        """A socket has gone."""


class Socket(picows.WSListener):
    """One WebSocket between picows and the door."""

    def __init__(self, door: Keeper, headers: Headers) -> None:
        self._door = door
        self._headers = headers
        self.gone: asyncio.Future[None] = door.loop.create_future()
        self._paused = False
        self._closing = False
        self._fragments: bytearray | None = None
        self._gate: _Gate | None = None
        self._end: asyncio.TimerHandle | None = None
        self._mark: tuple[int, int, int] = (0, 0, 0)
        self.frames = 0  # that came, control frames too
        self._alive = self._flowing = self._asked = door.loop.time()

    # Called by picows

    def on_ws_connected(self, transport: Any) -> None:
        self._transport = transport
        self._stream = stream = transport.underlying_transport
        peer = stream.get_extra_info("peername")
        remote = peer[0] if isinstance(peer, tuple) else ""
        let_in(stream)
        self._gate = _Gate(stream, MAX_HELLO_BYTES, self._hello_too_big)
        self.conn = self._door.socket_opened(self, remote, self._headers)
        self._connection = self._door.hub.connections[self.conn]
        self._headers = {}
        self._door.drain()

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        self.frames += 1
        kind = frame.msg_type
        if (
            kind is _TEXT
            and frame.fin
            and self._gate is None
            and self._fragments is None
            and not (self._closing or frame.rsv1 or frame.rsv2 or frame.rsv3)
            and frame.payload_size <= COPIED_FRAME
        ):  # nearly every frame
            door = self._door
            receive(door.hub, self.conn, frame.get_payload_as_bytes(), door.loop.time())
            door.drain()
            return
        if kind is _CLOSE or kind == _CLOSE:
            self._answer_close(frame)
            return
        if self._closing:
            return
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            # Compressed, or something else that nobody agreed on (RFC 6455 section 5.2).
            self.close(1002, "no extension was negotiated", linger=LINGER)
            return
        if self._gate is not None and self.frames > MAX_HELLO_FRAMES:
            hub = self._door.hub
            hub.fail(hub.connections[self.conn], _too_many_pieces())
            self._door.drain()
            self._gate.shut()
            return
        if kind not in (_TEXT, _BINARY, _CONTINUATION):
            # One who takes nothing gets no pongs either: they would pile up in memory.
            if kind == _PING and not self._paused:
                transport.send_pong(frame.get_payload_as_bytes())
            return
        if frame.fin and kind != _CONTINUATION and self._fragments is None:
            self._receive(frame.get_payload_as_memoryview())
        else:
            self._fragment(frame, first=kind != _CONTINUATION)
        if self._gate is not None and self._door.hub.connections[self.conn].grant is not None:
            self._gate.open()
            self._gate = None
        if frame.payload_size >= LARGE_FRAME:
            # Behind this frame in the buffer, so once the frame is done with.
            self._door.loop.call_soon(_give_back, transport.underlying_transport)

    def on_ws_disconnected(self, transport: Any) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._closing = True
        self._door.socket_closed(self.conn)
        # The gate and the timer hold the reader, and so its buffer.
        self._gate = None
        if self._end is not None:
            self._end.cancel()

    def pause_writing(self) -> None:
        self._paused = True
        self._flowing = self._door.loop.time()

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    # Called by the door

    def pump(self) -> None:
        """Write what waits, as much as the client takes."""
        connection = self._connection
        # What a line that has just broken would swallow waits for the next connection.
        while not (self._paused or self._closing or self._stream.is_closing()):
            frames = self._door.hub.next_frames(self.conn, self._door.loop.time())
            if frames:
                self.write(frames)
            if not connection.box.frames:
                return

    def write(self, frames: list[bytes]) -> None:
        """Write frames as WebSocket text messages, small ones together in one piece.

        Several go past picows, which would write each by itself: the system's call is the dearest
        part of a short frame. So does a long one: picows hands the transport a view of its own
        header, and from Python 3.12 on asyncio keeps that view until the socket takes it. A
        server's frame is a header and the text (RFC 6455 section 5.2).
        """
        if self._closing:
            return
        if len(frames) == 1 and len(frames[0]) <= COPIED_FRAME:
            self._transport.send(_TEXT, frames[0])
            return
        pieces: list[bytes] = []
        for frame in frames:
            size = len(frame)
            if size < 126:
                pieces.append(_SHORT_HEADERS[size])
            elif size < 65_536:
                pieces.append(b"\x81\x7e" + size.to_bytes(2, "big"))
            else:  # not worth a copy
                self._stream.write(b"".join(pieces) + b"\x81\x7f" + size.to_bytes(8, "big"))
                self._stream.write(frame)
                pieces.clear()
                continue
            pieces.append(frame)
        if pieces:
            self._stream.write(b"".join(pieces))

    def close(self, code: int, reason: str, *, linger: float) -> None:
        """Say goodbye and end the connection within `linger` seconds."""
        if self._closing:
            return
        self._closing = True
        self._door.hub.ending(self.conn, reason)
        with contextlib.suppress(Exception):
            self._transport.send_close(code, reason.encode()[:120])
        self._end = self._door.loop.call_later(linger, self.cut)
        if self._gate is not None:
            self._door.socket_leaves(self)

    def cut(self) -> None:
        """End the connection now."""
        if not self.gone.done():
            self._transport.disconnect(False)

    def beat(self, now: float) -> None:
        """Look for signs of life since the last look."""
        if self._closing:
            return
        stream = self._transport.underlying_transport
        waiting = stream.get_write_buffer_size()
        # The room that the reader has left tells of bytes of a frame that is not complete yet.
        mark = (self.frames, len(stream.get_protocol().get_buffer(-1)), waiting)
        if mark[:2] != self._mark[:2]:
            self._alive = now
        if waiting < self._mark[2] or not waiting:
            self._flowing = now  # what was written leaves: that is life too
            if waiting:
                self._alive = now
        self._mark = mark
        if waiting and now - self._flowing >= STALL_AFTER:
            self._door.hub.too_slow(self.conn)
        elif now - self._alive >= GIVE_UP_AFTER:
            self.close(1001, "no sign of life", linger=1.0)
        elif now - max(self._alive, self._asked) >= PING_AFTER:
            self._asked = now
            self._transport.send_ping(b"")

    # Inside

    def _receive(self, raw: bytes | bytearray | memoryview) -> None:
        receive(self._door.hub, self.conn, raw, self._door.loop.time())
        self._door.drain()

    def _fragment(self, frame: Any, *, first: bool) -> None:
        if first == (self._fragments is not None):
            self.close(1002, "fragments out of order", linger=LINGER)
            return
        if self._fragments is None:
            self._fragments = bytearray()
        self._fragments += frame.get_payload_as_memoryview()
        if len(self._fragments) > MAX_FRAME_BYTES:
            self._fragments = None
            hub = self._door.hub
            hub.fail(hub.connections[self.conn], too_big())
            self._door.drain()
        elif frame.fin:
            whole, self._fragments = self._fragments, None
            self._receive(whole)

    def _answer_close(self, frame: Any) -> None:
        if not self._closing:
            self._closing = True
            code = frame.get_close_code()
            with contextlib.suppress(Exception):
                self._transport.send_close(1000 if code == _NO_CODE else code, b"")
            # One who takes nothing would keep the socket open until all is written.
            self._end = self._door.loop.call_later(LINGER, self.cut)
        self._transport.disconnect()

    def _hello_too_big(self) -> None:
        self.close(CLOSE_TOO_BIG, "too_big", linger=0.2)


class _Gate(asyncio.BufferedProtocol):
    """Stands before picows' reader until `ready` and counts what comes in.

    Without it each connection could make the reader hold a whole frame before it has said who it
    is.
    """

    def __init__(self, stream: asyncio.Transport, limit: int, passed: Callable[[], None]) -> None:
        self._stream = stream
        self._reader: Any = stream.get_protocol()
        self._left = limit
        self._passed = passed
        stream.set_protocol(self)

    def shut(self) -> None:
        """Let nothing more through."""
        self._left = -1

    def open(self) -> None:
        """Let the reader read by itself from now on."""
        self._stream.set_protocol(self._reader)

    def get_buffer(self, sizehint: int) -> Any:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._left < 0:
            return
        self._left -= nbytes
        if self._left < 0:
            self._passed()
        else:
            self._reader.buffer_updated(nbytes)

    def eof_received(self) -> Any:
        return self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()


def _too_many_pieces() -> ProtocolError:
    return ProtocolError(
        "bad_frame", f"no `hello` within {MAX_HELLO_FRAMES} WebSocket frames", fatal=True
    )


def _give_back(stream: asyncio.Transport) -> None:
    """Give the memory behind a large frame back to the system.

    The reader's buffer grows with the largest frame and stays so for the life of the connection;
    what lies behind its read position holds nothing. Linux alone has this; elsewhere it stays.
    """
    if _madvise is None or stream.is_closing():
        return
    reader: Any = stream.get_protocol()
    room: memoryview = reader.get_buffer(-1)
    if len(room) < LARGE_FRAME:
        return
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    first = -(-start // _PAGE) * _PAGE
    length = (start + len(room) - first) // _PAGE * _PAGE
    if length > 0:
        _madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_DONTNEED)


_PAGE = 4096
_MADV_DONTNEED = 4
_madvise: Any = None
if sys.platform == "linux":
    import mmap

    _PAGE = mmap.PAGESIZE
    _madvise = getattr(ctypes.CDLL(None, use_errno=True), "madvise", None)
