"""Which waiting request of Hermes stands behind a card.

Hermes keeps approvals in a queue per session and, in some versions, answers only the oldest: by
then the card on the screen may be another one. So a card is tied to the very entry it was made for,
and an answer goes to that entry or to none. The same objects tell later how a request ended when it
was not the card that ended it: a typed `/approve`, `/stop`, Hermes' own time limit.

Hermes' modules come in as arguments (`adapter.py` imports them); what they really offer is looked
at, never their version. Everything here may be called from any thread and never blocks.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

End = Literal["waiting", "answered", "ended"]

DEFAULT_APPROVAL_SECONDS = 60.0
DEFAULT_CLARIFY_SECONDS = 3600.0
DEFAULT_CONFIRM_SECONDS = 300.0


@dataclass(frozen=True)
class Ended:
    """How a request stands. `option_id`: what was applied, where that is known."""

    state: End
    option_id: str | None = None


WAITING = Ended("waiting")
GONE = Ended("ended")


@dataclass(frozen=True, eq=False)
class Approval:
    """One dangerous command that waits. `entry` is Hermes' own object."""

    session: str
    entry: Any
    request_id: str | None


@dataclass(frozen=True, eq=False)
class Clarify:
    """One question that waits."""

    session: str
    id: str
    choices: tuple[str, ...]
    entry: Any
    several: bool  # more than one choice may be taken


@dataclass(frozen=True, eq=False)
class Confirm:
    """One slash command that waits."""

    session: str
    id: str


class Approvals:
    """The approval queue (`tools.approval`)."""

    def __init__(self, module: Any, redact: Callable[[str], str] | None = None) -> None:
        self._module = module
        self._redact = redact or (lambda command: command)
        self._claimed: dict[int, Any] = {}
        try:
            parameters = inspect.signature(module.resolve_gateway_approval).parameters
        except (AttributeError, TypeError, ValueError):
            parameters = {}  # type: ignore[assignment]
        self._by_id = "request_id" in parameters

    @property
    def missing(self) -> str | None:
        """What Hermes lacks for exact answers, None when all is there."""
        if not isinstance(getattr(self._module, "_gateway_queues", None), dict):
            return "tools.approval._gateway_queues (the waiting approvals)"
        if not self._by_id and getattr(self._module, "_lock", None) is None:
            return "tools.approval._lock (to answer one approval and no other)"
        return None

    def claim(
        self, session: str, command: str, *, allow_permanent: bool, smart_denied: bool
    ) -> Approval | None:
        """The entry that asks for `command` (as Hermes shows it, credentials masked).

        The oldest that has no card yet. None when there is none: it is answered already, or
        Hermes keeps its queue in another way than known.
        """
        if self.missing is not None:
            return None
        with self._lock():
            entries = list(self._module._gateway_queues.get(session, ()))
        free = [entry for entry in entries if id(entry) not in self._claimed]
        asking = [entry for entry in free if self._asks(entry, command)]
        wanted = (allow_permanent, smart_denied)
        exact = [entry for entry in asking if _flags(entry) == wanted]
        entry = next(iter(exact or asking), None)
        if entry is None:
            return None
        self._claimed[id(entry)] = entry
        return Approval(session, entry, entry.data.get("request_id") if self._by_id else None)

    def waits(self, session: str) -> bool:
        """Whether an approval of this session waits that has no card."""
        with self._lock():
            entries = list(getattr(self._module, "_gateway_queues", {}).get(session, ()))
        return any(id(entry) not in self._claimed for entry in entries)

    def release(self, approval: Approval) -> None:
        """The card is closed."""
        self._claimed.pop(id(approval.entry), None)

    def answer(self, approval: Approval, choice: str, reason: str | None = None) -> bool:
        """Answer exactly this request. False: it does not wait any more."""
        if approval.request_id is not None:
            resolved = self._module.resolve_gateway_approval(
                approval.session, choice, reason=reason, request_id=approval.request_id
            )
            return bool(resolved)
        queues = self._module._gateway_queues
        with self._lock():
            queue = queues.get(approval.session)
            if not queue or not any(entry is approval.entry for entry in queue):
                return False
            queue[:] = [entry for entry in queue if entry is not approval.entry]
            if not queue:
                queues.pop(approval.session, None)
            # In this order: the waiting thread reads the result when the event wakes it.
            approval.entry.result = choice
            if reason:
                approval.entry.reason = reason
            approval.entry.event.set()
        return True

    def state(self, approval: Approval) -> Ended:
        """Whether the request still waits, and what was answered elsewhere."""
        with self._lock():
            queue = self._module._gateway_queues.get(approval.session, ())
            if any(entry is approval.entry for entry in queue):
                return WAITING
        if getattr(approval.entry, "cancelled", None):
            return GONE
        result = getattr(approval.entry, "result", None)
        return GONE if result is None else Ended("answered", str(result))

    def seconds(self) -> float:
        """Hermes' own limit for an approval (`approvals.timeout`)."""
        read = getattr(self._module, "_get_approval_timeout", None)
        if read is None:
            context = getattr(self._module, "approval_context", None) or getattr(
                self._module, "_ctx", None
            )
            read = getattr(context, "_get_approval_timeout", None)
        return _seconds(read, DEFAULT_APPROVAL_SECONDS)

    def _asks(self, entry: Any, command: str) -> bool:
        asked = str(entry.data.get("command", ""))
        return asked == command or self._redact(asked) == command

    def _lock(self) -> Any:
        return getattr(self._module, "_lock", None) or nullcontext()


