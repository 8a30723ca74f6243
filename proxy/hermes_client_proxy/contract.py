"""The client proxy contract v1: request and response shapes, error codes and their HTTP status.

This module knows msgspec and nothing else of the package.
``contracts/client-proxy-v1/openapi.yaml`` describes the same shapes; a test compares the two.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Literal, TypeVar

import msgspec

PREFIX = "/api/hermes/client"
LEGACY_PATH = "/api/ai-agent/run"

UNAUTHORIZED = "hermes_client_unauthorized"
UNCONFIGURED = "hermes_client_unconfigured"
BAD_REQUEST = "hermes_client_bad_request"
UPSTREAM_UNAUTHORIZED = "hermes_client_upstream_unauthorized"
UPSTREAM_RATE_LIMITED = "hermes_client_upstream_rate_limited"
UPSTREAM_UNAVAILABLE = "hermes_client_upstream_unavailable"
FORBIDDEN = "hermes_client_forbidden"
NOT_FOUND = "hermes_client_not_found"
CONFLICT = "hermes_client_conflict"
TOO_LARGE = "hermes_client_too_large"
RATE_LIMITED = "hermes_client_rate_limited"

STATUS: dict[str, int] = {
    UNAUTHORIZED: 401,
    UNCONFIGURED: 503,
    BAD_REQUEST: 400,
    UPSTREAM_UNAUTHORIZED: 502,
    UPSTREAM_RATE_LIMITED: 429,
    UPSTREAM_UNAVAILABLE: 502,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    CONFLICT: 409,
    TOO_LARGE: 413,
    RATE_LIMITED: 429,
}
"""The usual HTTP status of each code. A few errors use another one of the same meaning:
bad_request also 405 (method) and 415 (content type), upstream_unavailable also 504 (too slow)."""

TERMINAL_EVENTS = frozenset({"run.completed", "run.failed", "run.cancelled", "run.interrupted"})

_TRACE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_WORKSPACE_ID = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_MODEL = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_APPROVAL_ID = re.compile(r"[\x21-\x7e]{1,256}")


class ProxyError(Exception):
    """A refusal that is part of the contract; raised anywhere, made an answer in one place.

    ``message`` is a closed sentence of this package and never holds text of an upstream or a
    request. ``retry_after`` is in whole seconds.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: int | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = STATUS[code] if status is None else status
        self.retry_after = retry_after
        self.allow = allow


def bad_request(message: str) -> ProxyError:
    """A 400 with this sentence."""
    return ProxyError(BAD_REQUEST, message)


class ErrorBody(msgspec.Struct, frozen=True):
    """Every error of the contract."""

    ok: Literal[False]
    code: str
    message: str
    traceId: str
    requestId: str


class SessionSummary(msgspec.Struct, frozen=True):
    """One conversation of a document; ``updatedAt`` is whole epoch seconds."""

    sessionId: str
    title: str
    preview: str
    messageCount: int | None
    toolCallCount: int | None
    updatedAt: int | None
    model: str


class SessionList(msgspec.Struct, frozen=True):
    ok: Literal[True]
    traceId: str
    sessions: list[SessionSummary]


class CreateSession(msgspec.Struct, frozen=True):
    workspaceId: str
    documentId: str
    traceId: str | None = None
    title: str | None = None


class SessionCreated(msgspec.Struct, frozen=True):
    ok: Literal[True]
    sessionId: str
    traceId: str
    persistence: Literal["hermes_on_first_run"]


class Message(msgspec.Struct, frozen=True):
    """One stored message; ``timestamp`` is whole epoch seconds."""

    messageId: str
    role: str
    content: str
    toolCallId: str | None
    toolName: str | None
    timestamp: int | None
    reasoning: str | None


class Usage(msgspec.Struct, frozen=True):
    """Tokens; an unknown number is null, never zero."""

    inputTokens: int | None
    outputTokens: int | None
    totalTokens: int | None


class SessionDetail(msgspec.Struct, frozen=True):
    ok: Literal[True]
    sessionId: str
    traceId: str
    messages: list[Message]
    usage: Usage


