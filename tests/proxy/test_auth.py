"""Each way of knowing the user says who it is, or nobody."""

from __future__ import annotations

import ipaddress
import time
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import Request

from hermes_client_proxy import ProxyApp, SessionCookie, Settings, SettingsError, User, create_app
from hermes_client_proxy.auth import (
    COOKIE,
    LoginLink,
    TrustedHeader,
    as_user,
    cookie_name,
    session_cookie,
)
from hermes_client_proxy.contract import PREFIX
from tests.proxy.running import browsing, serving
from tests.proxy.small_hermes import SmallHermes

SECRET = "a-session-secret-of-32-characters"
LIST = "/sessions?workspaceId=ws_1&documentId="


def asked(peer: str | None = "127.0.0.1", *headers: tuple[str, str]) -> Request:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    client = None if peer is None else (peer, 1)
    return Request({"type": "http", "method": "GET", "headers": raw, "client": client})


def cookie_of(header: str) -> str:
    return header.partition(";")[0]


async def test_a_signed_cookie_names_the_user() -> None:
    cookie = SessionCookie(SECRET, 100, secure=False)

    user = await cookie(asked(None, ("Cookie", f"a=b; {cookie_of(cookie.header('ann'))}")))

    assert user == User("ann")


@pytest.mark.parametrize(
    "others", ['prefs={"a": 1, "b": 2}; ', "a=b c; ", "list[0]=x; ", "x; ", "é=ü; ", "=; ;; "]
)
async def test_cookies_of_any_form_may_stand_beside_it(others: str) -> None:
    cookie = SessionCookie(SECRET, 100, secure=False)
    own = cookie_of(cookie.header("ann"))

    assert await cookie(asked(None, ("Cookie", others + own))) == User("ann")
    assert await cookie(asked(None, ("Cookie", f"{own}; {others}"))) == User("ann")
    assert await cookie(asked(None, ("Cookie", others), ("Cookie", own))) == User("ann")
    assert await cookie(asked(None, ("Cookie", f"not_{own}"))) is None


def test_the_cookie_has_the_attributes_that_keep_it_here() -> None:
    plain = session_cookie(Settings(session_secret=SECRET)).header("ann")
    public = Settings(session_secret=SECRET, public_origin="https://notes.example.org")

    assert "HttpOnly" in plain and "SameSite=Strict" in plain and "Secure" not in plain
    assert session_cookie(public).header("ann").endswith("; Secure")
    straight = session_cookie(Settings(session_secret=SECRET), "https")
    assert straight.header("ann").endswith("; Secure")


async def test_another_signature_or_an_old_cookie_names_nobody() -> None:
    cookie = SessionCookie(SECRET, 1, secure=False)
    other = SessionCookie(SECRET + "x", 100, secure=False)
    good = cookie_of(cookie.header("ann"))
    for value in (cookie_of(other.header("ann")), good[:-1], f"{COOKIE}=", f"{COOKIE}=a.b.c", "é"):
        assert await cookie(asked(None, ("Cookie", value))) is None
    expired = SessionCookie(SECRET, -1, secure=False)
    assert await expired(asked(None, ("Cookie", good))) is None
    assert await cookie(asked(None)) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8750", f"{COOKIE}_8750"),
        ("[::1]:8751", f"{COOKIE}_8751"),
        ("[::1]", COOKIE),
        ("notes.example.org", COOKIE),
        ("notes.example.org:8443", f"{COOKIE}_8443"),
        ("notes.example.org:", COOKIE),
        ("a:1;b=2", COOKIE),
        ("a:123456", COOKIE),
    ],
)
def test_the_cookies_name_has_the_port_that_the_browser_sees(host: str, name: str) -> None:
    assert cookie_name(asked("127.0.0.1", ("Host", host))) == name


