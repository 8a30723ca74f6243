"""Start everything, say how to use it, wait, and end everything."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from demo import home
from demo.phone import connection_text, is_loopback, network_address, terminal_code
from demo.processes import (
    Child,
    StartError,
    explain_death,
    free_port,
    port_is_free,
    start,
    stop,
    wait_for,
)
from demo.settings import ROOT, Settings

START_SECONDS = 180.0
"""How long Hermes may take until it answers; it needs one to three seconds on a laptop.

A small machine that is busy takes far longer, and a program that dies is noticed at once."""
LOGIN_SECONDS = 10.0
# The pages, where Node.js has built them. Each door serves its own.
CHAT_PAGE = ROOT / "adapter" / "hermes_mobile" / "pages" / "chat" / "index.html"
SAMPLE_PAGE = ROOT / "proxy" / "hermes_client_proxy" / "pages" / "sample" / "index.html"
MOBILE = "MOBILE_PORT"
WATCH_SECONDS = 0.3
# Whoever sits in front of the demo is the home device: Hermes would ask for one otherwise.
HOME_DEVICE = "phone"
_LOGIN = re.compile(rb"https?://[^\s\"'<>]*login[^\s\"'<>]*")


class Stopped(BaseException):
    """The person at the terminal, or a supervisor, asked for the end."""


class Demo:
    """One run of the demo."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = print) -> None:
        self._settings = settings
        self._say = say
        self._children: list[Child] = []
        self.folder = settings.folder
        self.home = settings.folder / "hermes-home"
        self.logs = settings.folder / "logs"

    def run(self) -> int:
        """Start, report, watch; returns the exit status. Everything is ended on the way out."""
        try:
            with only_one(self.folder), interruptible():
                try:
                    self._start()
                    self._watch()
                finally:
                    # From here on a second Ctrl-C must not leave anything behind.
                    _ignore_signals()
                    if self._children:
                        self._say("\nStopping …")
                    stop(self._children)
        except Stopped:
            self._say("Everything the demo started has ended.")
            return 0
        except StartError as problem:
            print(f"\n{problem}", file=sys.stderr)
            return 1

    def _start(self) -> None:
        settings = self._settings
        began = time.monotonic()
        hermes = settings.hermes / "bin" / "hermes"
        if not hermes.exists():
            raise StartError(f"There is no Hermes Agent in {settings.hermes}. Run: make setup")
        self._check_port("The device door", settings.mobile_host, settings.mobile_port, MOBILE)
        self._check_port("The Hermes API", "127.0.0.1", settings.api_port, "DEMO_API_PORT")
        if self._has_browser_door():
            self._check_port("The browser door", "127.0.0.1", settings.web_port, "DEMO_WEB_PORT")
        mobile_port = settings.mobile_port or free_port()
        api_port = settings.api_port or free_port()
        self._say("Starting a real Hermes Agent …")

        model = settings.model or self._offline_model()
        token = settings.mobile.get("MOBILE_TOKEN") or home.kept_secret(self.folder / "token")
        options = home.Options(
            model=model,
            api_port=api_port,
            api_key=home.kept_secret(self.folder / "api-key"),
            mobile={
                "MOBILE_HOME_DEVICE": HOME_DEVICE,
                **settings.mobile,
                "MOBILE_HOME_CHANNEL": settings.mobile.get("MOBILE_HOME_DEVICE") or HOME_DEVICE,
                "MOBILE_TOKEN": token,
                "MOBILE_HOST": settings.mobile_host,
                "MOBILE_PORT": str(mobile_port),
            },
        )
        home.write_home(self.home, options)
        launched = time.time()
        self._launch("Hermes Agent", [str(hermes), "gateway", "run"], "hermes.log", {})

        def refused() -> str | None:
            reason = home.refusal(self.home, launched)
            return reason and f"The device door does not open: {reason}."

        wait_for(f"http://127.0.0.1:{api_port}/health", self._children, START_SECONDS, refused)
        host = _reachable(settings.mobile_host)
        wait_for(f"http://{host}:{mobile_port}/health", self._children, START_SECONDS, refused)
        web = self._browser_door(api_port, options.api_key)
        self._report(f"ws://{host}:{mobile_port}/ws", web, time.monotonic() - began)

    def _offline_model(self) -> home.Model:
        from demo.offline_model import MODEL

        port = free_port()
        media = self.folder / "media"
        command = [sys.executable, "-m", "demo.offline_model"]
        command += ["--port", str(port), "--media", str(media)]
        self._launch("The offline model", command, "model.log", {"PYTHONPATH": str(ROOT)})
        wait_for(f"http://127.0.0.1:{port}/v1/models", self._children, START_SECONDS)
        return home.Model(f"http://127.0.0.1:{port}/v1", MODEL)

    @staticmethod
    def _has_browser_door() -> bool:
        try:
            return importlib.util.find_spec("hermes_client_proxy.cli") is not None
        except ModuleNotFoundError:
            return False

    def _browser_door(self, api_port: int, api_key: str) -> tuple[str, str | None] | None:
        """Start the browser door; its address and one-use login link."""
        if not self._has_browser_door():
            return None
        port = self._settings.web_port or free_port()
        command = [str(Path(sys.prefix) / "bin" / "hermes-client-proxy"), "serve"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        environment = {
            **self._settings.web,
            "MNOTE_WEB_HERMES_UPSTREAM_URL": f"http://127.0.0.1:{api_port}",
            "MNOTE_WEB_HERMES_API_KEY": api_key,
        }
        child = self._launch("The browser door", command, "browser-door.log", environment)
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api/hermes/client/health", self._children, START_SECONDS)
        return address, _login_link(child.log)

    def _launch(self, name: str, command: list[str], log: str, extra: Mapping[str, str]) -> Child:
        environment = {**home.environment(self.home), **extra}
        child = start(name, command, log=self.logs / log, env=environment, cwd=self.folder)
        self._children.append(child)
        return child

    def _check_port(self, what: str, host: str, port: int, setting: str) -> None:
        if port and not port_is_free(host, port):
            raise StartError(
                f"{what} cannot listen on {host}:{port}: the port is in use by another program.\n"
                f"Choose another one with {setting}, for example:  {setting}={port + 10} make run"
            )

    def _report(self, address: str, web: tuple[str, str | None] | None, seconds: float) -> None:
        folder = _short(self.folder)
        own = self._settings.model
        name = own.name if own else "an offline model (no network, no key)"
        token = self._settings.mobile.get("MOBILE_TOKEN")
        # The command reads the token from its file, so that it stays out of shell histories.
        prefix = "" if token else f"MOBILE_TOKEN=$(cat {folder}/token) "
        lines = [
            "",
            f"Hermes Mobile is ready after {seconds:.1f} s: a real Hermes Agent with {name}.",
            "",
            f"  Device door    {address}",
            f"  Token          {token or home.kept_secret(self.folder / 'token')}",
            f"  Terminal chat  {prefix}.venv/bin/hermes-mobile chat {address}",
        ]
        if CHAT_PAGE.is_file():
            page = address.replace("ws://", "http://").removesuffix("/ws")
            lines.append(f"  Chat page      {page}/chat/")
        if web is not None:
            lines.append(f"  Browser door   {web[0]}")
            if web[1] is not None:
                lines.append(f"  Log in once    {web[1]}")
            if SAMPLE_PAGE.is_file():
                lines.append(f"  Page panel     {web[0]}/sample/  (log in first)")
        if own is None:
            lines += [
                "",
                "  Try to say: hello · stream 40 · image · clarify Tea or coffee?|tea|coffee",
                "              approve rm -rf /tmp/no-such-folder · confirm · long 9000",
            ]
        lines += self._for_a_phone(address, token or home.kept_secret(self.folder / "token"))
        lines += ["", f"  Stop with Ctrl-C. Logs are in {folder}/logs.", ""]
        self._say("\n".join(lines))

    def _for_a_phone(self, address: str, token: str) -> list[str]:
        """Where a phone in the same network finds the chat, if the door is bound for it."""
        host = self._settings.mobile_host
        if is_loopback(host) or not CHAT_PAGE.is_file():
            return []
        reached = f"{network_address(host)}:{address.removesuffix('/ws').rpartition(':')[2]}"
        return [
            "",
            f"  On a phone in this network open  http://{reached}/chat/",
            "  and scan this there. It holds the token: show it to nobody else.",
            "",
            terminal_code(connection_text(f"ws://{reached}/ws", token, "Demo")),
        ]

    def _watch(self) -> NoReturn:
        while True:
            time.sleep(WATCH_SECONDS)
            for child in self._children:
                if not child.alive():
                    raise StartError(explain_death(child))


def _reachable(host: str) -> str:
    """The address at which a server bound to `host` is reached from here."""
    plain = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "localhost": "127.0.0.1"}.get(host, host)
    return f"[{plain}]" if ":" in plain and not plain.startswith("[") else plain


def _short(path: Path) -> str:
    """A path as one would type it from the checkout."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _login_link(log: Path) -> str | None:
    """The one-use link that the browser door prints at its start."""
    deadline = time.monotonic() + LOGIN_SECONDS
    while time.monotonic() < deadline:
        if (found := _LOGIN.search(log.read_bytes())) is not None:
            return found[0].decode()
        time.sleep(0.05)
    return None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the demo's folder: two gateways in one home would fight."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StartError(
                f"The demo is running already (process {lock.read().strip() or 'unknown'}). "
                "Stop it with Ctrl-C in its terminal, or start a second one in a folder of its "
                f"own:  DEMO_HOME=/tmp/second {MOBILE}=8797 DEMO_WEB_PORT=8760 make run"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C, a terminal's end and SIGTERM into one exception."""

    def stopped(number: int, frame: FrameType | None) -> None:
        _ignore_signals()
        raise Stopped

    before = {number: signal.signal(number, stopped) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
