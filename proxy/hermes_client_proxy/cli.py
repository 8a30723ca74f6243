"""``hermes-client-proxy serve``: the proxy by itself, for one person on one machine."""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from . import doctor_command
from .app import VERSION, ProxyApp
from .auth import LoginLink
from .conformance import command as conformance
from .contract import PREFIX
from .doorstep import Doorstep
from .settings import TABLE, Settings, SettingsError
from .static import PACKAGED, WithPages

DEFAULT_PORT = 8750


class _Server(uvicorn.Server):
    """Ends the event streams as soon as the server is asked to stop."""

    def __init__(self, config: uvicorn.Config, proxy: ProxyApp) -> None:
        super().__init__(config)
        self._proxy = proxy

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._proxy.begin_closing()
        super().handle_exit(sig, frame)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit status."""
    # Into a pipe or a file Python writes by blocks, and who waits for a line would not see it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser(
        prog="hermes-client-proxy",
        description="A same-origin proxy between a web page and a Hermes Agent.",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="run the proxy",
        description="Runs the proxy by itself. Settings come from the environment "
        "(hermes-client-proxy settings lists them).",
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help=f"port to listen on ({DEFAULT_PORT}; 0: any)",
    )
    serve.add_argument(
        "--pages",
        metavar="DIR",
        type=Path,
        help="static pages to serve on the same origin (the panel and its sample page)",
    )
    serve.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error")
    )
    commands.add_parser("settings", help="list every setting")
    conform = commands.add_parser(
        "conform",
        help="check whether a browser door keeps to the contract",
        description="Asks any browser door as a page would, and as a page must not. The checks of "
        "runs speak the words of the scripted agent (Hermes with the demo's offline model). Exit "
        "status: 0 all passed, 1 something failed, 2 nothing could be checked.",
    )
    conformance.add_arguments(conform)
    doctor = commands.add_parser(
        "doctor",
        help="look at the proxy's settings, and at its public address as a stranger would",
        description="Says what is so, why it matters and the line to change. Exit status: 0 no "
        "problem, 1 a problem was found, 2 it was asked wrongly.",
    )
    doctor_command.add_arguments(doctor)
    options = parser.parse_args(arguments)
    if options.command == "settings":
        for row in TABLE:
            print(f"{row.variable}\n    {row.meaning}")
        return 0
    if options.command == "conform":
        return _with_packages(conformance.run, options)
    if options.command == "doctor":
        return _with_packages(doctor_command.run, options)
    try:
        return _serve(options)
    except SettingsError as error:
        print(f"hermes-client-proxy: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"hermes-client-proxy: cannot listen on {options.host} port {options.port}: "
            f"{error.strerror}",
            file=sys.stderr,
        )
        return 1


def _with_packages(
    command: Callable[[argparse.Namespace], int], options: argparse.Namespace
) -> int:
    try:
        return command(options)
    except ModuleNotFoundError as error:
        print(
            f"hermes-client-proxy: {options.command} needs the package {error.name}: "
            f'"{sys.executable}" -m pip install "hermes-client-proxy[cli]"',
            file=sys.stderr,
        )
        return 1


def _serve(options: argparse.Namespace) -> int:
    settings = Settings.from_env(os.environ)
    pages: Path | None = options.pages
    if pages is not None and not pages.is_dir():
        raise SettingsError(f"--pages: {pages} is no folder.")
    if pages is None and (PACKAGED / "index.html").is_file():
        pages = PACKAGED
    login = None
    if settings.auth == "cookie":
        if settings.session_secret is None:
            settings = replace(settings, session_secret=secrets.token_urlsafe(48))
        login = LoginLink()
    proxy = ProxyApp(settings, login=login)
    app: ASGIApp = WithPages(proxy, pages) if pages is not None else proxy
    level = options.log_level.upper()
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    listener = _listen(options.host, options.port, settings)
    host, port = listener.getsockname()[:2]
    address = settings.public_origin or f"http://{_shown(host)}:{port}"
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,  # a line of it would hold the sign-in token
        proxy_headers=False,  # a forwarding header must not make a browser a trusted peer
        server_header=False,
        http=Doorstep,
        ws="none",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=30,
    )
    print(f"Hermes client proxy: {address}{PREFIX}", flush=True)
    if settings.missing is not None:
        print(f"Not configured yet: set {settings.missing} and restart.", flush=True)
    if login is not None:
        print(f"Sign in once with: {address}{PREFIX}/login?token={login.token}", flush=True)
    server = _Server(config, proxy)
    # What is here now stays: the collector need not walk it again for every few events.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    # uvicorn raises the signal again once it has shut down; that is then an orderly end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with listener:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(server.serve([listener]))
    except KeyboardInterrupt:
        pass
    return 0 if server.started else 1


def _listen(host: str, port: int, settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once (TCP_NODELAY) only where the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Accepted connections inherit it: the kernel drops a peer that takes nothing.
            patience = int(settings.slow_reader * 2000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 65_536
    if port > 65_535:
        raise argparse.ArgumentTypeError("give a number from 0 to 65535")
    return port


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host
