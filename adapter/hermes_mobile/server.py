"""The door itself: the core among its sockets, the agent and the clock.

One loop shape: feed the hub, carry out its effects, write what waits, re-arm the timer. Every
connection is written to on its own; one that does not read holds up nobody. `doorstep`, `sockets`
and this file are the only ones of the door with sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import picows

from . import static_pages
from .devices import ConnId, Device, DeviceInfo
from .doorstep import BACKLOG, DoorError, bind
from .effects import Close, Effect, Expired, Incoming, Submit, Tell, Wake
from .hub import Hub
from .logs import log, shown, trace
from .metrics import CONTENT_TYPE, Scrape, scrape
from .outbox import OutboxFull, OutgoingMedia
from .prompts import Card
from .protocol import CLOSE_TRY_LATER, MAX_FRAME_BYTES, PROTOCOL_VERSION
from .settings import Settings
from .sockets import LINGER, Socket
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

UPGRADE_TIMEOUT = 10.0
# Connections that were refused before `ready` and are being closed; beyond this the oldest is cut.
MAX_LEAVING = 128
# Seconds between two looks for signs of life.
HEARTBEAT = 5.0


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
        self.loop: asyncio.AbstractEventLoop
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
        self.loop = asyncio.get_running_loop()
        self._started = self.loop.time()
        self._stopped = False
        listening = await bind(self.settings.host, self.port)
        self.port = listening[0].getsockname()[1]
        for sock in listening:
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
        self._heart = self.loop.create_task(self._heartbeat())
        log.info("the device door listens on %s port %d", self.settings.host, self.port)

    async def stop(self) -> None:
        """Close every connection (1001, the clients come again) and free the port."""
        self._stopped = True
        for server in self._servers:
            server.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, float("inf")
        for sock in list(self._sockets.values()):
            sock.close(1001, "the door closes", linger=1.0)
        waiting = [sock.gone for sock in self._sockets.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=2.0)
        tasks = [*self._tasks, *self._hand_overs.values()]
        if self._heart is not None:
            tasks.append(self._heart)
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
            id = self.hub.say(chat, text, edit_of=message_id, final=final, now=self.loop.time())
            if begun is not None:
                begun(id)
            return id
        finally:
            self.drain()

    def withdraw(self, chat: str, message_id: str) -> None:
        """An open message that will not be completed is final as it was last shown."""
        self.hub.withdraw(chat, message_id, self._now())
        self.drain()

    def show(self, chat: str, media: OutgoingMedia) -> str:
        """Show a file; its id. Raises `OutboxFull` as `say` does."""
        try:
            return self.hub.show(chat, media, self._now())
        finally:
            self.drain()

    def ask(self, chat: str, card: Card) -> str:
        """Show a card, now or after the device's next `ready`; its id.

        Raises `OutboxFull` as `say` does.
        """
        try:
            return self.hub.cards.ask(chat, card, self._now())
        finally:
            self.drain()

    def close_card(
        self, card_id: str, option_id: str | None = None, *, expired: bool = False
    ) -> None:
        """A card was settled another way: a typed command, the agent's own limit."""
        self.hub.cards.close(card_id, option_id, expired=expired, now=self._now())
        self.drain()

    def turn_started(self, chat: str) -> None:
        """The agent works for this device: thinking and typing."""
        self.hub.turn_started(chat, self._now())
        self.drain()

    def turn_ended(self, chat: str) -> None:
        """The turn is over: open messages are final, typing stops, the avatar is idle."""
        now = self._now()
        device = self.hub.turn_ended(chat, now)
        self.drain()
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
        return self.loop.time()

    def drain(self) -> None:
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
        task = self.loop.create_task(work)
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
        self._timer, self._rings_at = self.loop.call_at(deadline, self._ring), deadline

    def _ring(self) -> None:
        self._timer, self._rings_at = None, float("inf")
        self.hub.tick(self.loop.time())
        self.drain()

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
            self._hand_overs[chat] = self.loop.create_task(self._hand_over(chat))
        else:
            try:
                taking = self.agent.submit(incoming)
            except (Exception, asyncio.CancelledError) as error:
                self._not_taken(incoming, error)
            else:
                if taking is None:
                    self.hub.taken(incoming, self.loop.time())
                else:
                    self._queues[chat] = deque([incoming])
                    self._hand_overs[chat] = self.loop.create_task(self._hand_over(chat, taking))

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
                    self.hub.taken(incoming, self.loop.time())
                taking = None
                queue.popleft()
                self.drain()
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
        self.drain()

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
            self.drain()

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
                if headers.get("sec-websocket-version") != ["13"]:
                    raise Refused(426, "only version 13 of WebSocket is spoken (RFC 6455)")
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
            if refusal.status == 426:  # RFC 9110 section 15.5.22, RFC 6455 section 4.4
                more |= {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
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

    def socket_opened(self, sock: Socket, remote: str, headers: Headers) -> ConnId:
        self._next_id += 1
        self._sockets[self._next_id] = sock
        self.hub.opened(self._next_id, Peer.of(remote, headers, self.settings), self.loop.time())
        return self._next_id

    def socket_leaves(self, sock: Socket) -> None:
        """A stranger is being closed: those who take their time hold memory too."""
        self._leaving[sock.conn] = sock
        if len(self._leaving) > MAX_LEAVING:
            _, oldest = self._leaving.popitem(last=False)
            oldest.cut()

    def socket_closed(self, conn: ConnId) -> None:
        self._leaving.pop(conn, None)
        if (sock := self._sockets.pop(conn, None)) is not None:
            self.hub.closed(conn, self.loop.time(), frames_in=sock.frames)
            self.drain()


def _wants(headers: Headers, name: str, word: str) -> bool:
    """Whether a header field, a list of words, holds `word` (RFC 9110 section 5.6.1)."""
    listed = ",".join(headers.get(name, [])).lower().split(",")
    return word in (item.strip() for item in listed)


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
