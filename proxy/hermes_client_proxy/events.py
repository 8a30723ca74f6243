"""One upstream event into contract events. Pure: no socket, no clock.

Every event keeps its kind and its fields; what changes is stated here: the ids are this run's,
times are whole seconds, unknown token counts are null, error texts become closed sentences, known
secrets are masked, and an approval request gets the id by which it is answered.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from . import upstream_json
from .approvals import Approvals
from .contract import TERMINAL_EVENTS
from .redact import Redactor, TextStream

FAILED = "The agent could not finish this run."
INTERRUPTED = "The agent was stopped while this run was under way."
LOST = "The agent no longer knows this run; how it ended cannot be told."
UNREACHABLE = "The agent cannot be reached; how this run ended cannot be told."
STEP_FAILED = "This step failed."

# Fields that carry an error's own words wherever they appear.
_ERROR_FIELDS = frozenset(
    {
        "error",
        "errors",
        "error_message",
        "errorMessage",
        "error_detail",
        "exception",
        "traceback",
        "stack",
        "stacktrace",
        "stack_trace",
    }
)
# Fields that do so in an event which reports a failure.
_FAILURE_FIELDS = frozenset({"message", "reason", "detail", "details", "cause", "hint"})
# What a step left behind; of a step that failed these are the error's words too. A step's own
# arguments (its name, its goal, its command) are not among them.
_LEFT_BEHIND = _FAILURE_FIELDS | {
    "preview",
    "result",
    "results",
    "output",
    "output_tail",
    "summary",
    "content",
    "text",
    "stdout",
    "stderr",
}
_FAILED_STATUS = frozenset({"failed", "failure", "error", "errored", "timeout"})
_REASON_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

_encode = msgspec.json.Encoder().encode


class Delta(msgspec.Struct, tag_field="event", tag="message.delta", forbid_unknown_fields=True):
    """The event that nearly all events are, where it holds nothing unusual."""

    delta: str | None = None
    timestamp: Annotated[float, msgspec.Meta(ge=0, lt=2**53)] | None = None
    run_id: Any = None
    seq: Any = None


class _OwnDelta(msgspec.Struct, tag_field="event", tag="message.delta", omit_defaults=True):
    run_id: str
    session_id: str
    delta: str
    timestamp: int | None = None


read_delta = msgspec.json.Decoder(Delta).decode
"""Raises ValueError or RecursionError for every other event."""


def read(data: bytes) -> dict[str, Any] | None:
    """What one event of the upstream holds, None if that is no JSON object."""
    try:
        found = upstream_json.read(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Translator:
    """The state that translating one run's events needs."""

    def __init__(
        self, run_id: str, session_id: str, redactor: Redactor, approvals: Approvals
    ) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self._head: dict[str, Any] = {"event": "", "run_id": run_id, "session_id": session_id}
        self._redactor = redactor
        self._approvals = approvals
        self._text = TextStream(redactor)
        self._deltas = {"message.delta": self._text}
        self.ended = False

    def translate(self, raw: dict[str, Any], fallback_kind: str = "") -> list[bytes]:
        """The contract events, encoded, for one upstream event; none after the run's end."""
        if self.ended:
            return []
        kind = raw.get("event")
        if not isinstance(kind, str) or not kind:
            kind = fallback_kind or "message"
        # The upstream's own number would be taken for the number of this stream.
        event = {**self._head, **raw, **self._head, "event": kind}
        event.pop("seq", None)
        if isinstance(event.get("delta"), str):
            return self._delta(kind, event)
        if kind == "approval.request":
            event = self._approvals.requested(event)
        elif kind == "approval.responded":
            self._approvals.responded(event)
        elif kind == "tool.started":
            self._approvals.tool_started(event)
        extra: list[bytes] = []
        if kind == "tool.completed":
            for approval_id in self._approvals.tool_completed(event):
                extra.append(self._own("approval.expired", approvalId=approval_id))
        for field, value in event.items():
            if isinstance(value, float) and (field == "timestamp" or field.endswith("_at")):
                event[field] = int(value)
        if isinstance(event.get("usage"), dict):
            event["usage"] = usage_or_null(event["usage"])
        event = self._closed(kind, event)
        if kind in TERMINAL_EVENTS:
            self.ended = True
            self._approvals.close()
            return [*self._close_deltas(), self._safe(event)]
        return [*extra, self._safe(event)]

    def finish(self, kind: str, **fields: Any) -> list[bytes]:
        """The run's end as this proxy found it out by asking."""
        return self.translate({"event": kind, **fields})

    def _own(self, kind: str, **fields: Any) -> bytes:
        return self._safe(
            {"event": kind, "run_id": self.run_id, "session_id": self.session_id, **fields}
        )

    def note(self, kind: str, **fields: Any) -> bytes:
        """An event of this proxy's own about the stream."""
        return self._own(kind, **fields)

    def delta(self, raw: Delta) -> bytes | None:
        """The contract event for a plain delta, as ``translate`` would give it; None if nothing
        of it may leave yet. Nothing but the text is the upstream's, and that leaves through its
        stream, which lets no secret pass."""
        if self.ended or not raw.delta or not (text := self._text.push(raw.delta)):
            return None
        timestamp = None if raw.timestamp is None else int(raw.timestamp)
        return _encode(_OwnDelta(self.run_id, self.session_id, text, timestamp))

    def _delta(self, kind: str, event: dict[str, Any]) -> list[bytes]:
        stream = self._deltas.get(kind)
        if stream is None:
            if len(self._deltas) >= 64:  # kinds are the upstream's to name
                return []
            stream = self._deltas[kind] = TextStream(self._redactor)
        text = stream.push(event["delta"])
        if not text:
            return []
        event["delta"] = text
        timestamp = event.get("timestamp")
        if isinstance(timestamp, float):
            event["timestamp"] = int(timestamp)
        if len(event) > 5:
            event = self._closed(kind, event)
        return [self._safe(event)]

    def _close_deltas(self) -> list[bytes]:
        return [
            self._own(kind, delta=text)
            for kind, stream in self._deltas.items()
            if (text := stream.close())
        ]

    def _closed(self, kind: str, event: dict[str, Any]) -> dict[str, Any]:
        """*event* with closed sentences where an error's own words were."""
        failure = kind.endswith((".failed", ".error", ".interrupted")) or kind == "error"
        if failure:
            sentence = INTERRUPTED if kind == "run.interrupted" else FAILED
            for field in _FAILURE_FIELDS & event.keys():
                if not _is_code(event[field]):
                    event[field] = sentence
        else:
            sentence = STEP_FAILED
        own = event.get("error")
        if kind in TERMINAL_EVENTS:
            for field in [name for name in event if name.endswith("_reason")]:
                event[field] = _reason_code(event[field])
        if kind not in TERMINAL_EVENTS and _step_failed(kind, event):
            for field in _LEFT_BEHIND & event.keys():
                if event[field] != sentence and not (
                    field in _FAILURE_FIELDS and _is_code(event[field])
                ):
                    event[field] = _wordless(event[field])
        closed = {
            k: sentence if k in _ERROR_FIELDS and _speaks(v) else _without_errors(v)
            for k, v in event.items()
        }
        if kind in ("run.failed", "run.interrupted"):
            closed["error"] = own if own in (LOST, UNREACHABLE, INTERRUPTED) else sentence
        return closed

    def _safe(self, event: dict[str, Any]) -> bytes:
        data: bytes = _encode(event)
        if self._redactor.found(data):
            data = self._redactor.data(_encode(self._redactor.value(event)))
        return data


