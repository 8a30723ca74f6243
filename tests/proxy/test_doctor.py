"""The browser door's doctor: each finding is shown by a setup that has the fault."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from starlette.types import Message, Receive, Scope, Send

from hermes_client_proxy import Settings, create_app, doctor, doctor_outside
from hermes_client_proxy.auth import session_cookie
from hermes_client_proxy.conformance.browser import Page
from hermes_client_proxy.doctor import Finding, Level
from hermes_client_proxy.doctor_outside import Visit, examine
from tests.proxy.broken_browser_doors import CorsForAll, EventsInOneHeap, Headers, Layer
from tests.proxy.running import serving, user_of
from tests.proxy.scripted_hermes import ScriptedHermes
from tests.proxy.small_hermes import KEY

ROOT = Path(__file__).resolve().parents[2]
SECRET = "Zq3vN8sKp1XbWm6tRc9YhLf2GdJe5UaT"
SOUND = {
    "MNOTE_WEB_HERMES_API_KEY": "k3yOfHermesThatNobodyGuesses42",
    "MNOTE_WEB_SESSION_SECRET": SECRET,
    "MNOTE_WEB_PUBLIC_ORIGIN": "https://notes.example.org",
    "MNOTE_WEB_HERMES_UPSTREAM_URL": "http://127.0.0.1:8642",
}


def bad(found: list[Finding]) -> list[str]:
    return [f.what for f in found if f.level in (Level.WARNING, Level.PROBLEM)]


def only(found: list[Finding], part: str) -> Finding:
    """The one finding whose text holds this; it says why and what to change."""
    (finding,) = [f for f in found if part in f.what]
    if finding.level is not Level.GOOD:
        assert finding.why
        assert finding.change
    assert KEY not in f"{finding}"
    return finding


# --------------------------------------------------------------------------------------------------
# Settings


def test_sound_settings_have_no_complaint() -> None:
    """As the documents recommend."""
    assert list(doctor.configuration(Settings.from_env(SOUND))) == []


@pytest.mark.parametrize(
    ("environ", "level", "part"),
    [
        ({"MNOTE_WEB_HERMES_UPSTREAM_URL": ""}, Level.PROBLEM, "no Hermes behind"),
        ({"MNOTE_WEB_HERMES_API_KEY": ""}, Level.PROBLEM, "no key for Hermes"),
        (
            {"MNOTE_WEB_HERMES_API_KEY": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
            Level.WARNING,
            "short or even",
        ),
        ({"MNOTE_WEB_HERMES_API_KEY": "short-key"}, Level.WARNING, "short or even"),
        (
            {"MNOTE_WEB_HERMES_UPSTREAM_URL": "http://10.0.0.7:8642"},
            Level.WARNING,
            "the key travels to 10.0.0.7",
        ),
        ({"MNOTE_WEB_PUBLIC_ORIGIN": "http://notes.example"}, Level.WARNING, "without TLS"),
        ({"MNOTE_WEB_PUBLIC_ORIGIN": ""}, Level.NOTE, "MNOTE_WEB_PUBLIC_ORIGIN is not set"),
        ({"MNOTE_WEB_SESSION_SECRET": ""}, Level.NOTE, "MNOTE_WEB_SESSION_SECRET is not set"),
        ({"MNOTE_WEB_SESSION_SECRET": "ab" * 20}, Level.PROBLEM, "few different characters"),
        ({"MNOTE_WEB_HERMES_HEARTBEAT_SECONDS": "90"}, Level.WARNING, "every 90 s only"),
        (
            {
                "MNOTE_WEB_AUTH": "trusted-header",
                "MNOTE_WEB_AUTH_HEADER": "X-User",
                "MNOTE_WEB_TRUSTED_PROXIES": "0.0.0.0/0",
            },
            Level.PROBLEM,
            "every address there is",
        ),
    ],
)
def test_settings(environ: dict[str, str], level: Level, part: str) -> None:
    """Each fault of the settings."""
    found = list(doctor.configuration(Settings.from_env({**SOUND, **environ})))

    finding = only(found, part)
    assert finding.level is level
    assert SECRET not in f"{found}"


def test_settings_that_cannot_be() -> None:
    """What keeps the proxy from starting, the sign-in included."""
    for environ in ({"MNOTE_WEB_HERMES_MAX_RUNS": "many"}, {"MNOTE_WEB_AUTH": "jwt"}):
        settings, found = doctor.settings_of({**SOUND, **environ})
        assert settings is None
        assert found[0].level is Level.PROBLEM
        assert next(iter(environ)).split("=")[0] in found[0].what


def test_misspelled_setting() -> None:
    """A name that is nearly a setting."""
    (finding,) = doctor.misspelled({"MNOTE_WEB_HERMES_APIKEY": "x", **SOUND})
    assert finding.change.endswith("MNOTE_WEB_HERMES_API_KEY")


# --------------------------------------------------------------------------------------------------
# Hermes


async def hermes_findings(url: str, key: str | None = KEY) -> list[Finding]:
    return await doctor.hermes(Settings(upstream_url=url, api_key=key))


@pytest.mark.parametrize(("replayable", "word"), [(False, "older"), (True, "newer")])
async def test_key_reaches(replayable: bool, word: str) -> None:
    """Hermes takes the key; which run interface it has."""
    async with ScriptedHermes(replayable=replayable) as hermes:
        found = await hermes_findings(hermes.url)
    assert bad(found) == []
    assert only(found, f"{word} run interface")


async def test_key_that_hermes_refuses() -> None:
    """Another key than Hermes has."""
    async with ScriptedHermes() as hermes:
        found = await hermes_findings(hermes.url, "another-key-of-another-hermes")
    assert only(found, "Hermes refuses the key (HTTP 401)").level is Level.PROBLEM


async def test_hermes_that_is_not_there() -> None:
    """Nobody listens; or something else does."""
    assert only(await hermes_findings("http://127.0.0.1:1"), "cannot be reached").level is (
        Level.PROBLEM
    )
    async with other_site(web.Response(text="<html>", status=404)) as url:
        assert only(await hermes_findings(url), "is no Hermes API server (HTTP 404)")


async def test_hermes_that_asks_for_no_key() -> None:
    """Then everyone who reaches it may ask."""
    async with other_site(web.json_response({"features": {}})) as url:
        assert only(await hermes_findings(url), "without a key").level is Level.WARNING


@asynccontextmanager
async def other_site(answer: web.Response) -> AsyncIterator[str]:
    async def any_path(request: web.Request) -> web.Response:
        return web.Response(
            body=answer.body,
            status=answer.status,
            content_type=answer.content_type,
            headers={"Location": answer.headers["Location"]}
            if "Location" in answer.headers
            else {},
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", any_path)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


# --------------------------------------------------------------------------------------------------
# From outside, behind a web server with a fault


@asynccontextmanager
async def visit(
    layer: type[Layer] = Layer, agent: type[ScriptedHermes] = ScriptedHermes, **options: Any
) -> AsyncIterator[Visit]:
    """A visit to the real proxy behind this layer."""
    async with agent() as hermes:
        settings = Settings(upstream_url=hermes.url, api_key=KEY, poll=0.05)
        app = create_app(settings, authenticate=user_of)
        async with serving(layer(app)) as url, aiohttp.ClientSession() as client:
            page = Page(url, client, headers={"X-Test-User": "ann"}, patience=60.0)
            fields = {
                "idle": 0.3,
                "signed_in": True,
                "key": KEY,
                "hermes_port": hermes.port,
                **options,
            }
            try:
                yield Visit(page, **fields)
            finally:
                await app.aclose()


async def outside(
    layer: type[Layer] = Layer, agent: type[ScriptedHermes] = ScriptedHermes, **options: Any
) -> list[Finding]:
    async with visit(layer, agent, **options) as at:
        return await examine(at)


async def test_sound_address_is_well() -> None:
    """Nothing is found, and everything was looked at."""
    cookie = session_cookie(Settings(session_secret=SECRET)).header("ann")

    found = await outside(set_cookie=cookie)

    assert bad(found) == []
    assert [f.area for f in found] == [
        "address", "origin", "host", "sign-in", "sign-in", "cookie", "requests", "events",
        "events", "key",
    ]  # fmt: skip


def taking(*names: bytes) -> type[Layer]:
    """A web server that takes headers of the browser away."""

    class Taking(Layer):
        def incoming(self, scope: Scope) -> None:
            scope["headers"] = [(n, v) for n, v in scope["headers"] if n not in names]

    return Taking


def naming(host: bytes) -> type[Layer]:
    """A web server that asks under a Host name of its own."""

    class Naming(Layer):
        def incoming(self, scope: Scope) -> None:
            others = [(n, v) for n, v in scope["headers"] if n != b"host"]
            scope["headers"] = [*others, (b"host", host)]

    return Naming


async def test_headers_that_are_taken_away() -> None:
    """Without Origin or Sec-Fetch-Site other sites are let in."""
    origin = await outside(taking(b"origin"), run=False)
    site = await outside(taking(b"sec-fetch-site"), run=False)

    assert {f.level for f in origin if f.area == "origin"} == {Level.PROBLEM}
    assert "(Origin)" in origin[1].what
    assert only(site, "(Sec-Fetch-Site)").level is Level.PROBLEM


async def test_cors_of_the_web_server() -> None:
    """A header that it adds invites other sites."""
    assert only(await outside(CorsForAll, run=False), "CORS header").level is Level.PROBLEM


async def test_host_that_is_rewritten() -> None:
    """Then a rebound name is served; or, with another name, nobody is."""
    every = await outside(naming(b"127.0.0.1"), run=False)
    none = await outside(naming(b"notes.example.org"), run=False)

    assert only(every, "under every Host name").level is Level.PROBLEM
    assert "MNOTE_WEB_PUBLIC_ORIGIN=" in only(none, "does not serve this name").change


async def test_own_pages_that_are_refused() -> None:
    """The origin that browsers see is not the one the proxy knows."""

    class OtherPort(Layer):
        def incoming(self, scope: Scope) -> None:
            others = [(n, v) for n, v in scope["headers"] if n != b"host"]
            scope["headers"] = [*others, (b"host", b"127.0.0.1:9")]

    found = await outside(OtherPort, run=False)
    assert only(found, "itself are refused").level is Level.PROBLEM


async def test_strangers_that_are_let_in() -> None:
    """A web server that signs everybody in."""

    class Everybody(Layer):
        def incoming(self, scope: Scope) -> None:
            scope["headers"] = [*scope["headers"], (b"x-test-user", b"ann")]

    assert only(await outside(Everybody, run=False), "who is not signed in may").level is (
        Level.PROBLEM
    )


async def test_without_a_sign_in() -> None:
    """What could not be looked at is said."""
    async with visit(signed_in=False) as at:
        at.page.headers = {}
        found = await examine(at)
    assert only(found, "no sign-in was given").level is Level.NOTE
    assert "events" not in {f.area for f in found}


async def test_sign_in_that_is_no_good() -> None:
    """A cookie of yesterday."""
    async with visit() as at:
        at.page.headers, at.page.cookie = {}, "hermes_client_session=old"
        found = await examine(at)
    assert only(found, "gets HTTP 401").level is Level.PROBLEM


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("s=1; Path=/; SameSite=Strict", "HttpOnly"),
        ("s=1; Path=/; HttpOnly", "SameSite=Strict"),
        ("s=1; Path=/; HttpOnly; SameSite=None", "SameSite=Strict"),
        ("s=1; Path=/; HttpOnly; SameSite=Strict; Domain=example.org", "no Domain"),
    ],
)
async def test_cookie_flags(line: str, lacks: str) -> None:
    """Each flag that a web server could take away."""
    found = await outside(set_cookie=line, run=False)
    assert only(found, f"the session cookie lacks {lacks}").level is Level.PROBLEM


async def test_cookie_without_secure_behind_https() -> None:
    """The proxy did not know that browsers see https."""
    async with visit(set_cookie="s=1; HttpOnly; SameSite=Strict") as at:
        at.page.url = "https://notes.example.org"
        found = await doctor_outside._cookie(at)
    assert "MNOTE_WEB_PUBLIC_ORIGIN=https://notes.example.org" in only(found, "Secure").change


async def test_events_in_one_heap() -> None:
    """A web server that buffers."""
    finding = only(await outside(EventsInOneHeap), "held back on the way")
    assert finding.level is Level.PROBLEM
    assert "proxy_buffering off" in finding.change


async def test_events_that_were_held_up_once() -> None:
    """A busy machine does so now and then; a web server that buffers does so each time."""

    class HeldUpOnce(ScriptedHermes):
        held = False

        async def _turn(self, run: Any) -> None:
            if not HeldUpOnce.held:
                HeldUpOnce.held = True
                run.say("message.delta", delta="word1")
                await asyncio.sleep(1.5)
            await super()._turn(run)

    finding = only(await outside(agent=HeldUpOnce), "events ")
    assert HeldUpOnce.held and finding.level is Level.GOOD


class OneWordSwallowed(Layer):
    """A filter that takes an event out."""

    def part(self, scope: Scope, data: bytes) -> bytes:
        return b"" if b'"delta":" word5"' in data else data


async def test_events_that_are_swallowed() -> None:
    """The rest comes as it should, but the words are not the answer."""
    finding = only(await outside(OneWordSwallowed), "events are lost on the way")
    assert finding.level is Level.PROBLEM
    assert "/api/hermes/" in finding.change


class NoEndOfTheStream(Layer):
    """A web server that ends a stream before the run's own end."""

    def part(self, scope: Scope, data: bytes) -> bytes:
        return b"" if b"run.completed" in data else data


