"""What an owner should know of their browser door: settings, the key, Hermes behind it.

Every finding says what is so, why it matters, and the line to change. Nothing is changed here, and
no secret is shown. What strangers can do from outside is ``doctor_outside``.
"""

from __future__ import annotations

import asyncio
import difflib
import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from .auth import authenticator
from .settings import TABLE, Settings, SettingsError

GOOD_KEY_CHARS = 24
HEARTBEAT_LIMIT = 30.0
HERMES_SECONDS = 10.0


class Level(Enum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that is so. ``why`` it matters and what to ``change``, unless it is good."""

    level: Level
    area: str
    what: str
    why: str = ""
    change: str = ""


def good(area: str, what: str) -> Finding:
    """Something that is as it should be."""
    return Finding(Level.GOOD, area, what)


def is_loopback(host: str | None) -> bool:
    """Whether this name or address is this machine alone."""
    name = (host or "").strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def settings_of(environ: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    """The settings as ``serve`` would read them, or the finding why it would not start."""
    try:
        settings = Settings.from_env(environ)
        if settings.auth != "cookie":
            authenticator(settings, _no_client)
    except SettingsError as error:
        return None, [
            Finding(
                Level.PROBLEM,
                "settings",
                str(error),
                "The proxy does not start like this.",
                "correct this setting; `hermes-client-proxy settings` lists them all",
            )
        ]
    return settings, [good("settings", "the settings can be read, the proxy would start")]


def _no_client() -> aiohttp.ClientSession:
    raise RuntimeError("no request is sent while settings are looked at")


def misspelled(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Names that look like settings and are none."""
    names = [row.variable for row in TABLE]
    for name in sorted(environ):
        if not name.startswith("MNOTE_WEB_") or name in names:
            continue
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        if close:
            yield Finding(
                Level.WARNING,
                "settings",
                f"{name} is no setting of the proxy",
                f"It has no effect; {close[0]} is one.",
                f"rename {name} to {close[0]}",
            )


def configuration(settings: Settings) -> Iterator[Finding]:
    """What the settings say together."""
    yield from _key(settings)
    yield from _sign_in(settings)
    origin = urlsplit(settings.public_origin or "")
    if origin.scheme == "http" and not is_loopback(origin.hostname):
        yield Finding(
            Level.WARNING,
            "settings",
            f"MNOTE_WEB_PUBLIC_ORIGIN is {settings.public_origin}, without TLS",
            "The session cookie is not marked Secure and travels in clear.",
            f"MNOTE_WEB_PUBLIC_ORIGIN=https://{origin.netloc}",
        )
    if settings.public_origin is None:
        yield Finding(
            Level.NOTE,
            "settings",
            "MNOTE_WEB_PUBLIC_ORIGIN is not set",
            "Pages can use the proxy at localhost or an IP address only.",
            "MNOTE_WEB_PUBLIC_ORIGIN=https://YOUR.NAME, as browsers see it",
        )
    if settings.heartbeat > HEARTBEAT_LIMIT:
        yield Finding(
            Level.WARNING,
            "settings",
            f"a heartbeat comes every {settings.heartbeat:g} s only",
            "Proxies and phones cut connections that are silent for 30 to 60 seconds.",
            "MNOTE_WEB_HERMES_HEARTBEAT_SECONDS=15",
        )


def _key(settings: Settings) -> Iterator[Finding]:
    if settings.upstream_url is None:
        yield Finding(
            Level.PROBLEM,
            "Hermes",
            "there is no Hermes behind the proxy",
            "Every route but health answers 503.",
            "MNOTE_WEB_HERMES_UPSTREAM_URL=http://127.0.0.1:8642",
        )
        return
    parts = urlsplit(settings.upstream_url)
    if settings.api_key is None:
        yield Finding(
            Level.PROBLEM,
            "key",
            "there is no key for Hermes",
            "Hermes refuses every request, or it lets in everyone who can reach it.",
            "MNOTE_WEB_HERMES_API_KEY=<the API_SERVER_KEY of Hermes>",
        )
    elif len(settings.api_key) < GOOD_KEY_CHARS or len(set(settings.api_key)) < 8:
        yield Finding(
            Level.WARNING,
            "key",
            "the key for Hermes is short or even",
            "Who guesses it commands the agent, and with it this machine.",
            "API_SERVER_KEY and MNOTE_WEB_HERMES_API_KEY: "
            'python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        yield Finding(
            Level.WARNING,
            "key",
            f"the key travels to {parts.hostname} without TLS",
            "Whoever listens in on that network commands the agent.",
            "https:// in MNOTE_WEB_HERMES_UPSTREAM_URL, or Hermes on this machine",
        )


def _sign_in(settings: Settings) -> Iterator[Finding]:
    if settings.auth == "cookie" and settings.session_secret is None:
        yield Finding(
            Level.NOTE,
            "sign-in",
            "MNOTE_WEB_SESSION_SECRET is not set",
            "`serve` makes one for its own lifetime: a restart signs everybody out, and two "
            "servers do not know each other's users.",
            'MNOTE_WEB_SESSION_SECRET=$(python3 -c "import secrets; '
            'print(secrets.token_urlsafe(48))")',
        )
    if settings.session_secret is not None and len(set(settings.session_secret)) < 12:
        yield Finding(
            Level.PROBLEM,
            "sign-in",
            "MNOTE_WEB_SESSION_SECRET has few different characters",
            "Who guesses it signs in as anyone.",
            'python3 -c "import secrets; print(secrets.token_urlsafe(48))"',
        )
    for network in settings.trusted_proxies:
        if settings.auth == "trusted-header" and network.prefixlen == 0:
            yield Finding(
                Level.PROBLEM,
                "sign-in",
                f"MNOTE_WEB_TRUSTED_PROXIES holds {network}, every address there is",
                "Everyone can name the user they want to be.",
                "MNOTE_WEB_TRUSTED_PROXIES=127.0.0.1 (the address of your proxy)",
            )


# --------------------------------------------------------------------------------------------------
# Hermes


async def hermes(settings: Settings) -> list[Finding]:
    """Does the key reach, and does Hermes ask for it?"""
    if settings.upstream_url is None:
        return []
    url = f"{settings.upstream_url}/v1/capabilities"
    timeout = aiohttp.ClientTimeout(total=HERMES_SECONDS)
    key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    async with aiohttp.ClientSession(timeout=timeout) as client:
        try:
            status, told = await _look(client, url, key)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return [
                Finding(
                    Level.PROBLEM,
                    "Hermes",
                    f"{settings.upstream_url} cannot be reached ({_short(error)})",
                    "Pages see hermes_client_upstream_unavailable.",
                    "start Hermes with its API server (API_SERVER_ENABLED=true), or correct "
                    "MNOTE_WEB_HERMES_UPSTREAM_URL",
                )
            ]
        if status in (401, 403):
            return [
                Finding(
                    Level.PROBLEM,
                    "key",
                    f"Hermes refuses the key (HTTP {status})",
                    "Pages see hermes_client_upstream_unauthorized.",
                    "MNOTE_WEB_HERMES_API_KEY must be the API_SERVER_KEY of this Hermes",
                )
            ]
        if status != 200 or told is None:
            return [
                Finding(
                    Level.PROBLEM,
                    "Hermes",
                    f"{settings.upstream_url} is no Hermes API server (HTTP {status})",
                    "Something else answers there.",
                    "MNOTE_WEB_HERMES_UPSTREAM_URL=http://127.0.0.1:8642, where `hermes gateway "
                    "run` serves its API",
                )
            ]
        found = [good("key", "the key reaches: Hermes takes it"), _interface(told)]
        try:
            without, _ = await _look(client, url, {})
        except (aiohttp.ClientError, TimeoutError, OSError):
            without = 0
    if without == 200 and settings.api_key:
        found.append(
            Finding(
                Level.WARNING,
                "key",
                "Hermes answers without a key as well",
                "Whoever reaches its port commands the agent, past this proxy.",
                "API_SERVER_KEY=<a long random key> in the .env of Hermes",
            )
        )
    return found


async def _look(
    client: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
) -> tuple[int, dict[str, Any] | None]:
    async with client.get(url, headers=dict(headers), allow_redirects=False) as answer:
        raw = await answer.content.read(262_144)
    try:
        told = json.loads(raw)
    except (ValueError, UnicodeDecodeError):
        told = None
    return answer.status, told if isinstance(told, dict) else None


def _interface(told: dict[str, Any]) -> Finding:
    features = told.get("features")
    keys = features.get("runs_idempotency") if isinstance(features, dict) else None
    newer = isinstance(keys, dict) and keys.get("supported") is True
    return good(
        "Hermes",
        f"it has the {'newer' if newer else 'older'} run interface: "
        + ("runs can be replayed" if newer else "the proxy keeps each run's events itself"),
    )


def _short(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__


async def inside(environ: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    """Everything that can be found out on this machine."""
    settings, found = settings_of(environ)
    found += misspelled(environ)
    if settings is not None:
        found += configuration(settings)
        found += await asyncio.wait_for(hermes(settings), 3 * HERMES_SECONDS)
    return settings, found
