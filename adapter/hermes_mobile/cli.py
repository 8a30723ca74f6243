"""`hermes-mobile`: the device door without Hermes, and the terminal's side of it.

    hermes-mobile serve --agent demo     the door with the embedded scripted agent
    hermes-mobile chat URL               talk with an agent in the terminal
    hermes-mobile send --to DEVICE TEXT  deliver a message to a device
    hermes-mobile conform URL            does a door keep to protocol v1
    hermes-mobile doctor                 is a door set up well, and safe from outside

Starting with `--help` costs nothing: each command imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import io
import logging
import os
import platform
import re
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from . import __version__
from .conformance.command import add_arguments as conform_arguments
from .doctor_command import add_arguments as doctor_arguments

if TYPE_CHECKING:
    from .settings import Settings

# As in the shell's own tools: 1 for what failed, 2 for what was asked wrongly.
FAILED = 1
WRONG_USE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit status."""
    _write_by_lines()
    args = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        status: int = args.run(args)
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hermes-mobile", description="The device door of Hermes Agent: protocol v1."
    )
    parser.add_argument("--version", action="version", version=f"hermes-mobile {__version__}")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("-v", "--verbose", action="store_true", help="log what happens to stderr")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        parents=[shared],
        help="open the door with the embedded scripted agent, without Hermes",
        description="Opens the device door. Settings come from the environment (MOBILE_TOKEN, "
        "MOBILE_HOST, MOBILE_PORT, …); with Hermes the gateway opens the door by itself.",
    )
    serve.add_argument("--agent", choices=["demo"], required=True, help="who answers")
    serve.add_argument("--host", help="address to listen on (else MOBILE_HOST, else 127.0.0.1)")
    serve.add_argument("--port", help="port, 0 for a free one (else MOBILE_PORT, else 8787)")
    serve.set_defaults(run=_serve)

    chat = commands.add_parser(
        "chat",
        parents=[shared],
        help="talk with an agent in the terminal",
        description="Talks with an agent. The token is MOBILE_TOKEN of the environment, or is "
        "asked. With a pipe, each line is sent after the agent is through with the one before.",
    )
    chat.add_argument("url", help="ws://HOST:PORT/ws or wss://HOST/ws")
    chat.add_argument("--device", default=_device_name(), help="device id (default: %(default)s)")
    chat.add_argument("--name", default="Terminal", help="name of this device for the agent")
    chat.add_argument(
        "--downloads",
        default="hermes-downloads",
        metavar="DIR",
        help="where the agent's files are saved (default: ./%(default)s)",
    )
    chat.add_argument(
        "--patience",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="with a pipe: the longest wait for the end of one turn (default: %(default)g)",
    )
    chat.set_defaults(run=_chat)

    send = commands.add_parser(
        "send",
        parents=[shared],
        help="deliver a message to a device",
        description="Delivers a message to a connected device. Without --url it goes through the "
        "running Hermes gateway of this machine, with its own secret; else the token is the first "
        "of MOBILE_DELIVER_TOKENS, else MOBILE_TOKEN (enough on loopback), or is asked.",
    )
    send.add_argument(
        "--to", metavar="DEVICE", help="device id, `mobile:` or not (default: the home device)"
    )
    send.add_argument("text", nargs="?", default="", help="the message; `-` reads standard input")
    send.add_argument("--file", action="append", default=[], metavar="PATH", help="attach a file")
    send.add_argument("--url", help="the door, when it is not this machine's gateway")
    send.add_argument(
        "--as",
        dest="sender",
        default="",
        metavar="ID",
        help="an id of this sender's own, for a door with a list of allowed devices",
    )
    send.set_defaults(run=_send)

    conform = commands.add_parser(
        "conform",
        parents=[shared],
        help="check whether a door keeps to protocol v1",
        description="Plays the contract of protocol v1 against any door, from outside. Use a door "
        "that nobody works with: it is sent mistakes, large files and deliveries. The checks that "
        "need an agent speak the words of the scripted one (`hermes-mobile serve --agent demo`). "
        "Exit status: 0 all passed, 1 something failed, 2 nothing could be checked.",
    )
    conform_arguments(conform)
    conform.set_defaults(run=_conform)

    doctor = commands.add_parser(
        "doctor",
        parents=[shared],
        help="look at a door's settings, and at its public address as a stranger would",
        description="Says what is so, why it matters and the line to change. Exit status: 0 no "
        "problem, 1 a problem was found, 2 it was asked wrongly.",
    )
    doctor_arguments(doctor)
    doctor.set_defaults(run=_doctor)
    return parser


# serve


def _serve(args: argparse.Namespace) -> int:
    from .settings import Settings, SettingsError

    environ = dict(os.environ)
    for name, value in (("MOBILE_HOST", args.host), ("MOBILE_PORT", args.port)):
        if value is not None:
            environ[name] = value
    made = _token_for_a_person(environ)
    if made:
        environ["MOBILE_TOKEN"] = made
    try:
        settings = Settings.from_sources(environ)
    except SettingsError as error:
        return _complain(str(error), WRONG_USE)
    return asyncio.run(_serve_until_stopped(settings, made))


