"""Every scenario of the contract, against a real door with the scripted agent on a free port."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

from .contract import complaint, load, message, mismatch, scenarios

DOOR = load("door.json")
SCENARIOS = list(scenarios())
# Nothing waits for this long; it only keeps a door that does not answer from stopping the tests.
PATIENCE = 60.0


@contextlib.asynccontextmanager
async def _door(settings: dict[str, str]) -> AsyncIterator[int]:
    """A door with the scripted agent; its port."""
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({**DOOR["settings"], "MOBILE_PORT": "0", **settings}), agent)
    agent.attach(door)
    await door.start()
    try:
        yield door.port
    finally:
        await agent.close()
        await door.stop()


class Script:
    """Carries out the steps of one scenario."""

    def __init__(self, port: int, ignore: list[str]) -> None:
        self._port = port
        self._ignore = ignore
        self._sockets: dict[str, ClientConnection] = {}
        self._names: dict[str, Any] = {}
        self._pings = 0

    async def run(self, step: dict[str, Any]) -> None:
        """One step."""
        match step:
            case {"connect": name}:
                await self._connect(name, step)
            case {"send": name}:
                # The door may have closed it already; the next step tells whether it should have.
                with contextlib.suppress(ConnectionClosed):
                    await self._sockets[name].send(message(step, self._names))
            case {"expect": name, "frame": pattern}:
                self._fits(pattern, await self._next(name))
            case {"message": name}:
                await self._message(name, step)
            case {"file": name, "frame": pattern}:
                await self._file(name, pattern)
            case {"quiet": name}:
                await self._quiet(name)
            case {"close": name}:
                await self._sockets.pop(name).close()
            case {"closed": name, "code": code}:
                await self._closed(name, code, step.get("reason"))
            case _:
                raise AssertionError(f"nobody knows this step: {step}")

    async def end(self) -> None:
        """Close what is still open."""
        for socket in self._sockets.values():
            await socket.close()

    async def _connect(self, name: str, step: dict[str, Any]) -> None:
        headers = dict(step.get("headers", {}))
        host = headers.pop("Host", None)
        path = step.get("path", "/ws")
        # The address names the Host header, the arguments the machine.
        uri = f"ws://{host}{path}" if host else f"ws://127.0.0.1:{self._port}{path}"
        self._sockets[name] = await connect(
            uri,
            host="127.0.0.1",
            port=self._port,
            additional_headers=headers,
            compression=None,
            max_size=None,
            ping_interval=None,
            proxy=None,
        )

    async def _next(self, name: str) -> dict[str, Any]:
        while True:
            raw = await asyncio.wait_for(self._sockets[name].recv(), PATIENCE)
            assert isinstance(raw, str)
            frame: dict[str, Any] = json.loads(raw)
            assert complaint("ServerFrame", frame) is None, frame
            if frame["t"] not in self._ignore:
                return frame

    def _fits(self, pattern: Any, value: Any) -> None:
        pattern = _with_names(pattern, self._names)
        problem = mismatch(pattern, value, self._names)
        assert problem is None, problem

    async def _message(self, name: str, step: dict[str, Any]) -> None:
        chunks: list[str | None] = []
        id = None
        while True:
            frame = await self._next(name)
            assert frame["t"] == "message", frame
            assert id in (None, frame["id"])
            id, chunk = frame["id"], frame["chunk"]
            assert len(frame["text"]) <= 3500
            chunks = [*chunks[: chunk["total"]], *[None] * (chunk["total"] - len(chunks))]
            chunks[chunk["index"]] = frame["text"]
            if frame["final"]:
                break
        assert None not in chunks
        assert chunk["index"] == chunk["total"] - 1
        text = "".join(piece for piece in chunks if piece is not None)
        if "$length" in step["text"] if isinstance(step["text"], dict) else False:
            assert len(text) == step["text"]["$length"]
        else:
            self._fits(step["text"], text)
        if "chunks" in step:
            self._fits(step["chunks"], len(chunks))

    async def _file(self, name: str, pattern: dict[str, Any]) -> None:
        data = b""
        while True:
            frame = await self._next(name)
            assert frame["t"] == "media", frame
            data += base64.b64decode(frame["data"], validate=True)
            if frame["final"]:
                break
        assert frame["size"] == len(data)
        self._fits(pattern, {**frame, "sha256": hashlib.sha256(data).hexdigest()})

    async def _quiet(self, name: str) -> None:
        self._pings += 1
        ts = f"quiet-{self._pings}"
        await self._sockets[name].send(json.dumps({"t": "ping", "ts": ts}))
        assert await self._next(name) == {"t": "pong", "ts": ts}

    async def _closed(self, name: str, code: int, reason: str | None) -> None:
        with pytest.raises(ConnectionClosed) as closed:
            await self._next(name)
        received = closed.value.rcvd
        assert received is not None
        assert received.code == code
        assert reason in (None, received.reason)


def _with_names(pattern: Any, names: dict[str, Any]) -> Any:
    if isinstance(pattern, dict):
        if "$name" in pattern:
            return names[pattern["$name"]]
        return {key: _with_names(item, names) for key, item in pattern.items()}
    if isinstance(pattern, list):
        return [_with_names(item, names) for item in pattern]
    return pattern


@pytest.mark.parametrize(("name", "scenario"), SCENARIOS, ids=[n for n, _ in SCENARIOS])
async def test_door_plays_the_scenario(name: str, scenario: dict[str, Any]) -> None:
    """Each step of the scenario happens as it says, in its order."""
    async with _door(scenario.get("settings", {})) as port:
        script = Script(port, scenario.get("ignore", []))
        try:
            for number, step in enumerate(scenario["steps"], start=1):
                try:
                    await script.run(step)
                except Exception as error:
                    error.add_note(f"step {number}: {json.dumps(step)[:400]}")
                    raise
        finally:
            await script.end()


def test_steps_and_names_are_unique() -> None:
    """Scenario names are unique, and what is bound is bound before it is used."""
    names = [name for name, _ in SCENARIOS]
    assert len(names) == len(set(names))
    for _, scenario in SCENARIOS:
        bound: set[str] = set()
        for step in scenario["steps"]:
            for word, name in _words(step):
                if word == "$name":
                    assert name in bound, scenario["name"]
                else:
                    bound.add(name)


def _words(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        own = [(word, value[word]) for word in ("$bind", "$name") if word in value]
        return own + [pair for item in value.values() for pair in _words(item)]
    if isinstance(value, list):
        return [pair for item in value for pair in _words(item)]
    return []
