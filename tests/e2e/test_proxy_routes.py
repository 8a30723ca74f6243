"""The browser door before a real Hermes of each version: every route, as a page uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hermes_process import HermesProcess
from tests.e2e.proxy_hermes import PATIENCE, Door, end_of, text_of

TOOLS = [
    {"name": "mnote.shell", "scope": "shell", "schemaVersion": "v1", "upstream": "terminal"},
    {"name": "mnote.page.get", "scope": "page.read", "schemaVersion": "mnote.hermes_tool.v1"},
]


@pytest.fixture
async def door(hermes: HermesProcess, tmp_path: Path) -> AsyncIterator[Door]:
    """A browser door of its own for one test."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    async with Door(hermes, tmp_path, MNOTE_WEB_HERMES_TOOLS_FILE=str(tools)) as door:
        yield door


def request_for(hermes: HermesProcess, words: str) -> dict[str, Any]:
    """What the model was asked for the turn with these words (not for the session's title)."""
    return next(
        body
        for body in reversed(hermes.model_requests())
        if body.get("tools") and words in str(body["messages"][-1]["content"])
    )


async def test_a_run_from_its_start_to_the_list(door: Door, hermes: HermesProcess) -> None:
    async with door.page("doc_routes") as page:
        assert (await page.get(f"/sessions/{page.session}"))["messages"] == []
        started = await page.start("hello there", traceId="trace_run_1", model="hermes-agent")
        assert started["traceId"] == "trace_run_1" and started["messageId"] is None
        events = await page.read(started["runId"])

        assert text_of(events) == end_of(events).data["output"] == "echo: hello there"
        assert {event.data["session_id"] for event in events} == {page.session}
        listed = (await page.get("/sessions", **page.names))["sessions"]
        assert [row["sessionId"] for row in listed] == [page.session]
        assert listed[0]["preview"] == "hello there" and listed[0]["messageCount"] == 2
        assert isinstance(listed[0]["updatedAt"], int)
        stored = await page.get(f"/sessions/{page.session}", **page.names)
        assert [(m["role"], m["content"]) for m in stored["messages"]] == [
            ("user", "hello there"),
            ("assistant", "echo: hello there"),
        ]
        assert all(isinstance(m["messageId"], str) for m in stored["messages"])
        assert stored["usage"]["totalTokens"] > 0


async def test_two_turns_are_one_conversation(door: Door, hermes: HermesProcess) -> None:
    async with door.page("doc_turns") as page:
        for words in ("my name is Ada", "what is my name"):
            await page.read((await page.start(words))["runId"])
        request = request_for(hermes, "what is my name")

        said = [(m["role"], str(m["content"])) for m in request["messages"]]
        assert [role for role, _ in said] == ["system", "user", "assistant", "user"]
        assert "my name is Ada" in said[1][1] and "echo: my name is Ada" in said[2][1]
        stored = (await page.get(f"/sessions/{page.session}"))["messages"]
        assert len(stored) == 4


async def test_page_data_reaches_the_model_beside_the_words(
    door: Door, hermes: HermesProcess
) -> None:
    async with door.page("doc_context") as page:
        started = await page.start("look here", pageContext={"title": "项目计划-7"})
        await page.read(started["runId"])
        request = request_for(hermes, "look here")

        assert "项目计划-7" in str(request["messages"][0]["content"])
        assert "项目计划-7" not in str(request["messages"][1:])
        assert "项目计划-7" not in str(await page.get(f"/sessions/{page.session}"))


async def test_the_title_is_given_after_the_first_run(door: Door) -> None:
    for number in (1, 2):
        async with door.page(f"doc_title_{number}") as page:
            title = {"title": f"Same title {door.port}", "traceId": page.session[-40:]}
            session = (await page.post("/sessions", {**page.names, **title}))["sessionId"]
            page.session = session
            await page.read((await page.start("hello"))["runId"])
            async with asyncio.timeout(PATIENCE):
                while True:
                    (row,) = (await page.get("/sessions", **page.names))["sessions"]
                    if row["title"].startswith(title["title"]):
                        break
                    await asyncio.sleep(0.1)
            assert (row["title"] == title["title"]) == (number == 1)


async def test_two_tabs_and_a_returning_one_see_the_same(door: Door) -> None:
    async with door.page("doc_tabs") as page:
        run_id = (await page.start("stream 30 50"))["runId"]
        tabs = [asyncio.create_task(page.read(run_id)) for _ in range(2)]
        dropped = await page.read_until(run_id, "message.delta", 5)
        rest = await page.read(run_id, dropped[-1].id)
        first, second = await asyncio.gather(*tabs)

        whole = [(event.id, event.data) for event in first]
        assert whole == [(event.id, event.data) for event in second]
        assert whole == [(event.id, event.data) for event in [*dropped, *rest]]
        assert whole == [(event.id, event.data) for event in await page.read(run_id)]
        assert text_of(first) == end_of(first).data["output"]
        async with page.client.get(
            f"{door.url}/api/hermes/client/events/{run_id}",
            params={"sessionId": page.session, "lastEventId": str(first[-1].id)},
        ) as answer:
            assert answer.status == 204


