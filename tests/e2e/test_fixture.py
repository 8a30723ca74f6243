"""The fixture itself: a real gateway with the offline model behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from demo.processes import answers
from tests.e2e.hermes_process import PATIENCE, HermesProcess


def finished_run(hermes: HermesProcess, text: str, session: str, choice: str = "") -> Any:
    """Start a run, answer every approval with `choice`, return the run once it has ended."""
    run = hermes.api("/v1/runs", {"input": text, "session_id": session})["run_id"]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        state = hermes.api(f"/v1/runs/{run}")
        if state["status"] in ("completed", "failed", "cancelled"):
            return state
        if state["status"] == "waiting_for_approval":
            hermes.api(f"/v1/runs/{run}/approval", {"choice": choice})
        time.sleep(0.02)
    raise AssertionError(f"the run did not end: {state}\n{hermes.logs()[-2000:]}")


def test_the_agent_answers_with_the_offline_model(hermes: HermesProcess) -> None:
    """A run's text goes through Hermes to the model and back."""
    state = finished_run(hermes, "hello", "fixture-hello")

    assert state["output"] == "echo: hello"
    assert state["usage"]["output_tokens"] > 0


def test_the_choice_of_an_approval_reaches_the_model(hermes: HermesProcess) -> None:
    """Hermes asks, also about a harmless command, and the answer names the choice made."""
    for choice in ("once", "deny", "session"):
        state = finished_run(hermes, "approve rm -rf /tmp/no-such-folder", "fixture-a", choice)
        assert state["output"] == f"approval: {choice}"

    assert finished_run(hermes, "approve echo hi", "fixture-b", "deny")["output"] == (
        "approval: deny"
    )


def test_a_failing_model_fails_the_run(hermes: HermesProcess) -> None:
    """`fail` is an HTTP error of the model; the next run is not affected."""
    assert finished_run(hermes, "fail", "fixture-fail")["status"] == "failed"
    assert finished_run(hermes, "again", "fixture-fail")["output"] == "echo: again"


def test_a_killed_gateway_comes_back_in_the_same_home(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """kill() and revive() keep the home: the session is still there."""
    hermes = new_hermes(door=False)
    finished_run(hermes, "remember me", "fixture-kept")

    hermes.kill()
    assert not hermes.alive()
    hermes.revive()

    messages = hermes.api("/api/sessions/fixture-kept/messages")["data"]
    assert [m["content"] for m in messages] == ["remember me", "echo: remember me"]


def test_the_adapter_works_as_a_directory_plugin(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """Copied into the home, without the pip package: the door listens all the same."""
    hermes = new_hermes(directory_plugin=True)

    assert answers(f"http://127.0.0.1:{hermes.door_port}/health", PATIENCE)
    assert (hermes.home / "plugins" / "mobile" / "plugin.yaml").is_file()
