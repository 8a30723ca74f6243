"""Who is this browser user? Four ways to know, chosen by ``MNOTE_WEB_AUTH``.

Each is an ``Authenticate``: given the request's headers and peer it returns a User, or None for
nobody. A way that cannot decide (an endpoint out of reach, keys not to be had) says None: closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import itsdangerous
import jwt
import msgspec
from starlette.requests import Request

from .headers import values
from .settings import Settings, SettingsError
from .upstream import read_body

COOKIE = "hermes_client_session"
"""The session cookie's name; the port that the browser sees follows it where there is one."""
MAX_USER_ID = 256

_JWKS_KEEP = 300.0
_JWKS_PAUSE = 10.0
"""A key that is not known may be a new one: asked for again, but not for every forged token."""
_JWKS_RETRY = 1.0
_MAX_ANSWER = 262_144


@dataclass(frozen=True, slots=True)
class User:
    """``documents`` None means that nothing limits the documents of this user."""

    id: str
    documents: frozenset[str] | None = None


Authenticate = Callable[[Request], "Awaitable[User | str | None] | User | str | None"]
Authorize = Callable[[User, "str | None", str], "Awaitable[bool] | bool"]


def every_document(user: User, workspace_id: str | None, document_id: str) -> bool:
    """The default: what the user's sign-in limits it to, else every document."""
    return user.documents is None or document_id in user.documents


class SessionCookie:
    """A signed cookie that names the user. ``secure`` adds the Secure attribute."""

    def __init__(self, secret: str, max_age: float, *, secure: bool) -> None:
        self._signer = itsdangerous.URLSafeTimedSerializer(secret, salt="hermes-client-session")
        self._max_age = int(max_age)
        self._secure = secure

    def header(self, user_id: str, name: str = COOKIE) -> str:
        """The value of a Set-Cookie header that signs *user_id* in.

        *name* is ``COOKIE``, or the one that ``cookie_name`` gives: browsers send a cookie to every
        port of a host, so that two servers on one machine would sign each other's user out.
        """
        return (
            f"{name}={self._signer.dumps(user_id)}; Path=/; Max-Age={self._max_age}; HttpOnly; "
            f"SameSite=Strict{'; Secure' if self._secure else ''}"
        )

    async def __call__(self, request: Request) -> User | None:
        for name in {cookie_name(request): None, COOKIE: None}:
            value = _cookie(request, name)
            if value is None:
                continue
            try:
                return _user(self._signer.loads(value, max_age=self._max_age))
            except itsdangerous.BadData:
                continue
        return None


def cookie_name(request: Request) -> str:
    """The name of the session cookie at the port by which the browser asks: the same after every
    restart, and at every server behind that address."""
    hosts = values(request.scope["headers"], b"host")
    port = re.search(r":([0-9]{1,5})$", hosts[0]) if len(hosts) == 1 else None
    return COOKIE if port is None else f"{COOKIE}_{port[1]}"


class LoginLink:
    """A link that signs one user in, once. ``serve`` prints it."""

    def __init__(self, user_id: str = "owner") -> None:
        self.user_id = user_id
        self.token = secrets.token_urlsafe(32)
        self._open = True

    def redeem(self, token: str) -> bool:
        """True once, for the right token."""
        right = secrets.compare_digest(token.encode(), self.token.encode())
        if not (right and self._open):
            return False
        self._open = False
        return True