async def test_events_come_apart_as_the_model_says_them(door: Door, hermes: HermesProcess) -> None:
    async with door.page("doc_gaps") as page:
        run_id = (await page.start("stream 200 100"))["runId"]
        events = await page.read_until(run_id, "message.delta", 60)
        # Held back to the end, none would be here while the model still speaks.
        run = await asyncio.to_thread(hermes.api, f"/v1/runs/{run_id}")
        assert run["status"] == "running"
        times = [event.at for event in events if event.kind == "message.delta"]
        gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
        # The model speaks every 100 ms. Held back for company, words would come in heaps; a busy
        # machine may bring a few together.
        assert len(gaps) == 59 and sum(gap > 0.05 for gap in gaps) >= 5, gaps
        await page.post(f"/runs/{run_id}/abort", page.ids)


async def test_abort_stops_the_agent_and_is_answered_calmly_again(door: Door) -> None:
    async with door.page("doc_abort") as page:
        run_id = (await page.start("stream 800 100"))["runId"]
        await page.read_until(run_id, "message.delta", 2)
        for _ in range(2):
            answer = await page.post(f"/runs/{run_id}/abort", page.ids)
            assert answer["events"][0]["event"] in ("abort.started", "run.cancelled")
        events = await page.read(run_id)
        # In the middle of it, not when it had said everything.
        assert end_of(events).kind == "run.cancelled" and "word800" not in text_of(events)
        answer = await page.post(f"/runs/{run_id}/abort", page.ids)
        assert answer["events"] == [{"event": "run.cancelled", "run_id": run_id}]


@pytest.mark.parametrize("choice", ["once", "deny"])
async def test_an_approval_is_asked_and_answered(door: Door, tmp_path: Path, choice: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    async with door.page(f"doc_approval_{choice}") as page:
        run_id = (await page.start(f"approve rm -rf {victim}"))["runId"]
        asked = (await page.read_until(run_id, "approval.request"))[-1].data
        assert asked["approvalId"] and choice in asked["choices"]
        path = f"/runs/{run_id}/approval"
        answer = {**page.ids, "approvalId": asked["approvalId"], "choice": choice}
        await page.post(path, {**answer, "approvalId": "another"}, 409)
        assert (await page.post(path, answer))["resolved"] == 1
        await page.post(path, answer, 409)
        events = await page.read(run_id)

        assert end_of(events).kind == "run.completed"
        responded = next(e.data for e in events if e.kind == "approval.responded")
        assert responded["approvalId"] == asked["approvalId"]
        assert victim.exists() == (choice == "deny")


async def test_models_tools_and_health(door: Door) -> None:
    async with door.page("doc_lists") as page:
        models = await page.get("/models")
        assert models["defaultModel"] == models["models"][0]["id"] == "hermes-agent"
        tools = await page.get("/tools")
        assert [tool["name"] for tool in tools["tools"]] == ["mnote.shell"]
        health = await page.get("/health")
        assert (health["upstream"], health["configured"]) == ("ok", True)


async def test_a_run_is_started_once_for_one_key(door: Door) -> None:
    async with door.page("doc_keys") as page:
        body = {**page.ids, "message": "stream 5", "pageContext": {"title": "x"}}
        headers = {"Idempotency-Key": f"key-{door.port}"}
        first = await page.post("/runs", body, **headers)
        again = await page.post("/runs", body, **headers)
        assert first["runId"] == again["runId"]
        await page.post("/runs", {**body, "message": "other"}, 409, **headers)
        await page.read(first["runId"])
        running = (await page.start("stream 800 100"))["runId"]
        await page.start("at the same time", 409)
        await page.post(f"/runs/{running}/abort", page.ids)


async def test_a_failing_model_is_told_in_a_closed_sentence(door: Door) -> None:
    async with door.page("doc_fail") as page:
        events = await page.read((await page.start("fail"))["runId"])
        text = json.dumps([event.data for event in events])

        assert end_of(events).kind in ("run.failed", "run.completed")
        assert "asks for this error" not in text or end_of(events).kind == "run.completed"


async def test_no_key_is_in_anything_that_was_said(door: Door, hermes: HermesProcess) -> None:
    async with door.page("doc_secret") as page:
        said: list[Any] = []
        run_id = (await page.start(f"the key is {hermes.api_key} yes"))["runId"]
        said += [event.data for event in await page.read(run_id)]
        said.append(await page.get(f"/sessions/{page.session}"))
        said.append(await page.get("/sessions", **page.names))

        assert hermes.api_key not in json.dumps(said) + door.output()
        assert "[redacted]" in json.dumps(said)
