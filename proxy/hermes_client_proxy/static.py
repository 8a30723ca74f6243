"""Static pages on the proxy's own origin: the product's panel and sample, or a folder of yours."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from .app import ProxyApp
from .contract import LEGACY_PATH, PREFIX
from .paths import METRICS_PATH

PACKAGED = Path(__file__).parent / "pages"
"""The pages that the distribution carries, where they have been built."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


class WithPages:
    """The proxy, and a folder of static pages on the same origin for every other path.

    The product's own pages go out with a strict Content-Security-Policy; a folder of yours keeps
    the policy that its pages state themselves. Files below an ``assets`` folder carry a hash in
    their name and never change.
    """

    def __init__(self, proxy: ProxyApp, folder: Path) -> None:
        self._proxy = proxy
        self._files = StaticFiles(directory=folder, html=True)
        self._policy = _POLICY if folder == PACKAGED else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        own = path.startswith((PREFIX, LEGACY_PATH)) or path == METRICS_PATH
        if scope["type"] != "http" or own:
            await self._proxy(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                lasting = "/assets/" in path and message["status"] == 200
                headers["Cache-Control"] = (
                    "public, max-age=31536000, immutable" if lasting else "no-cache"
                )
                if self._policy is not None:
                    headers["Content-Security-Policy"] = self._policy
                message["headers"] = headers.raw
            await send(message)

        try:
            await self._files(scope, receive, with_headers)
        except HTTPException as error:  # no such page, or a method that pages do not take
            answer = PlainTextResponse(error.detail, error.status_code)
            await answer(scope, receive, with_headers)