class HostEndpoint:
    """The application's own endpoint, asked with the browser's cookies.

    It answers 200 with ``{"userId": "…", "documents": ["…"]}`` (documents optional) for a
    signed-in user, anything else for nobody. Redirects are not followed.
    """

    def __init__(self, url: str, keep: float, get_client: Callable[[], aiohttp.ClientSession]):
        self._url = url
        self._keep = keep
        self._client = get_client
        self._known: OrderedDict[bytes, tuple[float, User]] = OrderedDict()

    async def __call__(self, request: Request) -> User | None:
        cookies = values(request.scope["headers"], b"cookie")
        if not cookies:
            return None
        cookie = "; ".join(cookies)
        key = hashlib.sha256(cookie.encode("latin-1")).digest()
        now = time.monotonic()
        found = self._known.get(key)
        if found is not None and now - found[0] < self._keep:
            return found[1]
        try:
            user = await self._ask(cookie)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None  # not kept: the next request asks again
        if user is None:
            return None  # not kept either: signing in may leave the cookies as they are
        self._known[key] = (now, user)
        self._known.move_to_end(key)
        while len(self._known) > 4096:
            self._known.popitem(last=False)
        return user

    async def _ask(self, cookie: str) -> User | None:
        async with self._client().get(
            self._url,
            headers={"Cookie": cookie, "Accept": "application/json"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=10, connect=5),
        ) as answer:
            if answer.status >= 500:
                raise aiohttp.ClientError("the endpoint failed")
            if answer.status != 200:
                return None
            raw = await read_body(answer, _MAX_ANSWER)
        try:
            data = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        user_id = next(
            (data[name] for name in ("userId", "user_id", "id", "sub") if data.get(name)), None
        )
        if isinstance(user_id, int) and not isinstance(user_id, bool):
            user_id = str(user_id)
        return _user(user_id, data.get("documents"))


class TrustedHeader:
    """A header set by a proxy in front, believed only from the listed peer addresses."""

    def __init__(self, header: str, proxies: tuple[Any, ...]) -> None:
        self._header = header.lower().encode()
        self._proxies = proxies

    async def __call__(self, request: Request) -> User | None:
        if request.client is None:
            return None
        try:
            peer = ipaddress.ip_address(request.client.host)
        except ValueError:
            return None
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        if not any(peer in network for network in self._proxies):
            return None
        found = values(request.scope["headers"], self._header)
        # Two values mean that the proxy in front let the browser's own header through.
        if len(found) != 1 or "," in found[0]:
            return None
        return _user(found[0])


class JsonWebToken:
    """A token signed with a published key; from the Authorization header or a cookie."""

    def __init__(self, settings: Settings, get_client: Callable[[], aiohttp.ClientSession]) -> None:
        assert settings.jwt_jwks_url is not None
        self._url = settings.jwt_jwks_url
        self._issuer = settings.jwt_issuer
        self._audience = settings.jwt_audience
        self._algorithms = list(settings.jwt_algorithms)
        self._cookie = settings.jwt_cookie
        self._client = get_client
        self._keys: jwt.PyJWKSet | None = None
        self._read_at = float("-inf")
        self._ask_again = float("-inf")
        self._lock = asyncio.Lock()

    async def __call__(self, request: Request) -> User | None:
        token = self._token(request)
        if token is None or len(token) > 16_384:
            return None
        try:
            head = jwt.get_unverified_header(token)
            key = await self._key(head.get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "sub"]},
                leeway=10,
            )
        except (jwt.PyJWTError, aiohttp.ClientError, TimeoutError, ValueError):
            return None
        return _user(claims.get("sub"), claims.get("documents"))

    def _token(self, request: Request) -> str | None:
        found = values(request.scope["headers"], b"authorization")
        if len(found) == 1 and found[0][:7].lower() == "bearer ":
            return found[0][7:].strip()
        return _cookie(request, self._cookie) if self._cookie and not found else None

    async def _key(self, key_id: object) -> jwt.PyJWK | None:
        if (key := self._find(key_id)) is not None:
            return key
        async with self._lock:
            now = time.monotonic()
            if now >= self._ask_again:
                self._ask_again = now + _JWKS_RETRY
                self._keys = await self._read()
                self._read_at = now
                found = self._find(key_id)
                # An issuer that has just changed its keys may be asked again at once.
                self._ask_again = now if found is not None else now + _JWKS_PAUSE
        return self._find(key_id)

    def _find(self, key_id: object) -> jwt.PyJWK | None:
        if self._keys is None or time.monotonic() - self._read_at > _JWKS_KEEP:
            return None
        keys = self._keys.keys
        if key_id is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.key_id == key_id), None)

    async def _read(self) -> jwt.PyJWKSet:
        async with self._client().get(
            self._url,
            headers={"Accept": "application/json"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=10, connect=5),
        ) as answer:
            if answer.status != 200:
                raise aiohttp.ClientError("no keys")
            raw = await read_body(answer, _MAX_ANSWER)
        try:
            data = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            raise ValueError("no keys") from None
        if not isinstance(data, dict):
            raise ValueError("no keys")
        return jwt.PyJWKSet.from_dict(data)


