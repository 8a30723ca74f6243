"""From another process to a device: `hermes send`, `hermes mobile send`, cron."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.e2e.door_client import DoorClient
from tests.e2e.hermes_process import PATIENCE, HermesProcess


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


async def run(hermes: HermesProcess, *arguments: str) -> Ran:
    """A `hermes …` command in the gateway's home."""
    process = await asyncio.create_subprocess_exec(
        *hermes.command(*arguments),
        env=hermes.process_environment(),
        cwd=hermes.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())


def device_on(hermes: HermesProcess, name: str = "") -> DoorClient:
    return DoorClient(hermes.door_url, hermes.token, name or f"out-{uuid4().hex[:8]}")


async def listed(hermes: HermesProcess, device: str) -> None:
    """Until Hermes' channel directory knows the device."""
    directory = hermes.home / "channel_directory.json"
    async with asyncio.timeout(PATIENCE):
        while not (directory.exists() and f'"{device}"' in directory.read_text()):
            await asyncio.sleep(0.05)


async def test_send_to_a_device_that_has_chatted(hermes: HermesProcess) -> None:
    """A textual id reaches that device, and the home device gets nothing."""
    async with device_on(hermes, "home-device") as home, device_on(hermes) as client:
        await client.text("hello")
        await client.idle()
        await listed(hermes, client.device)
        mark, home_mark = len(client.frames), len(home.frames)
        sent = await run(hermes, "send", "--to", f"mobile:{client.device}", "news for you")
        assert sent.code == 0, sent.all
        assert "home-device" not in sent.all
        await client.message("news for you", since=mark)
        assert "news for you" not in str(home.frames[home_mark:])
        assert client.unfinished() == []


async def test_send_to_a_device_that_only_said_hello(hermes: HermesProcess) -> None:
    """No session yet: the device is reached all the same."""
    async with device_on(hermes, "home-device") as home, device_on(hermes) as client:
        await listed(hermes, client.device)
        sent = await run(hermes, "send", "--json", "--to", f"mobile:{client.device}", "first news")
        assert sent.code == 0, sent.all
        assert json.loads(sent.out)["success"] is True
        await client.message("first news")
        assert "first news" not in str(home.frames)


async def test_send_to_an_unknown_or_absent_device_fails(hermes: HermesProcess) -> None:
    """An id nobody has, and a device that has gone: exit 1, a reason, and no other device hears."""
    async with device_on(hermes, "home-device") as home:
        sent = await run(hermes, "send", "--to", f"mobile:nobody-{uuid4().hex[:6]}", "lost words")
        assert sent.code == 1 and sent.all.strip()
        async with device_on(hermes) as client:
            await client.text("hello")
            await client.idle()
            await listed(hermes, client.device)
        sent = await run(hermes, "send", "--to", f"mobile:{client.device}", "lost words")
        assert sent.code == 1, sent.all
        assert f"the device {client.device} is not connected" in sent.all
        assert "lost words" not in str(home.frames)


async def test_send_without_a_device_goes_to_the_home_device(hermes: HermesProcess) -> None:
    """`--to mobile`: the home device."""
    async with device_on(hermes, "home-device") as home:
        mark = len(home.frames)
        sent = await run(hermes, "send", "--to", "mobile", "for the home")
        assert sent.code == 0, sent.all
        await home.message("for the home", since=mark)


async def test_send_carries_files(hermes: HermesProcess, tmp_path: Path) -> None:
    """A text with a file, a file alone, and one over the limit."""
    picture = next(path for path in hermes.media.iterdir() if path.stem == "image")
    big = tmp_path / "huge.bin"
    big.write_bytes(bytes(9 * 1024 * 1024))
    async with device_on(hermes) as client:
        await listed(hermes, client.device)
        to = ("send", "--json", "--to", f"mobile:{client.device}")
        sent = await run(hermes, *to, f"look MEDIA:{picture}")
        assert sent.code == 0, sent.all
        assert "warnings" not in json.loads(sent.out)
        await client.message("look")
        await client.wait(lambda f: f["t"] == "media" and f["final"] and f["kind"] == "image")

        mark = len(client.frames)
        sent = await run(hermes, *to, f"MEDIA:{picture}")
        assert sent.code == 0, sent.all
        await client.wait(lambda f: f["t"] == "media" and f["final"], since=mark)

        mark = len(client.frames)
        sent = await run(hermes, *to, f"never shown MEDIA:{big}")
        assert sent.code == 1 and "nothing was delivered" in sent.all
        assert "never shown" not in str(client.frames[mark:])