async def test_stream_that_is_cut() -> None:
    """The run went on, the page did not see its end."""
    finding = only(await outside(NoEndOfTheStream), "before the run's end")
    assert "proxy_read_timeout" in finding.change


class SilenceIsCut(Layer):
    """A web server that ends a stream as soon as the agent waits."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def cutting(message: Message) -> None:
            waits = b"approval.request" in message.get("body", b"")
            await send({**message, "more_body": False} if waits else message)

        await super().__call__(scope, receive, cutting)


async def test_silent_stream_that_is_cut() -> None:
    """While the agent waits for an approval, say."""
    finding = only(await outside(SilenceIsCut, idle=5.0), "before the run's end")
    assert "proxy_read_timeout" in finding.change


async def test_heartbeats_that_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are small, and come alone."""
    monkeypatch.setattr(doctor_outside, "HEARTBEAT", 0.1)
    finding = only(await outside(), "of the heartbeats")
    assert "proxy_buffering off" in finding.change


class SmallBodies(Layer):
    """A web server that takes bodies of 16 KiB at most, and says so in words of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = dict(scope.get("headers", ())).get(b"content-length", b"0")
        if int(length) <= 16_384:
            await super().__call__(scope, receive, send)
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"<h1>413</h1>"})


async def test_body_limit_of_the_web_server() -> None:
    """The door takes 1 MiB, what stands before it must too."""
    finding = only(await outside(SmallBodies), "does not come through (HTTP 413)")
    assert finding.level is Level.PROBLEM
    assert "client_max_body_size" in finding.change


async def test_redirect() -> None:
    """It is told where to; no page follows with what it writes."""
    moved = web.Response(status=301, headers={"Location": "https://notes.example/?a=b"})
    async with other_site(moved) as url, aiohttp.ClientSession() as client:
        found = await examine(Visit(Page(url, client), signed_in=False))
    assert "https://notes.example/ (HTTP 301)" in only(found, "sends on to").what


async def test_events_that_are_compressed() -> None:
    """A web server that compresses what it was asked to leave alone."""

    class Identity(Layer):
        def head(self, scope: Scope, headers: Headers) -> None:
            headers.append((b"content-encoding", b"identity"))

    assert only(await outside(Identity), "is compressed").level is Level.WARNING


async def test_key_in_an_answer() -> None:
    """A page of the origin that has it, or an answer."""

    class KeyInPage(Layer):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] == "/":
                start = {"type": "http.response.start", "status": 200, "headers": []}
                await send(start)
                await send({"type": "http.response.body", "body": f"key = '{KEY}'".encode()})
                return
            await super().__call__(scope, receive, send)

    finding = only(await outside(KeyInPage, run=False), "the key of Hermes stands in an answer")
    assert finding.level is Level.PROBLEM


async def test_hermes_that_answers_past_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own port is open to the same network."""
    monkeypatch.setattr(doctor_outside, "is_loopback", lambda host: False)
    found = await outside(run=False)
    closed = await outside(run=False, hermes_port=1)

    assert only(found, "Hermes' own API answers").level is Level.WARNING
    assert only(found, "http://, without TLS").level is Level.WARNING
    assert only(closed, "port 1 of Hermes is closed").level is Level.GOOD


