"""The door itself: sockets around the core. The only file with sockets.

One loop shape: feed the hub, carry out its effects, write what waits, re-arm the timer. Every
connection is written to on its own; one that does not read holds up nobody.

The WebSocket layer is picows (RFC 6455, stock asyncio transports). It keeps what it read in one
buffer for each connection, which makes two things necessary that are marked below: a count of what
comes before `ready`, and giving the memory of a large frame back to the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import inspect
import json
import logging
import socket
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import picows

from . import static_pages
from .commands import receive, too_big
from .devices import ConnId, Device, DeviceInfo
from .effects import Close, Effect, Expired, Incoming, Submit, Tell, Wake
from .hub import Hub
from .logs import log, shown, trace
from .metrics import CONTENT_TYPE, Scrape, scrape
from .outbox import OutboxFull, OutgoingMedia
from .prompts import Card
from .protocol import (
    CLOSE_TOO_BIG,
    CLOSE_TRY_LATER,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    ProtocolError,
)
from .settings import Settings
from .tokens import Headers, Peer, Refused, check_origin

__all__ = [
    "Agent",
    "Answered",
    "Card",
    "Device",
    "DeviceInfo",
    "Door",
    "DoorError",
    "Incoming",
    "OutboxFull",
    "OutgoingMedia",
]

# The library writes what it reads into its debug log, tokens included: never that.
_socket_log = logging.getLogger("hermes_mobile.socket")
_socket_log.setLevel(logging.ERROR)

# Sockets that have not finished the upgrade request; the oldest goes first.
MAX_KNOCKING = 256
UPGRADE_TIMEOUT = 10.0
BACKLOG = 512
# Connections that were refused before `ready` and are being closed; beyond this the oldest is cut.
MAX_LEAVING = 128
# After a close frame the client has this long to close its side, so that it reads our last frame.
LINGER = 3.0
# Without any byte for this long the client is asked for a sign of life, then given up.
PING_AFTER = 15.0
GIVE_UP_AFTER = 45.0
HEARTBEAT = 5.0
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


class DoorError(RuntimeError):
    """The door cannot open; the text is for the owner."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an answer. `taken` False: the agent no longer waits for it.

    `then`: a text to show the device after the card is closed.
    """

    taken: bool
    then: str | None = None


class Agent(Protocol):
    """Whoever answers: the scripted agent, or Hermes. Called on the door's loop."""

    def submit(self, incoming: Incoming) -> Awaitable[None] | None:
        """Take one message. Returning means taken; raising means it was not.

        A coroutine, or a plain function that returns None: that costs less where nothing need be
        waited for. Called for one message of a device after the other; starts work, does not wait
        for it.
        """

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        """Take the answer to a card.

        clarify: `cN` is the N-th choice; `other` with a text is that text; `other` without one
        means that the person will type it, and a second call brings it.
        """

    async def expired(self, card: Card) -> None:
        """The card's time is over: it counts as deny, cancel or no answer."""


