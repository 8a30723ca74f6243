"""The pages that the door serves beside `/ws`: these and no other file, under a strict policy."""

from __future__ import annotations

import asyncio
import http.client
from pathlib import Path

import pytest

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

SETTINGS = Settings(port=0, token="pages-token-0123456789")


def pages(root: Path) -> Path:
    """A folder as the build leaves it, and a file beside it that is nobody's business."""
    folder = root / "pages"
    for page in ("avatar", "chat"):
        (folder / page / "assets").mkdir(parents=True)
        (folder / page / "index.html").write_text(f"<title>{page}</title>")
        (folder / page / "assets" / "index-abc123.js").write_text("1;")
    (folder / "chat" / "manifest.webmanifest").write_text("{}")
    (root / "secret.json").write_text('{"token": "secret"}')
    return folder


async def ask(folder: Path, *paths: str) -> list[tuple[int, dict[str, str], str]]:
    """The answers of a door with these pages."""
    agent = ScriptedAgent()
    door = Door(SETTINGS, agent, pages=folder)
    agent.attach(door)
    await door.start()

    def get(path: str) -> tuple[int, dict[str, str], str]:
        line = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
        try:
            line.request("GET", path)
            answer = line.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, named, answer.read().decode()
        finally:
            line.close()

    try:
        return [await asyncio.to_thread(get, path) for path in paths]
    finally:
        await door.stop()


async def test_pages_are_served_with_type_and_policy(tmp_path: Path) -> None:
    chat, avatar, script, manifest = await ask(
        pages(tmp_path),
        "/chat/",
        "/avatar/?state=thinking",
        "/chat/assets/index-abc123.js",
        "/chat/manifest.webmanifest",
    )
    assert (chat[0], chat[2]) == (200, "<title>chat</title>")
    assert chat[1]["content-type"].startswith("text/html")
    assert chat[1]["cache-control"] == "no-cache"
    policy = chat[1]["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    assert "connect-src 'self' ws: wss:" in policy and "unsafe" not in policy
    assert (avatar[0], avatar[2]) == (200, "<title>avatar</title>")
    assert "connect-src" not in avatar[1]["content-security-policy"]
    assert script[1]["content-type"].startswith("text/javascript")
    assert "immutable" in script[1]["cache-control"]
    assert manifest[1]["content-type"] == "application/manifest+json"
    for _, named, _ in (chat, avatar, script, manifest):
        assert named["x-content-type-options"] == "nosniff"


async def test_a_missing_slash_is_added(tmp_path: Path) -> None:
    answers = await ask(pages(tmp_path), "/chat", "/avatar")
    assert [(status, named["location"]) for status, named, _ in answers] == [
        (301, "/chat/"),
        (301, "/avatar/"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/chat/../../secret.json",
        "/chat/%2e%2e/%2e%2e/secret.json",
        "/chat/..%2f..%2fsecret.json",
        "/chat/..\\..\\secret.json",
        "/chat/missing.js",
        "/chat/assets/",
        "/chatter/",
        "/secret.json",
        "/",
    ],
)
async def test_nothing_else_is_served(tmp_path: Path, path: str) -> None:
    folder = pages(tmp_path)
    absolute = f"/chat/{tmp_path}/secret.json"
    for status, _, body in await ask(folder, path, absolute):
        assert status == 404
        assert "secret" not in body


async def test_missing_pages_are_explained(tmp_path: Path) -> None:
    ((status, _, body),) = await ask(tmp_path / "none", "/chat/")
    assert status == 404
    assert "npm run build" in body
