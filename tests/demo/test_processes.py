"""demo/processes.py: nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from demo.processes import (
    Child,
    StartError,
    explain_death,
    free_port,
    handed_out_ports,
    port_is_free,
    start,
    stop,
    wait_for,
)

PATIENCE = 60.0

# Starts a grandchild that ignores SIGTERM, as the program itself does.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code])
print(child.pid, flush=True)
if sys.argv[1] == "dies":
    os._exit(3)
time.sleep(600)
"""


def started(folder: Path, *arguments: str) -> Child:
    command = [sys.executable, "-c", STUBBORN, *arguments]
    return start("Stubborn", command, log=folder / "log", env=dict(os.environ), cwd=folder)


def grandchild_of(child: Child) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if text := child.log.read_text().strip():
            return int(text)
        time.sleep(0.02)
    raise AssertionError("no grandchild")


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie that nobody has collected counts as ended)."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_a_program_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    child = started(tmp_path, "stays")
    grandchild = grandchild_of(child)

    stop([child], patience=0.5)

    assert child.process.returncode == -signal.SIGKILL
    assert gone(grandchild)


def test_the_children_of_a_program_that_has_died_are_ended(tmp_path: Path) -> None:
    child = started(tmp_path, "dies")
    grandchild = grandchild_of(child)
    assert child.process.wait(PATIENCE) == 3

    stop([child], patience=0.5)

    assert gone(grandchild)


def test_a_death_is_explained_with_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; print('first'); print('the reason'); sys.exit(7)"
    command = [sys.executable, "-c", code]
    child = start("Program", command, log=tmp_path / "log", env=dict(os.environ), cwd=tmp_path)

    with pytest.raises(StartError) as caught:
        wait_for(f"http://127.0.0.1:{free_port()}/health", [child], PATIENCE)

    assert "Program exited with 7" in str(caught.value)
    assert "the reason" in str(caught.value)
    assert "the reason" in explain_death(child)
    stop([child])


def test_a_program_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        start("Nothing", ["/no/such/program"], log=tmp_path / "log", env={}, cwd=tmp_path)


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not port_is_free("127.0.0.1", server.getsockname()[1])
    assert port_is_free("127.0.0.1", free_port())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_here_is_not_a_port_in_use(host: str) -> None:
    """The door says what is wrong with it."""
    assert port_is_free(host, free_port())


def test_waiting_ends_with_the_reason_of_who_refuses(tmp_path: Path) -> None:
    reasons = iter([None, None, "the door says no"])

    with pytest.raises(StartError, match="the door says no"):
        wait_for(f"http://127.0.0.1:{free_port()}/health", [], PATIENCE, lambda: next(reasons))


def test_a_free_port_is_given_to_nobody_else_meanwhile() -> None:
    """It is named long before its program listens there."""
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", 0))
        low, high = handed_out_ports()
        assert low <= anybody.getsockname()[1] <= high
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == 300
    assert all(port < low or port > high for port in ports)
    assert all(1024 < port < 65_536 for port in ports)
