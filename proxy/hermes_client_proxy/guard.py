"""Is this request from a page of our own origin? Pure: it sees headers and says yes or refuses."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from .contract import BAD_REQUEST, FORBIDDEN, ProxyError
from .headers import Headers, values

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_DEFAULT_PORT = {"http": "80", "https": "443"}


def check_origin(headers: Headers, scheme: str, public_origin: str | None) -> None:
    """Refuses what a page of another origin, or a page under a rebound name, could send.

    Raises ProxyError (forbidden).
    """
    headers = list(headers)
    host_name, host = _host(values(headers, b"host"), scheme)
    # The name alone counts: a proxy in front may drop the port.
    is_public = public_origin is not None and host_name.strip("[]") == _name_of(public_origin)
    if not is_public and not _is_local(host_name):
        raise ProxyError(
            FORBIDDEN,
            "This Host is not served here. If browsers reach the application under this name, set "
            "MNOTE_WEB_PUBLIC_ORIGIN to its origin.",
        )
    sites = values(headers, b"sec-fetch-site")
    if any(site.lower() not in ("same-origin", "none") for site in sites):
        raise ProxyError(FORBIDDEN, "Only pages of the same origin may ask here.")
    origins = values(headers, b"origin")
    if not origins:
        return
    allowed = set()
    if public_origin is not None:
        allowed.add(_origin_key(public_origin))
    if not is_public:
        allowed.add(f"{scheme}://{host}")
    if len(origins) > 1 or _origin_key(origins[0]) not in allowed:
        raise ProxyError(
            FORBIDDEN,
            "Only pages of the same origin may ask here. If this is the application's own page, "
            "set MNOTE_WEB_PUBLIC_ORIGIN to the origin that browsers see.",
        )


def check_json(headers: Headers) -> None:
    """A write must say that it is JSON, which no plain form of another site can.

    Raises ProxyError (bad_request, 415).
    """
    kinds = values(headers, b"content-type")
    if len(kinds) == 1:
        kind, *parameters = [part.strip(" \t").lower() for part in kinds[0].split(";")]
        charsets = [p.partition("=")[2].strip("\"'") for p in parameters if p.startswith("charset")]
        if kind == "application/json" and all(c in ("utf-8", "utf8") for c in charsets):
            return
    raise ProxyError(
        BAD_REQUEST, "Send the body with Content-Type: application/json in UTF-8.", status=415
    )


def _host(hosts: list[str], scheme: str) -> tuple[str, str]:
    found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if found is None:
        return "", ""
    return found["name"].lower(), _join(found["name"].strip("[]"), found["port"] or "", scheme)


def _join(name: str, port: str, scheme: str) -> str:
    name = name.lower()
    if ":" in name:
        name = f"[{name}]"
    if not port or port == _DEFAULT_PORT.get(scheme):
        return name
    return f"{name}:{port}"


def _origin_key(origin: str) -> str | None:
    scheme, _, authority = origin.partition("://")
    scheme = scheme.lower()
    # Not urlsplit: it reads a host out of what is none, as in http://-[::1].
    found = _HOST.fullmatch(authority)
    if scheme not in _DEFAULT_PORT or found is None:
        return None
    port = found["port"]
    if port and int(port) > 65_535:
        return None
    return f"{scheme}://{_join(found['name'].strip('[]'), str(int(port)) if port else '', scheme)}"


def _name_of(origin: str) -> str:
    return urlsplit(origin).hostname or ""


def _is_local(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
