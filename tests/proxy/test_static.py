"""Pages beside the proxy: their policy, their caching, and nothing outside of their folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_client_proxy import static
from hermes_client_proxy.app import ProxyApp
from hermes_client_proxy.settings import Settings
from hermes_client_proxy.static import WithPages


async def ask(app: WithPages, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []

    asked = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not asked:
            await asyncio.Event().wait()  # the browser stays
        return asked.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8750")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8750),
    }
    await app(scope, receive, send)
    headers = {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pages = tmp_path / "pages"
    (pages / "assets").mkdir(parents=True)
    (pages / "index.html").write_text("<h1>hello</h1>")
    (pages / "assets" / "app-1a2b.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    return pages


def with_pages(folder: Path) -> WithPages:
    return WithPages(ProxyApp(Settings.from_env({})), folder)


async def test_a_page_is_asked_for_anew_and_its_assets_are_kept(folder: Path) -> None:
    app = with_pages(folder)
    status, headers, body = await ask(app, "/")
    assert (status, body, headers["cache-control"]) == (200, b"<h1>hello</h1>", "no-cache")
    assert headers["x-content-type-options"] == "nosniff"
    status, headers, _ = await ask(app, "/assets/app-1a2b.js")
    assert status == 200 and "immutable" in headers["cache-control"]
    status, headers, _ = await ask(app, "/assets/none.js")
    assert status == 404 and "immutable" not in headers["cache-control"]


async def test_the_products_own_pages_have_a_strict_policy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, headers, _ = await ask(with_pages(folder), "/")
    assert "content-security-policy" not in headers, "a folder of yours keeps its own"
    monkeypatch.setattr(static, "PACKAGED", folder)
    _, headers, _ = await ask(with_pages(folder), "/")
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/../secret.txt", "/assets/../../secret.txt", "//etc/passwd"])
async def test_nothing_outside_of_the_folder(folder: Path, path: str) -> None:
    status, _, body = await ask(with_pages(folder), path)
    assert status == 404 and b"secret" not in body and b"root:" not in body


async def test_pages_are_read_only(folder: Path) -> None:
    status, _, _ = await ask(with_pages(folder), "/", method="POST")
    assert status == 405


async def test_the_proxys_own_routes_stay_the_proxys(folder: Path) -> None:
    status, headers, body = await ask(with_pages(folder), "/api/hermes/client/sessions")
    assert status == 503 and b"hermes_client_unconfigured" in body
    assert headers["content-type"].startswith("application/json")
