"""Endpoints that name the user, or hold the keys of tokens: slow ones, broken ones, in pieces."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import Request

from hermes_client_proxy import Settings, User
from hermes_client_proxy.auth import HostEndpoint, JsonWebToken
from tests.proxy.running import PATIENCE
from tests.proxy.small_hermes import SmallHermes

KEY = ec.generate_private_key(ec.SECP256R1())


def request_with(name: str, value: str) -> Request:
    return Request({"type": "http", "headers": [(name.encode(), value.encode())]})


def token_request(key_id: str = "k1") -> Request:
    claims = {"sub": "ann", "iss": "i", "aud": "a", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, KEY, "ES256", headers={"kid": key_id})
    return request_with("authorization", f"Bearer {token}")


def published() -> dict[str, Any]:
    key = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    return {"keys": [{**key, "kid": "k1", "alg": "ES256"}]}


async def in_pieces(request: web.Request, data: Any) -> web.StreamResponse:
    """A JSON answer whose bytes arrive one after another."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    for byte in json.dumps(data).encode():
        await answer.write(bytes([byte]))
        await asyncio.sleep(0)
    return answer


@asynccontextmanager
async def tokens(issuer: SmallHermes) -> AsyncIterator[JsonWebToken]:
    settings = Settings(
        auth="jwt", jwt_jwks_url=f"{issuer.url}/keys", jwt_issuer="i", jwt_audience="a"
    )
    async with aiohttp.ClientSession() as client, asyncio.timeout(PATIENCE):
        yield JsonWebToken(settings, lambda: client)


async def test_a_hosts_answer_in_pieces_is_read_whole() -> None:
    async with SmallHermes() as host, aiohttp.ClientSession() as client:
        host.answers["GET /me"] = lambda request: in_pieces(request, {"userId": "ann"})
        way = HostEndpoint(f"{host.url}/me", 10, lambda: client)

        assert await way(request_with("cookie", "sid=1")) == User("ann")


async def test_keys_in_pieces_are_read_whole() -> None:
    async with SmallHermes() as issuer, tokens(issuer) as way:
        issuer.answers["GET /keys"] = lambda request: in_pieces(request, published())

        assert await way(token_request()) == User("ann")


async def test_a_forged_key_id_keeps_nobody_waiting_and_is_asked_for_once() -> None:
    hangs, asked = asyncio.Event(), []

    async def keys(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        if len(asked) > 1:
            hangs.set()
            await asyncio.Event().wait()
        return web.json_response(published())

    async with SmallHermes() as issuer, tokens(issuer) as way:
        issuer.answers["GET /keys"] = keys
        assert await way(token_request()) == User("ann")
        forged = asyncio.create_task(way(token_request("forged")))
        await hangs.wait()

        assert await way(token_request()) == User("ann")
        forged.cancel()


async def test_a_key_that_is_not_published_is_asked_for_once_in_a_while() -> None:
    asked = []

    async def keys(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        return web.json_response(published())

    async with SmallHermes() as issuer, tokens(issuer) as way:
        issuer.answers["GET /keys"] = keys
        assert await way(token_request()) == User("ann")
        for number in range(20):
            assert await way(token_request(f"forged{number}")) is None

        assert len(asked) == 2  # the first of them might have been a new key
        assert await way(token_request()) == User("ann")


async def test_a_key_that_was_just_changed_is_found_at_once() -> None:
    current = ""

    async def keys(request: web.Request) -> web.StreamResponse:
        (key,) = published()["keys"]
        return web.json_response({"keys": [{**key, "kid": current}]})

    async with SmallHermes() as issuer, tokens(issuer) as way:
        issuer.answers["GET /keys"] = keys
        for current in ("2026-01", "2026-02", "2026-03"):
            assert await way(token_request(current)) == User("ann")


async def test_an_issuer_that_fails_is_not_asked_for_every_token() -> None:
    asked = []

    async def keys(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        return web.Response(status=500) if len(asked) == 1 else web.json_response(published())

    async with SmallHermes() as issuer, tokens(issuer) as way:
        issuer.answers["GET /keys"] = keys
        for _ in range(20):
            assert await way(token_request()) is None
        assert len(asked) == 1
        way._ask_again = 0

        assert await way(token_request()) == User("ann")
