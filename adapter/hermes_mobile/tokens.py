"""Who may come in, under which device id, and who may deliver.

Two steps. At the upgrade `check_origin` and `Peer.of` read the request's head: is this a browser
page that may connect, from where does it come, could it be the owner's own machine. At `hello` the
token decides, `TokenBook.admit`. Tokens are compared in constant time and leave this module only as
digests.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .protocol import ProtocolError
from .settings import Network, Settings, ip_address, is_loopback_host

# Header fields by lower-case name, each with all its values.
Headers = Mapping[str, list[str]]

# How the fields begin that a reverse proxy or tunnel adds. Any of them means: this is not the
# owner's own process.
FORWARDING_HEADERS = (
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-remote-",
    "remote-addr",
    "x-proxy",
    "proxy-",
    "wl-proxy-",
    "x-scheme",
    "x-url-scheme",
    "x-host",
    "front-end-https",
    "x-ssl-",
    "x-original-",
    "x-cluster-client-ip",
    "x-envoy-",
    "x-amzn-",
    "x-amz-cf-",
    "x-azure-",
    "x-arr-",
    "x-appengine-",
    "x-cloud-trace-",
    "x-vercel-",
    "x-nf-",
    "true-client-ip",
    "client-ip",
    "cf-",
    "cdn-loop",
    "fly-",
    "fastly-",
    "tailscale-",
    "via",
)

# Failed hellos of one address: how many a minute go unpunished, and how the answer is then delayed.
FREE_FAILURES = 20
FAILURE_WINDOW = 60.0
FAILURE_DELAY_STEP = 0.25
MAX_FAILURE_DELAY = 5.0
MAX_FAILING_ADDRESSES = 4096


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens. `chat`: be a device; `deliver`: send service deliveries."""

    token: bytes  # its digest: the same for every connection of this token
    device: str  # the device id to use; "" where the door makes one
    chat: bool
    deliver: bool
    internal: bool = False  # the gateway's own sender

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell tokens apart in logs and give nothing away."""
        return self.token.hex()[:8]


class TokenBook:
    """All tokens of the door, as digests."""

    def __init__(self, settings: Settings, deliver_secret: str = "") -> None:
        self._unbound: list[bytes] = [_digest(settings.token)] if settings.token else []
        self._bound: list[tuple[str, bytes]] = []
        for device, token in settings.extra_tokens:
            if device is None:
                self._unbound.append(_digest(token))
            else:
                self._bound.append((device, _digest(token)))
        self._deliver = [_digest(token) for token in settings.deliver_tokens]
        self._internal = [_digest(deliver_secret)] if deliver_secret else []
        self._allowed = settings.allowed_devices

    def admit(self, token: str | None, device: str | None, *, check_device: bool = True) -> Grant:
        """Judge the token of a hello and the device id it asks for ("" or None: none).

        Raises `ProtocolError`, fatal: `auth_failed` for no or a wrong token or a device that is not
        allowed, `forbidden` for a device id that belongs to another token.
        """
        offered = _digest(token or "")
        # Every list is walked to its end: the time tells nothing about the tokens.
        unbound = _any_equal(offered, self._unbound)
        ids = [bound for bound, digest in self._bound if hmac.compare_digest(digest, offered)]
        deliver = _any_equal(offered, self._deliver)
        internal = _any_equal(offered, self._internal)
        if not token or not (unbound or ids or deliver or internal):
            raise ProtocolError("auth_failed", "the token is missing or wrong", fatal=True)
        if internal:
            return Grant(offered, device or "", chat=False, deliver=True, internal=True)
        if not check_device:
            return Grant(offered, "", chat=unbound or bool(ids), deliver=deliver)
        if not device:
            device = "" if unbound or not ids else ids[0]
        elif device not in ids:
            # A bound id is for its own token; a bound token is for its own id. (A token that may
            # deliver as well keeps to the same rule.)
            if ids and not unbound:
                raise ProtocolError(
                    "forbidden", "this token is bound to another device id", fatal=True
                )
            if any(bound == device for bound, _ in self._bound):
                raise ProtocolError(
                    "forbidden", "this device id is bound to another token", fatal=True
                )
        if self._allowed and device not in self._allowed:
            raise ProtocolError(
                "auth_failed", "this device id does not stand in MOBILE_ALLOWED_DEVICES", fatal=True
            )
        return Grant(offered, device, chat=unbound or bool(ids), deliver=deliver)


def _any_equal(offered: bytes, known: Iterable[bytes]) -> bool:
    found = False
    for digest in known:
        found |= hmac.compare_digest(digest, offered)
    return found


class Refused(Exception):
    """An upgrade that is answered by HTTP: `status` and a sentence without secrets."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Peer:
    """Who stands at the door, as far as the upgrade request tells.

    `address`: the client's address as text, for limits and logs. `owner_machine`: nothing speaks
    against this being a process of the owner on this very machine.
    """

    address: str
    owner_machine: bool = False

    @classmethod
    def of(cls, remote: str, headers: Headers, settings: Settings) -> Peer:
        """Who an upgrade from the socket address `remote` comes from."""
        address = ip_address(remote)
        owner_machine = (
            address is not None
            and address.is_loopback
            and settings.loopback_deliver
            and from_this_machine(headers, settings)
        )
        seen = str(address) if address is not None else remote
        if address is not None and _within(address, settings.trusted_proxies):
            seen = _forwarded_address(headers, settings) or seen
        return cls(seen, owner_machine)


