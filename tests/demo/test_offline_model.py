"""demo/offline_model.py over HTTP, as Hermes talks with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from demo.offline_model import OfflineModel
from demo.samples import sample_files
from demo.words import MEDIA_KINDS


@asynccontextmanager
async def running(log: Path | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a model on a port that the system chose."""
    model = OfflineModel({"image": "/media/image.png"}, log)
    runner = web.AppRunner(model.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(base) as session:
            yield session
    finally:
        await runner.cleanup()


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


async def streamed(session: aiohttp.ClientSession, text: str, **more: Any) -> list[Any]:
    """All events of a streamed answer but the last mark."""
    async with session.post("/v1/chat/completions", json=body(text, stream=True, **more)) as r:
        assert r.status == 200
        assert r.content_type == "text/event-stream"
        lines = (await r.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_a_plain_answer() -> None:
    async with running() as session:
        async with session.post("/v1/chat/completions", json=body("hello")) as response:
            answer = await response.json()

    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "echo: hello"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("text", ["one two  three\nfour", "long 9000"])
async def test_the_pieces_of_a_stream_are_the_text(text: str) -> None:
    async with running() as session:
        async with session.post("/v1/chat/completions", json=body(text)) as response:
            whole = (await response.json())["choices"][0]["message"]["content"]
        events = await streamed(session, text)

    deltas = [e["choices"][0]["delta"].get("content") for e in events if e["choices"]]
    assert "".join(delta or "" for delta in deltas) == whole
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["usage"]["total_tokens"] > 0


async def test_tool_calls_are_streamed_with_arguments_as_json() -> None:
    tool = {"type": "function", "function": {"name": "terminal", "parameters": {}}}
    async with running() as session:
        events = await streamed(session, "approve rm -rf /tmp/x", tools=[tool])

    calls = [e["choices"][0]["delta"]["tool_calls"] for e in events[1:2]][0]
    assert calls[0]["id"].startswith("ask_")
    assert calls[0]["function"]["name"] == "terminal"
    assert json.loads(calls[0]["function"]["arguments"]) == {"command": "rm -rf /tmp/x"}
    assert events[2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_comes_word_by_word() -> None:
    """The first word is read while later ones have not been written: the answer is held open."""
    async with running() as session:
        text = body("stream 1000 1000", stream=True)
        async with session.post("/v1/chat/completions", json=text) as response:
            async with asyncio.timeout(60):
                while b"word1" not in await response.content.readline():
                    pass
            assert not response.content.at_eof()


async def test_errors_have_the_shape_of_the_api() -> None:
    async with running() as session:
        for sent in (b"{", b"[]", b'{"messages": 3}', b'{"messages": [], "tools": [3]}'):
            async with session.post("/v1/chat/completions", data=sent) as response:
                assert response.status == 400
                assert (await response.json())["error"]["message"]
        async with session.post("/v1/chat/completions", json=body("fail")) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "offline_model"


async def test_requests_are_written_down_only_when_asked(tmp_path: Path) -> None:
    log = tmp_path / "model.jsonl"
    async with running(log) as session:
        async with session.post("/v1/chat/completions", json=body("secret")) as response:
            await response.read()

    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [r["request"]["messages"][0]["content"] for r in records] == ["secret"]


async def test_the_models_route_names_the_context_length() -> None:
    """Hermes asks for it, to know when to compress."""
    async with running() as session:
        async with session.get("/v1/models") as response:
            assert (await response.json())["data"][0]["context_length"] == 200_000


def test_there_is_a_real_file_for_every_kind(tmp_path: Path) -> None:
    files = sample_files(tmp_path / "media")

    assert set(MEDIA_KINDS) <= set(files)
    magic = {
        "image": b"\x89PNG\r\n",
        "voice": b"RIFF",
        "document": b"%PDF",
        "animation": b"GIF8",
    }
    for kind, start in magic.items():
        assert Path(files[kind]).read_bytes().startswith(start)
    assert Path(files["video"]).read_bytes()[4:8] == b"ftyp"
