"""The example of docs/proxy-mounting.md that needs nothing but what is installed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes_client_proxy.contract import PREFIX
from tests.proxy.running import Browser, serving, user_of
from tests.proxy.small_hermes import KEY, SmallHermes

TEXT = Path(__file__).parents[2].joinpath("docs/proxy-mounting.md").read_text()


def example(heading: str) -> str:
    found = re.search(r"```python\n(.*?)```", TEXT[TEXT.index(heading) :], re.DOTALL)
    assert found is not None
    return found[1]


def test_every_example_is_python() -> None:
    for heading in ("## Before you begin", "## Starlette", "## FastAPI", "## Django (ASGI)"):
        compile(example(heading), heading, "exec")


async def test_mounted_as_the_document_says(monkeypatch: pytest.MonkeyPatch) -> None:
    async def authorize(user: Any, workspace_id: str | None, document_id: str) -> bool:
        return document_id == "doc_1"

    names: dict[str, Any] = {"authenticate": user_of, "authorize": authorize, "my_routes": []}
    async with SmallHermes() as hermes:
        monkeypatch.setenv("MNOTE_WEB_HERMES_UPSTREAM_URL", hermes.url)
        monkeypatch.setenv("MNOTE_WEB_HERMES_API_KEY", KEY)
        exec(example("## Starlette"), names)
        async with serving(names["app"]) as url, aiohttp.ClientSession() as client:
            browser = Browser(url, names["proxy"], client)
            assert (await browser.ask("GET", "/models"))["defaultModel"] == "hermes-agent"
            await browser.ask("GET", "/models", 401, user="")
            await browser.ask("GET", "/sessions?workspaceId=w&documentId=doc_2", 403)
            await browser.ask("GET", "/nothing", 404)
            await browser.ask("PUT", "/runs", 405)
            body = await browser.ask(
                "POST", "/api/ai-agent/run", 400, json={"provider": "hermes"}, user=""
            )
            assert f"{PREFIX}/runs" in body["message"]
            await names["proxy"].aclose()
