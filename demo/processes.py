"""Start programs in process groups of their own, watch them, end all of them."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 8.0
"""How long a program may take to end after SIGTERM before it is killed."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class StartError(Exception):
    """Something could not be started or has died; the text is for the person at the terminal."""


@dataclass
class Child:
    """A running program: its name for people, its process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def alive(self) -> bool:
        return self.process.poll() is None


def _end_with_parent() -> None:
    """In the child, before exec: also a killed parent takes it along (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
) -> Child:
    """Start one program with its output in `log` (0600, begun anew)."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches the launcher alone, which then ends the others in order.
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    except OSError as problem:
        raise StartError(f"{name} could not be started: {command[0]}: {problem.strerror}") from None
    finally:
        os.close(descriptor)
    return Child(name, process, log)


def stop(children: Sequence[Child], patience: float = STOP_SECONDS) -> None:
    """End the programs, the newest first, each with everything it started itself.

    A program that does not end within `patience` seconds is killed. One that is dead already
    may have left its own children behind: its group is ended all the same.
    """
    deadline = time.monotonic() + patience
    for child in reversed(children):
        _signal(child, signal.SIGTERM)
    for child in reversed(children):
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.1, deadline - time.monotonic()))
        _signal(child, signal.SIGKILL)
        child.process.wait()


def _signal(child: Child, number: signal.Signals) -> None:
    # The group keeps the leader's number until its last member is gone.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)


def last_lines(log: Path, count: int = 12) -> str:
    """The end of a log, for an explanation."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "    (no log)"
    lines = [line for line in text.splitlines() if line.strip()][-count:]
    return "\n".join(f"    {line[:300]}" for line in lines) or "    (the log is empty)"


def explain_death(child: Child) -> str:
    """Why a program is not there any more, as far as one can tell."""
    code = child.process.returncode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
    return f"{child.name} {how}. The last lines of {child.log}:\n{last_lines(child.log)}"


def port_is_free(host: str, port: int) -> bool:
    """Whether no other program listens there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do it: a port whose old connections are still in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            # An address that is not of this machine is another mistake.
            return problem.errno != errno.EADDRINUSE
    return True


_named: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody uses now, and that the system gives to nobody by itself.

    A port of the system's own choice could be given away again before its program listens there:
    to a program that asks for any port, or to the near end of a connection. No port is named twice.
    """
    low, high = handed_out_ports()
    others = [p for p in (*range(20_000, low), *range(high + 1, 65_536)) if p not in _named]
    dice = random.SystemRandom()
    port: int
    for _ in range(100):
        if others and port_is_free("127.0.0.1", port := dice.choice(others)):
            _named.add(port)
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        return port


def handed_out_ports() -> tuple[int, int]:
    """The first and the last port that the system gives to whoever asks for any."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 49_152, 65_535  # RFC 6335 section 6, and what macOS does


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a GET of `url` is answered with 200."""
    # The environment's proxy settings must not be asked about loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def wait_for(
    url: str,
    children: Sequence[Child],
    seconds: float,
    refused: Callable[[], str | None] = lambda: None,
) -> None:
    """Wait until `url` answers. `refused` says why it never will, where that is known.

    Raises:
        StartError: one of `children` has died meanwhile, it is refused, or `seconds` have passed.
    """
    deadline = time.monotonic() + seconds
    while not answers(url):
        for child in children:
            if not child.alive():
                raise StartError(explain_death(child))
        if (reason := refused()) is not None:
            raise StartError(reason)
        if time.monotonic() > deadline:
            logs = "\n".join(f"  The last lines of {c.log}:\n{last_lines(c.log)}" for c in children)
            raise StartError(f"{url} did not answer within {seconds:.0f} seconds.\n{logs}")
        time.sleep(0.05)