async def test_no_door_there() -> None:
    """Another site, or nobody."""
    async with aiohttp.ClientSession() as client:
        async with other_site(web.Response(text="hello")) as url:
            found = await examine(Visit(Page(url, client), signed_in=False))
        assert only(found, "there is no browser door").level is Level.PROBLEM
        dead = await examine(Visit(Page("http://127.0.0.1:1", client), signed_in=False))
        assert only(dead, "cannot be reached").level is Level.PROBLEM


async def test_hermes_that_is_down() -> None:
    """The door is there, Hermes is not."""
    app = create_app(Settings(upstream_url="http://127.0.0.1:1", api_key=KEY), authenticate=user_of)
    async with serving(app) as url, aiohttp.ClientSession() as client:
        page = Page(url, client, headers={"X-Test-User": "ann"})
        found = await examine(Visit(page, signed_in=True))
        await app.aclose()
    assert only(found, "the door says of Hermes: unavailable").level is Level.WARNING
    assert only(found, "hermes_client_upstream_unavailable").level is Level.PROBLEM


# --------------------------------------------------------------------------------------------------
# The command


async def command(*arguments: str, **environ: str) -> tuple[int, str, str]:
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_client_proxy", "doctor", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "proxy"), **environ},
    )  # fmt: skip
    out, err = await done.communicate()
    assert done.returncode is not None
    return done.returncode, out.decode(), err.decode()


