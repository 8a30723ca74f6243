"""Hermes' sessions and messages as the contract shows them, and the history of a run. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import Any

from .contract import Message, SessionSummary, Usage
from .session_ids import document_of

SOURCE = "api_server"
MAX_TITLE = 100
"""Characters that Hermes takes as a title."""


def summary(row: dict[str, Any], document_id: str) -> SessionSummary | None:
    """The session of *row* if it belongs to the document, else None.

    A conversation that Hermes moved to a successor session keeps the id it was started with.
    """
    if row.get("source") != SOURCE:
        return None
    for name in ("id", "_lineage_root_id"):
        session_id = row.get(name)
        if isinstance(session_id, str) and document_of(session_id) == document_id:
            return SessionSummary(
                sessionId=session_id,
                title=text(row.get("title")),
                preview=text(row.get("preview")),
                messageCount=count(row.get("message_count")),
                toolCallCount=count(row.get("tool_call_count")),
                updatedAt=updated_at(row),
                model=text(row.get("model")),
            )
    return None


def updated_at(row: dict[str, Any]) -> int | None:
    """When something last happened in the session of *row*, in whole epoch seconds."""
    times = (seconds(row.get(name)) for name in ("last_active", "ended_at", "started_at"))
    return next((time for time in times if time), None)


def message(row: dict[str, Any]) -> Message | None:
    """One stored message, None for one that Hermes keeps for itself."""
    if row.get("display_kind") == "hidden":
        return None
    message_id = row.get("id")
    if isinstance(message_id, bool) or not isinstance(message_id, (str, int)):
        message_id = ""
    reasoning = row.get("reasoning")
    if not isinstance(reasoning, str) or not reasoning:
        reasoning = row.get("reasoning_content")
    return Message(
        messageId=str(message_id),
        role=text(row.get("role")),
        content=content_text(row.get("content")),
        toolCallId=_text_or_none(row.get("tool_call_id")),
        toolName=_text_or_none(row.get("tool_name")),
        timestamp=seconds(row.get("timestamp")),
        reasoning=_text_or_none(reasoning),
    )


def history(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The turns that a run is started with where Hermes does not load them itself: what the user
    and the assistant said in words."""
    turns = []
    for row in rows:
        role, content = row.get("role"), content_text(row.get("content"))
        if role in ("user", "assistant") and content.strip():
            if row.get("display_kind") != "hidden":
                turns.append({"role": str(role), "content": content})
    return turns


def usage(rows: list[dict[str, Any]]) -> Usage:
    """Tokens of a conversation over its session and the successors of it.

    Hermes writes 0 where its provider told nothing: then the numbers are not known.
    """
    inputs = _sum(row.get("input_tokens") for row in rows)
    outputs = _sum(row.get("output_tokens") for row in rows)
    if not inputs and not outputs:
        return Usage(None, None, None)
    total = None if inputs is None or outputs is None else inputs + outputs
    return Usage(inputs, outputs, total)


def _sum(values: Iterable[Any]) -> int | None:
    """The sum of counts; None if one of them is not known, or there are none."""
    counts = [count(value) for value in values]
    known = [number for number in counts if number is not None]
    return sum(known) if known and len(known) == len(counts) else None


def text(value: Any) -> str:
    """*value* if it is text, else ""."""
    return value if isinstance(value, str) else ""


def content_text(value: Any) -> str:
    """The words of a message's content, whether it is text or a list of parts."""
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return text(value)


def count(value: Any) -> int | None:
    """*value* as a whole number from zero up, None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return int(value) if 0 <= value < 2**53 else None


def seconds(value: Any) -> int | None:
    """*value* as whole epoch seconds, None if it is no time."""
    found = count(value)
    return found or None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def clean_title(title: str) -> str:
    """A title as Hermes takes it: no line ends or controls, at most MAX_TITLE characters."""
    # Characters without a width stand inside words (Persian, emoji): no space takes their place.
    visible = (c for c in title if unicodedata.category(c) != "Cf")
    words = " ".join("".join(c if c.isprintable() else " " for c in visible).split())
    return words if len(words) <= MAX_TITLE else words[: MAX_TITLE - 1].rstrip() + "…"


def title_with_suffix(title: str, suffix: str) -> str:
    """A title that differs from *title* by a short suffix."""
    tail = f" ({suffix})"
    return title[: MAX_TITLE - len(tail)].rstrip() + tail


def model_label(model_id: str) -> str:
    """A model's name for people: ``hermes-agent`` is Hermes Agent."""
    words = model_id.replace("_", "-").split("-")
    return " ".join(word[:1].upper() + word[1:] for word in words if word) or model_id
