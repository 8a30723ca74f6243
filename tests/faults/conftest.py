"""The real Hermes Agents of the end-to-end tests, to be killed."""

from __future__ import annotations

from tests.e2e.conftest import hermes_version, new_hermes

__all__ = ["hermes_version", "new_hermes"]
