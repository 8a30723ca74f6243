"""Start, restart, crash and what stands in the way of a start."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from demo.processes import free_port
from tests.e2e.door_client import DoorClient
from tests.e2e.hermes_process import PATIENCE, HermesProcess


def device_on(hermes: HermesProcess) -> DoorClient:
    return DoorClient(hermes.door_url, hermes.token, f"life-{uuid4().hex[:8]}")


async def state_of(hermes: HermesProcess, wanted: str) -> dict[str, Any]:
    """What Hermes says of the platform, once its state is `wanted`."""
    path = hermes.home / "gateway_state.json"
    told: dict[str, Any] = {}
    async with asyncio.timeout(PATIENCE):
        while told.get("state") != wanted:
            await asyncio.sleep(0.1)
            with suppress(OSError, ValueError):  # not there yet, or just being written
                told = json.loads(path.read_text()).get("platforms", {}).get("mobile", {})
    return told


async def test_a_crash_leaves_a_clean_picture(new_hermes: Callable[..., HermesProcess]) -> None:
    """SIGKILL in the middle of an answer: the old one is ended, one new one comes."""
    hermes = new_hermes()
    client = device_on(hermes)
    async with client:
        await client.text("hello")
        await client.idle()
        mark = len(client.frames)
        await client.text("stream 150 100")
        await client.wait(lambda f: f["t"] == "message" and "word15" in f["text"], since=mark)
        hermes.kill()
    broken = client.unfinished()
    await asyncio.to_thread(hermes.revive)
    mark = len(client.frames)
    async with client:
        ended = await client.wait(lambda f: f["t"] == "message" and f["final"], since=mark)
        assert ended["id"] in broken and ended["text"].startswith("word1 word2")
        mark = client.frames.index(ended) + 1
        resumed = await client.wait(lambda f: f["t"] == "message" and f["final"], since=mark)
        await client.rest(since=client.frames.index(resumed))
        fresh = client.texts(mark)
        assert [t for t, n in Counter(fresh.values()).items() if n > 1] == []
        assert client.unfinished() == []
        assert (client.typing, client.avatar) == (False, "idle")
        states = [f["state"] for f in client.frames[mark:] if f["t"] == "avatar"]
        assert states in (["thinking", "speaking", "idle"], ["speaking", "idle"])
        mark = len(client.frames)
        await client.text("after the crash")
        await client.message("after the crash", since=mark)


async def test_a_restart_ends_the_turn_and_frees_the_port(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """SIGTERM in the middle of an answer: it is final, typing stops, the port is free again."""
    hermes = new_hermes()
    client = device_on(hermes)
    async with client:
        await client.text("hello")
        await client.idle()
        mark = len(client.frames)
        await client.text("stream 300 100")
        await client.wait(lambda f: f["t"] == "message" and "word5" in f["text"], since=mark)
        stopping = asyncio.create_task(asyncio.to_thread(hermes.stop))
        await client.message("word5", since=mark)
        await client.idle(since=mark)
        await stopping
        assert not [text for text in client.texts(mark).values() if "word300" in text]
        assert client.unfinished() == []
        assert client.changed_after_end() == []
        assert not client.typing
    await asyncio.to_thread(hermes.revive)
    async with client:
        mark = len(client.frames)
        await client.text("back again")
        await client.message("back again", since=mark)


async def test_answers_wait_for_an_absent_device(hermes: HermesProcess) -> None:
    """The device goes during a turn: the answer comes after its next `ready`, once."""
    client = device_on(hermes)
    async with client:
        await client.text("hello")
        await client.idle()
        mark = len(client.frames)
        await client.text("stream 20 100")
        await client.wait(lambda f: f["t"] == "message" and "word3" in f["text"], since=mark)
    await asyncio.sleep(3)
    back = len(client.frames)
    async with client:
        await client.message("word20", since=mark)
        await client.idle(since=back)
        answers = [t for t in client.texts(mark).values() if t.startswith("word1")]
        assert answers == [" ".join(f"word{n}" for n in range(1, 21))]
        assert not client.typing


async def test_a_busy_port_is_explained_and_tried_again(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """The reason names the port and the setting; when it is free the door opens."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        hermes = new_hermes(door=False, mobile={"MOBILE_PORT": str(port)})
        told = await state_of(hermes, "retrying")
        reason = told["error_message"]
        assert str(port) in reason and "MOBILE_PORT" in reason
        await hermes.logged(reason)
    await state_of(hermes, "connected")
    async with DoorClient(f"ws://127.0.0.1:{port}/ws", hermes.token, "patient") as client:
        await client.text("hello")
        await client.message("hello")


async def test_without_a_token_the_door_stays_closed(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """The owner reads how to make one."""
    hermes = new_hermes(door=False, mobile={"MOBILE_TOKEN": ""})
    told = await state_of(hermes, "fatal")
    assert "MOBILE_TOKEN" in told["error_message"]
    assert "secrets.token_urlsafe" in told["error_message"]
    await hermes.logged(told["error_message"])


async def test_a_weak_token_is_refused_on_a_public_address(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """Loopback alone may do with a short one."""
    hermes = new_hermes(door=False, mobile={"MOBILE_TOKEN": "short", "MOBILE_HOST": "0.0.0.0"})
    told = await state_of(hermes, "fatal")
    assert "16" in told["error_message"] and "short" not in told["error_message"]


async def test_settings_from_the_config_file(new_hermes: Callable[..., HermesProcess]) -> None:
    """`platforms.mobile` in config.yaml; the environment wins."""
    token = "a-token-of-the-config-file"
    hermes = new_hermes(
        mobile={"MOBILE_TOKEN": ""},
        config={"platforms": {"mobile": {"token": token, "port": 1, "prompt_ttl": 47}}},
    )
    async with DoorClient(hermes.door_url, token, "configured") as client:
        await client.text("clarify Well?|yes|no")
        prompt = await client.prompt()
        assert prompt["timeout_seconds"] <= 47  # Hermes' own limit is a minute
        await client.answer(prompt, "c0")
        await client.message("clarify: yes")


async def test_as_a_directory_plugin(new_hermes: Callable[..., HermesProcess]) -> None:
    """Copied into the plugins folder, without the pip distribution's entry point."""
    hermes = new_hermes(directory_plugin=True)
    async with device_on(hermes) as client:
        await client.text("hello")
        await client.message("hello")
        await client.idle()
        mark = len(client.frames)
        await client.text("approve echo plugged")
        prompt = await client.prompt(since=mark)
        await client.answer(prompt, "once")
        await client.message("approval: once", since=mark)


async def test_the_self_check_finds_nothing_missing(hermes: HermesProcess) -> None:
    """Both supported versions have every hook."""
    assert "self-check" not in hermes.logs()
    assert "this Hermes lacks" not in hermes.logs()