async def test_two_servers_on_one_host_sign_nobody_out() -> None:
    # A browser sends every cookie of a host to each of its ports.
    jar: dict[str, str] = {}
    logins = [LoginLink(), LoginLink()]
    apps = [
        ProxyApp(
            Settings(upstream_url="http://127.0.0.1:9", session_secret=SECRET + str(number)),
            login=login,
        )
        for number, login in enumerate(logins)
    ]
    async with (
        serving(apps[0]) as first,
        serving(apps[1]) as second,
        aiohttp.ClientSession() as client,
    ):

        async def status(url: str) -> int:
            headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
            async with client.get(f"{url}{PREFIX}/sessions", headers=headers) as answer:
                return answer.status

        for url, login in zip((first, second), logins, strict=True):
            link = f"{url}{PREFIX}/login?token={login.token}"
            async with client.get(link, allow_redirects=False) as answer:
                name, _, value = cookie_of(answer.headers["Set-Cookie"]).partition("=")
                jar[name] = value
        # Signed in at both: what is missing is the document.
        assert [await status(first), await status(second)] == [400, 400]
        # A host application signs in without knowing a port; one of another server is in its way.
        plain = session_cookie(Settings(session_secret=SECRET + "1")).header("ann")
        jar = dict([cookie_of(plain).split("=", 1)]) | {k: jar[k] for k in list(jar)[:1]}
        assert [await status(first), await status(second)] == [400, 400]
        jar[f"{COOKIE}_{second.rpartition(':')[2]}"] = "of.another.server"
        assert await status(second) == 400
        jar = {f"{COOKIE}_1": next(iter(jar.values()))}
        assert [await status(first), await status(second)] == [401, 401]
    for app in apps:
        await app.aclose()


def test_a_login_link_works_once() -> None:
    link = LoginLink()

    assert not link.redeem("") and not link.redeem("é") and not link.redeem(link.token[:-1])
    assert link.redeem(link.token)
    assert not link.redeem(link.token)


async def test_the_login_link_leads_somewhere_also_where_no_pages_are() -> None:
    login = LoginLink()
    settings = Settings(upstream_url="http://127.0.0.1:9", session_secret=SECRET)
    app = ProxyApp(settings, login=login)
    async with serving(app) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}{PREFIX}/login?token={login.token}") as answer:
            assert (answer.status, answer.url.path) == (200, "/")
            assert PREFIX in await answer.text()
        async with client.post(url) as answer:
            assert answer.status == 405
        async with client.get(url, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
    await app.aclose()


async def test_a_header_is_believed_from_listed_peers_alone() -> None:
    networks = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("127.0.0.1"))
    trusted = TrustedHeader("X-User", networks)

    assert await trusted(asked("10.1.2.3", ("X-User", "ann"))) == User("ann")
    assert await trusted(asked("::ffff:10.1.2.3", ("X-User", "ann"))) == User("ann")
    for peer in ("11.0.0.1", "::1", "localhost", "", None):
        assert await trusted(asked(peer, ("X-User", "ann"))) is None
    for values in ([], ["ann", "ben"], ["ann, ben"], [""], ["a" * 300]):
        headers = [("X-User", value) for value in values]
        assert await trusted(asked("127.0.0.1", *headers)) is None
    forwarded = asked("11.0.0.1", ("X-User", "ann"), ("X-Forwarded-For", "10.1.2.3"))
    assert await trusted(forwarded) is None


async def test_the_hosts_endpoint_is_asked_with_the_cookies_and_may_limit_documents() -> None:
    calls: list[str | None] = []
    signed_in: set[str | None] = set()

    async def me(request: web.Request) -> web.StreamResponse:
        calls.append(request.headers.get("Cookie"))
        assert "Authorization" not in request.headers and "Origin" not in request.headers
        name = request.cookies.get("sid")
        if name in signed_in:
            return web.json_response({"userId": name})
        if name == "ann":
            return web.json_response({"userId": "ann", "documents": ["doc_1"]})
        if name == "all":
            return web.json_response({"id": 7})
        if name == "none":
            return web.json_response({"userId": "x", "documents": "doc_1"})
        if name == "html":
            return web.Response(text="<html>")
        if name == "login":
            return web.Response(status=302, headers={"Location": "/login"})
        if name == "broken":
            return web.Response(status=500)
        return web.json_response({"userId": None}, status=401 if name is None else 200)

    async with SmallHermes() as hermes, SmallHermes() as host:
        host.answers["GET /me"] = me
        options = {"auth": "host", "auth_url": host.url + "/me", "authenticate": None}
        async with browsing(hermes.url, **options) as browser:

            async def status(name: str, document: str = "doc_1") -> int:
                headers = {"Cookie": f"sid={name}"}
                async with browser.request("GET", LIST + document, headers=headers) as answer:
                    return int(answer.status)

            assert await status("ann") == 200
            assert await status("ann", "doc_2") == 403
            assert calls == ["sid=ann"]
            assert await status("late") == 401
            assert await status("all", "doc_2") == 200
            assert await status("none") == 403
            for name in ("html", "login", "broken", "other"):
                assert await status(name) == 401
            signed_in.add("late")  # at the host, under the cookie that it has
            assert await status("late") == 200
            await host.close()
            assert await status("ann") == 200
            assert await status("new") == 401


KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())


def token(key: Any = KEY, algorithm: str = "ES256", kid: str | None = "k1", **claims: Any) -> str:
    now = int(time.time())
    body = {"sub": "ann", "iss": "https://id", "aud": "notes", "exp": now + 60, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, key, algorithm, headers={"kid": kid} if kid else None)


async def test_a_token_is_checked_against_the_published_keys() -> None:
    async def keys(request: web.Request) -> web.StreamResponse:
        fetched.append(1)
        published = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return web.json_response({"keys": [{**published, "kid": "k1", "alg": "ES256"}]})

    fetched: list[int] = []
    async with SmallHermes() as hermes, SmallHermes() as issuer:
        issuer.answers["GET /keys"] = keys
        options = {
            "auth": "jwt",
            "jwt_jwks_url": issuer.url + "/keys",
            "jwt_issuer": "https://id",
            "jwt_audience": "notes",
            "jwt_cookie": "token",
            "authenticate": None,
        }
        async with browsing(hermes.url, **options) as browser:

            async def status(given: str, path: str = LIST + "doc_1", **headers: str) -> int:
                headers = headers or {"Authorization": f"Bearer {given}"}
                async with browser.request("GET", path, headers=headers) as answer:
                    return int(answer.status)

            assert await status(token()) == 200
            assert await status("", Cookie=f"token={token()}") == 200
            assert await status(token(documents=["doc_1"])) == 200
            assert await status(token(documents=["doc_2"])) == 403
            for bad in (
                "",
                "a.b.c",
                "x" * 20_000,
                token(OTHER),
                token(kid="k2"),
                token(exp=1),
                token(exp=None),
                token(sub=None),
                token(sub=""),
                token(iss="https://other"),
                token(aud="other"),
                jwt.encode({"sub": "ann"}, "", "none"),
                jwt.encode({"sub": "ann"}, "x" * 64, "HS256", headers={"kid": "k1"}),
            ):
                assert await status(bad) == 401, bad
            assert len(fetched) <= 2
            await issuer.close()
            assert await status(token()) == 200


ANY: Any = User
NOBODY: list[Any] = [None, "", 7, True, [], "x" * 300, "a\ud800", {"id": "ann"}]
NOBODY += [ANY(name) for name in ("", "a\udfff", None, True, 1.5, b"ann")]


@pytest.mark.parametrize("found", NOBODY)
def test_what_is_no_user_is_nobody(found: Any) -> None:
    assert as_user(found) is None


def test_a_name_or_a_user_is_one() -> None:
    assert as_user("ann") == as_user(User("ann"))
    numbered: Any = 7
    documents = frozenset({"doc_1"})
    assert as_user(User(numbered, documents)) == User("7", documents)


async def test_an_authenticate_that_fails_lets_nobody_in() -> None:
    def broken(request: Request) -> str:
        raise ValueError("no")

    async with SmallHermes() as hermes, browsing(hermes.url, authenticate=broken) as browser:
        await browser.ask("GET", "/models", 401)


@pytest.mark.parametrize("auth", ["cookie", "host", "trusted-header", "jwt"])
def test_a_way_that_is_not_set_up_is_an_error_that_names_what_is_missing(auth: str) -> None:
    settings = Settings(upstream_url="http://127.0.0.1:1", auth=auth)
    with pytest.raises(SettingsError, match="MNOTE_WEB_"):
        create_app(settings)
