"""The settings of the device door: environment and `platforms.mobile` of config.yaml -> one object.

The environment wins over the file; an empty value is no value. Every error is a sentence that names
the setting, what is wrong and what to do. The table for people is `docs/settings.md`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .protocol import DEFAULT_PROMPT_TTL, ProtocolError, device_id

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
MIN_TOKEN_CHARS = 16
HOW_TO_MAKE_A_TOKEN = (
    'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))" '
    "and set it as MOBILE_TOKEN"
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_OWN_PORTS = {("http", 80), ("https", 443)}


class SettingsError(ValueError):
    """A setting that cannot be; the text is for the owner and holds no secret."""


@dataclass(frozen=True)
class Settings:
    """Everything an owner can set. Secrets are kept out of `repr`."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    token: str = field(default="", repr=False)
    extra_tokens: tuple[tuple[str | None, str], ...] = field(default=(), repr=False)
    allowed_devices: frozenset[str] = frozenset()
    deliver_tokens: tuple[str, ...] = field(default=(), repr=False)
    allowed_origins: frozenset[str] = frozenset()
    public_url: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    loopback_deliver: bool = True
    home_device: str = ""
    prompt_ttl: float = float(DEFAULT_PROMPT_TTL)
    avatar_url: str = ""
    metrics_token: str = field(default="", repr=False)

    @classmethod
    def from_sources(
        cls, environ: Mapping[str, str], extra: Mapping[str, object] | None = None
    ) -> Settings:
        """Read `MOBILE_*` of `environ`, then `extra` (`token` for `MOBILE_TOKEN` and so on).

        Raises `SettingsError`, also when the door may not start as set: no token, or a short one on
        an address other than loopback.
        """
        source = _Source(environ, extra or {})
        public_url = source.url("public_url")
        settings = cls(
            host=source.text("host").strip("[]") or DEFAULT_HOST,
            port=source.port(),
            token=source.text("token"),
            extra_tokens=tuple(_extra_token(item) for item in source.items("extra_tokens")),
            allowed_devices=frozenset(
                _device("MOBILE_ALLOWED_DEVICES", item) for item in source.items("allowed_devices")
            ),
            deliver_tokens=tuple(source.items("deliver_tokens")),
            allowed_origins=frozenset(_origin(i) for i in source.items("allowed_origins")),
            public_url=public_url,
            trusted_proxies=tuple(_network(item) for item in source.items("trusted_proxies")),
            loopback_deliver=source.switch("loopback_deliver", default=True),
            home_device=_home(source.text("home_device")),
            prompt_ttl=source.seconds("prompt_ttl", float(DEFAULT_PROMPT_TTL)),
            avatar_url=source.text("avatar_url"),
            metrics_token=source.text("metrics_token"),
        )
        settings.check()
        return settings

    def check(self) -> None:
        """Raises `SettingsError` when the door may not start like this."""
        chat_tokens = [("MOBILE_TOKEN", self.token)] if self.token else []
        chat_tokens += [("MOBILE_EXTRA_TOKENS", token) for _, token in self.extra_tokens]
        if not chat_tokens:
            raise SettingsError(
                f"MOBILE_TOKEN is not set, no app could sign in: {HOW_TO_MAKE_A_TOKEN}"
            )
        door_tokens = [
            *chat_tokens,
            *(("MOBILE_DELIVER_TOKENS", token) for token in self.deliver_tokens),
        ]
        metrics_tokens = [("MOBILE_METRICS_TOKEN", self.metrics_token)] * bool(self.metrics_token)
        for name, token in door_tokens:
            if token == self.metrics_token:
                raise SettingsError(
                    f"MOBILE_METRICS_TOKEN is also in {name}: it lies in the files of a monitoring "
                    "system and must open nothing else, make one of its own"
                )
        if is_loopback_host(self.host):
            return
        for name, token in door_tokens + metrics_tokens:
            if len(token) < MIN_TOKEN_CHARS:
                raise SettingsError(
                    f"a token in {name} has {len(token)} characters; on {self.host}, which is not "
                    f"loopback, at least {MIN_TOKEN_CHARS} are needed: {HOW_TO_MAKE_A_TOKEN}"
                )

    @property
    def loopback_only(self) -> bool:
        """Whether the door is no one else's face: nothing says that a proxy stands before it."""
        return is_loopback_host(self.host) and not self.public_url and not self.trusted_proxies

    @property
    def announced_avatar_url(self) -> str:
        """`ready.avatar_url`: MOBILE_AVATAR_URL, else `/avatar/` below MOBILE_PUBLIC_URL."""
        if self.avatar_url:
            return self.avatar_url
        if not self.public_url:
            return ""
        # A page is fetched by http(s), also where the owner wrote the door's own address.
        parts = urlsplit(self.public_url)
        scheme = "https" if parts.scheme in {"https", "wss"} else "http"
        return f"{scheme}://{parts.netloc}{parts.path.removesuffix('/ws')}/avatar/"


