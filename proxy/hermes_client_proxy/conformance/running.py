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
WORDS, STEP_MS = 20, 150
GAP_TRIES = 3
# What is more is no count of seconds but of milliseconds.
YEAR_5138 = 100_000_000_000


async def started(page: Page, message: str, **more: Any) -> tuple[dict[str, str], str]:
    ids = page.ids()
    told = await page.start(ids, message, **more)
    if told["sessionId"] != ids["sessionId"]:
        raise Failed(f"the run is in another session: {shortened(told)}")
    for event in told["events"]:
        if not isinstance(event.get("event"), str):
            raise Failed(f"every event names its kind in `event`: {shortened(told)}")
    return ids, told["runId"]


async def finished(
    page: Page, message: str = "stream 5 20"
) -> tuple[dict[str, str], str, list[Event]]:
    ids, run_id = await started(page, message)
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
        if stamp is not None and not whole_seconds(stamp):
            raise Failed(f"times are whole seconds: {shortened(event.data)}")
    ids = [event.id for event in events]
    if len(set(ids)) != len(ids):
        raise Failed(f"two events have the same id: {ids[:20]}")
    ends = [event.kind for event in events if event.terminal]
    if len(ends) != 1 or not events[-1].terminal:
        raise Failed(
            f"a stream ends with its one terminal event, here: {[e.kind for e in events[-4:]]}"
        )


def whole_seconds(stamp: Any) -> bool:
    """Whether this is a time as the contract has it: an integer of seconds."""
    return type(stamp) is int and stamp < YEAR_5138


def _said(events: list[Event]) -> str:
    return "".join(str(e.data.get("delta")) for e in events if e.kind == "message.delta")


async def whole(page: Page) -> None:
    """From the start to run.completed, with the agent's words."""
    _, _, events = await finished(page)
    if events[-1].kind != "run.completed":
        raise Failed(f"the run ended with {shortened(events[-1].data)}")
    due, end = "word1 word2 word3 word4 word5", events[-1].data
    if _said(events) != due:
        raise Failed(f"the words joined should be {due!r}, they are {shortened(_said(events))!r}")
    if end.get("output") != due:
        raise Failed(f"`output` holds the whole answer, {due!r}, not {shortened(end)}")
    usage = end.get("usage")
    counts = ("input_tokens", "output_tokens", "total_tokens")
    if not isinstance(usage, Mapping) or not usage.keys() >= set(counts):
        raise Failed(f"run.completed carries `usage` with {', '.join(counts)}: {shortened(end)}")
    if usage["input_tokens"] == 0 == usage["output_tokens"]:
        raise Failed("usage that is not known is null, never zero")


async def head_at_once(page: Page) -> None:
    """Headers that forbid buffering, and a first byte before the agent has said anything."""
    ids, run_id = await started(page, "stream 3 700")
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
        for name in ("x-trace-id", "x-request-id"):
            if not answer.headers.get(name):
                raise Failed(f"the stream's head lacks {name}")
        await anext(events, None)
        took = time.monotonic() - began
    if took > FIRST_BYTE:
        raise Failed(f"the first byte came after {took:.1f} s")


async def first_heartbeat(page: Page) -> None:
    """A comment and a named heartbeat with data and no id, from the first moment."""
    ids, run_id = await started(page, "stream 3 100")
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
    ids, run_id = await started(page, f"stream {int(seconds * 2)} 600")
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
    """Words come as they are said, in no heap. A busy machine may hold one run up, not each."""
    problem: str | None = ""
    for _ in range(GAP_TRIES):
        ids, run_id = await started(page, f"stream {WORDS} {STEP_MS}")
        events = await page.read(run_id, ids["sessionId"])
        problem = _heaped([event.at for event in events if event.kind == "message.delta"])
        if problem is None:
            return
    raise Failed(problem or "")


def _heaped(deltas: list[float]) -> str | None:
    due = (WORDS - 1) * STEP_MS / 1000
    if len(deltas) < 3:
        return f"{WORDS} words came in {len(deltas)} piece(s)"
    if deltas[-1] - deltas[0] < due / 3:
        return f"words said over {due:.1f} s came within {deltas[-1] - deltas[0]:.2f} s"
    # A machine that is busy for a moment glues some words together; a buffer glues nearly all.
    apart = sum(
        after - before > STEP_MS / 3000 for before, after in zip(deltas, deltas[1:], strict=False)
    )
    if apart < (WORDS - 1) / 3:
        return f"{len(deltas)} words said {STEP_MS} ms apart came in {apart + 1} heaps"
    return None


async def second_reader(page: Page) -> None:
    """Two tabs, and one that comes late: each sees the whole run."""
    ids, run_id = await started(page, "stream 6 60")
    session = ids["sessionId"]
    first, second = await asyncio.gather(page.read(run_id, session), page.read(run_id, session))
    late = await page.read(run_id, session)
    for other in (second, late):
        if [(e.id, e.data) for e in other] != [(e.id, e.data) for e in first]:
            raise Failed("two readers of one run saw different events")