async def test_send_cuts_a_very_long_text(hermes: HermesProcess) -> None:
    """More than one frame may hold: every character arrives."""
    text = "".join(f"line {n} of a report\n" for n in range(1500)).strip()
    report = hermes.folder / "report.txt"
    report.write_text(text)
    async with device_on(hermes) as client:
        await listed(hermes, client.device)
        sent = await run(hermes, "send", "--to", f"mobile:{client.device}", "--file", str(report))
        assert sent.code == 0, sent.all
        await client.message("line 1499 of a report")
        assert "".join(client.texts().values()) == text


async def test_the_plugins_own_commands(hermes: HermesProcess) -> None:
    """`hermes mobile status | send | token`."""
    status = await run(hermes, "mobile", "status")
    assert status.code == 0 and hermes.door_url in status.out, status.all
    async with device_on(hermes) as client:
        sent = await run(hermes, "mobile", "send", client.device, "by the plugin")
        assert sent.code == 0, sent.all
        await client.message("by the plugin")
    sent = await run(hermes, "mobile", "send", f"nobody-{uuid4().hex[:6]}", "lost")
    assert sent.code == 1 and "is not connected" in sent.err
    token = await run(hermes, "mobile", "token")
    assert token.code == 0 and len(token.out.split("MOBILE_TOKEN=")[1].split()[0]) >= 32


async def test_the_secret_is_private(hermes: HermesProcess) -> None:
    """0600, long, and not the token of the apps."""
    path = hermes.home / "mobile" / "deliver-secret"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    secret = path.read_text()
    assert len(secret) >= 32 and secret != hermes.token
    assert secret not in hermes.logs() and hermes.token not in hermes.logs()


async def test_without_a_gateway_send_says_so(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """The door is closed: exit 1 and what to do."""
    hermes = new_hermes()
    async with device_on(hermes) as client:
        await client.text("hello")
        await client.idle()
        await listed(hermes, client.device)
    hermes.stop()
    sent = await run(hermes, "send", "--to", f"mobile:{client.device}", "anyone?")
    assert sent.code == 1
    assert "is the gateway running" in sent.all


async def test_cron_from_the_gateway_and_from_a_shell(
    new_hermes: Callable[..., HermesProcess],
) -> None:
    """A job delivers to a textual device id, run by the gateway's clock and by hand."""
    hermes = new_hermes(config={"cron": {"wrap_response": False}})
    async with device_on(hermes, "cron-device") as client, device_on(hermes, "home-device") as home:
        await listed(hermes, client.device)
        made = await run(
            hermes, "cron", "create", "every 2h", "cron says hello", "--name", "shell-job",
            "--deliver", f"mobile:{client.device}",
        )  # fmt: skip
        assert made.code == 0, made.all
        job = made.out.split("Created job:")[1].split()[0]
        await run(hermes, "cron", "run", job)
        ticked = await run(hermes, "cron", "tick")
        assert ticked.code == 0, ticked.all
        await client.message("cron says hello")

        mark = len(client.frames)
        made = await run(
            hermes, "cron", "create", "1m", "the clock says hello", "--name", "clock-job",
            "--deliver", f"mobile:{client.device}",
        )  # fmt: skip
        assert made.code == 0, made.all
        job = made.out.split("Created job:")[1].split()[0]
        await run(hermes, "cron", "run", job)
        await client.wait(
            lambda f: f["t"] == "message" and "the clock says hello" in f["text"], since=mark
        )
        assert "says hello" not in str(home.frames)
        assert client.unfinished() == []
