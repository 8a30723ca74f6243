"""Checks of what is left of runs: a document's sessions, and the messages of one of them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from .. import contract
from .asking import Row
from .browser import Failed, Page, shortened
from .running import finished, whole_seconds

# Hermes stores a moment after a run's end.
TRIES, PAUSE = 20, 0.25


async def _once(
    page: Page, path: str, shape: Any, there: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The answer as soon as what is looked for is `there`; else the last one."""
    for _ in range(TRIES):
        told = await page.good("GET", path, shape)
        if there(told):
            break
        await asyncio.sleep(PAUSE)
    return told


def _list_of(ids: Mapping[str, str]) -> str:
    return f"/sessions?workspaceId={ids['workspaceId']}&documentId={ids['documentId']}"


async def afterwards(page: Page) -> None:
    """The session has the question and the answer, and stands in its document's list."""
    ids, _, events = await finished(page, "afterwards, please")
    told = await _once(
        page,
        f"/sessions/{ids['sessionId']}",
        contract.SessionDetail,
        lambda told: {"user", "assistant"} <= {row["role"] for row in told["messages"]},
    )
    rows = told["messages"]
    if [row["role"] for row in rows] != ["user", "assistant"]:
        raise Failed(f"the session should hold one question and one answer: {shortened(told)}")
    if rows[0]["content"] != "afterwards, please":
        raise Failed(f"the question is not as it was asked: {shortened(rows[0])}")
    if rows[1]["content"] != events[-1].data.get("output"):
        raise Failed(f"the answer is not as it was given: {shortened(rows[1])}")
    if not all(row["messageId"] for row in rows) or rows[0]["messageId"] == rows[1]["messageId"]:
        raise Failed(f"each message has an id of its own: {shortened(rows)}")
    if not all(row["timestamp"] is None or whole_seconds(row["timestamp"]) for row in rows):
        raise Failed(f"times are whole seconds: {shortened(rows)}")
    if told["sessionId"] != ids["sessionId"]:
        raise Failed(f"the answer is about another session: {shortened(told)}")
    usage = told["usage"]
    if usage["inputTokens"] == 0 and usage["outputTokens"] == 0:
        raise Failed("usage that is not known is null, never zero")


async def listed(page: Page) -> None:
    """A document's list has its own sessions and no others, each once."""
    ids, _, _ = await finished(page, "to be listed")
    told = await _once(
        page,
        _list_of(ids),
        contract.SessionList,
        lambda told: ids["sessionId"] in [row["sessionId"] for row in told["sessions"]],
    )
    found = [row["sessionId"] for row in told["sessions"]]
    if ids["sessionId"] not in found:
        raise Failed(f"the session is missing in its document's list: {shortened(told)}")
    if len(set(found)) != len(found):
        raise Failed(f"a session is listed twice: {shortened(found)}")
    others = [id for id in found if not id.startswith(f"mnote_{ids['documentId']}_")]
    if others:
        raise Failed(f"the list has sessions of other documents: {shortened(others)}")
    times = [row["updatedAt"] for row in told["sessions"]]
    if not all(at is None or whole_seconds(at) for at in times):
        raise Failed(f"times are whole seconds: {shortened(times)}")


async def newest(page: Page) -> None:
    """`limit` gives the newest, the newest first."""
    ids = page.ids()
    due: list[str] = []
    for number in range(3):
        own = {**ids, "sessionId": f"{ids['sessionId']}-{number}"}
        told = await page.start(own, "to be listed in order")
        await page.read(told["runId"], own["sessionId"])
        due.insert(0, own["sessionId"])
        # Times are whole seconds: what is told apart by them lies further apart.
        await asyncio.sleep(1.1)
    found: list[str] = []

    def there(told: dict[str, Any]) -> bool:
        found[:] = [row["sessionId"] for row in told["sessions"]]
        return found == due[:2]

    await _once(page, f"{_list_of(ids)}&limit=2", contract.SessionList, there)
    if found != due[:2]:
        raise Failed(f"limit=2 should give the two newest, {due[:2]}, it gave {found}")


async def title(page: Page) -> None:
    """A title that came with the session is there after its first run."""
    ids, name = page.ids(), f"conform {secrets.token_hex(4)}"
    body = {"workspaceId": ids["workspaceId"], "documentId": ids["documentId"], "title": name}
    made = await page.good("POST", "/sessions", contract.SessionCreated, json=body)
    ids["sessionId"] = made["sessionId"]
    started = await page.start(ids, "with a title")
    await page.read(started["runId"], ids["sessionId"])
    told = await _once(
        page,
        _list_of(ids),
        contract.SessionList,
        lambda told: any(row["title"].startswith(name) for row in told["sessions"]),
    )
    titles = [r["title"] for r in told["sessions"] if r["sessionId"] == ids["sessionId"]]
    if not titles or not titles[0].startswith(name):
        raise Failed(f"the session was to be called {name!r}, its title is {titles}")


async def context_stays_out(page: Page) -> None:
    """What the page is about never becomes part of what the user said."""
    ids = page.ids()
    mark = f"page-mark-{secrets.token_hex(6)}"
    body = {"pageContext": {"title": mark}, "selectedText": mark, "selectedBlockId": "b1"}
    told = await page.start(ids, "with a page", body=body)
    await page.read(told["runId"], ids["sessionId"])
    detail = await _once(
        page,
        f"/sessions/{ids['sessionId']}",
        contract.SessionDetail,
        lambda told: "user" in [row["role"] for row in told["messages"]],
    )
    asked = [row["content"] for row in detail["messages"] if row["role"] == "user"]
    if not asked:
        raise Failed("the session does not hold what was asked")
    if any(mark in text for text in asked):
        raise Failed(f"the page context stands in the user's message: {shortened(asked)}")


ROWS: list[Row] = [
    ("the session afterwards", "sessions", afterwards),
    ("the session in its document's list", "sessions", listed),
    ("the newest sessions, as many as limit says", "routes", newest),
    ("a title that came with the session", "sessions", title),
    ("page context stays out of the user's message", "runs", context_stays_out),
]
