"""Checks of runs: what a page sees while Hermes works, and what it can do about it.

They speak the words of the scripted agent and the offline model: `stream N MS`, `approve CMD`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any

from .. import contract
from ..contract import CONFLICT, FORBIDDEN, NOT_FOUND
from .asking import Row
from .browser import Event, Failed, Page, shortened

# The heartbeat's period, and a little for a busy machine.
HEARTBEAT = 15.0
HEARTBEAT_SLACK = 5.0
FIRST_BYTE = 3.0
WORDS, STEP_MS = 12, 150


async def _started(page: Page, message: str, **more: Any) -> tuple[dict[str, str], str]:
    ids = page.ids()
    told = await page.start(ids, message, **more)
    if told["sessionId"] != ids["sessionId"]:
        raise Failed(f"the run is in another session: {shortened(told)}")
    return ids, told["runId"]


async def _finished(
    page: Page, message: str = "stream 5 20"
) -> tuple[dict[str, str], str, list[Event]]:
    ids, run_id = await _started(page, message)
    events = await page.read(run_id, ids["sessionId"])
    _sound(events, run_id, ids["sessionId"])
    return ids, run_id, events


def _sound(events: list[Event], run_id: str, session: str) -> None:
    """The shape of a whole stream's contract events."""
    if not events:
        raise Failed("the stream ended without an event")
    for event in events:
        if not event.id:
            raise Failed(f"a contract event has an id: {shortened(event.data)}")
        if (event.data.get("run_id"), event.data.get("session_id")) != (run_id, session):
            raise Failed(f"every event carries run_id and session_id: {shortened(event.data)}")
        if not isinstance(event.data.get("event"), str):
            raise Failed(f"every event names its kind in `event`: {shortened(event.data)}")
        stamp = event.data.get("timestamp")
        if stamp is not None and not isinstance(stamp, int):
            raise Failed(f"times are whole seconds: {shortened(event.data)}")
    ids = [event.id for event in events]
    if len(set(ids)) != len(ids):
        raise Failed(f"two events have the same id: {ids[:20]}")
    ends = [event.kind for event in events if event.terminal]
    if len(ends) != 1 or not events[-1].terminal:
        raise Failed(
            f"a stream ends with its one terminal event, here: {[e.kind for e in events[-4:]]}"
        )


def _said(events: list[Event]) -> str:
    return "".join(str(e.data.get("delta")) for e in events if e.kind == "message.delta")


async def whole(page: Page) -> None:
    """From the start to run.completed, with the agent's words."""
    _, _, events = await _finished(page)
    if events[-1].kind != "run.completed":
        raise Failed(f"the run ended with {shortened(events[-1].data)}")
    if "word5" not in _said(events) and "word5" not in str(events[-1].data.get("output")):
        raise Failed(f"the agent's words are missing: {shortened(_said(events))}")
    usage = events[-1].data.get("usage")
    if isinstance(usage, Mapping) and usage.get("input_tokens") == 0 == usage.get("output_tokens"):
        raise Failed("usage that is not known is null, never zero")


async def head_at_once(page: Page) -> None:
    """Headers that forbid buffering, and a first byte before the agent has said anything."""
    ids, run_id = await _started(page, "stream 3 700")
    began = time.monotonic()
    async with page.events(run_id, ids["sessionId"]) as (answer, events):
        kind = answer.headers.get("content-type", "")
        if answer.status != 200 or not kind.startswith("text/event-stream"):
            raise Failed(f"HTTP {answer.status} {kind}")
        cache = answer.headers.get("cache-control", "")
        if "no-transform" not in cache or not ("no-cache" in cache or "no-store" in cache):
            raise Failed(f"Cache-Control should be no-cache, no-transform: {cache!r}")
        if answer.headers.get("x-accel-buffering") != "no":
            raise Failed("X-Accel-Buffering: no is missing")
        if "content-encoding" in answer.headers:
            raise Failed("an event stream must not be compressed")
        await anext(events, None)
        took = time.monotonic() - began
    if took > FIRST_BYTE:
        raise Failed(f"the first byte came after {took:.1f} s")


