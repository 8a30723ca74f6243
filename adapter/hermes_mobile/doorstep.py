"""Where clients arrive: the addresses that are listened on, and who has not come in yet."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import OrderedDict
from typing import Any

BACKLOG = 512
# Sockets that have not finished the upgrade request; the oldest goes first.
MAX_KNOCKING = 256


class DoorError(RuntimeError):
    """The door cannot open; the text is for the owner."""


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`, all on one port; 0: the system chooses it.

    Raises `DoorError` with a sentence for the owner.
    """
    bound: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        missing: OSError | None = None
        for family, kind, proto, _, address in dict.fromkeys(found):
            try:
                # A port that the system chose for the first address is the port of all.
                chosen = bound[0].getsockname()[1] if bound else port
                here = (address[0], chosen, *address[2:])
                bound.append(_listening(_Doorstep(family, kind, proto), here))
            except OSError as error:
                # `localhost` may have an IPv6 address where the system has no IPv6.
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error
        if missing is not None and not bound:
            raise missing
    except (OSError, UnicodeError) as error:  # UnicodeError: no host name at all
        for opened in bound:
            opened.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise DoorError(
                f"port {port} on {host} is in use by another program: "
                "stop it, or set MOBILE_PORT to a free port"
            ) from error
        raise DoorError(
            f"the door cannot listen on {host} port {port} ({_reason(error)}): "
            "check MOBILE_HOST and MOBILE_PORT"
        ) from error
    return bound


class _Doorstep(socket.socket):
    """A listening socket that keeps the number of those who have not finished the upgrade bounded.

    Beyond `MAX_KNOCKING` the oldest is shut down, so that slow handshakes cost others nothing.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._knocking: OrderedDict[int, socket.socket] = OrderedDict()

    def accept(self) -> tuple[socket.socket, Any]:
        sock, address = super().accept()
        knocking = self._knocking
        number = sock.fileno()
        knocking.pop(number, None)  # an earlier socket of this number has gone
        knocking[number] = sock
        _doorsteps[number] = self
        if len(knocking) > MAX_KNOCKING:
            for old, waiting in list(knocking.items()):
                if waiting.fileno() != old:
                    del knocking[old]
            if len(knocking) > MAX_KNOCKING:
                _, oldest = knocking.popitem(last=False)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        return sock, address


# On which doorstep a socket stands, by its number.
_doorsteps: dict[int, _Doorstep] = {}


def let_in(stream: asyncio.BaseTransport) -> None:
    """The upgrade is done: the socket no longer stands on the doorstep."""
    number = stream.get_extra_info("socket").fileno()
    doorstep = _doorsteps.pop(number, None)
    if doorstep is not None:
        doorstep._knocking.pop(number, None)


def _listening(sock: socket.socket, address: tuple[Any, ...]) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
