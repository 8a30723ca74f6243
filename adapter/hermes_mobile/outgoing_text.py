"""From Hermes' drafts, sends and edits to messages with one id each.

Hermes shows one answer in several calls: draft frames that grow, then one plain send of the final
text; or a send and edits of it; around them tool bubbles, notices, and the same failure text twice.
An app must see one message per answer, completed once. This file decides which call belongs to
which message. It knows the door's four verbs and an event loop's clock, not Hermes itself.

Who completes a draft is told by the task that calls: Hermes' stream consumer is one task for the
whole answer, and tool bubbles and notices come from others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# A revision repeats the text so far, and Hermes makes one for nearly every token. A reader sees no
# difference between this rate and every token; radio and battery do.
REVISION_INTERVAL = 0.1
# The longer the text, the dearer a revision: this much more for every chunk of it.
REVISION_INTERVAL_PER_CHARACTER = 0.05 / 3500
REVISION_INTERVAL_LIMIT = 1.0

# What Hermes puts behind a text that still grows (its `streaming.cursor`, by default).
DEFAULT_CURSOR = " ▉"

# Drafts of a chat that are over; late frames of theirs are dropped.
REMEMBERED_DRAFTS = 64


class Shower(Protocol):
    """The part of the door this file uses."""

    def say(
        self,
        chat: str,
        text: str,
        *,
        message_id: str | None = None,
        final: bool = True,
        begun: Callable[[str], None] | None = None,
    ) -> str: ...

    def withdraw(self, chat: str, message_id: str) -> None: ...


@dataclass
class _Message:
    """A message that may still change."""

    id: str
    text: str
    shown_at: float
    owner: object = None
    draft_id: int | None = None
    waiting: str | None = None  # a newer text whose turn has not come
    timer: asyncio.TimerHandle | None = None


@dataclass
class _Chat:
    """What is on its way to one device."""

    open: dict[str, _Message] = field(default_factory=dict)
    over: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED_DRAFTS))
    in_turn: bool = False
    spoke: bool = False  # this turn has shown something
    # Id and text of the newest message of this turn, and whether it is an answer, not a notice.
    latest: tuple[str, str, bool] | None = None


class OutgoingText:
    """All text on its way to the devices. Every method runs on the loop of the door."""

    def __init__(
        self,
        door: Shower,
        *,
        cursor: Callable[[], str] = lambda: DEFAULT_CURSOR,
        begun: Callable[[str, str, str], None] = lambda chat, message_id, text: None,
        finished: Callable[[str], None] = lambda message_id: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._door = door
        self._cursor = cursor
        # Called before the first frame of a message that may change leaves, and before its last.
        self._begun = begun
        self._finished = finished
        self._loop = loop or asyncio.get_running_loop()
        self._chats: dict[str, _Chat] = {}

    def turn_started(self, chat: str) -> None:
        """Hermes began to work on a message of this chat."""
        state = self._chat(chat)
        state.in_turn, state.spoke = True, False

    def shown(self, chat: str) -> None:
        """A file or a card was shown."""
        self._chat(chat).spoke = True

    def spoke(self, chat: str) -> bool:
        """Whether this turn has shown anything."""
        return self._chat(chat).spoke

    def turn_ended(self, chat: str) -> None:
        """Nothing more will come: what is open shows its newest text.

        The door itself makes the open messages final when it is told of the end of the turn.
        """
        state = self._chats.get(chat)
        if state is None:
            return
        for message in list(state.open.values()):
            self._flush(chat, message)
            self._close(state, message)
        state.in_turn = False
        state.latest = None

    def interrupted(self, chat: str) -> None:
        """The person stopped the turn: what is half written stays as it is."""
        state = self._chats.get(chat)
        if state is not None:
            self._give_up(chat, state, [m for m in state.open.values() if m.draft_id is not None])

    def busy(self) -> list[str]:
        """The chats with a turn or with a message that may still change."""
        return [chat for chat, state in self._chats.items() if state.in_turn or state.open]

    def unfinished(self) -> dict[str, dict[str, str]]:
        """The messages that may still change: chat -> id -> newest text."""
        return {
            chat: {m.id: m.text if m.waiting is None else m.waiting for m in state.open.values()}
            for chat, state in self._chats.items()
            if state.open
        }

    def draft(self, chat: str, draft_id: int, content: str, owner: object) -> str | None:
        """A growing answer. Returns the message's id, None when there is nothing to show."""
        state = self._chat(chat)
        text = self._growing(content)
        if not text or draft_id in state.over:
            return None
        state.spoke = True
        message = next((m for m in state.open.values() if m.draft_id == draft_id), None)
        if message is not None:
            self._revise(chat, message, text)
            return message.id
        # One answer at a time: an older draft that was never completed was interrupted.
        self._give_up(chat, state, [m for m in state.open.values() if m.draft_id is not None])
        message = self._show(chat, state, text)
        message.owner, message.draft_id = owner, draft_id
        return message.id

    def send(
        self,
        chat: str,
        content: str,
        reply_to: str | None,
        metadata: Mapping[str, Any] | None,
        owner: object,
    ) -> str | None:
        """A message, or the completion of a draft. Returns its id, None for a blank one."""
        about = metadata or {}
        streamed = bool(about.get("expect_edits"))
        final_answer = bool(about.get("notify"))
        state = self._chat(chat)
        text = content.lstrip("\r\n") if final_answer else self._growing(content)
        if not text.strip():
            return None
        state.spoke = True
        draft = self._draft_completed_by(state, text, owner, streamed, final_answer)
        if draft is not None:
            self._complete(chat, state, draft, text)
            return draft.id
        if streamed:
            self._give_up(chat, state, [m for m in state.open.values() if m.draft_id is not None])
        elif final_answer and state.latest is not None and state.latest[1:] == (text, False):
            # Hermes reports a failure as a notice and again as the answer. Two answers with the
            # same words are two: a message may be answered in the turn of another.
            message_id = state.latest[0]
            repeated = state.open.get(message_id)
            if repeated is not None:
                self._complete(chat, state, repeated, text)
            return message_id
        if self._is_complete(state, reply_to, streamed, final_answer):
            message_id = self._door.say(chat, text, final=True)
            if state.in_turn:
                state.latest = (message_id, text, final_answer)
            return message_id
        return self._show(chat, state, text).id

    def edit(self, chat: str, message_id: str, content: str, *, final: bool) -> None:
        """A newer text of a message that was sent before."""
        state = self._chats.get(chat)
        message = None if state is None else state.open.get(message_id)
        text = content.lstrip("\r\n") if final else self._growing(content)
        if not text.strip():
            return
        if message is None or state is None:
            # Outside a turn nothing would complete it later.
            self._door.say(chat, text, message_id=message_id, final=True)
        elif final and message.draft_id is not None:
            self._complete(chat, state, message, text)
        else:
            # Hermes says "final" of tool bubbles it edits again; the end of the turn is the end.
            self._revise(chat, message, text)

    def _chat(self, chat: str) -> _Chat:
        return self._chats.setdefault(chat, _Chat())

    def _growing(self, content: str) -> str:
        text = content.lstrip("\r\n")
        for cursor in {self._cursor(), DEFAULT_CURSOR}:
            if cursor:
                text = text.removesuffix(cursor)
        return text if text.strip() else ""

    @staticmethod
    def _draft_completed_by(
        state: _Chat, text: str, owner: object, streamed: bool, final_answer: bool
    ) -> _Message | None:
        drafts = [m for m in state.open.values() if m.draft_id is not None]
        if streamed or final_answer:
            same = next((m for m in drafts if owner is not None and m.owner is owner), None)
            if same is not None:
                return same
            # The consumer failed at the last step and the turn itself sends the whole answer.
            return next(
                (m for m in drafts if text.startswith((m.waiting or m.text).rstrip())), None
            )
        return None

    @staticmethod
    def _is_complete(
        state: _Chat, reply_to: str | None, streamed: bool, final_answer: bool
    ) -> bool:
        """Whether no edit of this message can follow."""
        if final_answer or not state.in_turn:
            return True
        # Tool bubbles and streamed answers grow; a reply that is not streamed is a notice.
        return reply_to is not None and not streamed

    def _show(self, chat: str, state: _Chat, text: str) -> _Message:
        def begun(message_id: str) -> None:
            self._begun(chat, message_id, text)

        message_id = self._door.say(chat, text, final=False, begun=begun)
        message = _Message(message_id, text, self._loop.time())
        state.open[message_id] = message
        state.latest = (message_id, text, False)
        return message

    def _complete(self, chat: str, state: _Chat, message: _Message, text: str) -> None:
        self._close(state, message)
        self._door.say(chat, text, message_id=message.id, final=True)
        state.latest = (message.id, text, True)

    def _give_up(self, chat: str, state: _Chat, messages: list[_Message]) -> None:
        for message in messages:
            self._flush(chat, message)
            self._close(state, message)
            self._door.withdraw(chat, message.id)

    def _close(self, state: _Chat, message: _Message) -> None:
        if message.timer is not None:
            message.timer.cancel()
            message.timer = None
        message.waiting = None
        self._finished(message.id)
        state.open.pop(message.id, None)
        if message.draft_id is not None:
            state.over.append(message.draft_id)

    def _revise(self, chat: str, message: _Message, text: str) -> None:
        if text == (message.text if message.waiting is None else message.waiting):
            return
        state = self._chat(chat)
        if state.latest is not None and state.latest[0] == message.id:
            state.latest = (message.id, text, state.latest[2])
        message.waiting = text
        pause = min(
            REVISION_INTERVAL + len(text) * REVISION_INTERVAL_PER_CHARACTER,
            REVISION_INTERVAL_LIMIT,
        )
        wait = message.shown_at + pause - self._loop.time()
        if wait <= 0:
            self._flush(chat, message)
        elif message.timer is None:
            message.timer = self._loop.call_later(wait, self._flush, chat, message)

    def _flush(self, chat: str, message: _Message) -> None:
        if message.timer is not None:
            message.timer.cancel()
            message.timer = None
        if message.waiting is None:
            return
        message.text, message.waiting = message.waiting, None
        message.shown_at = self._loop.time()
        self._door.say(chat, message.text, message_id=message.id, final=False)