async def first_heartbeat(page: Page) -> None:
    """A comment and a named heartbeat with data and no id, from the first moment."""
    ids, run_id = await _started(page, "stream 3 100")
    comment = beat = None
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        async for event in events:
            comment = comment or (event if event.name == ":" else None)
            beat = beat or (event if event.name == "heartbeat" else None)
            if comment and beat:
                break
    if beat is None or comment is None:
        raise Failed("no comment and heartbeat at the beginning of the stream")
    if beat.id or beat.data.get("session_id") != ids["sessionId"]:
        raise Failed(f"a heartbeat has data with session_id, and no id: {shortened(beat.data)}")


async def heartbeats_go_on(page: Page) -> None:
    """Every 15 seconds."""
    seconds = HEARTBEAT + HEARTBEAT_SLACK
    ids, run_id = await _started(page, f"stream {int(seconds * 2)} 600")
    beats: list[float] = []
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        async for event in events:
            if event.name == "heartbeat":
                beats.append(event.at)
            if len(beats) == 2 or event.at > seconds + 2:
                break
    await _stop(page, ids, run_id)
    if len(beats) < 2 or not beats[1] - beats[0] <= seconds:
        raise Failed(f"a second heartbeat within {seconds:g} s was due: {beats}")


async def _stop(page: Page, ids: Mapping[str, str], run_id: str) -> None:
    await page.ask("POST", f"/runs/{run_id}/abort", json=dict(ids))


async def gaps(page: Page) -> None:
    """Words come as they are said, not in a heap at the end."""
    ids, run_id = await _started(page, f"stream {WORDS} {STEP_MS}")
    events = await page.read(run_id, ids["sessionId"])
    deltas = [event.at for event in events if event.kind == "message.delta"]
    due = (WORDS - 1) * STEP_MS / 1000
    if len(deltas) < 3:
        raise Failed(f"{WORDS} words came in {len(deltas)} piece(s)")
    if deltas[-1] - deltas[0] < due / 3:
        raise Failed(f"words said over {due:.1f} s came within {deltas[-1] - deltas[0]:.2f} s")


async def second_reader(page: Page) -> None:
    """Two tabs, and one that comes late: each sees the whole run."""
    ids, run_id = await _started(page, "stream 6 60")
    session = ids["sessionId"]
    first, second = await asyncio.gather(page.read(run_id, session), page.read(run_id, session))
    late = await page.read(run_id, session)
    for other in (second, late):
        if [(e.id, e.data) for e in other] != [(e.id, e.data) for e in first]:
            raise Failed("two readers of one run saw different events")


