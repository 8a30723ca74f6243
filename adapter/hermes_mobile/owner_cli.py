"""`hermes mobile …`: what an owner needs beside the gateway.

Commands: `token` makes a token for the apps, `code` shows address and token for an app to read,
`status` asks the running door, `send` delivers to a device by its id on every Hermes version,
`doctor` looks at the door's settings and, with --url, at its public address as a stranger would.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import secrets
import sys
import urllib.error
import urllib.request
from typing import Any

from . import doctor_command

HEALTH_SECONDS = 5.0


def setup(parser: argparse.ArgumentParser) -> None:
    """Add the commands to Hermes' parser for `hermes mobile`."""
    commands = parser.add_subparsers(dest="mobile_command", metavar="COMMAND")
    token = commands.add_parser("token", help="make a token for your apps")
    token.add_argument(
        "--save", action="store_true", help="write it to the .env of this Hermes home"
    )
    code = commands.add_parser("code", help="show address and token for an app to scan or paste")
    code.add_argument("--device", default="", help="device id the app shall use")
    code.add_argument("--name", default="", help="what the app may call this agent")
    code.add_argument("--url", default="", help="the door's address (else MOBILE_PUBLIC_URL)")
    code.add_argument("--qr", action="store_true", help="draw it in the terminal (needs segno)")
    commands.add_parser("status", help="is the door open, and where")
    send = commands.add_parser("send", help="deliver a message to a device")
    send.add_argument("device", help="device id, with or without mobile:")
    send.add_argument("text", nargs="?", default="", help="the message; `-` reads standard input")
    send.add_argument("--file", action="append", default=[], metavar="PATH", help="attach a file")
    doctor = commands.add_parser("doctor", help="is the door set up well, and safe from outside")
    doctor_command.add_arguments(doctor)


def run(args: argparse.Namespace) -> None:
    """Carry out one command; exits with 1 when it failed."""
    command = getattr(args, "mobile_command", None)
    if command == "token":
        ok = _token(save=args.save)
    elif command == "code":
        ok = _code(args)
    elif command == "status":
        ok = _status()
    elif command == "send":
        ok = _send(args.device, args.text, args.file)
    elif command == "doctor":
        ok = _doctor(args)
    else:
        print(
            "usage: hermes mobile token | code | status | send DEVICE TEXT [--file PATH] | doctor"
        )
        ok = False
    if not ok:
        sys.exit(1)


def _token(*, save: bool) -> bool:
    value = secrets.token_urlsafe(32)
    if not save:
        print(f"MOBILE_TOKEN={value}")
        print("Put this line into the .env of your Hermes home, then restart the gateway.")
        return True
    try:
        importlib.import_module("hermes_cli.config").save_env_value("MOBILE_TOKEN", value)
    except Exception as error:
        print(f"could not be saved ({type(error).__name__}: {error}): use it without --save")
        return False
    print("A new MOBILE_TOKEN is in the .env of your Hermes home: restart the gateway,")
    print(f"and give this token to your apps: {value}")
    return True


def _code(args: argparse.Namespace) -> bool:
    from . import door_files, how_to_install, missing_packages

    if names := missing_packages():
        print(how_to_install(names))
        return False
    from .connection_code import NoCode, connection_code, public_address
    from .protocol import ProtocolError, device_id
    from .settings import Settings, SettingsError

    try:
        settings = Settings.from_sources(
            doctor_command.environment(), doctor_command.extra(doctor_command.hermes_config())
        )
        device = device_id(args.device.removeprefix("mobile:"))
        url = args.url or public_address(settings)
        here = door_files.read_door(door_files.hermes_home()) or door_files.door_url(
            settings.host, settings.port
        )
        code = connection_code(settings, url or here, device=device, name=args.name)
    except (SettingsError, NoCode) as error:
        print(f"no code: {error}", file=sys.stderr)
        return False
    except ProtocolError as error:
        print(f"no code: {error.message}", file=sys.stderr)
        return False
    text = json.dumps(code, ensure_ascii=False)
    if args.qr and not _draw(text):
        return False
    if not args.qr:
        print(text)
    if not url:
        print(
            "This is the door's address on this machine. For other devices set MOBILE_PUBLIC_URL "
            "to the address they use, or give it with --url.",
            file=sys.stderr,
        )
    print("Whoever sees this code can talk with your agent.", file=sys.stderr)
    return True


def _draw(text: str) -> bool:
    try:
        segno = importlib.import_module("segno")
    except ImportError:
        print(f'--qr needs segno: "{sys.executable}" -m pip install segno', file=sys.stderr)
        return False
    segno.make(text, error="m", micro=False).terminal(compact=True)
    return True


def _status() -> bool:
    from . import door_files

    url = door_files.read_door(door_files.hermes_home())
    if url is None:
        print("No door of this Hermes home is open. Start the gateway: hermes gateway run")
        return False
    health = url.replace("ws://", "http://", 1).removesuffix("/ws") + "/health"
    # A proxy of the environment has no business between two processes of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(health, timeout=HEALTH_SECONDS) as answer:
            told: Any = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError) as error:
        print(f"{url} does not answer ({error}): is the gateway running?")
        return False
    print(f"The door is open at {url}")
    for name, value in told.items() if isinstance(told, dict) else ():
        print(f"  {name}: {value}")
    return True


def _doctor(args: argparse.Namespace) -> bool:
    try:
        status = doctor_command.run(args)
    except ImportError as error:
        from . import how_to_install

        print(how_to_install([error.name or "rich", "websockets"]))
        return False
    if status == doctor_command.CANNOT:
        sys.exit(status)
    return status == doctor_command.FINE


def _send(device: str, text: str, files: list[str]) -> bool:
    from . import how_to_install, missing_packages

    if names := missing_packages():
        print(how_to_install(names))
        return False
    from . import outside

    message = sys.stdin.read() if text == "-" else text
    try:
        asyncio.run(outside.deliver(device, message, files))
    except outside.NotDelivered as error:
        print(f"not delivered: {error}", file=sys.stderr)
        return False
    print("delivered")
    return True
