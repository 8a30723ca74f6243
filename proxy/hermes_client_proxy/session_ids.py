"""The grammar of session ids: ``mnote_{documentId}_{suffix}``, readable in one way only.

The suffix is ``trace_`` followed by letters, digits, dots and hyphens, or one part of such
characters without an underscore. Where both readings fit, the ``trace_`` reading wins, so
``mnote_doc_1_trace_1`` belongs to ``doc_1`` and never to ``doc_1_trace``.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from .contract import bad_request

MAX_SESSION_ID = 256
MAX_DOCUMENT_ID = 128

_PREFIX = "mnote_"
_DOCUMENT = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACE = re.compile(r"trace_[A-Za-z0-9.-]+")
_READ_TRACE = re.compile(r"mnote_(?P<document>[A-Za-z0-9._:-]+)_trace_[A-Za-z0-9.-]+")
_READ_PLAIN = re.compile(r"mnote_(?P<document>[A-Za-z0-9._:-]+)_[A-Za-z0-9.-]+")


def document_of(session_id: str) -> str | None:
    """The document that *session_id* belongs to, or None if it is no session id of the contract."""
    if len(session_id) > MAX_SESSION_ID or ".." in session_id:
        return None
    found = _READ_TRACE.fullmatch(session_id) or _READ_PLAIN.fullmatch(session_id)
    if found is None:
        return None
    document = found["document"]
    return document if len(document) <= MAX_DOCUMENT_ID else None


def session_id_for(document_id: str, trace_id: str | None) -> str:
    """A session id for *document_id*; the same trace id always gives the same session id.

    A trace id of the form ``trace_…`` is used as it is, any other is hashed into it, and without
    one the suffix is random. Raises ProxyError (bad_request) if no id can be made that reads back
    to this document.
    """
    if trace_id is None:
        suffix = "trace_" + secrets.token_hex(16)
    elif (
        _TRACE.fullmatch(trace_id)
        and ".." not in trace_id
        and len(f"{_PREFIX}{document_id}_{trace_id}") <= MAX_SESSION_ID
    ):
        suffix = trace_id
    else:
        suffix = "trace_" + hashlib.sha256(trace_id.encode()).hexdigest()[:32]
    session_id = f"{_PREFIX}{check_document_id(document_id)}_{suffix}"
    if document_of(session_id) != document_id:
        raise bad_request("documentId cannot be part of a session id; use letters, digits, . _ : -")
    return session_id


def check_document_id(value: str) -> str:
    """*value*, or bad_request."""
    if not _DOCUMENT.fullmatch(value) or ".." in value:
        raise bad_request(
            "documentId is malformed; use 1 to 128 letters, digits and . _ : - without two dots."
        )
    return value


def check_session_id(value: str) -> str:
    """The document of session id *value*, or bad_request."""
    document = document_of(value)
    if document is None:
        raise bad_request(
            "sessionId is malformed; use one that POST /sessions or GET /sessions answered."
        )
    return document