async def test_command_line() -> None:
    """What people see, what programs get, the exit status; no secret in either."""
    async with visit() as at:
        environ = {
            **SOUND,
            "MNOTE_WEB_HERMES_UPSTREAM_URL": f"http://127.0.0.1:{at.hermes_port}",
            "MNOTE_WEB_HERMES_API_KEY": KEY,
        }
        arguments = ("--url", at.page.url, "--header", "X-Test-User: ann")
        status, out, err = await command(*arguments, **environ)
        as_json = await command("--json", "--no-run", *arguments, **environ)

    assert (status, err) == (0, ""), out
    assert "All well." in out
    areas = {row["area"] for row in json.loads(as_json[1])["findings"]}
    assert areas >= {"settings", "key", "origin", "host", "sign-in"}
    assert KEY not in out + as_json[1] + as_json[2]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 1, "there is no Hermes behind the proxy"),
        (("--url", "ws://h"), 2, "must look like"),
        (("--only-outside",), 2, "needs --url"),
        (("--url", "http://127.0.0.1:1", "--only-outside"), 1, "cannot be reached"),
        (("--url", "http://127.0.0.1:1", "--login", "http://127.0.0.1:1/x"), 2, "sign-in link"),
    ],
)
async def test_command_line_status(arguments: tuple[str, ...], status: int, said: str) -> None:
    """Sick, or asked wrongly."""
    done = await command(*arguments)
    assert done[0] == status, done
    assert said in done[1] + done[2]