def from_this_machine(headers: Headers, settings: Settings) -> bool:
    """Whether nothing speaks against a request being of a process on this very machine.

    The door listens on loopback and nothing is set that says a proxy stands before it; the request
    names a loopback host, comes from no page, and no proxy has left a mark on it.
    """
    host = _host_of(headers)
    return (
        settings.loopback_only
        and host is not None
        and is_loopback_host(host)
        and "origin" not in headers
        and not any(name.startswith(FORWARDING_HEADERS) for name in headers)
    )


def check_origin(headers: Headers, settings: Settings) -> None:
    """Raises `Refused` (403) for a browser page of an origin that may not connect.

    A native client sends no Origin and is judged by its token.
    """
    origins = headers.get("origin", [])
    for origin in origins:
        if len(origins) > 1 or not origin_allowed(origin, _host_of(headers), settings):
            raise Refused(
                403,
                "pages of this origin may not connect: add it to MOBILE_ALLOWED_ORIGINS, or set "
                "MOBILE_PUBLIC_URL to the address this door is reached by",
            )


def _host_of(headers: Headers) -> str | None:
    hosts = headers.get("host", [])
    return _host_name(hosts[0]) if len(hosts) == 1 else None


def origin_allowed(origin: str, host: str | None, settings: Settings) -> bool:
    """May a page of `origin` connect to the door that it reached under the name `host`?

    Listed origins may. A page may also reach the door it came from (same host name, whatever scheme
    and port) if that name cannot be one that an attacker rebound to this machine: loopback, an IP
    literal, or the host of MOBILE_PUBLIC_URL.
    """
    if origin.lower() in settings.allowed_origins:
        return True
    scheme, found, authority = origin.partition("://")
    name = _host_name(authority)
    if not scheme or not found or name is None or name != host:
        return False
    if is_loopback_host(name) or ip_address(name) is not None:
        return True
    public = urlsplit(settings.public_url).hostname or ""
    return name == public.rstrip(".")


def _host_name(host: str) -> str | None:
    """The name in a Host header, lower-case, without port and trailing dot; None for nonsense."""
    # urlsplit drops control characters without a word: a name would be read out of nonsense.
    if any(character in "/@?#\\," or character <= " " for character in host):
        return None
    if host.rpartition("]")[2][:1] not in {"", ":"} and "]" in host:
        return None  # something stands behind an address in brackets
    if host.find("[") > 0:
        return None  # or before it
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        parts.port  # noqa: B018 - raises for a port that is no number
    except ValueError:
        return None
    return name.rstrip(".") if name else None


def _within(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Iterable[Network]
) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _forwarded_address(headers: Headers, settings: Settings) -> str | None:
    """The nearest address in X-Forwarded-For that is no trusted proxy of ours.

    Read from the right: what stands further left was written by the client itself.
    """
    hops = [hop.strip() for line in headers.get("x-forwarded-for", []) for hop in line.split(",")]
    for hop in reversed(hops):
        address = ip_address(hop) or ip_address(_host_name(hop) or "")  # some add a port
        if address is None:
            return None
        if not _within(address, settings.trusted_proxies):
            return str(address)
    return None


class Failures:
    """Failed hellos by address, so that guessing gets slow. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, list[float]] = OrderedDict()

    def delay(self, address: str, now: float) -> float:
        """Count one failure of `address`; how many seconds its answer has to wait."""
        key = _network_of(address)
        times = self._by_address.setdefault(key, [])
        self._by_address.move_to_end(key)
        times[:] = [at for at in times if now - at < FAILURE_WINDOW]
        over = len(times) + 1 - FREE_FAILURES
        if over <= MAX_FAILURE_DELAY / FAILURE_DELAY_STEP:
            times.append(now)  # past the longest delay there is nothing more to count
        else:
            times[-1] = now
        if len(self._by_address) > MAX_FAILING_ADDRESSES:
            self._by_address.popitem(last=False)
        return min(MAX_FAILURE_DELAY, max(0, over) * FAILURE_DELAY_STEP)


def _network_of(address: str) -> str:
    """An IPv6 client owns a /64: its addresses count as one."""
    parsed = ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
