"""Which approval requests of one run are open, and which of them may be answered. Pure.

The older run interface answers its requests first in, first out and knows no request id: there,
only the oldest open request may be answered, and a request whose tool has ended is closed here so
that an answer meant for it never reaches the next one.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

from .contract import CONFLICT, ProxyError, bad_request

CHOICES = ("once", "session", "always", "deny")
DETAILS_LOST = "A request is waiting whose details this server does not have. It can be denied."
MAX_OPEN = 64


@dataclass(slots=True)
class OpenRequest:
    """``upstream_id`` is the request id to send upstream, where it has one."""

    approval_id: str
    upstream_id: str | None
    choices: tuple[str, ...]
    command: str
    answering: bool = False


@dataclass(slots=True)
class _RunningTool:
    name: str
    preview: str
    started: float
    approval_id: str | None = None


@dataclass(slots=True)
class Approvals:
    """The open requests of one run, oldest first."""

    run_id: str
    addressed: bool
    """Whether the upstream takes a request id with the answer."""
    open: dict[str, OpenRequest] = field(default_factory=dict)
    _tools: list[_RunningTool] = field(default_factory=list)
    _settled: list[OpenRequest] = field(default_factory=list)
    """Answered here; the event that says so is still to come."""
    _made: int = 0

    def requested(self, event: dict[str, Any]) -> dict[str, Any]:
        """Notes the request; the event with its ``approvalId``."""
        upstream_id = event.get("request_id")
        if not isinstance(upstream_id, str) or not 0 < len(upstream_id) <= 256:
            upstream_id = None
        approval_id = upstream_id if upstream_id and upstream_id.isascii() else None
        if approval_id is None or not all("!" <= c <= "~" for c in approval_id):
            approval_id = self._make_id(event)
        offered = event.get("choices")
        choices = tuple(c for c in CHOICES if isinstance(offered, list) and c in offered) or CHOICES
        command = event.get("command")
        request = OpenRequest(
            approval_id,
            upstream_id if self.addressed else None,
            choices,
            command if isinstance(command, str) else "",
        )
        if len(self.open) < MAX_OPEN:
            self.open[approval_id] = request
        self._bind(request)
        return {**event, "choices": list(choices), "approvalId": approval_id}

    def lost(self) -> dict[str, Any] | None:
        """The event for a request that is known to wait while none is noted here, else None."""
        if self.open:
            return None
        approval_id = "apr_" + secrets.token_hex(12)
        self.open[approval_id] = OpenRequest(approval_id, None, ("deny",), "")
        return {
            "event": "approval.request",
            "approvalId": approval_id,
            "command": "",
            "description": DETAILS_LOST,
            "choices": ["deny"],
        }

    def _make_id(self, event: dict[str, Any]) -> str:
        # The same request read again after a restart of this server gets the same id.
        self._made += 1
        seed = f"{self.run_id}|{event.get('timestamp')}|{event.get('command')}|{self._made}"
        return "apr_" + hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()[:24]

    def _bind(self, request: OpenRequest) -> None:
        free = [tool for tool in self._tools if tool.approval_id is None]
        same = [tool for tool in free if tool.preview and request.command.startswith(tool.preview)]
        if same or free:
            (same or free)[-1].approval_id = request.approval_id

    def tool_started(self, event: dict[str, Any]) -> None:
        """Remembers the tool, so that its end closes its request."""
        if len(self._tools) < MAX_OPEN:
            preview = event.get("preview")
            self._tools.append(
                _RunningTool(
                    str(event.get("tool", "")),
                    preview.rstrip(".…") if isinstance(preview, str) else "",
                    _number(event.get("timestamp")),
                )
            )

    def tool_completed(self, event: dict[str, Any]) -> list[str]:
        """The ids of requests that ran out unanswered with this tool's end."""
        name = str(event.get("tool", ""))
        running = [tool for tool in self._tools if tool.name == name]
        if not running:
            return []
        started = _number(event.get("timestamp")) - _number(event.get("duration"))
        ended = min(running, key=lambda tool: abs(tool.started - started))
        self._tools.remove(ended)
        if ended.approval_id is None:
            return []
        request = self.open.pop(ended.approval_id, None)
        return [] if request is None or request.answering else [request.approval_id]

    def responded(self, event: dict[str, Any]) -> None:
        """Closes what was answered, by whomever; the event gets the ``approvalId``."""
        upstream_id = event.get("request_id")
        for request in (*self._settled, *self.open.values()):
            if upstream_id is None or request.upstream_id == upstream_id:
                event.setdefault("approvalId", request.approval_id)
                if request in self._settled:
                    self._settled.remove(request)
                else:
                    del self.open[request.approval_id]
                break

    def begin_answer(self, approval_id: str, choice: str) -> OpenRequest:
        """The request to answer. Raises ProxyError (conflict, bad_request) and changes nothing."""
        request = self.open.get(approval_id)
        if request is None or request.answering:
            raise ProxyError(
                CONFLICT, "This approval is not open (any more); nothing was approved or denied."
            )
        if request.upstream_id is None and next(iter(self.open)) != approval_id:
            raise ProxyError(
                CONFLICT,
                "An older approval of this run is open and has to be answered first; nothing was "
                "approved or denied.",
            )
        if choice not in request.choices:
            raise bad_request("This choice is not offered for this approval; see its choices.")
        if request.upstream_id is None and any(r.answering for r in self.open.values()):
            raise ProxyError(CONFLICT, "Another approval of this run is being answered; wait.")
        request.answering = True
        return request

    def answered(self, request: OpenRequest) -> None:
        """The answer reached the agent, or may have: it is never sent again."""
        if self.open.pop(request.approval_id, None) is not None:
            self._settled.append(request)

    def not_answered(self, request: OpenRequest) -> None:
        """The answer certainly did not reach the agent: it may be tried again."""
        request.answering = False

    def close(self) -> None:
        """The run has ended: nothing is open."""
        self.open.clear()
        self._tools.clear()


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
