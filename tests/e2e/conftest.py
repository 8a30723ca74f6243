"""Fixtures that start real Hermes Agents. A missing environment fails, it never skips."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hermes_process import VERSIONS, HermesProcess


@pytest.fixture(scope="session", params=VERSIONS)
def hermes_version(request: pytest.FixtureRequest) -> str:
    """Each supported Hermes version in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def hermes(
    hermes_version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HermesProcess]:
    """One running gateway per version, shared by all tests that leave it running.

    Tests use device ids and session ids of their own, so that they do not meet.
    """
    folder = _folder(tmp_path_factory, hermes_version)
    with HermesProcess(hermes_version, folder) as process:
        yield process


@pytest.fixture
def new_hermes(
    hermes_version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., HermesProcess]]:
    """Start a gateway for one test alone: to be killed, restarted or configured otherwise.

    `new_hermes(approval_timeout=3, mobile={"MOBILE_PROMPT_TTL": "2"})` takes what
    `HermesProcess` takes.
    """
    with ExitStack() as stack:

        def make(**options: Any) -> HermesProcess:
            folder = _folder(tmp_path_factory, hermes_version)
            return stack.enter_context(HermesProcess(hermes_version, folder, **options))

        yield make


def _folder(factory: pytest.TempPathFactory, version: str) -> Path:
    return factory.mktemp(re.sub(r"\W", "-", f"hermes-{version}"))