def is_loopback_host(host: str) -> bool:
    """Whether a bind address or host name is this machine alone."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = ip_address(name)
    return address is not None and address.is_loopback


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address without its zone, an IPv4-mapped one as IPv4; None for what is none."""
    try:
        address = ipaddress.ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class _Source:
    """Looks a setting up under its two names."""

    def __init__(self, environ: Mapping[str, str], extra: Mapping[str, object]) -> None:
        self._environ = environ
        self._extra = extra

    def text(self, name: str) -> str:
        value = self._environ.get(f"MOBILE_{name.upper()}", "").strip()
        if value:
            return value
        filed = self._extra.get(name)
        if filed is None or filed == "":
            return ""
        if isinstance(filed, bool | int | float | str):
            return str(filed).strip()
        if isinstance(filed, list | tuple):
            if all(isinstance(item, int | float | str) for item in filed):
                return ",".join(str(item) for item in filed)
            raise SettingsError(
                f"platforms.mobile.{name} in config.yaml holds an item that is no text"
            )
        raise SettingsError(
            f"platforms.mobile.{name} in config.yaml must be a text or a list, "
            f"not {type(filed).__name__}"
        )

    def items(self, name: str) -> list[str]:
        return [item.strip() for item in self.text(name).split(",") if item.strip()]

    def port(self) -> int:
        value = self.text("port")
        if not value:
            return DEFAULT_PORT
        plain = value.isascii() and value.isdigit() and len(value) <= 5
        if not plain or int(value) > 65535:
            raise SettingsError(
                f"MOBILE_PORT is {_quoted(value)}: it must be a number from 0 to 65535"
            )
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 < number <= 86_400:
            raise SettingsError(
                f"MOBILE_{name.upper()} is {_quoted(value)}: "
                "it must be a number of seconds, above 0 and at most 86400"
            )
        return number

    def switch(self, name: str, *, default: bool) -> bool:
        value = self.text(name).lower()
        if not value:
            return default
        if value in {"on", "true", "yes", "1"}:
            return True
        if value in {"off", "false", "no", "0"}:
            return False
        raise SettingsError(f"MOBILE_{name.upper()} is {_quoted(value)}: it must be on or off")

    def url(self, name: str) -> str:
        value = self.text(name)
        if not value:
            return ""
        parts = _url_parts(value)
        if parts is None or parts[0] not in {"http", "https", "ws", "wss"}:
            raise SettingsError(
                f"MOBILE_{name.upper()} is {_quoted(value)}: "
                "it must be the address people use, like https://agent.example.com"
            )
        return value.rstrip("/")


def _quoted(value: str) -> str:
    """A value as an error may show it: a long one, or a URL with a password, is not repeated."""
    if len(value) > 80 or "@" in value:
        return f"a value of {len(value)} characters"
    return repr(value)


def _url_parts(value: str) -> tuple[str, str, int | None] | None:
    """Scheme, host name and port of an absolute URL without a user name; None for another."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme or not host or "@" in parts.netloc:
        return None
    return parts.scheme, host, port


def _extra_token(item: str) -> tuple[str | None, str]:
    """One item of MOBILE_EXTRA_TOKENS: `token`, or `device_id=token`."""
    name, equals, token = item.partition("=")
    if not equals:
        return None, item
    if not token.strip("= \t"):
        raise SettingsError(
            f"MOBILE_EXTRA_TOKENS holds an item of {len(item)} characters whose token part behind "
            "`=` is empty: write `token` or `device_id=token`, and put a device id before a token "
            "that itself ends in `=`"
        )
    # What stands before `=` may be half of a token: it is not repeated.
    shown = f"of {len(name)} characters, before `=`"
    return _device("MOBILE_EXTRA_TOKENS", name, shown), token.strip()


def _device(setting: str, value: str, shown: str = "") -> str:
    try:
        cleaned = device_id(value)
    except ProtocolError:
        cleaned = ""
    if not cleaned or cleaned != value.strip():
        raise SettingsError(
            f"{setting} names the device {shown or repr(value)}: a device id is not empty, has at "
            "most 120 characters and holds no control character, `:` or `/`"
        )
    return cleaned


def _home(value: str) -> str:
    if not value:
        return ""
    return _device("MOBILE_HOME_DEVICE", value.removeprefix("mobile:"))


def _origin(value: str) -> str:
    """An origin as browsers send it: scheme, host, port without path (RFC 6454 section 6.2)."""
    parts = _url_parts(value)
    bare = value.rstrip("/").lower()
    if parts is None or any(character in bare.partition("://")[2] for character in "/?#*"):
        raise SettingsError(
            f"MOBILE_ALLOWED_ORIGINS holds {_quoted(value)}: "
            "an origin is scheme://host or scheme://host:port, like https://app.example.com"
        )
    scheme, _, port = parts
    # A browser leaves the scheme's own port out.
    return bare.removesuffix(f":{port}") if (scheme, port) in _OWN_PORTS else bare


def _network(value: str) -> Network:
    """A network as `ip_address` reads the addresses in it: no zone, IPv4-mapped is IPv4."""
    address, slash, length = value.partition("/")
    try:
        network = ipaddress.ip_network(address.partition("%")[0] + slash + length, strict=False)
    except ValueError:
        raise SettingsError(
            f"MOBILE_TRUSTED_PROXIES holds {_quoted(value)}: it must be an address or a network, "
            "like 127.0.0.1 or 10.0.0.0/8"
        ) from None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network