class Clarifications:
    """The questions (`tools.clarify_gateway`)."""

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def missing(self) -> str | None:
        """What Hermes lacks, None when all is there."""
        if not callable(getattr(self._module, "resolve_gateway_clarify", None)):
            return "tools.clarify_gateway.resolve_gateway_clarify (answers to questions)"
        return None

    def claim(self, session: str, clarify_id: str, choices: tuple[str, ...]) -> Clarify:
        """Tie a card to the question `clarify_id`."""
        entry = self._entry(clarify_id)
        several = bool(getattr(entry, "multi_select", False)) and bool(choices)
        return Clarify(session, clarify_id, choices, entry, several)

    def answer(self, clarify: Clarify, option_id: str, text: str | None) -> bool:
        """Give the chosen option or the text. False: the question does not wait any more."""
        if self.state(clarify).state != "waiting":
            return False
        said = self._said(clarify, option_id, text)
        return bool(self._module.resolve_gateway_clarify(clarify.id, said))

    def no_answer(self, clarify: Clarify) -> bool:
        """The person did not answer in time."""
        if self.state(clarify).state != "waiting":
            return False
        return bool(self._module.resolve_gateway_clarify(clarify.id, ""))

    def state(self, clarify: Clarify) -> Ended:
        """Whether the question still waits, and what was answered elsewhere."""
        if clarify.entry is None:
            return WAITING
        if not clarify.entry.event.is_set():
            # Its own limit takes the entry away without an event.
            return WAITING if self._entry(clarify.id) is clarify.entry else GONE
        response = clarify.entry.response
        if not response or response.startswith("\x00"):
            return GONE
        if response in clarify.choices:
            return Ended("answered", f"c{clarify.choices.index(response)}")
        return Ended("answered", "other")

    def seconds(self) -> float:
        """Hermes' own limit for a question (`agent.clarify_timeout`), infinite for none."""
        seconds = _seconds(
            getattr(self._module, "get_clarify_timeout", None), DEFAULT_CLARIFY_SECONDS
        )
        return seconds if seconds > 0 else float("inf")

    def _said(self, clarify: Clarify, option_id: str, text: str | None) -> str:
        if text is not None:
            skip, skipped = (getattr(self._module, n, None) for n in ("SKIP_WORD", "SKIPPED"))
            if skip and skipped and text.strip().casefold() == skip:
                return str(skipped)
            if not clarify.several:
                return text
            read = getattr(self._module, "_coerce_multi_select_text", None)
            chosen = read(clarify.entry, text.strip()) if callable(read) else None
            return chosen or json.dumps([text], ensure_ascii=False)
        choice = clarify.choices[int(option_id.removeprefix("c"))]
        return json.dumps([choice], ensure_ascii=False) if clarify.several else choice

    def _entry(self, clarify_id: str) -> Any:
        entries = getattr(self._module, "_entries", None)
        return entries.get(clarify_id) if isinstance(entries, dict) else None


def asked(question: str) -> str:
    """A question without the name of a text that Hermes did not find (its language files lack)."""
    return re.sub(r"\n\s*gateway\.clarify\.\w+\s*$", "", question)


class Confirmations:
    """The slash commands that ask first (`tools.slash_confirm`)."""

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def missing(self) -> str | None:
        """What Hermes lacks, None when all is there."""
        for name in ("resolve", "get_pending"):
            if not callable(getattr(self._module, name, None)):
                return f"tools.slash_confirm.{name} (answers to slash commands)"
        return None

    def state(self, confirm: Confirm) -> Ended:
        """Whether this very confirmation still waits; a newer one of the session replaces it."""
        pending = self._module.get_pending(confirm.session)
        if pending is None or pending.get("confirm_id") != confirm.id:
            return GONE
        age = time.time() - float(pending.get("created_at") or 0)
        return WAITING if age <= self.seconds() else GONE

    async def answer(self, confirm: Confirm, choice: str) -> str | None:
        """Carry the choice out. Returns the text for the person, None when there is none."""
        text = await self._module.resolve(confirm.session, confirm.id, choice)
        return str(text) if text else None

    def seconds(self) -> float:
        """Hermes' own limit for a confirmation."""
        value = getattr(self._module, "DEFAULT_TIMEOUT_SECONDS", DEFAULT_CONFIRM_SECONDS)
        return float(value)


def _flags(entry: Any) -> tuple[bool, bool]:
    return bool(entry.data.get("allow_permanent", True)), bool(
        entry.data.get("smart_denied", False)
    )


def _seconds(read: Callable[[], Any] | None, default: float) -> float:
    try:
        return default if read is None else float(read())
    except (TypeError, ValueError):
        return default
