"""Every setting of the proxy, read from the environment into one frozen value.

``TABLE`` is the one list of settings: it is what ``Settings.from_env`` reads and what
``docs/proxy-settings.md`` shows.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from yarl import URL

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(ValueError):
    """A setting that cannot be used; the text names it and says what to write instead."""


class ToolEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the tools file. ``upstream`` is the tool's name in Hermes."""

    name: str
    scope: str
    schemaVersion: str
    upstream: str | None = None

    @property
    def upstream_name(self) -> str:
        return self.upstream or self.name.replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes are in bytes, times in seconds. Raises SettingsError when made with unusable values."""

    upstream_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    tools: tuple[ToolEntry, ...] = ()

    public_origin: str | None = None
    auth: str = "cookie"
    session_secret: str | None = field(default=None, repr=False)
    session_max_age: float = 43_200
    auth_url: str | None = None
    auth_cache: float = 10
    auth_header: str | None = None
    trusted_proxies: tuple[Network, ...] = ()
    jwt_jwks_url: str | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    jwt_cookie: str | None = None

    metrics_token: str | None = field(default=None, repr=False)

    max_runs: int = 64
    max_runs_per_user: int = 8
    max_streams: int = 1000
    max_streams_per_user: int = 32
    max_body: int = 1_048_576
    max_context: int = 65_536

    connect_timeout: float = 5
    answer_timeout: float = 30
    heartbeat: float = 15
    silence: float = 120
    lost_after: float = 120
    slow_reader: float = 30
    poll: float = 1
    retry: float = 2

    log_events: int = 20_000
    log_bytes: int = 8_388_608
    log_keep: float = 300
    session_scan: int = 5_000
    max_messages: int = 5_000
    max_keys: int = 10_000

    def __post_init__(self) -> None:
        if self.upstream_url is not None:
            object.__setattr__(self, "upstream_url", _upstream_url(self.upstream_url))
        if self.public_origin is not None:
            object.__setattr__(self, "public_origin", _origin(self.public_origin))
        if self.api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", self.api_key):
            raise SettingsError(
                "MNOTE_WEB_HERMES_API_KEY holds a space, a control or a non-ASCII character; "
                "set it to the value of API_SERVER_KEY."
            )
        if self.auth not in ("cookie", "host", "trusted-header", "jwt"):
            raise SettingsError("MNOTE_WEB_AUTH must be cookie, host, trusted-header or jwt.")
        if self.session_secret is not None and len(self.session_secret) < 32:
            raise SettingsError("MNOTE_WEB_SESSION_SECRET must have at least 32 characters.")
        if self.metrics_token is not None:
            if len(self.metrics_token) < 16:
                raise SettingsError("MNOTE_WEB_METRICS_TOKEN must have at least 16 characters.")
            if self.metrics_token in (self.api_key, self.session_secret):
                raise SettingsError(
                    "MNOTE_WEB_METRICS_TOKEN lies in the files of a monitoring system and must "
                    "open nothing else; make one of its own."
                )
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if not (value > 0 and math.isfinite(value)):
                    raise SettingsError(f"{_NAMES.get(item.name, item.name)} must be above zero.")

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Settings from *env*; an empty variable counts as unset. Raises SettingsError."""
        values: dict[str, Any] = {}
        for row in TABLE:
            text = env.get(row.variable, "").strip()
            if text:
                try:
                    values[row.field] = row.read(text)
                except SettingsError as error:
                    raise SettingsError(f"{row.variable}: {error}") from None
                except ValueError:
                    raise SettingsError(f"{row.variable} is not {row.kind}.") from None
        return cls(**values)

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """What must never leave this server."""
        return (self.api_key, self.session_secret, self.metrics_token)

    @property
    def missing(self) -> str | None:
        """The variable without which there is no upstream, or None."""
        return "MNOTE_WEB_HERMES_UPSTREAM_URL" if self.upstream_url is None else None


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its variable, the field it fills, how it is read, and what it means."""

    variable: str
    field: str
    kind: str
    read: Callable[[str], Any]
    meaning: str


def _web_address(text: str) -> URL | None:
    """*text* as a URL whose host is in ASCII, as browsers send it; None if it is no such URL."""
    if re.search(r"[\s\x00-\x1f\x7f\\#?*,]", text):
        return None
    try:
        url = URL(text)
        host = url.raw_host or ""
        usable = url.scheme in ("http", "https") and url.port != 0
    except ValueError:
        return None
    name = re.fullmatch(r"[a-z0-9._-]+", host) is not None
    return url if usable and (name or _is_address(host)) else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _upstream_url(text: str) -> str:
    url = _web_address(text)
    if url is None:
        raise SettingsError(
            "MNOTE_WEB_HERMES_UPSTREAM_URL must look like http://127.0.0.1:8642 "
            "(a path such as /p/work may follow)."
        )
    if url.raw_user is not None or url.raw_password is not None:
        raise SettingsError(
            "MNOTE_WEB_HERMES_UPSTREAM_URL must not hold a name or password; "
            "put the key into MNOTE_WEB_HERMES_API_KEY."
        )
    return f"{url.scheme}://{url.host_port_subcomponent}{url.raw_path}".rstrip("/")


def _origin(text: str) -> str:
    url = _web_address(text)
    if url is None or url.raw_path != "/" or url.raw_user is not None:
        raise SettingsError("MNOTE_WEB_PUBLIC_ORIGIN must look like https://notes.example.org")
    return f"{url.scheme}://{url.host_port_subcomponent}"


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise SettingsError("give addresses or networks such as 127.0.0.1,10.0.0.0/8") from None


def _network(text: str) -> Network:
    """A network as a peer's address is read: no zone, and IPv4-mapped is IPv4."""
    address, slash, length = text.partition("/")
    network = ipaddress.ip_network(address.partition("%")[0] + slash + length, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _algorithms(text: str) -> tuple[str, ...]:
    names = _names(text)
    if not names or any(not re.fullmatch(r"(RS|ES|PS)\d{3}|EdDSA|ES256K", name) for name in names):
        raise SettingsError("give public-key algorithms such as RS256,ES256,EdDSA")
    return names


def _header(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", text):
        raise SettingsError("give one header name such as X-Forwarded-User")
    return text.lower()


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("give a full URL such as https://notes.example.org/api/me")
    return text


def _tools(text: str) -> tuple[ToolEntry, ...]:
    try:
        raw = Path(text).read_bytes()
    except OSError as error:
        raise SettingsError(f"the file cannot be read ({error.strerror})") from None
    try:
        return tuple(msgspec.json.decode(raw, type=list[ToolEntry]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the file must be a JSON list of objects with name, scope, schemaVersion and "
            f"optionally upstream ({error})"
        ) from None


_S = "seconds"
TABLE: tuple[Row, ...] = (
    Row(
        "MNOTE_WEB_HERMES_UPSTREAM_URL",
        "upstream_url",
        "a URL",
        str,
        "Where the Hermes API server listens. Without it every route but health answers 503.",
    ),
    Row(
        "MNOTE_WEB_HERMES_API_KEY",
        "api_key",
        "text",
        str,
        "The key of the Hermes API server (its `API_SERVER_KEY`). Never leaves this server.",
    ),
    Row(
        "MNOTE_WEB_HERMES_TOOLS_FILE",
        "tools",
        "a file",
        _tools,
        "A JSON list of the tools that GET /tools may show; without it the list is empty.",
    ),
    Row(
        "MNOTE_WEB_PUBLIC_ORIGIN",
        "public_origin",
        "an origin",
        str,
        "The origin that browsers see. Needed when it is a name other than localhost.",
    ),
    Row(
        "MNOTE_WEB_AUTH",
        "auth",
        "a mode",
        str,
        "Who the browser user is: `cookie`, `host`, `trusted-header` or `jwt`.",
    ),
    Row(
        "MNOTE_WEB_SESSION_SECRET",
        "session_secret",
        "text",
        str,
        "Signs the session cookie (32 characters or more). `serve` makes one for its own lifetime.",
    ),
    Row(
        "MNOTE_WEB_SESSION_MAX_AGE_SECONDS",
        "session_max_age",
        _S,
        float,
        "How long a session cookie is good for.",
    ),
    Row(
        "MNOTE_WEB_AUTH_URL",
        "auth_url",
        "a URL",
        _url,
        "`host`: the application's endpoint that is asked with the browser's cookies.",
    ),
    Row(
        "MNOTE_WEB_AUTH_CACHE_SECONDS",
        "auth_cache",
        _S,
        float,
        "`host`: how long its answer is kept.",
    ),
    Row(
        "MNOTE_WEB_AUTH_HEADER",
        "auth_header",
        "a header name",
        _header,
        "`trusted-header`: the header in which the proxy in front names the user.",
    ),
    Row(
        "MNOTE_WEB_TRUSTED_PROXIES",
        "trusted_proxies",
        "addresses",
        _networks,
        "`trusted-header`: the peer addresses that may set it.",
    ),
    Row(
        "MNOTE_WEB_JWT_JWKS_URL",
        "jwt_jwks_url",
        "a URL",
        _url,
        "`jwt`: where the signing keys are published.",
    ),
    Row("MNOTE_WEB_JWT_ISSUER", "jwt_issuer", "text", str, "`jwt`: the required `iss`."),
    Row("MNOTE_WEB_JWT_AUDIENCE", "jwt_audience", "text", str, "`jwt`: the required `aud`."),
    Row(
        "MNOTE_WEB_JWT_ALGORITHMS",
        "jwt_algorithms",
        "algorithm names",
        _algorithms,
        "`jwt`: accepted signature algorithms (public-key ones only).",
    ),
    Row(
        "MNOTE_WEB_JWT_COOKIE",
        "jwt_cookie",
        "a cookie name",
        str,
        "`jwt`: a cookie that may carry the token where no Authorization header is sent.",
    ),
    Row(
        "MNOTE_WEB_METRICS_TOKEN",
        "metrics_token",
        "text",
        str,
        "What /metrics is read with (16 characters or more). Without it only a process of this "
        "machine may read it, on a proxy with no public origin and no trusted proxies.",
    ),
    Row("MNOTE_WEB_HERMES_MAX_RUNS", "max_runs", "a number", int, "Running runs in all."),
    Row(
        "MNOTE_WEB_HERMES_MAX_RUNS_PER_USER",
        "max_runs_per_user",
        "a number",
        int,
        "Running runs of one user.",
    ),
    Row(
        "MNOTE_WEB_HERMES_MAX_STREAMS",
        "max_streams",
        "a number",
        int,
        "Open event streams in all.",
    ),
    Row(
        "MNOTE_WEB_HERMES_MAX_STREAMS_PER_USER",
        "max_streams_per_user",
        "a number",
        int,
        "Open event streams of one user.",
    ),
    Row("MNOTE_WEB_HERMES_MAX_BODY_BYTES", "max_body", "bytes", int, "Greatest request body."),
    Row(
        "MNOTE_WEB_HERMES_MAX_CONTEXT_BYTES",
        "max_context",
        "bytes",
        int,
        "Greatest page context, block id and selected text together.",
    ),
    Row(
        "MNOTE_WEB_HERMES_CONNECT_TIMEOUT_SECONDS",
        "connect_timeout",
        _S,
        float,
        "Reaching Hermes.",
    ),
    Row(
        "MNOTE_WEB_HERMES_ANSWER_TIMEOUT_SECONDS",
        "answer_timeout",
        _S,
        float,
        "A whole answer of Hermes (event streams excepted).",
    ),
    Row(
        "MNOTE_WEB_HERMES_HEARTBEAT_SECONDS",
        "heartbeat",
        _S,
        float,
        "Between two heartbeats of an event stream.",
    ),
    Row(
        "MNOTE_WEB_HERMES_SILENCE_SECONDS",
        "silence",
        _S,
        float,
        "A stream of Hermes silent for longer counts as broken (it sends keepalives itself).",
    ),
    Row(
        "MNOTE_WEB_HERMES_LOST_AFTER_SECONDS",
        "lost_after",
        _S,
        float,
        "A Hermes out of reach for longer ends the run's stream with `run.failed`.",
    ),
    Row(
        "MNOTE_WEB_HERMES_SLOW_READER_SECONDS",
        "slow_reader",
        _S,
        float,
        "A browser that takes nothing for longer is cut off.",
    ),
    Row(
        "MNOTE_WEB_HERMES_POLL_SECONDS",
        "poll",
        _S,
        float,
        "Between two looks at a run that cannot be watched.",
    ),
    Row(
        "MNOTE_WEB_HERMES_RETRY_SECONDS",
        "retry",
        _S,
        float,
        "After which a browser reconnects its event stream.",
    ),
    Row("MNOTE_WEB_HERMES_LOG_EVENTS", "log_events", "a number", int, "Events kept of one run."),
    Row(
        "MNOTE_WEB_HERMES_LOG_BYTES",
        "log_bytes",
        "bytes",
        int,
        "Bytes of events kept of one run.",
    ),
    Row(
        "MNOTE_WEB_HERMES_LOG_KEEP_SECONDS",
        "log_keep",
        _S,
        float,
        "How long an ended run's events stay for replay.",
    ),
    Row(
        "MNOTE_WEB_HERMES_SESSION_SCAN",
        "session_scan",
        "a number",
        int,
        "Sessions of Hermes looked through for one GET /sessions.",
    ),
    Row(
        "MNOTE_WEB_HERMES_MAX_MESSAGES",
        "max_messages",
        "a number",
        int,
        "The newest messages of a session that are read.",
    ),
    Row(
        "MNOTE_WEB_HERMES_MAX_KEYS",
        "max_keys",
        "a number",
        int,
        "Idempotency keys, and titles of sessions that have not run, held at a time.",
    ),
)
_NAMES = {row.field: row.variable for row in TABLE}