class StartRun(msgspec.Struct, frozen=True):
    workspaceId: str
    documentId: str
    sessionId: str
    message: str
    model: str | None = None
    pageContext: dict[str, Any] | None = None
    selectedBlockId: str | None = None
    selectedText: str | None = None
    traceId: str | None = None


class RunStarted(msgspec.Struct, frozen=True):
    ok: Literal[True]
    sessionId: str
    runId: str
    messageId: str | None
    events: list[dict[str, Any]]
    traceId: str


class AbortRun(msgspec.Struct, frozen=True):
    workspaceId: str
    documentId: str
    sessionId: str
    traceId: str | None = None


class RunAborted(msgspec.Struct, frozen=True):
    ok: Literal[True]
    runId: str
    sessionId: str
    traceId: str
    events: list[dict[str, Any]]


class AnswerApproval(msgspec.Struct, frozen=True):
    workspaceId: str
    documentId: str
    sessionId: str
    approvalId: str
    choice: Literal["once", "session", "always", "deny"]
    traceId: str | None = None


class ApprovalAnswered(msgspec.Struct, frozen=True):
    ok: Literal[True]
    runId: str
    sessionId: str
    traceId: str
    approvalId: str
    choice: str
    resolved: int


class Model(msgspec.Struct, frozen=True):
    id: str
    label: str
    provider: str


class ModelList(msgspec.Struct, frozen=True):
    ok: Literal[True]
    traceId: str
    defaultModel: str
    models: list[Model]


class Tool(msgspec.Struct, frozen=True):
    name: str
    scope: str
    schemaVersion: str


class ToolList(msgspec.Struct, frozen=True):
    ok: Literal[True]
    traceId: str
    tools: list[Tool]


class Health(msgspec.Struct, frozen=True):
    """``upstream`` is what the last look (a few seconds old at most) found."""

    ok: Literal[True]
    traceId: str
    version: str
    configured: bool
    upstream: Literal["ok", "unauthorized", "unavailable", "unconfigured"]
    runInterface: Literal["basic", "replayable"] | None
    runningRuns: int
    openStreams: int


T = TypeVar("T", bound=msgspec.Struct)


def decode(raw: bytes, kind: type[T]) -> T:
    """Read a request body into *kind*.

    Raises ProxyError (bad_request) naming the field that is wrong. The value of the field is not
    repeated: it may be private.
    """
    try:
        raw.decode()  # msgspec does not look into fields that it skips
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"The JSON body does not fit: {_validation_sentence(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_request("The body is not valid JSON in UTF-8; send one JSON object.") from None


def _validation_sentence(error: msgspec.ValidationError) -> str:
    text = str(error)
    # msgspec quotes the offending value only for enumerations; the contract never echoes input.
    text = re.sub(r"Invalid enum value .*?( - at|$)", r"Value not allowed\1", text)
    return text[:300]


def made_id(prefix: str) -> str:
    """A new id for a trace or a request."""
    return prefix + secrets.token_hex(16)


def valid_trace_id(value: object) -> bool:
    """Whether *value* may be carried as a trace id."""
    return isinstance(value, str) and _TRACE_ID.fullmatch(value) is not None


def check_run_id(value: str) -> str:
    """*value*, or bad_request if it may not become part of an upstream path."""
    if not _RUN_ID.fullmatch(value) or ".." in value:
        raise bad_request("The run id is malformed; use the runId that POST /runs answered.")
    return value


def check_workspace_id(value: str) -> str:
    """*value*, or bad_request."""
    if not _WORKSPACE_ID.fullmatch(value):
        raise bad_request("workspaceId is malformed; give 1 to 256 characters without controls.")
    return value


def check_model(value: str | None) -> str | None:
    """*value*, or bad_request; an empty name means the default model."""
    if value is None or value == "":
        return None
    if not _MODEL.fullmatch(value):
        raise bad_request("model is malformed; give a name that GET /models lists, or null.")
    return value


def check_idempotency_key(value: str) -> str:
    """*value*, or bad_request."""
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise bad_request("Idempotency-Key must be 1 to 255 visible ASCII characters.")
    return value


def check_approval_id(value: str) -> str:
    """*value*, or bad_request."""
    if not _APPROVAL_ID.fullmatch(value):
        raise bad_request("approvalId is malformed; use the one of the approval.request event.")
    return value
