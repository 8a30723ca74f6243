"""Log lines: JSON through the standard logger ``hermes_client_proxy``; the host decides where to.

A line holds ids, codes and counts. It never holds content, a secret or the text of an error.
"""

from __future__ import annotations

import hashlib
import logging
import traceback
from typing import Any

import structlog

log: Any = structlog.wrap_logger(
    logging.getLogger("hermes_client_proxy"),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(),
    ],
    cache_logger_on_first_use=True,
)


def fingerprint(user_id: str) -> str:
    """Tells users apart in a log without naming them."""
    return hashlib.sha256(user_id.encode("utf-8", "replace")).hexdigest()[:10]


def where(error: BaseException) -> dict[str, str]:
    """The kind of *error* and the place it came from, without its text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return {"error": type(error).__name__, "place": place}