class Door:
    """The device door: listens, and does to devices what an agent asks.

    Example::

        door = Door(Settings.from_sources(os.environ), agent)
        await door.start()
        ...
        await door.stop()
    """

    def __init__(
        self,
        settings: Settings,
        agent: Agent,
        *,
        deliver_secret: str = "",
        pages: Path | None = None,
    ) -> None:
        self.settings = settings
        self.agent = agent
        self.hub = Hub(settings, deliver_secret=deliver_secret)
        self.port = settings.port
        self._pages = static_pages.BUILT if pages is None else pages
        self._servers: list[asyncio.Server] = []
        self._sockets: dict[ConnId, Socket] = {}
        self._next_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = float("inf")
        self._heart: asyncio.Task[None] | None = None
        self._leaving: OrderedDict[ConnId, Socket] = OrderedDict()
        self._queues: dict[str, deque[Incoming]] = {}
        self._hand_overs: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._started = 0.0
        self._stopped = False

    @property
    def agent(self) -> Agent:
        """Whoever answers; another one may take the place at any time."""
        return self._agent

    @agent.setter
    def agent(self, agent: Agent) -> None:
        self._agent = agent
        self._agent_waits = inspect.iscoroutinefunction(agent.submit)

    # ----------------------------------------------------------------------------------------------
    # Life

    async def start(self) -> None:
        """Listen. Raises `DoorError` with a sentence for the owner (port in use, …)."""
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._stopped = False
        for sock in await self._bind():
            self._servers.append(
                await picows.ws_create_server(
                    self._upgrade,
                    sock=sock,
                    backlog=BACKLOG,
                    websocket_handshake_timeout=UPGRADE_TIMEOUT,
                    enable_auto_ping=False,
                    enable_auto_pong=False,
                    max_frame_size=2 * MAX_FRAME_BYTES,
                    read_buffer_init_size=2048,
                    use_aiofastnet=False,
                    logger_name=_socket_log,
                )
            )
        self._heart = self._loop.create_task(self._heartbeat())
        log.info("the device door listens on %s port %d", self.settings.host, self.port)

    async def _bind(self) -> list[socket.socket]:
        host, port = self.settings.host, self.settings.port
        bound: list[socket.socket] = []
        try:
            found = await self._loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            missing: OSError | None = None
            for family, kind, proto, _, address in dict.fromkeys(found):
                try:
                    # A port that the system chose for the first address is the port of all.
                    here = (address[0], self.port, *address[2:])
                    bound.append(_listening(_Doorstep(family, kind, proto), here))
                    self.port = bound[-1].getsockname()[1]
                except OSError as error:
                    # `localhost` may have an IPv6 address where the system has no IPv6.
                    if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                        raise
                    missing = error
            if missing is not None and not bound:
                raise missing
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name at all
            for opened in bound:
                opened.close()
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                raise DoorError(
                    f"port {port} on {host} is in use by another program: "
                    "stop it, or set MOBILE_PORT to a free port"
                ) from error
            raise DoorError(
                f"the door cannot listen on {host} port {port} ({_reason(error)}): "
                "check MOBILE_HOST and MOBILE_PORT"
            ) from error
        return bound

    async def stop(self) -> None:
        """Close every connection (1001, the clients come again) and free the port."""
        self._stopped = True
        for server in self._servers:
            server.close()
        if self._heart is not None:
            self._heart.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, float("inf")
        for sock in list(self._sockets.values()):
            sock.close(1001, "the door closes", linger=1.0)
        waiting = [sock.gone for sock in self._sockets.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=2.0)
        tasks = [*self._tasks, *self._hand_overs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in self._queues.values():
            for incoming in queue:  # nobody took it: the app may send it again
                self.hub.refused(incoming, self._now())
        self._queues.clear()
        self._hand_overs.clear()
        for server in self._servers:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(server.wait_closed(), 1.0)
        self._servers.clear()
        log.info("the device door is closed")

    # ----------------------------------------------------------------------------------------------
    # What an agent may do

    def say(
        self,
        chat: str,
        text: str,
        *,
        message_id: str | None = None,
        final: bool = True,
        begun: Callable[[str], None] | None = None,
    ) -> str:
        """Show `text`, any length, to the device `chat`; its message id.

        With `message_id` it is the whole new text of that message. `final=False`: more revisions
        follow. `begun` is called with the id before the first frame leaves. Raises `OutboxFull`
        when nothing more is kept for a device that does not read; never for a message that is open.
        """
        try:
            id = self.hub.say(chat, text, edit_of=message_id, final=final, now=self._loop.time())
            if begun is not None:
                begun(id)
            return id
        finally:
            self._drain()

    def withdraw(self, chat: str, message_id: str) -> None:
        """An open message that will not be completed is final as it was last shown."""
        self.hub.withdraw(chat, message_id, self._now())
        self._drain()

    def show(self, chat: str, media: OutgoingMedia) -> str:
        """Show a file; its id. Raises `OutboxFull` as `say` does."""
        try:
            return self.hub.show(chat, media, self._now())
        finally:
            self._drain()

    def ask(self, chat: str, card: Card) -> str:
        """Show a card, now or after the device's next `ready`; its id.

        Raises `OutboxFull` as `say` does.
        """
        try:
            return self.hub.cards.ask(chat, card, self._now())
        finally:
            self._drain()

    def close_card(
        self, card_id: str, option_id: str | None = None, *, expired: bool = False
    ) -> None:
        """A card was settled another way: a typed command, the agent's own limit."""
        self.hub.cards.close(card_id, option_id, expired=expired, now=self._now())
        self._drain()

    def turn_started(self, chat: str) -> None:
        """The agent works for this device: thinking and typing."""
        self.hub.turn_started(chat, self._now())
        self._drain()

    def turn_ended(self, chat: str) -> None:
        """The turn is over: open messages are final, typing stops, the avatar is idle."""
        now = self._now()
        device = self.hub.turn_ended(chat, now)
        self._drain()
        if device is not None:
            self.hub.note_turn(device, now)

    def online(self, chat: str) -> bool:
        """Whether the device is connected."""
        return self.hub.online(chat)

    def device(self, chat: str) -> DeviceInfo | None:
        """What the device last said of itself; None for one that is not known."""
        device = self.hub.devices.get(chat)
        return device.info if device is not None else None

    # ----------------------------------------------------------------------------------------------
    # The loop shape

    def _now(self) -> float:
        return self._loop.time()

    def _fed(self, conn: ConnId, raw: bytes | bytearray | memoryview) -> None:
        receive(self.hub, conn, raw, self._loop.time())
        self._drain()

    def _drain(self) -> None:
        """Carry out what the hub has decided. What follows from an effect drains by itself."""
        effects = self.hub.effects
        while effects:
            effect = effects.popleft()
            if type(effect) is Wake:
                sock = self._sockets.get(effect.conn)
                if sock is not None:
                    sock.pump()
            elif type(effect) is Submit:
                self._submit(effect.incoming)
            else:
                self._carry_out(effect)
        due = self.hub.due
        if due is not None and due < self._rings_at:
            self._arm(due)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Close(conn, code, reason, last):
                sock = self._sockets.get(conn)
                if sock is not None:
                    if last is not None:
                        sock.write([last])
                    # Who did not sign in or does not read is not waited for.
                    sock.close(code, reason, linger=0.2 if code == CLOSE_TRY_LATER else LINGER)
            case Tell(card_id, card, option_id, text):
                self._start(self._tell(card_id, card, option_id, text))
            case Expired(card):
                self._start(self._expire(card))

    def _start(self, work: Any) -> None:
        if self._stopped:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ending(self) -> bool:
        """Whether a cancellation is the end of this task, not a failure of the agent's own."""
        task = asyncio.current_task()
        return self._stopped or task is None or task.cancelling() > 0

    def _arm(self, deadline: float) -> None:
        # Only ever to an earlier time: a timer that rings too early finds nothing to do and is
        # armed anew, which is cheaper than to move it with every message.
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = self._loop.call_at(deadline, self._ring), deadline

    def _ring(self) -> None:
        self._timer, self._rings_at = None, float("inf")
        self.hub.tick(self._loop.time())
        self._drain()

    def _submit(self, incoming: Incoming) -> None:
        """Hand a message over, after the earlier ones of its device."""
        chat = incoming.chat
        queue = self._queues.get(chat)
        if queue is not None:
            queue.append(incoming)
        elif self._stopped:
            self.hub.refused(incoming, self._now())
        elif self._agent_waits:
            self._queues[chat] = deque([incoming])
            self._hand_overs[chat] = self._loop.create_task(self._hand_over(chat))
        else:
            try:
                taking = self.agent.submit(incoming)
            except (Exception, asyncio.CancelledError) as error:
                self._not_taken(incoming, error)
            else:
                if taking is None:
                    self.hub.taken(incoming, self._loop.time())
                else:
                    self._queues[chat] = deque([incoming])
                    self._hand_overs[chat] = self._loop.create_task(self._hand_over(chat, taking))

    async def _hand_over(self, chat: str, taking: Awaitable[None] | None = None) -> None:
        """Hand a device's messages over in their order, one at a time.

        `taking`: what the agent has begun with the first.
        """
        queue = self._queues[chat]
        try:
            while queue:
                incoming = queue[0]
                try:
                    if taking is None:
                        taking = self.agent.submit(incoming)
                    if taking is not None:
                        await taking
                except (Exception, asyncio.CancelledError) as error:
                    if self._ending():
                        return
                    self._not_taken(incoming, error)
                else:
                    self.hub.taken(incoming, self._loop.time())
                taking = None
                queue.popleft()
                self._drain()
        finally:
            if not self._stopped:
                del self._queues[chat], self._hand_overs[chat]

    def _not_taken(self, incoming: Incoming, error: BaseException) -> None:
        log.error(
            "the agent did not take a message: device=%s error=%s",
            shown(incoming.chat),
            trace(error),
        )
        self.hub.refused(incoming, self._now())

    async def _tell(self, card_id: str, card: Card, option_id: str, text: str | None) -> None:
        try:
            answered = await self.agent.answer(card, option_id, text)
        except (Exception, asyncio.CancelledError) as error:
            if self._ending():
                return
            log.error(
                "the agent could not be told an answer: card=%s error=%s", card_id, trace(error)
            )
            self.hub.cards.answer_failed(card_id, self._now())
        else:
            self.hub.cards.answered(card_id, answered.taken, answered.then, self._now())
        self._drain()

    async def _expire(self, card: Card) -> None:
        try:
            await self.agent.expired(card)
        except Exception as error:
            log.error(
                "the agent could not be told that a card ran out: kind=%s error=%s",
                card.kind,
                trace(error),
            )

    async def _heartbeat(self) -> None:
        """Ask silent clients for a sign of life; any byte counts, also of an unfinished frame."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            now = self._now()
            for sock in list(self._sockets.values()):
                sock.beat(now)
            self._drain()

    # ----------------------------------------------------------------------------------------------
    # Sockets

    def _upgrade(self, request: Any) -> Any:
        """Answer one HTTP request: an upgrade of `/ws`, or a small page."""
        headers: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        # Whatever stands behind `?` is not looked at: a token there would end in access logs.
        path = request.path.partition(b"?")[0].decode("latin-1")
        try:
            if path == "/ws":
                if not _wants(headers, "upgrade", "websocket"):
                    raise Refused(426, "this address speaks WebSocket (protocol v1)")
                check_origin(headers, self.settings)
                if _wants(headers, "connection", "upgrade"):
                    # The library knows this field with the one word only; Firefox sends two.
                    request.headers["Connection"] = "Upgrade"
                return Socket(self, headers)
            if path == "/metrics":
                return _metrics(scrape(self._scraped(), headers))
            return self._page(path)
        except Refused as refusal:
            self.hub.counters.refused_requests[refusal.status] += 1
            more = {"Connection": "close"}
            if refusal.status == 401:
                more["WWW-Authenticate"] = "Bearer"
            return _http(refusal.status, {"error": refusal.message}, more)

    def _page(self, path: str) -> Any:
        if path == "/health":
            return _http(200, self.health())
        if path.split("/")[1:2] in (["avatar"], ["chat"]):
            return _response(*static_pages.page(self._pages, path))
        raise Refused(404, "nothing here: apps connect to /ws")

    def _scraped(self) -> Scrape:
        return Scrape(self.hub, _version(), self._now() - self._started)

    def health(self) -> dict[str, object]:
        """What `GET /health` says: no secret and nothing about a person."""
        return {
            "status": "ok",
            "product": "hermes-mobile",
            "version": _version(),
            "protocol": PROTOCOL_VERSION,
            "connections": len(self._sockets),
            "uptime_seconds": int(self._now() - self._started),
        }

    def _opened(self, sock: Socket, remote: str, headers: Headers) -> ConnId:
        self._next_id += 1
        self._sockets[self._next_id] = sock
        self.hub.opened(self._next_id, Peer.of(remote, headers, self.settings), self._loop.time())
        return self._next_id

    def _leaves(self, sock: Socket) -> None:
        """A stranger is being closed: those who take their time hold memory too."""
        self._leaving[sock.conn] = sock
        if len(self._leaving) > MAX_LEAVING:
            _, oldest = self._leaving.popitem(last=False)
            oldest.cut()

    def _closed(self, conn: ConnId) -> None:
        self._leaving.pop(conn, None)
        if (sock := self._sockets.pop(conn, None)) is not None:
            self.hub.closed(conn, self._loop.time(), frames_in=sock.frames)
            self._drain()


class Socket(picows.WSListener):
    """One WebSocket between picows and the door."""

    def __init__(self, door: Door, headers: Headers) -> None:
        self._door = door
        self._headers = headers
        self.gone: asyncio.Future[None] = door._loop.create_future()
        self._paused = False
        self._closing = False
        self._fragments: bytearray | None = None
        self._gate: _Gate | None = None
        self._end: asyncio.TimerHandle | None = None
        self._mark: tuple[int, int, int] = (0, 0, 0)
        self.frames = 0  # that came, control frames too
        self._alive = self._flowing = self._asked = door._loop.time()

    # Called by picows

    def on_ws_connected(self, transport: Any) -> None:
        self._transport = transport
        self._stream = stream = transport.underlying_transport
        peer = stream.get_extra_info("peername")
        remote = peer[0] if isinstance(peer, tuple) else ""
        _let_in(stream)
        self._gate = _Gate(stream, MAX_HELLO_BYTES, self._hello_too_big)
        self.conn = self._door._opened(self, remote, self._headers)
        self._connection = self._door.hub.connections[self.conn]
        self._headers = {}
        self._door._drain()

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
            receive(door.hub, self.conn, frame.get_payload_as_bytes(), door._loop.time())
            door._drain()
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
            self._door._drain()
            self._gate.shut()
            return
        if kind not in (_TEXT, _BINARY, _CONTINUATION):
            # One who takes nothing gets no pongs either: they would pile up in memory.
            if kind == _PING and not self._paused:
                transport.send_pong(frame.get_payload_as_bytes())
            return
        if frame.fin and kind != _CONTINUATION and self._fragments is None:
            self._door._fed(self.conn, frame.get_payload_as_memoryview())
        else:
            self._fragment(frame, first=kind != _CONTINUATION)
        if self._gate is not None and self._door.hub.connections[self.conn].grant is not None:
            self._gate.open()
            self._gate = None
        if frame.payload_size >= LARGE_FRAME:
            # Behind this frame in the buffer, so once the frame is done with.
            self._door._loop.call_soon(_give_back, transport.underlying_transport)

    def on_ws_disconnected(self, transport: Any) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._closing = True
        self._door._closed(self.conn)
        # The gate and the timer hold the reader, and so its buffer.
        self._gate = None
        if self._end is not None:
            self._end.cancel()

    def pause_writing(self) -> None:
        self._paused = True
        self._flowing = self._door._loop.time()

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    # Called by the door

    def pump(self) -> None:
        """Write what waits, as much as the client takes."""
        connection = self._connection
        while not self._paused and not self._closing:
            frames = self._door.hub.next_frames(self.conn, self._door._loop.time())
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
        self._end = self._door._loop.call_later(linger, self.cut)
        if self._gate is not None:
            self._door._leaves(self)

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
            self._door._drain()
        elif frame.fin:
            whole, self._fragments = self._fragments, None
            self._door._fed(self.conn, whole)

    def _answer_close(self, frame: Any) -> None:
        if not self._closing:
            self._closing = True
            code = frame.get_close_code()
            with contextlib.suppress(Exception):
                self._transport.send_close(1000 if code == _NO_CODE else code, b"")
            # One who takes nothing would keep the socket open until all is written.
            self._end = self._door._loop.call_later(LINGER, self.cut)
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


class _Doorstep(socket.socket):
    """A listening socket that keeps the number of those who have not finished the upgrade bounded.

    Beyond `MAX_KNOCKING` the oldest is shut down, so that slow handshakes cost others nothing.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._knocking: OrderedDict[int, socket.socket] = OrderedDict()

    def accept(self) -> tuple[socket.socket, Any]:
        sock, address = super().accept()
        knocking = self._knocking
        number = sock.fileno()
        knocking.pop(number, None)  # an earlier socket of this number has gone
        knocking[number] = sock
        _doorsteps[number] = self
        if len(knocking) > MAX_KNOCKING:
            for old, waiting in list(knocking.items()):
                if waiting.fileno() != old:
                    del knocking[old]
            if len(knocking) > MAX_KNOCKING:
                _, oldest = knocking.popitem(last=False)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        return sock, address


# On which doorstep a socket stands, by its number.
_doorsteps: dict[int, _Doorstep] = {}


def _listening(sock: socket.socket, address: tuple[Any, ...]) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _too_many_pieces() -> ProtocolError:
    return ProtocolError(
        "bad_frame", f"no `hello` within {MAX_HELLO_FRAMES} WebSocket frames", fatal=True
    )


def _wants(headers: Headers, name: str, word: str) -> bool:
    """Whether a header field, a list of words, holds `word` (RFC 9110 section 5.6.1)."""
    listed = ",".join(headers.get(name, [])).lower().split(",")
    return word in (item.strip() for item in listed)


def _let_in(stream: asyncio.BaseTransport) -> None:
    """The upgrade is done: the socket no longer stands on the doorstep."""
    number = stream.get_extra_info("socket").fileno()
    doorstep = _doorsteps.pop(number, None)
    if doorstep is not None:
        doorstep._knocking.pop(number, None)


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


def _metrics(text: bytes) -> Any:
    return _response(200, text, {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def _http(status: int, body: dict[str, object], headers: dict[str, str] | None = None) -> Any:
    return _response(
        status,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Cache-Control": "no-store", **(headers or {})},
    )


def _response(status: int, body: bytes, headers: dict[str, str]) -> Any:
    response = picows.WSUpgradeResponse.create_ok_response(
        body, {"X-Content-Type-Options": "nosniff", **headers}
    )
    response.status = HTTPStatus(status)
    return picows.WSUpgradeResponseWithListener(response, None)


def _version() -> str:
    try:
        return version("hermes-mobile")
    except PackageNotFoundError:  # a directory plugin without the distribution
        return "unpackaged"
