"""The platform `mobile` of the Hermes gateway: translate, call, translate.

The only file that imports Hermes. It makes a Hermes message of what a device sends and hands it
over; it makes messages, files and cards of what Hermes calls; it lets every card answer the one
request it was made for. What each Hermes version offers is looked at, never its number.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import gateway.platforms.base as hermes_base
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult
from tools import approval as hermes_approval
from tools import clarify_gateway as hermes_clarify
from tools import slash_confirm as hermes_confirm

from . import how_to_install, missing_packages

MISSING_PACKAGES = missing_packages()
if TYPE_CHECKING or not MISSING_PACKAGES:
    from . import door_files, inbound_files, outbound_files, send_target
    from .card_desk import CardDesk
    from .effects import Incoming
    from .hermes_cards import Approvals, Clarifications, Confirmations
    from .logs import shown, trace
    from .outbound_files import FileNotSent, MediaKind
    from .outbox import OutboxFull, OutgoingMedia
    from .outgoing_text import DEFAULT_CURSOR, OutgoingText
    from .prompts import Card
    from .server import Answered, Door, DoorError
    from .settings import Settings, SettingsError
    from .unfinished import Unfinished

log = logging.getLogger("hermes_mobile")

PLATFORM = "mobile"
# How long a message may keep the door waiting for Hermes to take it; a command that Hermes carries
# out at once takes longer and goes on by itself.
HAND_OVER_SECONDS = 2.0
# Devices that came, and texts that grew, are noted this often.
NOTICE_SECONDS = 0.5

Result = TypeVar("Result")


@dataclass
class _House:
    """What outlives an adapter object: Hermes makes a new one for every reconnect.

    `devices`: every id seen, in that order.
    """

    settings: Settings
    secret: str
    door: Door
    text: OutgoingText
    unfinished: Unfinished
    desk: CardDesk
    devices: dict[str, None] = field(default_factory=dict)
    open: bool = False


_house: _House | None = None
_running: weakref.ref[MobileAdapter] | None = None


def running() -> MobileAdapter | None:
    """The adapter whose door is open in this process."""
    return None if _running is None else _running()


def _on_home_loop(
    method: Callable[..., Awaitable[Result]],
) -> Callable[..., Awaitable[Result]]:
    """Run on the door's loop, whatever loop Hermes calls from (cron may use one of its own)."""

    @functools.wraps(method)
    async def call(self: MobileAdapter, *args: Any, **kwargs: Any) -> Result:
        home = self._loop
        if home is None or home is asyncio.get_running_loop():
            return await method(self, *args, **kwargs)
        running_there = asyncio.run_coroutine_threadsafe(
            cast("Any", method(self, *args, **kwargs)), home
        )
        return cast("Result", await asyncio.wrap_future(running_there))

    return call