def authenticator(
    settings: Settings, get_client: Callable[[], aiohttp.ClientSession]
) -> Authenticate:
    """The way that *settings* choose. Raises SettingsError naming what is missing."""
    if settings.auth == "cookie":
        if settings.session_secret is None:
            raise SettingsError(
                "MNOTE_WEB_AUTH=cookie needs MNOTE_WEB_SESSION_SECRET (32 characters or more)."
            )
        return session_cookie(settings)
    if settings.auth == "host":
        if settings.auth_url is None:
            raise SettingsError("MNOTE_WEB_AUTH=host needs MNOTE_WEB_AUTH_URL.")
        return HostEndpoint(settings.auth_url, settings.auth_cache, get_client)
    if settings.auth == "trusted-header":
        if settings.auth_header is None or not settings.trusted_proxies:
            raise SettingsError(
                "MNOTE_WEB_AUTH=trusted-header needs MNOTE_WEB_AUTH_HEADER and "
                "MNOTE_WEB_TRUSTED_PROXIES."
            )
        return TrustedHeader(settings.auth_header, settings.trusted_proxies)
    if settings.jwt_jwks_url is None or not (settings.jwt_issuer and settings.jwt_audience):
        raise SettingsError(
            "MNOTE_WEB_AUTH=jwt needs MNOTE_WEB_JWT_JWKS_URL, MNOTE_WEB_JWT_ISSUER and "
            "MNOTE_WEB_JWT_AUDIENCE."
        )
    return JsonWebToken(settings, get_client)


def session_cookie(settings: Settings, scheme: str = "http") -> SessionCookie:
    """The session cookie of these settings; a host application signs its users in with it.

    *scheme* is the one that the request came with; https there, or in front, makes it Secure.
    """
    assert settings.session_secret is not None
    secure = scheme == "https" or (settings.public_origin or "").startswith("https:")
    return SessionCookie(settings.session_secret, settings.session_max_age, secure=secure)


def as_user(found: object) -> User | None:
    """What an Authenticate returned, as a User."""
    if not isinstance(found, User):
        return _user(found)
    user_id: object = found.id  # a host that checks no types may give a number
    if isinstance(user_id, int) and not isinstance(user_id, bool):
        return replace(found, id=str(user_id))
    return found if _is_name(user_id) else None


def _user(user_id: object, documents: object = None) -> User | None:
    if not isinstance(user_id, str) or not _is_name(user_id) or len(user_id) > MAX_USER_ID:
        return None
    if documents is None:
        return User(user_id)
    if isinstance(documents, list):
        return User(user_id, frozenset(d for d in documents if isinstance(d, str)))
    return User(user_id, frozenset())  # a limit that cannot be read allows nothing


def _is_name(user_id: object) -> bool:
    """Whether this can name a user: text, and none that holds halves of characters."""
    if not isinstance(user_id, str) or not user_id:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in user_id)


def _cookie(request: Request, name: str) -> str | None:
    # A page may have cookies of any form beside this one; http.cookies would give up on them all.
    for header in values(request.scope["headers"], b"cookie"):
        for pair in header.split(";"):
            found, _, value = pair.partition("=")
            if found.strip() == name:
                return value.strip().strip('"')
    return None
