"""An OpenAI-compatible chat model that needs no network, no key and no GPU.

    python -m demo.offline_model --port 0 --media DIR [--log FILE]

Prints its address on the first line. `demo.words` says what it answers. It binds to loopback
only. With `--log` every request is written down whole, one JSON object a line: for tests, as
it holds what users wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from demo import words
from demo.samples import sample_files

MODEL = "offline-demo"
CONTEXT_LENGTH = 200_000
MAX_BODY = 64 * 1024 * 1024


class OfflineModel:
    """The routes of the model server."""

    def __init__(self, media: Mapping[str, str], log: Path | None = None) -> None:
        self._media = media
        self._log = log

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def models(self, request: web.Request) -> web.Response:
        entry = {"id": MODEL, "object": "model", "context_length": CONTEXT_LENGTH}
        return web.json_response({"object": "list", "data": [entry]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.read())
            messages, offered = body["messages"], body.get("tools") or []
            tools = dict(_tool(tool["function"]) for tool in offered)
            if not isinstance(messages, list):
                raise TypeError("messages is no list")
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            return _error(400, f"no chat-completions request: {problem}")
        self._write({"at": time.time(), "request": body})
        plan = words.plan(messages, tools, self._media)
        if plan.status != 200:
            return _error(plan.status, "the word `fail` asks for this error")
        if body.get("stream"):
            return await self._stream(request, body, plan)
        if plan.delay:
            await asyncio.sleep(plan.delay * len(plan.text.split()))
        message: dict[str, Any] = {"role": "assistant", "content": plan.text or None}
        if plan.calls:
            message["tool_calls"] = [_call(call) for call in plan.calls]
        choice = {"index": 0, "message": message, "finish_reason": _finish(plan)}
        answer = {**_head(body, "chat.completion"), "choices": [choice]}
        return web.json_response({**answer, "usage": _usage(messages, plan)})

    async def _stream(
        self, request: web.Request, body: Mapping[str, Any], plan: words.Plan
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        head = _head(body, "chat.completion.chunk")

        async def send(delta: Mapping[str, Any], finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            await response.write(_event({**head, "choices": [choice]}))

        try:
            await send({"role": "assistant", "content": ""})
            for piece in pieces(plan):
                await send({"content": piece})
                if plan.delay:
                    await asyncio.sleep(plan.delay)
            for index, call in enumerate(plan.calls):
                await send({"tool_calls": [{"index": index, **_call(call)}]})
            await send({}, _finish(plan))
            usage = _usage(body["messages"], plan)
            await response.write(_event({**head, "choices": [], "usage": usage}))
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self._write({"at": time.time(), "event": "the client closed the stream"})
            raise
        return response

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def pieces(plan: words.Plan) -> Iterator[str]:
    """The text in the pieces a model would stream: words, or big blocks of a long text."""
    size = 0 if plan.delay else 2000
    if size and len(plan.text) > size:
        yield from (plan.text[at : at + size] for at in range(0, len(plan.text), size))
    else:
        yield from re.findall(r"\S+\s*|\s+", plan.text)


def _tool(function: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A tool's name and the names of its arguments."""
    properties = (function.get("parameters") or {}).get("properties") or {}
    return str(function["name"]), tuple(properties)


def _call(call: words.ToolCall) -> dict[str, Any]:
    prefix = words.ASK_PREFIX if call.asks else "call_"
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": prefix + secrets.token_hex(8), "type": "function", "function": function}


def _finish(plan: words.Plan) -> str:
    return "tool_calls" if plan.calls else "stop"


def _head(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-" + secrets.token_hex(8),
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model", MODEL),
    }


def _usage(messages: Sequence[Any], plan: words.Plan) -> dict[str, int]:
    """About four characters a token, as real models count."""
    asked = len(json.dumps(messages)) // 4
    said = max(1, (len(plan.text) + sum(len(str(c.arguments)) for c in plan.calls)) // 4)
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _error(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": "offline_model"}
    return web.json_response({"error": error}, status=status)


async def serve(port: int, media: Path, log: Path | None) -> None:
    """Serve on 127.0.0.1 until cancelled; port 0 takes a free one."""
    model = OfflineModel(sample_files(media), log)
    runner = web.AppRunner(model.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound = runner.addresses[0][:2]
    print(f"http://{host}:{bound}/v1", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.offline_model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--media", type=Path, required=True, help="folder for the sample files")
    parser.add_argument("--log", type=Path, help="write every request down, for tests")
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.port, options.media, options.log))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