class MobileAdapter(BasePlatformAdapter):
    """One open door. Hermes makes a new object for every reconnect."""

    # The door cuts long texts itself; Hermes' own cutting would put "(1/2)" into them.
    MAX_MESSAGE_LENGTH = 1_000_000
    splits_long_messages = True
    supports_code_blocks = True
    supports_async_delivery = True

    def __init__(self, config: Any) -> None:
        super().__init__(config=config, platform=Platform(PLATFORM))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept: _House | None = None
        self._noticing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._parked: set[int] = set()  # events Hermes queued while it restores sessions

    @property
    def _house(self) -> _House | None:
        """The house while its door is open, opened by this adapter or by its successor."""
        return self._kept if self._kept is not None and self._kept.open else None

    # ----------------------------------------------------------------------------------------------
    # Life

    @property
    def authorization_is_upstream(self) -> bool:
        """The door let in nobody without a token: Hermes must not ask for a pairing code."""
        return True

    async def connect(self, *, is_reconnect: bool = False, **_: Any) -> bool:
        """Open the door. False with a fatal error that says what is missing."""
        global _running
        if MISSING_PACKAGES:
            return self._cannot_start("mobile_packages", how_to_install(MISSING_PACKAGES), False)
        self._loop = asyncio.get_running_loop()
        try:
            home = door_files.hermes_home()
            settings = Settings.from_sources(_environment(), self.config.extra or {})
            house = self._build(settings, door_files.secret(home))
        except (SettingsError, door_files.DoorFilesError) as error:
            return self._cannot_start("mobile_settings", str(error), False)
        for name in lacking(house):
            log.warning("self-check: this Hermes lacks %s", name)
        try:
            await house.door.start()
        except DoorError as error:
            return self._cannot_start("mobile_port", str(error), True)
        house.open = True
        _running = weakref.ref(self)
        for chat, texts in house.unfinished.take().items():
            for message_id, text in texts.items():  # a killed process left them half written
                house.door.say(chat, text, message_id=message_id)
            house.door.turn_ended(chat)
        try:
            door_files.write_door(home, settings.host, house.door.port)
        except door_files.DoorFilesError as error:
            log.warning("`hermes send` may not find the door: %s", error)
        self._noticing = self._loop.create_task(self._take_notes())
        self._mark_connected()
        return True

    def _build(self, settings: Settings, secret: str) -> _House:
        """The house of an earlier adapter of this process, or a new one."""
        global _house
        if _house is not None and (_house.settings, _house.secret) == (settings, secret):
            _house.door.agent = self
            _house.desk.answered = self.resume_typing_for_chat
            self._kept = _house
            return _house
        door = Door(settings, self, deliver_secret=secret)
        unfinished = Unfinished(door_files.folder(door_files.hermes_home()) / "unfinished.json")
        self._kept = _house = _House(
            settings,
            secret,
            door,
            OutgoingText(
                door,
                cursor=self._streaming_cursor,
                begun=unfinished.begun,
                finished=unfinished.finished,
            ),
            unfinished,
            CardDesk(
                door,
                Approvals(hermes_approval, _redaction()),
                Clarifications(hermes_clarify),
                Confirmations(hermes_confirm),
                self.resume_typing_for_chat,
            ),
        )
        return _house

    async def disconnect(self) -> None:
        """Close the door and free its port; what waits for devices is told first."""
        global _running
        if self._noticing is not None:
            self._noticing.cancel()
            self._noticing = None
        house = self._house
        if house is not None and running() is self:
            _running = None
            for chat in house.text.busy():
                house.text.turn_ended(chat)
                house.door.turn_ended(chat)
            house.open = False
            house.desk.close()
            door_files.remove_door(door_files.hermes_home())
            await house.door.stop()
        self._mark_disconnected()

    def _cannot_start(self, code: str, message: str, retryable: bool) -> bool:
        log.error("the mobile platform does not start: %s", message)
        self._set_fatal_error(code, message, retryable=retryable)
        return False

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """What Hermes may tell of a chat."""
        device = self._house.door.device(chat_id) if self._house is not None else None
        return {"name": (device.name if device else "") or chat_id, "type": "dm"}

    def known_devices(self) -> list[str]:
        """The ids of the devices seen since the start, for Hermes' channel directory."""
        return list(self._kept.devices) if self._kept is not None else []

    # ----------------------------------------------------------------------------------------------
    # From the devices (server.Agent)

    async def submit(self, incoming: Incoming) -> None:
        """Hand one message over. Raises when Hermes did not take it."""
        if self._message_handler is None:
            raise RuntimeError("the gateway has no message handler yet")
        event = await self._event(incoming)
        if self._house is not None:
            desk = self._house.desk
            desk.typed(incoming.chat, event.text)
            if event.media_urls and not event.get_command():
                asking = desk.asking(incoming.chat)
                if asking is not None:
                    self._queue(asking, event)
                    return
                if event.text and desk.confirming(incoming.chat):
                    # One word, like "once" or "no", would be Hermes' answer to the confirmation.
                    event.text = f"[With the file] {event.text}"
        task = self._task(self.handle_message(event))
        # Commands that Hermes carries out in here take their time; the rest returns at once.
        await asyncio.wait({task}, timeout=HAND_OVER_SECONDS)
        self.look_at_cards()
        if task.done():
            task.result()

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        """Tell Hermes the answer to a card: the request it was made for, or none."""
        if self._kept is None:
            return Answered(False)
        return await self._kept.desk.answer(card, option_id, text)

    async def expired(self, card: Card) -> None:
        """The card's time is over: deny, no answer or cancel."""
        if self._kept is not None:
            await self._kept.desk.expired(card)

    async def _take_notes(self) -> None:
        """Keep what others need: the devices that were here, the messages that are unfinished."""
        while self._house is not None:
            house = self._house
            for device in list(house.door.hub.devices.values()):
                if device.conn is not None and device.id not in house.devices:
                    house.devices[device.id] = None
                    await asyncio.to_thread(_list_device, device.id)
            await asyncio.to_thread(house.unfinished.grown, house.text.unfinished())
            await asyncio.sleep(NOTICE_SECONDS)

    async def _event(self, incoming: Incoming) -> MessageEvent:
        device = incoming.device
        source = self.build_source(
            chat_id=incoming.chat,
            # Hermes lists chats by this name, and `hermes send --to mobile:…` takes ids.
            chat_name=incoming.chat,
            chat_type="dm",
            user_id=device.user_id or incoming.chat,
            user_name=device.user_name or device.name or incoming.chat,
            message_id=incoming.id,
        )
        if incoming.kind == "text":
            return MessageEvent(
                text=incoming.text,
                message_type=MessageType.TEXT,
                source=source,
                message_id=incoming.id,
            )
        attachment = await asyncio.to_thread(
            inbound_files.receive,
            incoming.kind,
            bytes(incoming.data),
            incoming.mime,
            incoming.filename,
            incoming.format,
            incoming.text,
            inbound_files.cache_of(hermes_base),
        )
        return MessageEvent(
            text=attachment.text,
            message_type=MessageType(attachment.kind),
            source=source,
            message_id=incoming.id,
            media_urls=[attachment.path],
            media_types=[attachment.mime],
        )

    def _queue(self, session: str, event: MessageEvent) -> None:
        """Put a file behind the turn that asks something, as Hermes does with what it queues.

        Hermes would take its caption, transcript or content for the answer, and drop the file.
        """
        enqueue = getattr(self.gateway_runner, "_enqueue_fifo", None)
        if callable(enqueue):
            enqueue(session, event, self)
        else:  # a single place, where files are put together
            hermes_base.merge_pending_message_event(self._pending_messages, session, event)

    def _task(self, work: Awaitable[Result]) -> asyncio.Task[Result]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a message could not be carried out: error=%s", trace(task.exception()))

    # ----------------------------------------------------------------------------------------------
    # Turns

    async def on_processing_start(self, event: Any) -> None:
        """Hermes works on a message of a device."""
        chat, house = event.source.chat_id, self._house
        if house is None:
            return
        if self._is_parked(event):
            # Hermes took it and will start again in a moment: to the person it is one turn.
            self._parked.add(id(event))
        house.text.turn_started(chat)
        house.door.turn_started(chat)

    async def on_processing_complete(self, event: Any, outcome: Any) -> None:
        """The turn is over, whatever came of it."""
        chat, house = event.source.chat_id, self._house
        if id(event) in self._parked:
            self._parked.discard(id(event))
            return
        if house is None:
            return
        if not house.text.spoke(chat) and self._next_is_waiting(chat):
            return  # nothing came of it and the next one starts at once: no flicker
        house.text.turn_ended(chat)
        house.door.turn_ended(chat)
        self._look()

    async def interrupt_session_activity(
        self, session_key: str, chat_id: str, metadata: Any = None, **_: Any
    ) -> None:
        """`/stop`: what is half written stays as it is, and what is asked is over."""
        if self._house is not None:
            self._house.text.interrupted(chat_id)
            self._house.desk.stopped(session_key)
        await super().interrupt_session_activity(session_key, chat_id)

    async def send_typing(self, chat_id: str, metadata: Any = None, **_: Any) -> None:
        """Nothing: typing follows the turn. Hermes' own refresh may outlive it."""

    async def stop_typing(self, chat_id: str, metadata: Any = None, **_: Any) -> None:
        """Nothing, see `send_typing`."""

    def _next_is_waiting(self, chat: str) -> bool:
        waiting = getattr(self, "_pending_messages", {}).values()
        return any(getattr(event.source, "chat_id", None) == chat for event in waiting)

    def _is_parked(self, event: Any) -> bool:
        runner = self.gateway_runner
        return (
            bool(getattr(runner, "_startup_restore_in_progress", False))
            and not getattr(event, "internal", False)
            and not getattr(event, "_hermes_startup_restore_replay", False)
        )

    # ----------------------------------------------------------------------------------------------
    # Text

    def supports_draft_streaming(
        self, chat_type: Any = None, metadata: Any = None, **_: Any
    ) -> bool:
        """Drafts are what an app with live messages wants: one id from first word to last."""
        return True

    async def send_draft(
        self, chat_id: str, draft_id: int, content: str, metadata: Any = None, **_: Any
    ) -> SendResult:
        """The whole text so far of an answer that grows."""
        if self._house is None:
            return _closed()
        try:
            message_id = self._house.text.draft(chat_id, draft_id, content, asyncio.current_task())
        except OutboxFull as error:
            return SendResult(success=False, error=str(error))
        return SendResult(success=True, message_id=message_id)

    @_on_home_loop
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """A message for a device; one that is away gets it when it is back."""
        if self._house is None:
            return _closed()
        self._look()
        try:
            message_id = self._house.text.send(
                chat_id, content, reply_to, metadata, asyncio.current_task()
            )
        except OutboxFull as error:
            return SendResult(success=False, error=str(error))
        # A blank message is shown nowhere, but Hermes must not send it again.
        return SendResult(success=True, message_id=message_id or f"blank-{id(content):x}")

    @_on_home_loop
    async def edit_message(
        self,
        chat_id: str,
        message_id: str,
        content: str,
        *,
        finalize: bool = False,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """A newer text of a message. Hermes also "edits" a card whose time is over."""
        house = self._house
        if house is None:
            return _closed()
        if not house.desk.withdrawn(message_id) and not message_id.startswith("p-"):
            try:
                house.text.edit(chat_id, message_id, content, final=finalize)
            except OutboxFull as error:
                return SendResult(success=False, error=str(error))
        return SendResult(success=True, message_id=message_id)

    def _streaming_cursor(self) -> str:
        config = getattr(self.gateway_runner, "config", None)
        cursor = getattr(getattr(config, "streaming", None), "cursor", None)
        return cursor if isinstance(cursor, str) else DEFAULT_CURSOR

    # ----------------------------------------------------------------------------------------------
    # Files

    @_on_home_loop
    async def send_image_file(
        self,
        chat_id: str,
        image_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """An image of this machine."""
        animated = str(image_path).lower().endswith(".gif")
        kind: MediaKind = "animation" if animated else "image"
        return await self._show_file(chat_id, kind, image_path, caption, reply_to)

    @_on_home_loop
    async def send_voice(
        self,
        chat_id: str,
        audio_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """An audio file of this machine."""
        return await self._show_file(chat_id, "voice", audio_path, caption, reply_to)

    @_on_home_loop
    async def send_video(
        self,
        chat_id: str,
        video_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """A video of this machine."""
        return await self._show_file(chat_id, "video", video_path, caption, reply_to)

    @_on_home_loop
    async def send_document(
        self,
        chat_id: str,
        file_path: str,
        caption: str | None = None,
        file_name: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """Any file of this machine."""
        return await self._show_file(chat_id, "document", file_path, caption, reply_to, file_name)

    @_on_home_loop
    async def send_image(
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """An image the app fetches itself."""
        return await self._show_address(chat_id, "image", image_url, caption, reply_to)

    @_on_home_loop
    async def send_animation(
        self,
        chat_id: str,
        animation_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """An animation the app fetches itself."""
        return await self._show_address(chat_id, "animation", animation_url, caption, reply_to)

    async def deliver(
        self, device: str, text: str, media_files: Sequence[Any], as_document: bool
    ) -> dict[str, Any]:
        """A text and files of Hermes' send tool in this very process."""
        result = None
        if text.strip():
            result = await self.send(device, text, metadata={"notify": True})
        for item in media_files:
            path, voice = (item[0], item[1]) if isinstance(item, tuple | list) else (item, False)
            kind = outbound_files.kind_of(str(path), voice=bool(voice), as_document=as_document)
            result = await self._show_file_anywhere(device, kind, str(path))
            if not result.success:
                break
        if result is None:
            return {"error": "there is neither text nor a file to send"}
        if not result.success:
            return {"error": result.error}
        return {"success": True, "message_id": result.message_id, "media_delivered": True}

    @_on_home_loop
    async def _show_file_anywhere(self, chat: str, kind: MediaKind, path: str) -> SendResult:
        return await self._show_file(chat, kind, path, None, None)

    async def _show_file(
        self,
        chat: str,
        kind: MediaKind,
        path: str,
        caption: str | None,
        reply_to: str | None,
        name: str | None = None,
    ) -> SendResult:
        try:
            data, mime, own_name = await outbound_files.read(str(path), kind)
        except FileNotSent as error:
            log.warning(
                "a file was not sent: device=%s kind=%s why=%s", shown(chat), kind, error.why
            )
            notice = f"{caption}\n\n{error.notice}" if caption else error.notice
            return await self.send(chat, notice, reply_to, {"notify": True})
        media = OutgoingMedia(
            kind, mime, name or own_name, data, None, caption or None, reply_to or None
        )
        return self._show(chat, media)

    async def _show_address(
        self, chat: str, kind: MediaKind, url: str, caption: str | None, reply_to: str | None
    ) -> SendResult:
        if not url.lower().startswith(("https://", "http://")):
            # The app could not fetch it: a path of this machine, or nothing that is a file.
            path = outbound_files.local_path(url)
            if path is None:
                return await self.send(chat, f"{caption}\n{url}" if caption else url, reply_to)
            return await self._show_file(chat, kind, path, caption, reply_to)
        mime, name = outbound_files.of_url(url, kind)
        return self._show(
            chat, OutgoingMedia(kind, mime, name, b"", url, caption or None, reply_to or None)
        )

    def _show(self, chat: str, media: OutgoingMedia) -> SendResult:
        if self._house is None:
            return _closed()
        try:
            self._house.text.shown(chat)
            return SendResult(success=True, message_id=self._house.door.show(chat, media))
        except OutboxFull as error:
            return SendResult(success=False, error=str(error))

    # ----------------------------------------------------------------------------------------------
    # Cards

    @classmethod
    def supports_exec_approval_buttons(cls) -> bool:
        """Newer Hermes versions ask before they offer a card."""
        return True

    @_on_home_loop
    async def send_exec_approval(
        self,
        chat_id: str,
        command: str,
        session_key: str,
        description: str | None = None,
        metadata: Any = None,
        allow_permanent: bool = True,
        allow_session: bool = True,
        smart_denied: bool = False,
        **_: Any,
    ) -> SendResult:
        """May this command run? The card answers exactly this request."""
        return self._ask(
            chat_id,
            lambda desk: desk.approval(
                chat_id,
                session_key,
                command,
                description or "",
                allow_permanent=allow_permanent,
                allow_session=allow_session,
                smart_denied=smart_denied,
            ),
        )

    @_on_home_loop
    async def send_clarify(
        self,
        chat_id: str,
        question: str,
        choices: Sequence[Any] | None,
        clarify_id: str,
        session_key: str,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """A question of the agent."""
        labels = [str(choice) for choice in choices or ()]
        return self._ask(
            chat_id, lambda desk: desk.question(chat_id, session_key, question, labels, clarify_id)
        )

    async def retire_clarify_card(self, clarify_id: str, notice: str = "", **_: Any) -> None:
        """A question that ended without an answer (newer Hermes versions)."""
        self.look_at_cards()

    @_on_home_loop
    async def send_slash_confirm(
        self,
        chat_id: str,
        title: str,
        message: str,
        session_key: str,
        confirm_id: str,
        metadata: Any = None,
        **_: Any,
    ) -> SendResult:
        """Shall this slash command be carried out?"""
        return self._ask(
            chat_id,
            lambda desk: desk.confirmation(chat_id, session_key, title, message, confirm_id),
        )

    def _ask(self, chat: str, ask: Callable[[CardDesk], str | None]) -> SendResult:
        """Show a card. Where that fails Hermes asks by text."""
        house = self._house
        if house is None:
            return _closed()
        house.text.shown(chat)
        try:
            card_id = ask(house.desk)
        except OutboxFull as error:
            return SendResult(success=False, error=str(error))
        if card_id is None:
            return SendResult(success=False, error="this request cannot be told from others")
        return SendResult(success=True, message_id=card_id)

    def look_at_cards(self) -> None:
        """Close the cards whose requests ended elsewhere. Safe from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._house is not None:
            self._house.desk.look()


def lacking_without_door() -> list[str]:
    """The start-up self-check, for a process in which no door is open."""
    sources = (
        Approvals(hermes_approval, _redaction()),
        Clarifications(hermes_clarify),
        Confirmations(hermes_confirm),
    )
    return _lacking([source.missing for source in sources if source.missing is not None])


def lacking(house: _House) -> list[str]:
    """What this Hermes lacks of what the adapter stands on, for the start-up self-check."""
    return _lacking(house.desk.missing)


def _lacking(found: list[str]) -> list[str]:
    found += [
        f"BasePlatformAdapter.{name}" for name in _HOOKS if not hasattr(BasePlatformAdapter, name)
    ]
    found += [
        f"gateway.platforms.base.cache_{kind}_from_bytes"
        for kind in ("image", "audio", "video", "document")
        if not hasattr(hermes_base, f"cache_{kind}_from_bytes")
    ]
    return found


_HOOKS = (
    "on_processing_start",
    "on_processing_complete",
    "interrupt_session_activity",
    "supports_draft_streaming",
    "send_draft",
    "send_clarify",
    "send_slash_confirm",
    "authorization_is_upstream",
    "resume_typing_for_chat",
)


def _closed() -> SendResult:
    return SendResult(success=False, error="the mobile door is closed", retryable=True)


def _environment() -> dict[str, str]:
    from . import home_device

    environ = dict(os.environ)
    home = home_device()
    if home:
        environ["MOBILE_HOME_DEVICE"] = home
    return environ


def _redaction() -> Callable[[str], str] | None:
    """Hermes' function that masks credentials in the command it shows."""
    try:
        from gateway.run import _redact_approval_command
    except ImportError:
        return None
    return cast("Callable[[str], str]", _redact_approval_command)


def _list_device(device: str) -> None:
    """Put a device into Hermes' channel directory, where an older `hermes send` looks ids up."""
    import gateway.channel_directory as directory

    path = getattr(directory, "DIRECTORY_PATH", None)
    try:
        send_target.list_device(path or door_files.hermes_home() / "channel_directory.json", device)
    except (OSError, ValueError) as error:
        log.warning("Hermes' channel directory was not updated: %s", error)