def _step_failed(kind: str, event: dict[str, Any]) -> bool:
    """Whether *event* tells that a step (a tool, a subagent) ended in failure."""
    if kind.endswith((".failed", ".error")):
        return True
    if not kind.endswith((".completed", ".complete")):
        return False
    return bool(
        event.get("error") or event.get("is_error") or str(event.get("status")) in _FAILED_STATUS
    )


def _wordless(value: Any) -> Any:
    """*value* without words at any depth; numbers and the form of it stay."""
    if isinstance(value, str):
        return STEP_FAILED if value else value
    if isinstance(value, list):
        return [_wordless(item) for item in value]
    if isinstance(value, dict):
        return {key: _wordless(item) for key, item in value.items()}
    return value


def _is_code(value: Any) -> bool:
    """Whether *value* is a code and no words."""
    return isinstance(value, str) and _REASON_CODE.fullmatch(value) is not None


def _reason_code(value: Any) -> Any:
    """The code in the reason for an end; Hermes may write an error's words behind it."""
    if not isinstance(value, str) or not value:
        return value
    code = value.partition("(")[0]
    return code if _is_code(code) else FAILED


def _speaks(value: Any) -> bool:
    """Whether an error field holds words (a flag or a number does not)."""
    return isinstance(value, (str, list, dict)) and bool(value)


def _without_errors(value: Any) -> Any:
    """*value* with error texts at any depth closed."""
    if isinstance(value, dict):
        return {
            k: STEP_FAILED if k in _ERROR_FIELDS and _speaks(v) else _without_errors(v)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_without_errors(item) for item in value]
    return value


def usage_or_null(usage: dict[str, Any]) -> dict[str, Any]:
    """Token counts where known: Hermes writes 0 for what its provider did not tell."""
    out = dict(usage)
    known = any(_count(out.get(name)) for name in ("input_tokens", "output_tokens"))
    for name, value in usage.items():
        if not known and name.endswith("_tokens"):
            out[name] = None
        elif name.endswith("_tokens") and _count(value) is None:
            out[name] = None
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        out.setdefault(name, None)
    return out


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
