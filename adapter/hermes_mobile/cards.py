"""The life of a card in the core: asked, shown, answered, settled, or run out of time.

`prompts` knows which cards are open and what an answer means; here is decided what a device sees of
a card and what the agent is told. As in the hub, nothing waits and `now` is an argument.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .counters import Counters
from .devices import Connection, Device
from .effects import Effect, Expired, Incoming, Submit, Tell
from .outbox import Again, Deferred, Kept, OutboxFull
from .prompts import OTHER, Card, OpenCard, Prompts, State, judge
from .protocol import PromptDone, ProtocolError, encode

# Options that are counted by their own id.
OUTCOMES = ("once", "session", "always", "deny", "cancel", OTHER)


class Host(Protocol):
    """What cards need of the hub: its devices, and a way to them and to the agent."""

    effects: deque[Effect]
    counters: Counters

    def device(self, chat: str) -> Device:
        """The device of an address."""

    def post(self, connection: Connection, frame: bytes) -> None:
        """A frame for this connection alone."""

    def fail(self, connection: Connection, error: ProtocolError) -> None:
        """An error frame for this connection."""

    def say(self, chat: str, text: str, *, now: float) -> str:
        """A text for a device."""

    def taken(self, incoming: Incoming, now: float) -> None:
        """The agent has a typed answer."""

    def refused(self, incoming: Incoming, now: float) -> None:
        """The agent could not be told a typed answer."""

    def wake(self, connection: Connection | None) -> None:
        """Something may wait for this connection."""

    def due_by(self, at: float) -> None:
        """Time must be looked at by then."""

    def cut_full(self, device: Device) -> None:
        """No more is kept for this device."""

    def forget(self, device: Device) -> None:
        """Perhaps nothing holds this device any more."""


class Cards:
    """The cards of all devices of a hub."""

    def __init__(self, hub: Host, ttl: float) -> None:
        self.prompts = Prompts(ttl)
        self._hub = hub
        self._texts: dict[str, Incoming] = {}  # typed answers on their way, by card id
        self._unseen: dict[str, Deferred] = {}  # cards that wait to be shown, by card id

    def ask(self, chat: str, card: Card, now: float) -> str:
        """Show a card now or when the device is back; its id. The clock runs in any case.

        Raises `OutboxFull` as `say` does.
        """
        device = self._hub.device(chat)
        opened = self.prompts.add(chat, card, now)
        item = Deferred(self._rendering(opened))
        try:
            device.box.keep(item)
        except OutboxFull:
            del self.prompts.open[opened.id]
            self._hub.cut_full(device)
            raise
        self._unseen[opened.id] = item
        self._hub.counters.cards[card.kind] += 1
        device.cards += 1
        self._hub.due_by(opened.deadline)
        self._hub.wake(device.conn)
        return opened.id

    def _rendering(self, opened: OpenCard) -> Callable[[float], bytes | None]:
        def render(now: float) -> bytes | None:
            self._unseen.pop(opened.id, None)
            if opened.id not in self.prompts.open:
                return None
            opened.shown = True
            return encode(opened.frame(now))

        return render

    def restate(self, device: Device) -> None:
        """Put the cards that were shown before everything that waits: a new connection sees them.

        One whose answer will be typed is not shown again.
        """
        for opened in reversed(self.prompts.of(device.id)):
            if opened.shown and not opened.other_told:
                device.box.put_first(Again(self._rendering(opened)))

    def answer(
        self, connection: Connection, card_id: str, option_id: str, text: str, now: float
    ) -> None:
        """A client answers a card. Raises `forbidden` for a card of another device."""
        device = connection.device
        assert device is not None
        opened = self.prompts.open.get(card_id)
        if opened is None:
            outcome = self.prompts.outcome(card_id)
            if outcome is None:
                self._hub.post(connection, encode(PromptDone(card_id, expired=True)))
            elif outcome.chat != device.id:
                raise _not_your_card(card_id)
            else:
                self._hub.post(connection, encode(outcome.frame(card_id)))
            return
        if opened.chat != device.id:
            raise _not_your_card(card_id)
        if opened.state is State.ANSWERING:
            return  # its outcome is on the way
        applied, typed = judge(opened.card, option_id, text)
        if opened.state is State.AWAITING_TEXT and typed is None:
            self._hub.post(connection, encode(PromptDone(card_id, OTHER)))
            return
        self._tell(opened, applied, typed)

    def typed(self, device: Device, incoming: Incoming) -> bool:
        """Whether this text is the answer to a card; then the agent is told it, now or soon."""
        awaiting = self._awaiting_text(device)
        if awaiting is None:
            return False
        self._texts[awaiting.id] = incoming
        if awaiting.state is State.AWAITING_TEXT:
            self._tell(awaiting, OTHER, incoming.text)
        return True

    def _awaiting_text(self, device: Device) -> OpenCard | None:
        """The card whose answer the person types next, also while the agent hears of `other`."""
        for opened in self.prompts.of(device.id):
            telling_other = opened.state is State.ANSWERING and opened.answer == (OTHER, None)
            if opened.card.kind == "clarify" and opened.id not in self._texts:
                if telling_other or opened.state is State.AWAITING_TEXT:
                    return opened
        return None

    def _tell(self, opened: OpenCard, option_id: str, text: str | None) -> None:
        opened.state = State.ANSWERING
        opened.answer = (option_id, text)
        self._hub.effects.append(Tell(opened.id, opened.card, option_id, text))

    def answered(self, card_id: str, taken: bool, then: str | None, now: float) -> None:
        """The agent took the answer, or no longer waits for it. `then`: a text to show after."""
        opened = self.prompts.open.get(card_id)
        if opened is None:
            return
        device = self._hub.device(opened.chat)
        option_id, text = opened.answer
        incoming = self._texts.pop(card_id, None)
        if taken and opened.card.kind == "clarify" and option_id == OTHER and text is None:
            opened.state = State.AWAITING_TEXT
            opened.other_told = True
            self._hub.due_by(opened.deadline)
            device.box.put(Kept(encode(PromptDone(card_id, OTHER))))
            if incoming is not None:  # it was typed while the agent heard of `other`
                self._texts[card_id] = incoming
                self._tell(opened, OTHER, incoming.text)
        else:
            self._settle(device, card_id, option_id if taken else None, expired=not taken)
            if incoming is not None and taken:
                self._hub.taken(incoming, now)
            elif incoming is not None:  # nobody waits for it as an answer: an ordinary message
                self._hub.effects.append(Submit(incoming))
        if taken and then:
            with contextlib.suppress(OutboxFull):  # the device is cut off, which is logged
                self._hub.say(opened.chat, then, now=now)
        self._hub.wake(device.conn)

    def answer_failed(self, card_id: str, now: float) -> None:
        """The agent could not be told: the card stays open."""
        opened = self.prompts.open.get(card_id)
        if opened is None:
            return
        incoming = self._texts.pop(card_id, None)
        told_text = opened.answer[1] is not None
        opened.state = State.AWAITING_TEXT if opened.other_told else State.OPEN
        self._hub.due_by(opened.deadline)
        device = self._hub.device(opened.chat)
        if incoming is not None:
            self._hub.refused(incoming, now)
        if (incoming is None or not told_text) and device.conn is not None:
            self._hub.fail(
                device.conn,
                ProtocolError(
                    "internal_error",
                    "the agent could not be told your answer: answer again",
                    frame_id=card_id,
                ),
            )

    def close(
        self, card_id: str, option_id: str | None = None, *, expired: bool = False, now: float
    ) -> None:
        """A card was settled elsewhere: a typed command, the agent's own limit."""
        opened = self.prompts.open.get(card_id)
        if opened is None or opened.state is State.ANSWERING:
            return
        device = self._hub.device(opened.chat)
        self._settle(device, card_id, option_id, expired=expired)
        self._hub.wake(device.conn)

    def run_out(self, now: float) -> None:
        """Settle every card whose time is over."""
        for opened in self.prompts.expired(now):
            device = self._hub.device(opened.chat)
            typing = opened.state is State.AWAITING_TEXT
            self._settle(
                device, opened.id, OTHER if typing else opened.card.unanswered, expired=True
            )
            self._hub.effects.append(Expired(opened.card))
            self._hub.wake(device.conn)

    def _settle(
        self, device: Device, card_id: str, option_id: str | None, *, expired: bool
    ) -> None:
        opened = self.prompts.open[card_id]
        outcome = self.prompts.settle(card_id, option_id, expired=expired)
        self._hub.counters.outcomes[opened.card.kind, _outcome(option_id, expired)] += 1
        unseen = self._unseen.pop(card_id, None)
        if unseen is not None:
            device.box.discard(unseen)
        told = opened.other_told and option_id == OTHER and not expired
        if (opened.shown or opened.other_told) and not told:
            device.box.put(Kept(encode(outcome.frame(card_id))))
        self._hub.forget(device)


def _outcome(option_id: str | None, expired: bool) -> str:
    """How a card ended, from a closed list."""
    if expired:
        return "expired"
    if option_id is None:
        return "withdrawn"
    return option_id if option_id in OUTCOMES else "choice"


def _not_your_card(card_id: str) -> ProtocolError:
    return ProtocolError("forbidden", "this card was shown to another device", frame_id=card_id)
