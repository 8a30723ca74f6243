"""The connection code: where a door is and what opens it, for an app to scan or to paste.

It is JSON and no link, because a token in a link ends in histories and logs. The reference chat
reads it; so may every other app::

    {"hermes_mobile": 1, "url": "wss://agent.example.com/ws", "token": "…", "name": "Home"}
"""

from __future__ import annotations

from urllib.parse import urlsplit

from .protocol import PROTOCOL_VERSION
from .settings import Settings

Code = dict[str, str | int]


class NoCode(ValueError):
    """No code can be made; the text says what is missing and holds no secret."""


def connection_code(settings: Settings, url: str, *, device: str = "", name: str = "") -> Code:
    """The code for an app that connects to `url`, under the id `device` if one is given.

    A token that is bound to `device` comes before the others. Raises `NoCode`.
    """
    token = _token(settings, device)
    code: Code = {"hermes_mobile": PROTOCOL_VERSION, "url": url, "token": token}
    if name:
        code["name"] = name
    if device:
        code["device"] = device
    return code


def public_address(settings: Settings) -> str:
    """The door's WebSocket address below MOBILE_PUBLIC_URL; "" when none is set."""
    if not settings.public_url:
        return ""
    parts = urlsplit(settings.public_url)
    scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/ws')}/ws"


def _token(settings: Settings, device: str) -> str:
    bound = {name: token for name, token in settings.extra_tokens if name is not None}
    if device in bound:
        return bound[device]
    unbound = [token for name, token in settings.extra_tokens if name is None]
    if settings.token or unbound:
        if settings.allowed_devices and device not in settings.allowed_devices:
            raise NoCode(
                "MOBILE_ALLOWED_DEVICES is set: name one of its devices with --device"
                if not device
                else f"the device {device!r} does not stand in MOBILE_ALLOWED_DEVICES"
            )
        return settings.token or unbound[0]
    raise NoCode(
        f"every token is bound to a device: name it with --device ({', '.join(sorted(bound))})"
    )