async def replay(page: Page) -> None:
    """After Last-Event-ID only what came later, by header and by query."""
    ids, run_id, events = await finished(page)
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
    ids, run_id, events = await finished(page)
    async with page.events(run_id, ids["sessionId"], last=events[-1].id) as (answer, _):
        if answer.status != 204:
            raise Failed(f"HTTP {answer.status} in place of 204")


async def strange_last_id(page: Page) -> None:
    """An id that is not of this log hides nothing."""
    ids, run_id, events = await finished(page)
    seen = await page.read(run_id, ids["sessionId"], last="999999999-nobody")
    if [event.id for event in seen] != [event.id for event in events]:
        raise Failed("an unknown Last-Event-ID hid events")


async def leaving(page: Page) -> None:
    """A closed tab ends its stream and nothing else."""
    ids, run_id = await started(page, "stream 10 60")
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
    _, run_id, _ = await finished(page)
    other = page.ids()["sessionId"]
    answer = await page.ask("GET", f"/events/{run_id}?sessionId={other}")
    if (answer.status, answer.body.get("code")) not in ((403, FORBIDDEN), (404, NOT_FOUND)):
        raise Failed(f"HTTP {answer.status} for a run of another session")


async def no_session(page: Page) -> None:
    """The session must be named."""
    await page.refused("GET", "/events/run_1", 400, contract.BAD_REQUEST)


async def one_run_a_session(page: Page) -> None:
    """A second run while one is active."""
    ids, run_id = await started(page, "stream 40 100")
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
    ids, run_id = await started(page, "stream 200 100")
    async with page.events(run_id, ids["sessionId"]) as (_, events):
        async for event in events:
            if event.kind == "message.delta":
                break
        told = await page.good("POST", f"/runs/{run_id}/abort", contract.RunAborted, json=dict(ids))
        if (told["runId"], told["sessionId"]) != (run_id, ids["sessionId"]):
            raise Failed(f"the answer names another run or session: {shortened(told)}")
        kinds = [event.get("event") for event in told["events"]]
        if kinds != ["abort.started"]:
            raise Failed(f"abort should answer abort.started: {shortened(told)}")
        if told["events"][0].get("run_id") != run_id:
            raise Failed(f"its event carries run_id: {shortened(told)}")
        ended = None
        async for event in events:
            if not event.name and event.terminal:
                ended = event.kind
    if ended != "run.cancelled":
        raise Failed(f"after an abort the stream ended with {ended}")
    await page.good("POST", f"/runs/{run_id}/abort", contract.RunAborted, json=dict(ids))


async def approval(page: Page) -> None:
    """An answer to another id resolves nothing, the right one does, a second one is a conflict."""
    ids, run_id = await started(page, "approve ls conform")
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
        for name in ("approvalId", "command"):
            if not (isinstance(asked.get(name), str) and asked[name]):
                raise Failed(f"approval.request carries {name}: {shortened(asked)}")
        if not isinstance(asked.get("description"), str):
            raise Failed(f"approval.request carries description: {shortened(asked)}")
        choices = asked.get("choices")
        if not (isinstance(choices, list) and "deny" in choices and set(choices) <= CHOICES):
            raise Failed(f"approval.request carries choices, deny among them: {shortened(asked)}")
        path, answer = f"/runs/{run_id}/approval", {**ids, "choice": "deny"}
        wrong = {**answer, "approvalId": "apr-nobody"}
        await page.refused("POST", path, 409, CONFLICT, json=wrong)
        right = {**answer, "approvalId": asked["approvalId"]}
        told = await page.good("POST", path, contract.ApprovalAnswered, json=right)
        if told["resolved"] < 1:
            raise Failed(f"the answer resolved nothing: {shortened(told)}")
        about = {"runId": run_id, "sessionId": ids["sessionId"], "choice": "deny"}
        for name, value in {**about, "approvalId": asked["approvalId"]}.items():
            if told[name] != value:
                raise Failed(f"the answer's {name} should be {value}: {shortened(told)}")
        await page.refused("POST", path, 409, CONFLICT, json=right)
        responded = False
        async for event in events:
            responded = responded or event.kind == "approval.responded"
            if not event.name and event.terminal:
                if not responded:
                    raise Failed("no approval.responded came before the run's end")
                return
    raise Failed("the run did not end after the approval was answered")


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
    ("heartbeats go on", "events", heartbeats_go_on),
]
CHOICES = {"once", "session", "always", "deny"}
NO_AGENT_NEEDED = {"a run that nobody knows", "events of no session"}
SLOW = {"heartbeats go on"}