def _token_for_a_person(environ: Mapping[str, str]) -> str:
    """A new token for someone who started the door by hand and set none.

    It is shown once, on that person's terminal: what is written to a file or a pipe may be kept.
    """
    if any(environ.get(name, "").strip() for name in ("MOBILE_TOKEN", "MOBILE_EXTRA_TOKENS")):
        return ""
    return secrets.token_urlsafe(24) if sys.stdout.isatty() else ""


async def _serve_until_stopped(settings: Settings, made: str) -> int:
    from .agents import ScriptedAgent
    from .door_files import door_url
    from .server import Door, DoorError

    agent = ScriptedAgent()
    door = Door(settings, agent)
    agent.attach(door)
    stopped = asyncio.Event()
    with _stopping(stopped):
        try:
            await door.start()
        except DoorError as error:
            return _complain(str(error), FAILED)
        try:
            url = door_url(settings.host, door.port)
            token = f"{made}   (made for this run, shown only here)" if made else "as you set it"
            prefix = f"MOBILE_TOKEN={made} " if made else ""
            print(
                f"The device door is open, with the scripted agent (no Hermes).\n"
                f"  address  {url}\n"
                f"  token    {token}\n"
                f"  talk     {prefix}hermes-mobile chat {url}\n"
                f"  stop     Ctrl-C",
                flush=True,
            )
            await stopped.wait()
        finally:
            await agent.close()
            await door.stop()
    print("The door is closed.", flush=True)
    return 0


@contextlib.contextmanager
def _stopping(stopped: asyncio.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set `stopped` instead of ending the process where it stands."""
    loop = asyncio.get_running_loop()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # Windows' loop has none; there Ctrl-C is a KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


# chat


def _chat(args: argparse.Namespace) -> int:
    try:
        from hermes_client import Device, HermesClient

        from . import chat
    except ImportError as error:
        return _complain(_missing(error), FAILED)
    token = os.environ.get("MOBILE_TOKEN", "").strip() or _ask_token()
    if not token:
        return _complain("no token: set MOBILE_TOKEN to the token of the door", WRONG_USE)
    try:
        client = HermesClient(
            args.url,
            token=token,
            device=Device(
                args.device, name=args.name, platform="terminal", app_version=__version__
            ),
            downloads=args.downloads,
            connect_timeout=15.0,
        )
    except ValueError as error:
        return _complain(str(error), WRONG_USE)
    return asyncio.run(chat.run(client, args.url, patience=args.patience))


def _missing(error: ImportError, what: str = "the terminal chat") -> str:
    return (
        f"{what} needs the package {error.name}: "
        f'"{sys.executable}" -m pip install "hermes-mobile[cli]"'
        " (from a checkout: pip install ./sdk/python './adapter[cli]')"
    )


def _device_name() -> str:
    """A device id that stays the same on this machine, so that the conversation goes on."""
    host = re.sub(r"[^A-Za-z0-9.-]+", "-", platform.node()).strip("-.")[:60]
    return f"terminal-{host or 'here'}"


def _ask_token() -> str:
    if not sys.stdin.isatty():
        return ""
    return getpass.getpass("Token: ").strip()


# conform


def _conform(args: argparse.Namespace) -> int:
    from .conformance import command

    try:
        return command.run(args)
    except ImportError as error:
        return _complain(_missing(error, "the conformance kit"), FAILED)


# doctor


def _doctor(args: argparse.Namespace) -> int:
    from . import doctor_command

    try:
        return doctor_command.run(args)
    except ImportError as error:
        return _complain(_missing(error, "the doctor"), FAILED)


# send


def _send(args: argparse.Namespace) -> int:
    from . import door_files, outside

    text = sys.stdin.read() if args.text == "-" else args.text
    try:
        if args.url is None and door_files.read_door(door_files.hermes_home()) is not None:
            asyncio.run(outside.deliver(args.to, text, args.file))
        else:
            token = _deliver_token()
            if not token:
                return _complain(
                    "no token: set MOBILE_DELIVER_TOKENS to a delivery token of the door",
                    WRONG_USE,
                )
            url = args.url or door_files.door_url(
                os.environ.get("MOBILE_HOST", ""), os.environ.get("MOBILE_PORT") or "8787"
            )
            if not _is_door_address(url):
                return _complain(f"{url!r} is no address like ws://HOST:PORT/ws", WRONG_USE)
            door = outside.Entrance(url, token, sender=args.sender)
            asyncio.run(outside.deliver(args.to, text, args.file, at=door))
    except outside.NotDelivered as error:
        return _complain(f"not delivered: {error}", FAILED)
    print("delivered")
    return 0


def _is_door_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _deliver_token() -> str:
    listed = os.environ.get("MOBILE_DELIVER_TOKENS", "").split(",")
    found = next((item.strip() for item in listed if item.strip()), "")
    return found or os.environ.get("MOBILE_TOKEN", "").strip() or _ask_token()


def _write_by_lines() -> None:
    """Into a pipe or a file too, where Python writes by blocks: somebody may wait for a line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _complain(sentence: str, status: int) -> int:
    print(f"hermes-mobile: {sentence}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