async def replay(page: Page) -> None:
    """After Last-Event-ID only what came later, by header and by query."""
    ids, run_id, events = await _finished(page)
    middle = events[len(events) // 2]
    later = [event.id for event in events[events.index(middle) + 1 :]]
    for how, options in (
        ("Last-Event-ID", {"last": middle.id}),
        ("lastEventId", {"query": f"&lastEventId={middle.id}"}),
    ):
        seen = [event.id for event in await page.read(run_id, ids["sessionId"], **options)]
        if seen != later:
            raise Failed(f"{how}: {middle.id}: events {later} were due, there came {seen}")


async def nothing_left(page: Page) -> None:
    """Who has the last event gets 204: EventSource stops asking."""
    ids, run_id, events = await _finished(page)
    async with page.events(run_id, ids["sessionId"], last=events[-1].id) as (answer, _):
        if answer.status != 204:
            raise Failed(f"HTTP {answer.status} in place of 204")


async def strange_last_id(page: Page) -> None:
    """An id that is not of this log hides nothing."""
    ids, run_id, events = await _finished(page)
    seen = await page.read(run_id, ids["sessionId"], last="999999999-nobody")
    if [event.id for event in seen] != [event.id for event in events]:
        raise Failed("an unknown Last-Event-ID hid events")


async def leaving(page: Page) -> None:
    """A closed tab ends its stream and nothing else."""
    ids, run_id = await _started(page, "stream 10 60")
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        await anext(events, None)
    events_after = await page.read(run_id, ids["sessionId"])
    if events_after[-1].kind != "run.completed":
        raise Failed(f"the run ended with {events_after[-1].kind} after its reader left")


async def unknown_run(page: Page) -> None:
    """A run that nobody knows."""
    session = page.ids()["sessionId"]
    await page.refused("GET", f"/events/run_nobody?sessionId={session}", (404, 410), NOT_FOUND)


async def other_session(page: Page) -> None:
    """A run is seen under its own session only."""
    _, run_id, _ = await _finished(page)
    other = page.ids()["sessionId"]
    answer = await page.ask("GET", f"/events/{run_id}?sessionId={other}")
    if (answer.status, answer.body.get("code")) not in ((403, FORBIDDEN), (404, NOT_FOUND)):
        raise Failed(f"HTTP {answer.status} for a run of another session")


async def no_session(page: Page) -> None:
    """The session must be named."""
    await page.refused("GET", "/events/run_1", 400, contract.BAD_REQUEST)


async def one_run_a_session(page: Page) -> None:
    """A second run while one is active."""
    ids, run_id = await _started(page, "stream 40 100")
    try:
        body = {**ids, "message": "another"}
        await page.refused("POST", "/runs", 409, CONFLICT, json=body)
    finally:
        await _stop(page, ids, run_id)


async def same_key(page: Page) -> None:
    """The same Idempotency-Key and body are the same run; another body is a conflict."""
    ids = page.ids()
    headers = {"Idempotency-Key": secrets.token_hex(12)}
    first = await page.start(ids, "stream 3 20", headers=headers)
    again = await page.start(ids, "stream 3 20", headers=headers)
    if first["runId"] != again["runId"]:
        raise Failed("the same Idempotency-Key started a second run")
    body = {**ids, "message": "something else"}
    await page.refused("POST", "/runs", 409, CONFLICT, json=body, headers=headers)
    await page.read(first["runId"], ids["sessionId"])


async def same_trace(page: Page) -> None:
    """Without a key the same traceId with the same body on the same session is the same run."""
    ids = page.ids()
    more = {"traceId": f"trace_{secrets.token_hex(8)}"}
    first = await page.start(ids, "stream 3 20", body=more)
    again = await page.start(ids, "stream 3 20", body=more)
    if first["runId"] != again["runId"]:
        raise Failed("the same traceId and body started a second run")
    await page.read(first["runId"], ids["sessionId"])


async def abort(page: Page) -> None:
    """abort.started at once, run.cancelled on the stream, and calm when asked again."""
    ids, run_id = await _started(page, "stream 200 100")
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        async for event in events:
            if event.kind == "message.delta":
                break
        told = await page.good("POST", f"/runs/{run_id}/abort", contract.RunAborted, json=dict(ids))
        kinds = [event.get("event") for event in told["events"]]
        if kinds not in (["abort.started"], ["run.cancelled"]):
            raise Failed(f"abort should answer abort.started: {shortened(told)}")
        ended = None
        async for event in events:
            if not event.name and event.terminal:
                ended = event.kind
    if ended != "run.cancelled":
        raise Failed(f"after an abort the stream ended with {ended}")
    await page.good("POST", f"/runs/{run_id}/abort", contract.RunAborted, json=dict(ids))


async def approval(page: Page) -> None:
    """An answer to another id resolves nothing, the right one does, a second one is a conflict."""
    ids, run_id = await _started(page, "approve ls conform")
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        asked = None
        async for event in events:
            if event.kind == "approval.request":
                asked = event.data
                break
            if event.terminal:
                break
        if asked is None:
            raise Failed("the agent asked for no approval (the word is `approve CMD`)")
        if not isinstance(asked.get("approvalId"), str):
            raise Failed(f"approval.request carries approvalId: {shortened(asked)}")
        path, answer = f"/runs/{run_id}/approval", {**ids, "choice": "deny"}
        wrong = {**answer, "approvalId": "apr-nobody"}
        await page.refused("POST", path, 409, CONFLICT, json=wrong)
        right = {**answer, "approvalId": asked["approvalId"]}
        told = await page.good("POST", path, contract.ApprovalAnswered, json=right)
        if told["resolved"] < 1:
            raise Failed(f"the answer resolved nothing: {shortened(told)}")
        await page.refused("POST", path, 409, CONFLICT, json=right)
        async for event in events:
            if not event.name and event.terminal:
                return
    raise Failed("the run did not end after the approval was answered")


async def afterwards(page: Page) -> None:
    """The session has the question and the answer, and stands in its document's list."""
    ids, _, _ = await _finished(page, "afterwards, please")
    told: dict[str, Any] = {}
    for _ in range(20):  # Hermes stores a moment after the run's end
        told = await page.good("GET", f"/sessions/{ids['sessionId']}", contract.SessionDetail)
        if {"user", "assistant"} <= {row["role"] for row in told["messages"]}:
            break
        await asyncio.sleep(0.25)
    else:
        raise Failed(f"the session should hold question and answer: {shortened(told)}")
    if told["messages"][0]["content"] != "afterwards, please":
        raise Failed(f"the question is not as it was asked: {shortened(told['messages'][0])}")
    usage = told["usage"]
    if usage["inputTokens"] == 0 and usage["outputTokens"] == 0:
        raise Failed("usage that is not known is null, never zero")
    query = f"workspaceId={ids['workspaceId']}&documentId={ids['documentId']}"
    listed = await page.good("GET", f"/sessions?{query}", contract.SessionList)
    if ids["sessionId"] not in [row["sessionId"] for row in listed["sessions"]]:
        raise Failed(f"the session is missing in its document's list: {shortened(listed)}")


async def context_stays_out(page: Page) -> None:
    """What the page is about never becomes part of what the user said."""
    ids = page.ids()
    mark = f"page-mark-{secrets.token_hex(6)}"
    body = {"pageContext": {"title": mark}, "selectedText": mark, "selectedBlockId": "b1"}
    told = await page.start(ids, "with a page", body=body)
    await page.read(told["runId"], ids["sessionId"])
    detail = await page.good("GET", f"/sessions/{ids['sessionId']}", contract.SessionDetail)
    asked = [row["content"] for row in detail["messages"] if row["role"] == "user"]
    if any(mark in text for text in asked):
        raise Failed(f"the page context stands in the user's message: {shortened(asked)}")


ROWS: list[Row] = [
    ("a run from its start to its end", "events", whole),
    ("the stream's head and first byte leave at once", "events", head_at_once),
    ("a comment and a heartbeat at the beginning", "events", first_heartbeat),
    ("words come as they are said", "events", gaps),
    ("two tabs and a late one see the same", "events", second_reader),
    ("replay after Last-Event-ID", "events", replay),
    ("nothing left to replay is 204", "events", nothing_left),
    ("a strange Last-Event-ID hides nothing", "events", strange_last_id),
    ("leaving aborts nothing", "events", leaving),
    ("a run that nobody knows", "errors", unknown_run),
    ("a run under another session", "who-may-ask", other_session),
    ("events of no session", "events", no_session),
    ("a second run on the same session", "runs", one_run_a_session),
    ("the same Idempotency-Key is the same run", "runs", same_key),
    ("the same traceId and body are the same run", "runs", same_trace),
    ("abort, and its end on the stream", "events", abort),
    ("an approval is answered by its id", "approvals", approval),
    ("the session afterwards", "sessions", afterwards),
    ("page context stays out of the user's message", "runs", context_stays_out),
    ("heartbeats go on", "events", heartbeats_go_on),
]
NO_AGENT_NEEDED = {"a run that nobody knows", "events of no session"}
SLOW = {"heartbeats go on"}
