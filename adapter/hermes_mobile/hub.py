"""Connections, hello, devices, turns, avatar and timers: frames in, effects out.

The core of the device door. It decides everything and waits for nothing: no socket, no clock, no
Hermes. Every input takes `now` in seconds of any steady clock; what shall happen is taken from
`effects` in order, and what is written to a connection from `next_frames()`. The shell's loop is:
feed, drain the effects, write, re-arm the timer for `due`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import get_args

from .cards import Cards
from .counters import FIRST, SECOND, Counters
from .dedup import Dedup, Seen
from .devices import UNSURE_SECONDS, Connection, ConnId, Device, DeviceInfo
from .effects import Close, Effect, Incoming, Submit, Wake
from .logs import log, seconds, shown
from .outbox import (
    Answer,
    File,
    Outbox,
    OutboxFull,
    OutgoingMedia,
    Ready,
)
from .outbox import State as StateItem
from .protocol import (
    CLOSE_POLICY,
    CLOSE_REPLACED,
    CLOSE_TRY_LATER,
    EXTENSIONS,
    HELLO_TIMEOUT,
    PROTOCOL_VERSION,
    TYPING_IDLE,
    Accepted,
    Avatar,
    Capabilities,
    Code,
    Hello,
    ProtocolError,
    ReadyDevice,
    TypingOut,
    device_id,
    device_text,
    encode,
    error_frame,
    well_formed,
)
from .protocol import Ready as ReadyFrame
from .settings import Settings
from .tokens import Failures, Grant, Peer, TokenBook

# Connections that have not said hello; the oldest goes first (`CLOSE_TRY_LATER`).
MAX_UNAUTHENTICATED = 256
# Whole messages of one device that wait for the agent to take them. One read of the socket may
# bring everything an app has kept while it was away, before the agent gets its turn.
MAX_UNDER_WAY = 1024
MAX_UNDER_WAY_BYTES = 32 * 1024 * 1024
# What waits for all absent devices together; a device may keep the smaller amount in any case.
MAX_ABSENT_BYTES = 256 * 1024 * 1024
FREE_ABSENT_BYTES = 1024 * 1024
# Frames up to about this size together are written at once.
BATCH_BYTES = 64 * 1024
# Device ids whose owner is remembered.
MAX_OWNERS = 65_536
# Devices of which is remembered that they left in the middle of something.
MAX_UNSURE = 4096


class Hub:
    """The core's state. Inputs return at once; see the module's docstring."""

    def __init__(self, settings: Settings, *, deliver_secret: str = "") -> None:
        self.settings = settings
        self.tokens = TokenBook(settings, deliver_secret)
        self.dedup = Dedup()
        self.counters = Counters()
        self._sent = self.counters.sent
        self.connections: dict[ConnId, Connection] = {}
        self.devices: dict[str, Device] = {}
        self._owners: OrderedDict[str, bytes] = OrderedDict()
        # Devices that left and may show a state that is over.
        self._unsure: OrderedDict[str, None] = OrderedDict()
        self._unauthenticated: OrderedDict[ConnId, float] = OrderedDict()
        self._failures = Failures()
        # When, and as what: an exception would keep its traceback and so the hello itself.
        self._rejections: dict[ConnId, tuple[float, Code, bytes]] = {}
        self._pausing: set[Device] = set()
        # What is to be done, in this order; the shell takes it from the left.
        self.effects: deque[Effect] = deque()
        self.cards = Cards(self, settings.prompt_ttl)
        # When `tick` has to be called next; it may find nothing to do, and then says when next.
        self.due: float | None = None
        # Ids are the server's own: never the same again, also after a restart.
        self._ids = itertools.count()
        self._id_prefix = secrets.token_hex(5)

    # ----------------------------------------------------------------------------------------------
    # Out

    def next_frames(self, conn: ConnId, now: float, room: int = BATCH_BYTES) -> list[bytes]:
        """The next frames to write to `conn`, none when nothing waits. They count as sent.

        As many as begin within `room` bytes, so at least one.
        """
        connection = self.connections.get(conn)
        if connection is None:
            return []
        connection.woken = False
        frames = connection.box.next_frames(conn, connection.partial, now, room)
        for frame in frames:
            connection.frames_out += 1
            connection.bytes_out += len(frame)
            self._sent[frame[FIRST] - frame[SECOND]] += 1
        return frames

    def due_by(self, at: float) -> None:
        """`tick` must be called at `at` at the latest."""
        if self.due is None or at < self.due:
            self.due = at

    def _earliest(self) -> float | None:
        deadlines = [at for at, _, _ in self._rejections.values()]
        if self._unauthenticated:
            deadlines.append(next(iter(self._unauthenticated.values())) + HELLO_TIMEOUT)
        if (card := self.cards.prompts.next_deadline()) is not None:
            deadlines.append(card)
        deadlines.extend(device.idle_at for device in self._pausing if device.idle_at is not None)
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """Do what time has made due."""
        for conn, (at, code, last) in list(self._rejections.items()):
            if at <= now:
                self._drop(conn, CLOSE_POLICY, code, last)
        for conn, opened in list(self._unauthenticated.items()):
            if opened + HELLO_TIMEOUT > now:
                break
            if conn in self._rejections:
                _, code, last = self._rejections[conn]
                self._drop(conn, CLOSE_POLICY, code, last)
            else:
                self.counters.hellos["timeout"] += 1
                self._close_with(conn, _no_hello())
        self.cards.run_out(now)
        for device in list(self._pausing):
            if device.idle_at is not None and device.idle_at <= now:
                self._quiet(device, now)
        self.due = self._earliest()

    # ----------------------------------------------------------------------------------------------
    # Connections

    def opened(self, conn: ConnId, peer: Peer, now: float) -> None:
        """A socket is open: the hello deadline runs."""
        self.counters.opened += 1
        self.connections[conn] = Connection(conn, peer, now, Outbox())
        self._unauthenticated[conn] = now
        self.due_by(now + HELLO_TIMEOUT)
        if len(self._unauthenticated) > MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))
            self.counters.hellos["crowded"] += 1
            self._drop(oldest, CLOSE_TRY_LATER, "too many connections without hello")

    def closed(self, conn: ConnId, now: float, *, frames_in: int = 0) -> None:
        """A socket has gone. Uploads are freed; answers wait for the device's return.

        `frames_in`: how many WebSocket frames came, for the log.
        """
        self._unauthenticated.pop(conn, None)
        self._rejections.pop(conn, None)
        connection = self.connections.pop(conn, None)
        if connection is None:
            return
        device = connection.device
        if device is not None and device.conn is connection:
            self._detach(device, now)
            self.forget(device)
        self._note_end(connection, frames_in, now)

    def ending(self, conn: ConnId, reason: str) -> None:
        """This side ends a connection: the first reason counts."""
        connection = self.connections.get(conn)
        if connection is not None:
            connection.ended = connection.ended or reason

    def _note_end(self, connection: Connection, frames_in: int, now: float) -> None:
        counters = self.counters
        reason = _END_REASONS.get(connection.ended, "other")
        counters.closed[reason] += 1
        counters.bytes_in += connection.bytes_in
        counters.bytes_out += connection.bytes_out
        counters.connections.add(now - connection.opened)
        log.info(
            "connection ended: connection=%d device=%s address=%s reason=%s seconds=%s "
            "frames_in=%d bytes_in=%d frames_out=%d bytes_out=%d",
            connection.id,
            shown(connection.sender or "-"),
            connection.peer.address,
            reason,
            seconds(now - connection.opened),
            frames_in,
            connection.bytes_in,
            connection.frames_out,
            connection.bytes_out,
        )

    def hello(self, conn: ConnId, hello: Hello, now: float) -> None:
        """Judge the first frame; `ready`, open cards and what waited are on their way.

        Raises `ProtocolError`, always fatal.
        """
        connection = self.connections[conn]
        try:
            grant = self._admit(hello)
        except ProtocolError as error:
            error.fatal = True
            if error.code != "bad_frame":
                log.info("hello refused: code=%s address=%s", error.code, connection.peer.address)
            raise
        said = hello.device
        name = grant.device or f"dev-{secrets.token_hex(8)}"
        connection.grant = grant
        connection.sender = name
        connection.extensions = tuple(e for e in EXTENSIONS if e in (hello.supports or ()))
        connection.accepted = "accepted" in connection.extensions
        connection.partial = "partial_edits" in connection.extensions
        self._unauthenticated.pop(conn, None)
        info = DeviceInfo(
            id=name,
            name=device_text(said.name) if said else "",
            platform=device_text(said.platform) if said else "",
            app_version=device_text(said.app_version) if said else "",
            user_id=device_text(hello.user.id) if hello.user else "",
            user_name=device_text(hello.user.name) if hello.user else "",
        )
        self.counters.hellos["chat" if grant.chat else "deliver"] += 1
        log.info(
            "hello: device=%s address=%s token=%s deliver_only=%s extensions=%s",
            shown(name),
            connection.peer.address,
            grant.fingerprint,
            not grant.chat,
            ",".join(connection.extensions) or "-",
        )
        if grant.chat:
            self._own(name, grant.token)
            living = self.devices[name].conn if name in self.devices else None
            if living is not None and living.id > conn and not living.refused:
                # A network gave up an earlier connection's words late: the device itself has moved
                # on to the newer one, and closing that with 4001 would keep the device away.
                self._drop(conn, CLOSE_REPLACED, "replaced")
                return
            self._attach(connection, info, now)
        else:
            connection.box.put(Ready(self._ready(connection, info, hello)))
            self.wake(connection)
            return
        device = connection.device
        assert device is not None
        self._greet(device, connection, self._ready(connection, info, hello), now)

    def _admit(self, hello: Hello) -> Grant:
        # The token is judged before the device id.
        self.tokens.admit(hello.token, None, check_device=False)
        asked = device_id(hello.device.id if hello.device else None)
        grant = self.tokens.admit(hello.token, asked)
        owner = self._owners.get(grant.device)
        if owner is not None and owner != grant.token and not grant.internal:
            raise ProtocolError("forbidden", "this device id belongs to another token", fatal=True)
        return grant

    def _own(self, name: str, token: bytes) -> None:
        self._owners[name] = token
        self._owners.move_to_end(name)
        if len(self._owners) > MAX_OWNERS:
            for oldest in self._owners:
                if oldest not in self.devices:
                    del self._owners[oldest]
                    break

    def _attach(self, connection: Connection, info: DeviceInfo, now: float) -> None:
        device = self.devices.get(info.id)
        if device is None:
            device = self.devices[info.id] = Device(info.id, info)
        old = device.conn
        if old is not None:
            old.device = None
            old.box = Outbox()
            self._detach(device, now)
            if not old.refused:  # else it closes already
                self._drop(old.id, CLOSE_REPLACED, "replaced")
        if info.id in self._unsure:
            del self._unsure[info.id]
            device.told = None
        device.info = info
        device.conn = connection
        connection.device = device
        connection.box = device.box

    def _detach(self, device: Device, now: float) -> None:
        if device.conn is not None:
            device.frames_out += device.conn.frames_out
            device.bytes_out += device.conn.bytes_out
        device.conn = None
        self.counters.uploads_abandoned += len(device.uploads.open)
        self.counters.uploads_dropped += device.uploads.dropped
        device.uploads.clear()
        forgot_state = device.box.connection_gone()
        if forgot_state or device.told != ("idle", False) or now - device.told_at < UNSURE_SECONDS:
            device.told = None
            self._unsure[device.id] = None
            if len(self._unsure) > MAX_UNSURE:
                self._unsure.popitem(last=False)

    def _ready(self, connection: Connection, info: DeviceInfo, hello: Hello) -> bytes:
        capabilities = (
            Capabilities(extensions=connection.extensions)
            if hello.supports is not None
            else Capabilities()
        )
        return encode(
            ReadyFrame(
                v=PROTOCOL_VERSION,
                session=f"mobile:{info.id}",
                device=ReadyDevice(info.id, info.name),
                avatar_url=self.settings.announced_avatar_url,
                capabilities=capabilities,
            )
        )

    def _greet(self, device: Device, connection: Connection, ready: bytes, now: float) -> None:
        """Everything a new connection has to know, before what waited for it."""
        self.cards.restate(device)
        for answer in reversed(device.answers.values()):
            # Open answers are stated again: their last revision may have gone down with the line.
            if answer.shown:
                device.box.restate(answer)
        device.box.put_first(Ready(ready))
        if device.state != ("idle", False):
            device.told = None  # whatever an earlier connection heard, this one has to
        self._tell_state(device, now)
        self.wake(connection)

    def reject(
        self, connection: Connection, error: ProtocolError, now: float | None = None
    ) -> None:
        """Refuse a connection: the error frame, then 1008 with the code as reason.

        With `now` it counts as a failed hello, and the answer may have to wait.
        """
        connection.refused = True
        self.counters.errors[error.code] += 1
        if now is not None:
            self.counters.hellos[error.code] += 1
        delay = 0.0 if now is None else self._failures.delay(connection.peer.address, now)
        if delay:
            assert now is not None
            self._rejections[connection.id] = (now + delay, error.code, error_frame(error))
            self.due_by(now + delay)
        else:
            self._close_with(connection.id, error)

    def fail(self, connection: Connection, error: ProtocolError) -> None:
        """Answer a frame at fault: an error frame, and the end of the connection if it is fatal."""
        if error.fatal:
            self.reject(connection, error)
        else:
            self.counters.errors[error.code] += 1
            self.post(connection, error_frame(error))

    def _close_with(self, conn: ConnId, error: ProtocolError) -> None:
        self._drop(conn, CLOSE_POLICY, error.code, error_frame(error))

    def _drop(self, conn: ConnId, code: int, reason: str, last: bytes | None = None) -> None:
        self._unauthenticated.pop(conn, None)
        self._rejections.pop(conn, None)
        connection = self.connections.get(conn)
        if connection is not None:
            connection.refused = True
            connection.ended = connection.ended or reason
            if last is not None:
                connection.frames_out += 1
                connection.bytes_out += len(last)
                self._sent[last[FIRST] - last[SECOND]] += 1
        self.effects.append(Close(conn, code, reason, last))

    def too_slow(self, conn: ConnId) -> None:
        """The shell could not write for too long, or a box is full: cut this one connection off."""
        connection = self.connections.get(conn)
        if connection is None or connection.refused:
            return
        self.counters.cut += 1
        log.warning(
            "connection cut off, it does not keep up: device=%s waiting_frames=%d waiting_bytes=%d",
            shown(connection.sender),
            connection.box.frames,
            connection.box.bytes,
        )
        self._drop(conn, CLOSE_TRY_LATER, "too slow")

    # ----------------------------------------------------------------------------------------------
    # To the device

    def post(self, connection: Connection, frame: bytes) -> None:
        """A frame for this connection alone."""
        if connection.refused:
            return
        connection.box.put(Ready(frame))
        if connection.box.full:
            self.too_slow(connection.id)
        self.wake(connection)

    def wake(self, connection: Connection | None) -> None:
        """The shell hears once that something waits for this connection."""
        if connection is not None and not connection.woken and connection.box.frames:
            connection.woken = True
            self.effects.append(Wake(connection.id))

    def device(self, chat: str) -> Device:
        """The device of an address, also one that was never here: its answers wait for it."""
        device = self.devices.get(chat)
        if device is None:
            device = self.devices[chat] = Device(chat, DeviceInfo(chat))
        return device

    def say(
        self,
        chat: str,
        text: str,
        *,
        edit_of: str | None = None,
        final: bool = True,
        now: float,
    ) -> str:
        """Show a text of the agent, or the whole new text of the answer `edit_of`; its id.

        `final=False`: more revisions follow; the end of the turn closes what is still open.
        Raises `OutboxFull` when the device takes nothing and no more is kept for it; never for an
        answer that is open.
        """
        device = self.devices.get(chat) or self.device(chat)
        answers = device.answers
        answer = answers.get(edit_of) if edit_of is not None else None
        live = answer is not None
        if answer is None:
            id = edit_of or f"m-{self._id_prefix}{next(self._ids)}"
            answer = answers[id] = Answer(id, "", final, answers, shown=edit_of is not None)
            device.said += 1
        answer.text = text if text.isascii() else well_formed(text)
        answer.final = final
        try:
            if device.conn is None:
                self._check_absent(device, len(text))
            device.box.revise(answer)
        except OutboxFull:
            self.cut_full(device)
            if not live:
                del answers[answer.id]
                self.forget(device)
                raise
            # A message that stands on the screen: its newest text comes with the next connection.
        self._spoke(device, now)
        return answer.id

    def withdraw(self, chat: str, message_id: str, now: float) -> None:
        """An open answer that will not be completed: final as it was last shown."""
        device = self.devices.get(chat)
        answer = device.answers.get(message_id) if device else None
        if answer is not None and not answer.final:
            with contextlib.suppress(OutboxFull):  # the device is cut off, which is logged
                self.say(chat, answer.text, edit_of=message_id, final=True, now=now)

    def show(self, chat: str, media: OutgoingMedia, now: float) -> str:
        """Show a file; its id. Raises `OutboxFull` as `say` does."""
        device = self.device(chat)
        id = f"f-{self._id_prefix}{next(self._ids)}"
        try:
            if device.conn is None:
                self._check_absent(device, len(media.data))
            device.box.keep(File(id, media))
        except OutboxFull:
            self.cut_full(device)
            raise
        device.files += 1
        self._spoke(device, now)
        return id

    def deliver(self, chat: str, text: str, media: OutgoingMedia | None, now: float) -> None:
        """A text, then a file: both or, by `OutboxFull`, none, so that a retry doubles nothing."""
        device = self.device(chat)
        if media is not None:
            words = Answer("", text, True)
            words.weigh()
            if not device.box.has_room(words, File("", media)):
                self.cut_full(device)
                raise OutboxFull
        if text:
            self.say(chat, text, now=now)
        if media is not None:
            self.show(chat, media, now)

    def _check_absent(self, device: Device, size: int) -> None:
        """Raises `OutboxFull` when what waits for absent devices would grow beyond the bound."""
        if device.box.bytes + size <= FREE_ABSENT_BYTES:
            return
        waiting = sum(d.box.bytes for d in self.devices.values() if d.conn is None)
        if waiting + size > MAX_ABSENT_BYTES:
            raise OutboxFull

    def cut_full(self, device: Device) -> None:
        """No more is kept for this device: its connection ends, or the log says so."""
        if device.conn is not None:
            self.too_slow(device.conn.id)
        else:
            self.counters.not_kept += 1
            log.warning("nothing more is kept for an absent device: device=%s", shown(device.id))
        self.forget(device)

    def _spoke(self, device: Device, now: float) -> None:
        if not device.in_turn:
            if device.idle_at is None:  # else the timer is set, and finds that it is too early
                self._pausing.add(device)
                self.due_by(now + TYPING_IDLE)
            device.idle_at = now + TYPING_IDLE
        if not device.speaking:
            if device.words_at is None:
                device.words_at = now
            device.speaking = True
            self._tell_state(device, now)
        self.wake(device.conn)

    def turn_started(self, chat: str, now: float) -> None:
        """The agent works on something of this device: thinking and typing."""
        device = self.device(chat)
        if device.in_turn:
            return
        device.in_turn = True
        device.turn_began, device.words_at = now, None
        conn = device.conn  # what it was written before is not of this turn
        device.frames_out = -conn.frames_out if conn is not None else 0
        device.bytes_out = -conn.bytes_out if conn is not None else 0
        device.speaking = False
        self._no_pause(device)
        self._tell_state(device, now)
        self.wake(device.conn)

    def turn_ended(self, chat: str, now: float) -> Device | None:
        """The turn is over: what is still open is final, typing stops, the avatar is idle.

        The device, for `note_turn`; None if there was no turn.
        """
        device = self.devices.get(chat)
        if device is None:
            return None
        for answer in list(device.answers.values()):
            if not answer.final:
                answer.final = True
                try:
                    device.box.revise(answer)
                except OutboxFull:
                    self.cut_full(device)
        was_in_turn, device.in_turn = device.in_turn, False
        self._quiet(device, now)
        if not was_in_turn:
            return None
        self.counters.turns.add(now - device.turn_began)
        if device.words_at is not None:
            self.counters.first_words.add(device.words_at - device.turn_began)
        return device

    def note_turn(self, device: Device, now: float) -> None:
        """Write the line of the turn that has just ended, once what can be written is written."""
        conn, words_at = device.conn, device.words_at
        if log.isEnabledFor(logging.INFO):
            log.info(
                "turn ended: device=%s connection=%s last_message=%s seconds=%s first_words=%s "
                "messages=%d answers=%d files=%d cards=%d frames_out=%d bytes_out=%d "
                "waiting_frames=%d waiting_bytes=%d",
                shown(device.id),
                conn.id if conn is not None else "-",
                shown(device.last_message or "-"),
                seconds(now - device.turn_began),
                seconds(words_at - device.turn_began if words_at is not None else None),
                device.messages,
                device.said,
                device.files,
                device.cards,
                device.frames_out + (conn.frames_out if conn is not None else 0),
                device.bytes_out + (conn.bytes_out if conn is not None else 0),
                device.box.frames,
                device.box.bytes,
            )
        device.messages = device.said = device.files = device.cards = 0

    def _quiet(self, device: Device, now: float) -> None:
        device.speaking = False
        self._no_pause(device)
        self._tell_state(device, now)
        self.wake(device.conn)
        self.forget(device)

    def _no_pause(self, device: Device) -> None:
        device.idle_at = None
        self._pausing.discard(device)

    def user_types(self, device: Device, now: float) -> None:
        """The person types: words outside of a turn are over, the avatar listens."""
        if not device.in_turn and device.speaking:
            self._quiet(device, now)

    def _tell_state(self, device: Device, now: float) -> None:
        """Send what changed of avatar and typing since the device was last told."""
        state = device.state
        if device.conn is None or state == device.told:
            return
        avatar, typing = state
        told_avatar, told_typing = device.told or (None, None)
        if typing != told_typing and not typing:
            device.box.put(StateItem("typing", _TYPING_STOP))
        if avatar != told_avatar:
            device.box.put(StateItem("avatar", _AVATAR[avatar]))
        if typing != told_typing and typing:
            device.box.put(StateItem("typing", _TYPING))
        device.told, device.told_at = state, now

    def forget(self, device: Device) -> None:
        """Let go of a device that is away and of which nothing waits."""
        if device.conn is not None:
            return
        if device.forgettable and device.idle_at is None and not self.cards.prompts.of(device.id):
            self.devices.pop(device.id, None)

    # ----------------------------------------------------------------------------------------------
    # To the agent

    def submit(self, connection: Connection, incoming: Incoming, now: float) -> None:
        """A whole message: to the agent once, or as the typed answer to a card."""
        device = connection.device
        assert device is not None
        key = f"{incoming.chat}:{incoming.id}"
        if self.dedup.reserve(key, now) is not Seen.NEW:
            self.repeat(device, incoming.id, now)
            return
        size = len(incoming.data)
        if device.under_way >= MAX_UNDER_WAY or device.under_way_bytes + size > MAX_UNDER_WAY_BYTES:
            self.dedup.release(key)
            raise ProtocolError(
                "internal_error",
                "the agent has not taken your earlier messages yet: send this one again later",
                frame_id=incoming.id,
            )
        device.under_way += 1
        device.under_way_bytes += size
        device.messages += 1
        device.last_message = incoming.id
        if incoming.kind == "text" and self.cards.prompts.open:
            if self.cards.typed(device, incoming):
                return
        self.effects.append(Submit(incoming))

    def seen(self, device: Device, id: str, now: float) -> bool:
        """Whether the agent has the message with this id, or is being handed it."""
        return self.dedup.look(f"{device.id}:{id}", now) is not Seen.NEW

    def repeat(self, device: Device, id: str, now: float) -> None:
        """A message came again: the agent's having taken it is told again."""
        self.counters.repeats += 1
        if device.conn is not None and self.dedup.look(f"{device.id}:{id}", now) is Seen.TAKEN:
            self._accept(device.conn, id)

    def taken(self, incoming: Incoming, now: float) -> None:
        """The agent has the message: its id is kept."""
        self.dedup.keep(f"{incoming.chat}:{incoming.id}", now)
        self.counters.taken[incoming.kind] += 1
        device = self._no_longer_under_way(incoming)
        if device is not None:
            if device.conn is None:
                self.forget(device)
            else:
                self._accept(device.conn, incoming.id)

    def refused(self, incoming: Incoming, now: float) -> None:
        """The hand-over failed: the id is free again and the device hears of it."""
        self.dedup.release(f"{incoming.chat}:{incoming.id}")
        self.counters.not_taken += 1
        device = self._no_longer_under_way(incoming)
        if device is not None:
            if device.conn is not None:
                self.fail(
                    device.conn,
                    ProtocolError(
                        "internal_error",
                        "the agent could not take this message: send it again",
                        frame_id=incoming.id,
                    ),
                )
            self.forget(device)

    def _no_longer_under_way(self, incoming: Incoming) -> Device | None:
        device = self.devices.get(incoming.chat)
        if device is not None:
            device.under_way -= 1
            device.under_way_bytes -= len(incoming.data)
        return device

    def _accept(self, connection: Connection, id: str) -> None:
        if connection.accepted:
            self.post(connection, encode(Accepted(id)))

    # ----------------------------------------------------------------------------------------------

    def online(self, chat: str) -> bool:
        """Whether the device is connected."""
        device = self.devices.get(chat)
        return device is not None and device.conn is not None and not device.conn.refused

    def known(self) -> Iterable[Device]:
        """All devices that are here or have something waiting."""
        return self.devices.values()


# Why a connection ended, as the close reasons of this door say; "": the client went.
_END_REASONS = {
    "": "client",
    "replaced": "replaced",
    "too slow": "too_slow",
    "too many connections without hello": "crowded",
    "the door closes": "door_closed",
    "no sign of life": "silent",
    "fragments out of order": "bad_frame",
    **{code: code for code in get_args(Code)},
}


def end_reasons() -> list[str]:
    """Every reason for which a connection can end, for metrics and logs."""
    return sorted({*_END_REASONS.values()})


def _no_hello() -> ProtocolError:
    return ProtocolError("bad_frame", f"no `hello` within {HELLO_TIMEOUT:.0f} seconds", fatal=True)


_TYPING = encode(TypingOut())
_TYPING_STOP = encode(TypingOut(stop=True))
_AVATAR = {
    "idle": encode(Avatar("idle")),
    "thinking": encode(Avatar("thinking")),
    "speaking": encode(Avatar("speaking")),
}
