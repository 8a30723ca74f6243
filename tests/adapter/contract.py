"""The contract as the tests read it: the same reader the conformance kit ships."""

from __future__ import annotations

from pathlib import Path

from hermes_mobile.conformance.contract import (
    ABSENT,
    complaint,
    expand,
    load,
    message,
    mismatch,
    scenarios,
    validator,
    vectors,
)

ROOT = Path(__file__).resolve().parents[2] / "contracts" / "mobile-v1"

__all__ = [
    "ABSENT",
    "ROOT",
    "complaint",
    "expand",
    "load",
    "message",
    "mismatch",
    "scenarios",
    "validator",
    "vectors",
]
