"""What a phone in the same network needs: an address that it reaches, and a code to scan."""

from __future__ import annotations

import io
import ipaddress
import json
import socket

import segno

from hermes_mobile.connection_code import connection_code
from hermes_mobile.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is for this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def network_address(host: str) -> str:
    """The address of this machine in its network, for a server bound to `host`."""
    if host not in {"0.0.0.0", "::"}:
        return f"[{host}]" if ":" in host else host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Choosing a route sends nothing; the addresses are for documentation (RFC 5737, RFC 3849).
    target = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
            found = str(probe.getsockname()[0])
        except OSError:  # no network at all
            found = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    return f"[{found}]" if ":" in found else found


def connection_text(url: str, token: str, name: str) -> str:
    """What the chat page scans, as text."""
    return json.dumps(connection_code(Settings(token=token), url, name=name))


def terminal_code(text: str) -> str:
    """A QR code of `text`, drawn with half blocks."""
    drawn = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out=drawn, border=2, compact=True)
    return drawn.getvalue().rstrip("\n")
