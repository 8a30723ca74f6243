"""`python -m demo` as a person starts it: a real Hermes, stopped and broken in every way."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.processes import answers, free_port
from demo.settings import ROOT

READY = "Stop with Ctrl-C"
PATIENCE = 180.0


def environ(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    ports = {"MOBILE_PORT": str(free_port()), "DEMO_WEB_PORT": str(free_port())}
    return {**kept, **ports, "DEMO_HOME": str(folder), **more}


def output(log: Path, needle: str, process: subprocess.Popen[bytes]) -> str:
    """The launcher's output once it holds `needle`."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if needle in (text := log.read_text()):
            return text
        if process.poll() is not None and needle not in log.read_text():
            break
        time.sleep(0.05)
    raise AssertionError(f"{needle!r} was not said:\n{log.read_text()}")


@contextmanager
def launched(folder: Path, **more: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The demo in a process group of its own, with its output in a file."""
    log = folder.parent / f"{folder.name}.out"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo"],
            cwd=ROOT,
            env=environ(folder, **more),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def children_of(pid: int) -> dict[str, int]:
    """Direct children of a process: the last part of the command line's program -> pid."""
    found: dict[str, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
        except (OSError, ValueError):
            continue
        if parent == pid:
            name = next((n for n in ("gateway", "offline_model", "proxy") if n in command), command)
            found[name] = int(entry.name)
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_it_starts_answers_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    """The lines a person needs are there, both doors answer, and Ctrl-C ends all of it."""
    with launched(tmp_path / "demo") as (process, log):
        text = output(log, READY, process)
        door = re.search(r"Device door +ws://([^/\s]+)/ws", text)
        token = re.search(r"Token +(\S+)", text)
        assert door is not None and token is not None
        assert answers(f"http://{door[1]}/health", PATIENCE)
        assert token[1] == (tmp_path / "demo" / "token").read_text().strip()
        assert f".venv/bin/hermes-mobile chat ws://{door[1]}/ws" in text
        web = re.search(r"Browser door +(http://\S+)", text)
        assert web is not None
        assert answers(f"{web[1]}/api/hermes/client/health", PATIENCE)
        assert re.search(r"Log in once +http://\S+login\S+", text)
        children = children_of(process.pid)
        assert {"gateway", "offline_model", "proxy"} <= set(children)

        process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE) == 0
        assert not [name for name, pid in children.items() if alive(pid)]
        assert not answers(f"http://{door[1]}/health")


def test_a_second_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with launched(tmp_path / "demo") as (process, log):
        output(log, READY, process)
        children = children_of(process.pid)

        for _ in range(3):
            process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE) == 0
        assert not [name for name, pid in children.items() if alive(pid)]


def test_a_dead_gateway_is_explained_and_takes_the_rest_along(tmp_path: Path) -> None:
    with launched(tmp_path / "demo") as (process, log):
        output(log, READY, process)
        children = children_of(process.pid)

        os.kill(children["gateway"], signal.SIGKILL)

        assert process.wait(PATIENCE) == 1
        text = output(log, "Hermes Agent was ended by signal 9", process)
        assert "The last lines of" in text
        assert not [name for name, pid in children.items() if alive(pid)]


def test_a_killed_launcher_takes_its_children_along(tmp_path: Path) -> None:
    """kill -9 leaves no time to tidy up: the system tells the children."""
    with launched(tmp_path / "demo") as (process, log):
        output(log, READY, process)
        children = children_of(process.pid)

        process.kill()

        process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(alive(pid) for pid in children.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [name for name, pid in children.items() if alive(pid)]


def test_it_ends_while_it_is_starting(tmp_path: Path) -> None:
    with launched(tmp_path / "demo") as (process, log):
        output(log, "Starting a real Hermes Agent", process)

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0
        assert not children_of(process.pid)


@pytest.mark.parametrize("setting", ["MOBILE_PORT", "DEMO_WEB_PORT", "DEMO_API_PORT"])
def test_a_busy_port_is_explained_with_its_setting(setting: str, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with launched(tmp_path / "demo", **{setting: str(port)}) as (process, log):
            assert process.wait(PATIENCE) == 1

    assert f"127.0.0.1:{port}" in log.read_text()
    assert f"{setting}=" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"MOBILE_LOOPBACK_DELIVER": "perhaps"}, "MOBILE_LOOPBACK_DELIVER is 'perhaps'"),
        ({"MOBILE_HOST": "0.0.0.0", "MOBILE_TOKEN": "short"}, "at least 16 are needed"),
        ({"MOBILE_HOST": "192.0.2.1"}, "the door cannot listen on 192.0.2.1"),
        ({"MOBILE_HOST": "no-such-host.invalid"}, "the door cannot listen on no-such-host"),
    ],
)
def test_a_door_that_refuses_to_open_is_explained_at_once(
    settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    """By the door's own words, also where a start before this one was refused for another."""
    state = tmp_path / "demo" / "hermes-home" / "gateway_state.json"
    state.parent.mkdir(parents=True)
    earlier = '{"error_message": "of another start", "updated_at": "2026-01-02T03:04:05+00:00"}'
    state.write_text(f'{{"platforms": {{"mobile": {earlier}}}}}')
    with launched(tmp_path / "demo", **settings) as (process, log):
        assert process.wait(PATIENCE) == 1

    text = log.read_text()
    assert said in text
    assert "of another start" not in text and "did not answer within" not in text
    assert "in use" not in text and "Traceback" not in text


def test_a_second_demo_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with launched(tmp_path / "demo") as (process, log):
        output(log, "Starting a real Hermes Agent", process)
        second = subprocess.run(
            [sys.executable, "-m", "demo"],
            cwd=ROOT,
            env=environ(tmp_path / "demo"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    assert second.returncode == 1
    assert f"process {process.pid}" in second.stderr
    assert "DEMO_HOME=" in second.stderr


def test_a_missing_hermes_names_the_command(tmp_path: Path) -> None:
    with launched(tmp_path / "demo", DEMO_HERMES=str(tmp_path / "none")) as (process, log):
        assert process.wait(PATIENCE) == 1

    assert "make setup" in log.read_text()
