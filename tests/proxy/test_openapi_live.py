"""The running proxy keeps to openapi.yaml, whatever is sent to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS, load_all_checks

from tests.proxy.running import browsing
from tests.proxy.small_hermes import SmallHermes

SPEC = yaml.safe_load(
    Path(__file__).parents[2].joinpath("contracts/client-proxy-v1/openapi.yaml").read_text()
)
# Who is signed in is told by a header of the tests; the ways to sign in have tests of their own.
SPEC = {k: v for k, v in SPEC.items() if k != "security"}
schema = schemathesis.openapi.from_dict(SPEC)
load_all_checks()
CHECKED = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "negative_data_rejection",
    ]
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A proxy before a small Hermes, in a thread with a loop of its own."""
    ready: list[str] = []
    stop: list[Any] = []
    started = threading.Event()

    async def serve() -> None:
        ended = asyncio.Event()
        stop.append((asyncio.get_running_loop(), ended))
        limits = {"max_runs": 10**6, "max_runs_per_user": 10**6}
        async with SmallHermes() as hermes, browsing(hermes.url, **limits) as browser:
            ready.append(browser.url)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    try:
        yield ready[0]
    finally:
        loop, ended = stop[0]
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)
        thread.join(20)


@schema.parametrize()
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_to_the_contract(case: Any, url: str) -> None:
    headers = {"X-Test-User": "ann", "Host": "localhost"}
    case.call_and_validate(base_url=url, headers=headers, checks=CHECKED, timeout=60)
