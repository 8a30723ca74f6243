"""Cards between Hermes and the door: asks, hands answers on, closes what ended elsewhere.

One desk for one door, on the door's loop. Which request an answer reaches is decided in
`hermes_cards`; here is when a card opens and how it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from . import prompts
from .hermes_cards import (
    Approval,
    Approvals,
    Clarifications,
    Clarify,
    Confirm,
    Confirmations,
    Ended,
    asked,
)
from .outbox import OutboxFull
from .prompts import Card
from .server import Answered, Door

# What ends a request without telling anybody is found by looking.
LOOK_SECONDS = 0.5
# A slash command's text is shown behind its card's end, or later by itself if it takes longer.
CONFIRM_SECONDS = 2.0
OUT_OF_TIME = "nobody answered in time"
STOPPED = "the turn was stopped"
# A card ends this much before Hermes' own limit, so that the door tells both sides how it ended.
MARGIN_SECONDS = 0.25
# The id of a card that need not be shown: its request has ended before.
SETTLED = "p-settled"

# What Hermes takes for the answer to a slash command's question: commands, and whole texts.
_ANSWERING_COMMANDS = {
    **dict.fromkeys(("approve", "yes", "ok", "confirm"), "once"),
    **dict.fromkeys(("always", "remember"), "always"),
    **dict.fromkeys(("cancel", "no", "deny", "nevermind"), "cancel"),
}
_ANSWERING_TEXTS = {
    **dict.fromkeys(("approve", "approve once", "once"), "once"),
    **dict.fromkeys(("always", "always approve"), "always"),
    **dict.fromkeys(("cancel", "nevermind", "no"), "cancel"),
}


class CardDesk:
    """The open cards of one door."""

    def __init__(
        self,
        door: Door,
        approvals: Approvals,
        clarifications: Clarifications,
        confirmations: Confirmations,
        answered: Callable[[str], None],
    ) -> None:
        """`answered` is called with the chat whose request was just answered."""
        self._door = door
        self._approvals = approvals
        self._clarifications = clarifications
        self._confirmations = confirmations
        self.answered = answered
        self._cards: dict[Any, str] = {}  # the request behind a card -> the card's id
        self._typed: dict[str, str] = {}  # what a device typed to a slash command's question
        self._looking: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[str | None]] = set()

    @property
    def missing(self) -> list[str]:
        """What this Hermes lacks for cards."""
        sources = (self._approvals, self._clarifications, self._confirmations)
        return [source.missing for source in sources if source.missing is not None]

    # From Hermes

    def approval(
        self,
        chat: str,
        session: str,
        command: str,
        description: str,
        *,
        allow_permanent: bool,
        allow_session: bool,
        smart_denied: bool,
    ) -> str | None:
        """Ask whether `command` may run; the card's id.

        None when the request cannot be told from others: an answer could reach another one.
        """
        approval = self._approvals.claim(
            session, command, allow_permanent=allow_permanent, smart_denied=smart_denied
        )
        if approval is None:
            return None if self._approvals.waits(session) else SETTLED
        card = prompts.approval_card(
            command,
            description,
            session,
            _before(self._approvals.seconds()),
            allow_permanent=allow_permanent,
            allow_session=allow_session,
            smart_denied=smart_denied,
            reference=approval,
        )
        return self._ask(chat, card)

    def question(
        self, chat: str, session: str, question: str, choices: Sequence[str], clarify_id: str
    ) -> str:
        """Ask a question of the agent; the card's id."""
        clarify = self._clarifications.claim(session, clarify_id, tuple(choices))
        text = asked(question)
        if clarify.several:
            text += "\n\n(Several answers are possible: type their numbers, like 1, 3)"
        limit = self._clarifications.seconds()
        return self._ask(
            chat, prompts.clarify_card(text, choices, session, limit, reference=clarify)
        )

    def confirmation(
        self, chat: str, session: str, title: str, message: str, confirm_id: str
    ) -> str:
        """Ask whether a slash command shall be carried out; the card's id."""
        limit = self._confirmations.seconds()
        confirm = Confirm(session, confirm_id)
        self._typed.pop(chat, None)
        return self._ask(
            chat, prompts.confirm_card(title, message, session, limit, reference=confirm)
        )

    def withdrawn(self, card_id: str) -> bool:
        """Hermes says of a card that its time is over. False: there is no such open card."""
        for reference, known in self._cards.items():
            if known == card_id:
                self._end(reference, card_id, None)
                return True
        return False

    def typed(self, chat: str, text: str) -> None:
        """A device sent a text: it may answer a confirmation."""
        said = text.strip().lower()
        command = said.split(maxsplit=1)[0][1:] if said.startswith("/") else ""
        choice = _ANSWERING_COMMANDS.get(command) or _ANSWERING_TEXTS.get(said.lstrip("!/"))
        # What waits for an answer of another kind comes first.
        if choice is not None and self.asking(chat) is None and self.confirming(chat):
            self._typed[chat] = choice

    def asking(self, chat: str) -> str | None:
        """The session in which Hermes waits for this device's answer to an approval or a question.

        There it takes the words of any message for the answer.
        """
        for reference in self._cards:
            if isinstance(reference, Confirm) or device_of(reference.session) != chat:
                continue
            if self._state(reference).state == "waiting":
                return str(reference.session)
        return None

    def confirming(self, chat: str) -> bool:
        """Whether a slash command of this device waits for its confirmation."""
        return any(
            isinstance(reference, Confirm)
            and device_of(reference.session) == chat
            and self._confirmations.state(reference).state == "waiting"
            for reference in self._cards
        )

    def stopped(self, session: str) -> None:
        """The person stopped the turn of `session`: what it asked is denied, or not answered.

        Hermes itself notices a second later, or not at all when the turn had only just begun.
        """
        for reference in list(self._cards):
            if reference.session != session:
                continue
            if isinstance(reference, Approval):
                self._approvals.answer(reference, "deny", STOPPED)
            elif isinstance(reference, Clarify):
                self._clarifications.no_answer(reference)
        self.look()

    def look(self) -> None:
        """Close the cards whose requests ended elsewhere."""
        for reference, card_id in list(self._cards.items()):
            ended = self._state(reference)
            if ended.state != "waiting":
                self._end(reference, card_id, ended.option_id)

    def close(self) -> None:
        """Stop looking; the cards themselves stay."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    # From the device

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        """Give the answer to the request the card was made for, or to none."""
        reference = card.reference
        if isinstance(reference, Clarify) and option_id == prompts.OTHER and text is None:
            return Answered(self._clarifications.state(reference).state == "waiting")
        if self._cards.pop(reference, None) is None:
            return Answered(False)  # closed before
        taken, then = False, None
        if isinstance(reference, Approval):
            taken = self._approvals.answer(reference, option_id)
            self._approvals.release(reference)
        elif isinstance(reference, Clarify):
            taken = self._clarifications.answer(reference, option_id, text)
        elif isinstance(reference, Confirm):
            taken = self._confirmations.state(reference).state == "waiting"
            if taken:
                then = await self._carry_out(reference, option_id)
        chat = device_of(card.session)
        if taken and chat:
            self.answered(chat)
        return Answered(taken, then)

    async def expired(self, card: Card) -> None:
        """The card's time is over: deny, no answer or cancel."""
        reference = card.reference
        self._cards.pop(reference, None)
        if isinstance(reference, Approval):
            self._approvals.answer(reference, "deny", OUT_OF_TIME)
            self._approvals.release(reference)
        elif isinstance(reference, Clarify):
            self._clarifications.no_answer(reference)
        elif isinstance(reference, Confirm):
            if self._confirmations.state(reference).state == "waiting":
                self._say(reference, await self._carry_out(reference, "cancel"))

    # Inside

    def _ask(self, chat: str, card: Card) -> str:
        self.look()
        try:
            card_id = self._door.ask(chat, card)
        except OutboxFull:
            if isinstance(card.reference, Approval):
                self._approvals.release(card.reference)
            raise
        self._cards[card.reference] = card_id
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())
        return card_id

    async def _keep_looking(self) -> None:
        while self._cards:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def _state(self, reference: Any) -> Ended:
        if isinstance(reference, Approval):
            return self._approvals.state(reference)
        if isinstance(reference, Clarify):
            return self._clarifications.state(reference)
        ended = self._confirmations.state(reference)
        if ended.state == "waiting":
            return ended
        # Hermes forgets how it was answered; what was typed tells.
        return Ended("ended", self._typed.pop(device_of(reference.session) or "", None))

    def _end(self, reference: Any, card_id: str, option_id: str | None) -> None:
        self._cards.pop(reference, None)
        if isinstance(reference, Approval):
            self._approvals.release(reference)
        expired = option_id is None
        if expired:  # running out counts as the safe answer
            option_id = {Approval: "deny", Confirm: "cancel"}.get(type(reference))
        self._door.close_card(card_id, option_id, expired=expired)

    async def _carry_out(self, confirm: Confirm, choice: str) -> str | None:
        """Carry a slash command out; its text, or None when it comes later by itself."""
        work: Awaitable[str | None] = self._confirmations.answer(confirm, choice)
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        done, _ = await asyncio.wait({task}, timeout=CONFIRM_SECONDS)
        if done:
            return task.result()

        def show(finished: asyncio.Task[str | None]) -> None:
            if not finished.cancelled() and finished.exception() is None:
                self._say(confirm, finished.result())

        task.add_done_callback(show)
        return None

    def _say(self, confirm: Confirm, text: str | None) -> None:
        chat = device_of(confirm.session)
        if chat and text:
            self._door.say(chat, text)


def _before(limit: float) -> float:
    return max(limit - MARGIN_SECONDS, limit / 2)


def device_of(session: str) -> str | None:
    """The device of a session key `agent:<name>:mobile:dm:<device>`."""
    parts = session.split(":mobile:dm:", 1)
    return parts[1].split(":", 1)[0] if len(parts) == 2 else None
