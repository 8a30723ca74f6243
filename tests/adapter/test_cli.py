"""`hermes-mobile` as a person starts it: real processes, real signals, a real terminal."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_client import HermesClient, Media, Message
from hermes_mobile import __version__, door_files
from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

TOKEN = "a-token-for-these-tests"
ROOT = Path(__file__).resolve().parents[2]
# A deadline tells what never comes from a busy machine; nothing is measured with it.
PATIENCE = 120.0


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """The caller's environment without its own settings, in a home of the test's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MOBILE_", "HERMES_"))}
    paths = os.pathsep.join(str(ROOT / part) for part in ("adapter", "sdk/python"))
    return kept | {"HERMES_HOME": str(folder / "home"), "PYTHONPATH": paths} | settings


def run(
    folder: Path, *arguments: str, typed: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes_mobile.cli", *arguments],
        cwd=folder,
        env=environment(folder, **settings),
        input=typed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


class Served:
    """A running `serve`; `output` grows while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.output = ""
        self.url = ""

    def read_until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        while (found := re.search(pattern, self.output)) is None:
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.output}"
            self.output += line
        return found[1]

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE)
        self.output += out
        return self.process.returncode, self.output


@contextmanager
def serving(folder: Path, *arguments: str, **settings: str) -> Iterator[Served]:
    settings.setdefault("MOBILE_TOKEN", TOKEN)
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_mobile.cli", "serve", "--agent", "demo", *arguments],
        cwd=folder,
        env=environment(folder, **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        served = Served(process)
        try:
            served.url = served.read_until(r"(ws://\S+)")
            yield served
        finally:
            if process.poll() is None:
                process.kill()


# serve


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--port", "0") as served:
        served.read_until("(Ctrl-C)")
        status, output = served.stop(number)
    assert status == 0
    assert output.endswith("The door is closed.\n")
    assert f"hermes-mobile chat {served.url}" in output
    assert TOKEN not in output
    assert "Traceback" not in output


def test_serve_stops_while_a_device_is_in_a_turn(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:

        async def talk() -> tuple[int, str]:
            async with HermesClient(served.url, token=TOKEN, device="tablet") as client:
                await client.send_text("approve wait")
                return await asyncio.to_thread(served.stop, signal.SIGTERM)

        status, output = asyncio.run(asyncio.wait_for(talk(), PATIENCE))
    assert status == 0
    assert "Traceback" not in output and "never retrieved" not in output


def test_the_options_win_over_the_environment(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "127.0.0.1", "--port", "0", MOBILE_PORT="1") as served:
        assert re.fullmatch(r"ws://127\.0\.0\.1:(?!1/)\d+/ws", served.url)


def test_serve_without_a_token_says_how_to_make_one(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--agent", "demo", "--port", "0")
    assert done.returncode == 2
    assert "MOBILE_TOKEN" in done.stderr and "token_urlsafe" in done.stderr
    assert done.stdout == ""


def test_serve_refuses_a_short_token_on_other_than_loopback(tmp_path: Path) -> None:
    done = run(
        tmp_path, "serve", "--agent", "demo", "--host", "0.0.0.0", "--port", "0",
        MOBILE_TOKEN="short",
    )  # fmt: skip
    assert done.returncode == 2
    assert "16" in done.stderr and "short" not in done.stderr


def test_a_busy_port_is_explained(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, "serve", "--agent", "demo", "--port", port, MOBILE_TOKEN=TOKEN)
    assert done.returncode == 1
    assert port in done.stderr and "MOBILE_PORT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_an_impossible_port_is_explained(tmp_path: Path, port: str) -> None:
    done = run(tmp_path, "serve", "--agent", "demo", f"--port={port}", MOBILE_TOKEN=TOKEN)
    assert done.returncode == 2
    assert "MOBILE_PORT" in done.stderr


@contextmanager
def on_a_terminal(folder: Path, *arguments: str, **settings: str) -> Iterator[tuple[int, int]]:
    """The command on a pseudo-terminal of its own: its pid and the terminal's descriptor."""
    import pty

    environ: Mapping[str, str] = environment(folder, TERM="xterm", **settings)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hermes_mobile.cli", *arguments],
        cwd=folder,
        env=environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield process.pid, leader
    finally:
        os.close(leader)
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


def read_until(terminal: int, pattern: str) -> re.Match[str]:
    import select

    output = ""
    end = time.monotonic() + PATIENCE
    while (found := re.search(pattern, output)) is None:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{pattern} did not come: {output!r}"
        output += os.read(terminal, 65536).decode(errors="replace")
    return found


def test_a_chat_that_finds_nobody_says_where_it_knocks(tmp_path: Path) -> None:
    with socket.socket() as silent:  # bound, and never listening
        silent.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/ws"
        with on_a_terminal(tmp_path, "chat", url, MOBILE_TOKEN=TOKEN) as (pid, terminal):
            read_until(terminal, f"(Connecting to {re.escape(url)})")
            os.kill(pid, signal.SIGINT)


def test_a_person_is_given_a_token_and_can_use_it(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "serve", "--agent", "demo", "--port", "0") as (pid, terminal):
        url, token = read_until(terminal, r"(?s)(ws://\S+/ws).*token +(\S{32})").groups()
        done = run(tmp_path, "chat", url, typed="hello\n", MOBILE_TOKEN=token)
        assert done.stdout == "agent: echo: hello\n"
        os.kill(pid, signal.SIGINT)
        read_until(terminal, "(The door is closed)")


def test_a_chat_on_a_terminal_asks_for_the_token_without_showing_it(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--port", "0") as served,
        on_a_terminal(tmp_path, "chat", served.url) as (_, terminal),
    ):
        read_until(terminal, "(Token: )")
        os.write(terminal, TOKEN.encode() + b"\n")
        seen = read_until(terminal, r"((?s:.*)connected as)")[1]
        assert TOKEN not in seen
        os.write(terminal, b"hello there\r")
        read_until(terminal, "(echo: hello there)")
        os.write(terminal, b"\x04")


# chat


def test_chat_talks_through_pipes(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:
        done = run(
            tmp_path, "chat", served.url, "--downloads", "got",
            typed="one\napprove ls\n1\nimage\n/quit\n", MOBILE_TOKEN=TOKEN,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("agent: echo: one\ncard: ")
    assert "agent: approval: once\n" in done.stdout
    assert (tmp_path / "got" / "image.png").is_file()


def test_chat_ends_with_its_input(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:
        done = run(tmp_path, "chat", served.url, typed="no newline", MOBILE_TOKEN=TOKEN)
    assert (done.returncode, done.stdout) == (0, "agent: echo: no newline\n")


def test_chat_with_a_wrong_token_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:
        done = run(tmp_path, "chat", served.url, typed="x\n", MOBILE_TOKEN="w" * 20)
    assert done.returncode == 1
    assert "refused the token" in done.stderr
    assert "w" * 20 not in done.stderr + done.stdout


def test_chat_without_a_token_or_with_a_bad_address_is_wrong_use(tmp_path: Path) -> None:
    done = run(tmp_path, "chat", "ws://127.0.0.1:1/ws")
    assert (done.returncode, "MOBILE_TOKEN" in done.stderr) == (2, True)
    done = run(tmp_path, "chat", f"ws://127.0.0.1:1/ws?token={TOKEN}", MOBILE_TOKEN=TOKEN)
    assert done.returncode == 2
    assert TOKEN not in done.stderr


def test_chat_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "hermes_client.py").write_text("raise ImportError('no', name='hermes_client')")
    done = run(tmp_path, "chat", "ws://127.0.0.1:1/ws", MOBILE_TOKEN=TOKEN)
    assert done.returncode == 1
    assert "hermes_client" in done.stderr and "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_door_itself_needs_none_of_the_chats_packages(tmp_path: Path) -> None:
    for name in ("hermes_client", "prompt_toolkit", "rich", "websockets"):
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} was imported')")
    with serving(tmp_path, "--port", "0") as served:
        status, output = served.stop(signal.SIGINT)
    assert status == 0, output


# send


async def received(url: str, folder: Path, send: list[str], **settings: str) -> list[object]:
    """What a device gets while `send` runs; its result comes last."""
    got: list[object] = []
    async with HermesClient(url, token=TOKEN, device="tablet", downloads=folder / "in") as client:
        done = await asyncio.to_thread(run, folder, "send", *send, **settings)
        if done.returncode == 0:
            async with asyncio.timeout(PATIENCE):
                async for event in client:
                    if isinstance(event, Message | Media):
                        got.append(event.text if isinstance(event, Message) else event.path)
                    if len(got) == len([part for part in send if part in ("--file", "hello")]):
                        break
    return [*got, done]


@pytest.mark.parametrize("target", ["tablet", "mobile:tablet"])
async def test_send_delivers_text_and_files(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.txt").write_text("file")
    with serving(tmp_path, "--port", "0", MOBILE_DELIVER_TOKENS="d" * 20) as served:
        text, path, done = await received(
            served.url,
            tmp_path,
            ["--to", target, "hello", "--file", "a.txt", "--url", served.url],
            MOBILE_DELIVER_TOKENS="d" * 20,
        )
    assert text == "hello"
    assert isinstance(path, Path) and path.read_text() == "file"
    assert isinstance(done, subprocess.CompletedProcess) and done.stdout == "delivered\n"


async def test_send_goes_through_the_gateway_of_the_hermes_home(tmp_path: Path) -> None:
    """Without a token of its own: the gateway's door is found, and opened, by its two files."""
    home = tmp_path / "home"
    agent = ScriptedAgent()
    door = Door(
        Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0"}),
        agent,
        deliver_secret=door_files.secret(home),
    )
    agent.attach(door)
    await door.start()
    try:
        door_files.write_door(home, "127.0.0.1", door.port)
        url = f"ws://127.0.0.1:{door.port}/ws"
        text, _ = await received(url, tmp_path, ["--to", "mobile:tablet", "hello"])
        assert text == "hello"
    finally:
        await agent.close()
        await door.stop()
    done = await asyncio.to_thread(run, tmp_path, "send", "--to", "tablet", "hello")
    assert done.returncode == 1
    assert "is the gateway running" in done.stderr


async def test_the_apps_own_token_is_enough_on_loopback(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:
        port = served.url.rpartition(":")[2].partition("/")[0]
        text, _ = await received(
            served.url, tmp_path, ["--to", "tablet", "hello"],
            MOBILE_TOKEN=TOKEN, MOBILE_PORT=port,
        )  # fmt: skip
    assert text == "hello"


async def test_send_without_a_target_goes_to_the_home_device(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", MOBILE_HOME_DEVICE="tablet") as served:
        arguments = ["hello", "--url", served.url]
        text, _ = await received(served.url, tmp_path, arguments, MOBILE_TOKEN=TOKEN)
        assert text == "hello"
        away = await asyncio.to_thread(
            run, tmp_path, "send", "hello", "--url", served.url, MOBILE_TOKEN=TOKEN
        )
        assert (away.returncode, "the home device is not connected" in away.stderr) == (1, True)
        empty = await asyncio.to_thread(
            run, tmp_path, "send", "--to", "", "hello", "--url", served.url, MOBILE_TOKEN=TOKEN
        )
        assert (empty.returncode, "no address of a device" in empty.stderr) == (1, True)


async def test_send_where_only_listed_devices_may_come(tmp_path: Path) -> None:
    """The list holds for services too: the sender names itself."""
    settings = {"MOBILE_DELIVER_TOKENS": "d" * 20}
    with serving(
        tmp_path, "--port", "0", MOBILE_ALLOWED_DEVICES="tablet,backup", **settings
    ) as served:
        arguments = ["--to", "tablet", "hello", "--url", served.url]
        text, _ = await received(served.url, tmp_path, [*arguments, "--as", "backup"], **settings)
        assert text == "hello"
        for sender in ([], ["--as", "unknown"]):
            done = await asyncio.to_thread(run, tmp_path, "send", *arguments, *sender, **settings)
            assert done.returncode == 1
            assert "MOBILE_ALLOWED_DEVICES" in done.stderr and "--as" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        (["hello"], {}, "MOBILE_HOME_DEVICE is not set"),
        (["--to", "away", "hello", "--as", "a/b"], {}, "device.id"),
        (["--to", "away", "hello"], {}, "away is not connected"),
        (["--to", "a/b", "hello"], {}, "no address of a device"),
        (["--to", "away"], {}, "neither text nor a file"),
        (["--to", "away", "--file", "missing.txt"], {}, "missing.txt"),
        (["--to", "away", "hello"], {"MOBILE_TOKEN": "w" * 20}, "refused the token"),
        (["--to", "away", "hello", "--url", "ws://127.0.0.1:1/ws"], {}, "does not answer"),
    ],
)
def test_a_failed_send_is_honest(
    tmp_path: Path, arguments: list[str], settings: dict[str, str], reason: str
) -> None:
    with serving(tmp_path, "--port", "0") as served:
        if "--url" not in arguments:
            arguments = [*arguments, "--url", served.url]
        done = run(tmp_path, "send", *arguments, **({"MOBILE_TOKEN": TOKEN} | settings))
    assert done.returncode == 1
    assert reason in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr


@pytest.mark.parametrize("url", ["not an address", "http://h/", "ws://h:x/ws", "ws://[::1/ws"])
def test_send_to_what_is_no_address_is_wrong_use(tmp_path: Path, url: str) -> None:
    done = run(tmp_path, "send", "--to", "tablet", "hello", "--url", url, MOBILE_TOKEN=TOKEN)
    assert done.returncode == 2
    assert "is no address like ws://HOST:PORT/ws" in done.stderr


def test_send_without_a_token_says_what_to_set(tmp_path: Path) -> None:
    done = run(tmp_path, "send", "--to", "tablet", "hello")
    assert done.returncode == 2
    assert "MOBILE_DELIVER_TOKENS" in done.stderr


async def test_send_reads_standard_input(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as served:
        async with HermesClient(served.url, token=TOKEN, device="tablet") as client:
            done = await asyncio.to_thread(
                lambda: run(
                    tmp_path, "send", "--to", "tablet", "-", "--url", served.url,
                    typed="from a pipe\n", MOBILE_TOKEN=TOKEN,
                )
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            async with asyncio.timeout(PATIENCE):
                async for event in client:
                    if isinstance(event, Message):
                        assert event.text.strip() == "from a pipe"
                        break


# the rest


def test_the_version_and_the_help(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout == f"hermes-mobile {__version__}\n"
    shown = run(tmp_path, "--help").stdout
    assert all(command in shown for command in ("serve", "chat", "send"))
    assert run(tmp_path).returncode == 2
    assert run(tmp_path, "serve", "--agent", "other").returncode == 2
