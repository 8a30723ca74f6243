"""Open cards: who was shown what, what was answered, until when.

A card closes when the agent has taken the answer, not before; its outcome is kept so that a late or
repeated answer hears what was applied. Values a client sends are judged here and nowhere else: what
stands outside the reference's table falls to the safe one (section "Cards").
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from .protocol import Option, PromptDone, PromptOut

# Outcomes that are remembered for late answers.
REMEMBERED_OUTCOMES = 1000

CardKind = Literal["exec_approval", "slash_confirm", "clarify"]
OTHER = "other"
_SAFE: dict[CardKind, str] = {"exec_approval": "deny", "slash_confirm": "cancel", "clarify": OTHER}


@dataclass(frozen=True, slots=True)
class Card:
    """A question of the agent.

    `timeout`: the agent's own limit in seconds. `session`: the Hermes session the answer goes to.
    `reference`: the agent's own handle, never sent.
    """

    kind: CardKind
    text: str
    options: tuple[Option, ...]
    session: str
    timeout: float
    command: str | None = None
    description: str | None = None
    reference: object = None

    @property
    def unanswered(self) -> str | None:
        """What running out of time counts as: deny, cancel, or no answer."""
        return None if self.kind == "clarify" else _SAFE[self.kind]


def approval_card(
    command: str,
    description: str,
    session: str,
    timeout: float,
    *,
    allow_permanent: bool = True,
    allow_session: bool = True,
    smart_denied: bool = False,
    reference: object = None,
) -> Card:
    """May this command run? `smart_denied` leaves only once and deny."""
    options = [Option("once", "Allow once", "primary")]
    if allow_session and not smart_denied:
        options.append(Option("session", "Allow for this session"))
    if allow_permanent and not smart_denied:
        options.append(Option("always", "Always allow"))
    options.append(Option("deny", "Deny", "danger"))
    return Card(
        "exec_approval",
        "Allow this command?",
        tuple(options),
        session,
        timeout,
        command=command,
        description=description or None,
        reference=reference,
    )


def confirm_card(
    title: str, message: str, session: str, timeout: float, *, reference: object = None
) -> Card:
    """Shall this slash command be carried out?"""
    text = "\n\n".join(part for part in (title.strip(), message.strip()) if part)
    options = (
        Option("once", "Confirm", "primary"),
        Option("always", "Always confirm"),
        Option("cancel", "Cancel", "danger"),
    )
    return Card("slash_confirm", text, options, session, timeout, reference=reference)


def clarify_card(
    question: str,
    choices: Sequence[str] | None,
    session: str,
    timeout: float,
    *,
    reference: object = None,
) -> Card:
    """A question: `choices` become c0, c1, …; without them it is open, to be answered by text."""
    options = [Option(f"c{index}", label) for index, label in enumerate(choices or ())]
    options.append(Option(OTHER, "Other…" if choices else "Answer…"))
    return Card("clarify", question, tuple(options), session, timeout, reference=reference)


class State(Enum):
    """Where a card stands."""

    OPEN = "open"
    ANSWERING = "answering"  # the agent is being told
    AWAITING_TEXT = "awaiting_text"  # `other`: the person will type the answer


@dataclass(slots=True)
class OpenCard:
    """A card that waits. `deadline` in the core's seconds."""

    id: str
    chat: str
    card: Card
    deadline: float
    state: State = State.OPEN
    shown: bool = False  # a frame of it was written once
    answer: tuple[str, str | None] = ("", None)  # what the agent is being told
    other_told: bool = False  # agent and device know that the answer will be typed

    def frame(self, now: float) -> PromptOut:
        """The `prompt` frame with the true remaining time, in whole seconds rounded up."""
        card = self.card
        return PromptOut(
            id=self.id,
            kind=card.kind,
            text=card.text,
            options=card.options,
            session=card.session,
            timeout_seconds=max(0, math.ceil(self.deadline - now)),
            command=card.command,
            description=card.description,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a card ended."""

    chat: str
    option_id: str | None = None
    expired: bool = False

    def frame(self, card_id: str) -> PromptDone:
        """The `prompt_done` frame."""
        return PromptDone(card_id, self.option_id, self.expired)


@dataclass(slots=True)
class Prompts:
    """All cards of the door."""

    ttl: float
    open: dict[str, OpenCard] = field(default_factory=dict)
    _outcomes: OrderedDict[str, Outcome] = field(default_factory=OrderedDict)

    def add(self, chat: str, card: Card, now: float) -> OpenCard:
        """Open a card for the device `chat`; it lives for the smaller of both limits."""
        opened = OpenCard(
            id=f"p-{secrets.token_hex(8)}",
            chat=chat,
            card=card,
            deadline=now + max(0.0, min(self.ttl, card.timeout)),
        )
        self.open[opened.id] = opened
        return opened

    def settle(self, card_id: str, option_id: str | None, *, expired: bool = False) -> Outcome:
        """Close an open card and remember how."""
        outcome = Outcome(self.open.pop(card_id).chat, option_id, expired)
        self._outcomes[card_id] = outcome
        if len(self._outcomes) > REMEMBERED_OUTCOMES:
            self._outcomes.popitem(last=False)
        return outcome

    def outcome(self, card_id: str) -> Outcome | None:
        """How a closed card ended, as far as it is remembered."""
        return self._outcomes.get(card_id)

    def of(self, chat: str) -> list[OpenCard]:
        """The open cards of a device, oldest first."""
        return [opened for opened in self.open.values() if opened.chat == chat]

    def next_deadline(self) -> float | None:
        """When the next card runs out."""
        return min(
            (c.deadline for c in self.open.values() if c.state is not State.ANSWERING), default=None
        )

    def expired(self, now: float) -> list[OpenCard]:
        """The cards whose time is over; one that is being answered is not taken away."""
        return [
            opened
            for opened in self.open.values()
            if opened.deadline <= now and opened.state is not State.ANSWERING
        ]


def judge(card: Card, option_id: str, text: str) -> tuple[str, str | None]:
    """What an answer means: the option that is applied, and the text for `other`.

    For a clarify card a text is the answer, also beside a valid option; without one an unknown
    option asks for it. For the others a value that was not offered, or a text alone, is the safe
    option.
    """
    if card.kind == "clarify":
        if text:
            return OTHER, text
        offered = any(option.id == option_id for option in card.options)
        return (option_id, None) if offered else (OTHER, None)
    offered = any(option.id == option_id for option in card.options)
    return (option_id if offered else _SAFE[card.kind]), None
