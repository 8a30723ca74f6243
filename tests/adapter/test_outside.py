"""Deliveries from another process, against a real door with a scripted agent."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hermes_mobile import door_files, outside
from hermes_mobile.prompts import Card
from hermes_mobile.server import Answered, Door, Incoming
from hermes_mobile.settings import Settings
from tests.e2e.door_client import DoorClient

TOKEN = "outside-token-0123456789"


class Nobody:
    """An agent that answers nothing."""

    async def submit(self, incoming: Incoming) -> None: ...

    async def answer(self, card: Card, option_id: str, text: str | None) -> Answered:
        return Answered(False)

    async def expired(self, card: Card) -> None: ...


@pytest.fixture
async def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """A running door of the Hermes home `tmp_path`. Deliveries from loopback are off."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    settings = Settings.from_sources(
        {"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0", "MOBILE_LOOPBACK_DELIVER": "off"}
    )
    door = Door(settings, Nobody(), deliver_secret=door_files.secret(tmp_path))
    await door.start()
    door_files.write_door(tmp_path, settings.host, door.port)
    yield door
    await door.stop()


def device_on(door: Door, name: str = "dev1") -> DoorClient:
    return DoorClient(f"ws://127.0.0.1:{door.port}/ws", TOKEN, name)


async def test_text_and_files_arrive_in_order(door: Door, tmp_path: Path) -> None:
    """Text first, then each file with its kind."""
    first, second = tmp_path / "a.txt", tmp_path / "b.ogg"
    first.write_text("content")
    second.write_bytes(b"OggS" + b"\0" * 60)
    async with device_on(door) as client:
        await outside.deliver("mobile:dev1", "look", [str(first), (str(second), True)])
        await client.wait(lambda f: f["t"] == "media" and f["kind"] == "voice")
        kinds = [f.get("kind") or f.get("text") for f in client.frames if f["t"] != "avatar"]
        assert kinds[1:] == ["look", "document", "voice"]


async def test_a_text_of_any_length(door: Door) -> None:
    """More than one frame may hold; joined it is the same."""
    text = "".join(f"paragraph {n}\n\n" for n in range(3000)) + "end"
    async with device_on(door) as client:
        await outside.deliver("dev1", text)
        await client.message("end")
        assert "".join(client.texts().values()) == text


async def test_hermes_contract(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary with success or error, never an exception."""
    monkeypatch.setattr(sys, "argv", ["hermes", "cron", "tick"])
    config = SimpleNamespace(extra={})
    async with device_on(door) as client:
        result = await outside.standalone_send(config, "dev1", "hi", thread_id=None, new_option=1)
        assert result["success"] is True and result["message_id"]
        await client.message("hi")
    gone = await outside.standalone_send(config, "dev1", "hi")
    assert gone == {"error": "the device dev1 is not connected"}
    nothing = await outside.standalone_send(config, "dev1", " ")
    assert "neither text nor a file" in nothing["error"]
    wrong = await outside.standalone_send(config, "a:b", "hi")
    assert "no address of a device" in wrong["error"]


async def test_another_device_than_the_named_one_is_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hermes that could be wrapped nowhere: nothing is sent, and the way out is named."""
    monkeypatch.setattr(sys, "argv", ["hermes", "send", "--to", "mobile:dev1", "hi"])
    async with device_on(door, "home") as home:
        result = await outside.standalone_send(SimpleNamespace(extra={}), "home", "secret words")
        assert "hermes mobile send dev1" in result["error"]
        await home.send({"t": "ping", "ts": 1})
        await home.wait(lambda f: f["t"] == "pong")
        assert "secret words" not in str(home.frames)


@pytest.mark.parametrize("target", ["mobile:", "mobile: "])
async def test_no_device_is_not_the_home_device(
    door: Door, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """As of a script whose variable is empty; Hermes would take the home device."""
    monkeypatch.setattr(sys, "argv", ["hermes", "send", "--to", target, "hi"])
    async with device_on(door, "home") as home:
        result = await outside.standalone_send(SimpleNamespace(extra={}), "home", "secret words")
        assert "names no device" in result["error"] and "nothing was sent" in result["error"]
        await home.send({"t": "ping", "ts": 1})
        await home.wait(lambda f: f["t"] == "pong")
        assert "secret words" not in str(home.frames)


async def test_a_file_over_the_limit_stops_everything(door: Door, tmp_path: Path) -> None:
    """Nothing is delivered, not even the text."""
    big = tmp_path / "big.bin"
    big.write_bytes(bytes(8 * 1024 * 1024 + 1))
    async with device_on(door) as client:
        with pytest.raises(outside.NotDelivered, match="nothing was delivered"):
            await outside.deliver("dev1", "text", [str(big)])
        await client.send({"t": "ping", "ts": 1})
        await client.wait(lambda f: f["t"] == "pong")
        assert client.texts() == {}


async def test_the_largest_file(door: Door, tmp_path: Path) -> None:
    """8 MiB in one frame."""
    big = tmp_path / "big.bin"
    big.write_bytes(bytes(8 * 1024 * 1024))
    async with device_on(door) as client:
        await outside.deliver("dev1", "", [str(big)])
        frame = await client.wait(lambda f: f["t"] == "media" and f["final"])
        assert frame["size"] == 8 * 1024 * 1024


async def test_reasons(door: Door, tmp_path: Path) -> None:
    """A wrong secret, and no door: each says what to do."""
    secret = tmp_path / "mobile" / "deliver-secret"
    right = secret.read_text()
    secret.write_text("x" * 40)
    with pytest.raises(outside.NotDelivered, match="restart the gateway"):
        await outside.deliver("dev1", "hi")
    secret.write_text(right)
    await door.stop()
    with pytest.raises(outside.NotDelivered, match="is the gateway running"):
        await outside.deliver("dev1", "hi")


async def test_without_a_state_file_the_settings_tell(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOBILE_PORT, or the port of config.yaml."""
    (tmp_path / "mobile" / "door.json").unlink()
    async with device_on(door) as client:
        await outside.deliver("dev1", "by the file", extra={"port": door.port})
        await client.message("by the file")
        monkeypatch.setenv("MOBILE_PORT", str(door.port))
        await outside.deliver("dev1", "by the environment", extra={"port": 1})
        await client.message("by the environment")
