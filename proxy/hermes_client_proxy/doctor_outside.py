"""What a stranger's page can do at the public address of a browser door, and how events arrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from .conformance.browser import Event, Failed, Page
from .contract import PREFIX
from .doctor import Finding, Level, good, is_loopback

FOREIGN = "https://attacker.example"
REBOUND = "rebound.example"
FIRST_BYTE = 3.0
WORDS, STEP_MS = 12, 150
# A busy machine holds a run up now and then, a web server that buffers holds up each.
RUNS = 2
# Below the smallest limit that the door itself has by default.
LARGE_BODY = 900 * 1024
HEARTBEAT = 30.0  # in so many seconds two come
# Where a Hermes API server listens by itself.
HERMES_PORT = 8642


@dataclass
class Visit:
    """The address under examination. ``key``: what must not be found in any answer. ``idle``: how
    long a stream is left silent, in seconds. ``scripted``: whether the agent knows the scripted
    words, found out on the way."""

    page: Page
    signed_in: bool
    set_cookie: str | None = None
    key: str | None = field(default=None, repr=False)
    run: bool = True
    idle: float = 40.0
    scripted: bool = False
    hermes_port: int = HERMES_PORT
    seen: list[bytes] = field(default_factory=list, repr=False)

    @property
    def host(self) -> str:
        """The name in the address."""
        return urlsplit(self.page.url).hostname or ""


@dataclass(frozen=True)
class Told:
    """One answer, of whatever status."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def ours(self) -> bool:
        """Whether the door itself said it: it carries a trace."""
        return "x-trace-id" in self.headers

    @property
    def code(self) -> str:
        """The contract's error code, "" if there is none."""
        try:
            found = json.loads(self.raw)
        except (ValueError, UnicodeDecodeError):
            return ""
        return str(found.get("code", "")) if isinstance(found, dict) else ""


async def _get(
    visit: Visit, path: str, headers: Mapping[str, str | None] | None = None, *, user: bool = True
) -> Told:
    """One answer; CORS headers and all. Raises ``Failed``."""
    page = visit.page
    sent: dict[str, str | None] = {"Sec-Fetch-Site": "same-origin"}
    if user:
        sent.update(page.headers)
        sent["Cookie"] = page.cookie or None
    sent.update(headers or {})
    full = PREFIX + path.removeprefix("~") if path.startswith("~") else path
    try:
        async with asyncio.timeout(page.patience):
            async with page.client.get(
                page.url + full,
                headers={name: value for name, value in sent.items() if value is not None},
                allow_redirects=False,
            ) as answer:
                raw = await answer.content.read(1_048_576)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Failed(f"no answer: {type(error).__name__}: {error}") from None
    told = Told(answer.status, {n.lower(): v for n, v in answer.headers.items()}, raw)
    visit.seen.append(raw + repr(told.headers).encode())
    return told


async def examine(visit: Visit, told: Callable[[str], None] = lambda what: None) -> list[Finding]:
    """Everything that can be found out from here. ``told`` hears what is being tried."""
    found: list[Finding] = []
    if visit.page.url.startswith("http://") and not is_loopback(visit.host):
        found.append(
            Finding(
                Level.WARNING,
                "address",
                "the address is http://, without TLS",
                "Everyone on the way reads the session cookie and every word.",
                "TLS in the web server in front, MNOTE_WEB_PUBLIC_ORIGIN=https://…",
            )
        )
    told("is the door there")
    try:
        entry = await _entry(visit)
    except Failed as error:
        entry = [
            Finding(
                Level.PROBLEM,
                "address",
                f"{visit.page.url} cannot be reached ({error})",
                "No page gets as far as the door.",
                "check the name, the port, the certificate, and whether the web server runs",
            )
        ]
    found += entry
    if entry[-1].level is Level.PROBLEM:
        return found
    for what, look in (
        ("are pages of other sites refused", _cross_site),
        ("is another Host refused", _host),
        ("is a stranger refused", _stranger),
        ("is the sign-in good", _signed_in),
        ("which flags has the cookie", _cookie),
        ("does Hermes answer past the proxy", _past_the_proxy),
        ("does a large request come through", _large_body),
        ("how do events arrive", _events),
        (f"does a stream survive {visit.idle:g} s of silence", _silence),
        ("is the key in any answer", _key),
    ):
        told(what)
        try:
            found += await look(visit)
        except Failed as error:
            found.append(
                Finding(
                    Level.WARNING,
                    "address",
                    f"could not be found out: {what} ({error})",
                    "Something on the way ended the attempt.",
                    "run the doctor again; if it stays, look into the web server's log",
                )
            )
    return found


async def _entry(visit: Visit) -> list[Finding]:
    health = await _get(visit, "~/health", user=False)
    if health.ours and health.status == 200:
        state = json.loads(health.raw).get("upstream")
        found = [good("address", f"the door is there, Hermes behind it: {state}")]
        if state != "ok":
            found.append(
                Finding(
                    Level.WARNING,
                    "Hermes",
                    f"the door says of Hermes: {state}",
                    "Pages get errors until that is mended.",
                    "hermes-client-proxy doctor, on the server, tells why",
                )
            )
        return found
    if health.ours and health.code == "hermes_client_forbidden":
        return [
            Finding(
                Level.PROBLEM,
                "address",
                f"the door does not serve this name ({visit.host})",
                "Every page at this address gets 403.",
                f"MNOTE_WEB_PUBLIC_ORIGIN={visit.page.url}, and pass the Host header on "
                "(nginx: proxy_set_header Host $host;)",
            )
        ]
    if 300 <= health.status < 400:
        to = health.headers.get("location", "").partition("?")[0]
        return [
            Finding(
                Level.PROBLEM,
                "address",
                f"{visit.page.url}{PREFIX} sends on to {to or 'nowhere'} (HTTP {health.status})",
                "Pages do not follow: what they write would be lost on the way, or be another's.",
                "--url with the address itself; no `return 301` before "
                f"`location {PREFIX}/` where pages are served",
            )
        ]
    return [
        Finding(
            Level.PROBLEM,
            "address",
            f"there is no browser door at {visit.page.url}{PREFIX} (HTTP {health.status})",
            "The web server in front does not pass these paths on.",
            f"nginx: location {PREFIX}/ {{ proxy_pass http://127.0.0.1:8750; … }}",
        )
    ]


async def _cross_site(visit: Visit) -> list[Finding]:
    """Pages of other sites, with each of the headers that give them away alone."""
    found: list[Finding] = []
    cors = False
    for what, headers in (
        ("Origin", {"Origin": FOREIGN, "Sec-Fetch-Site": None}),
        ("Origin null", {"Origin": "null", "Sec-Fetch-Site": None}),
        ("Sec-Fetch-Site", {"Sec-Fetch-Site": "cross-site"}),
    ):
        for path in ("~/models", "~/events/run_1?sessionId=mnote_doctor_trace_1"):
            told = await _get(visit, path, headers)
            if told.status != 403:
                found.append(_open_to_others(what, path, told.status))
                break
            cors = cors or _invites(told)
    own = await _get(visit, "~/health", {"Origin": visit.page.origin})
    if cors or _invites(own):
        found.append(_cors())
    if own.status == 403:
        found.append(
            Finding(
                Level.PROBLEM,
                "origin",
                f"pages of {visit.page.origin} itself are refused",
                "No page can write: browsers send this Origin with every write.",
                f"MNOTE_WEB_PUBLIC_ORIGIN={visit.page.origin}",
            )
        )
    return found or [good("origin", "pages of other sites are refused, the event stream included")]


def _open_to_others(what: str, path: str, status: int) -> Finding:
    route = path.removeprefix("~").partition("?")[0]
    return Finding(
        Level.PROBLEM,
        "origin",
        f"a page of another site ({what}) is not refused at GET {route} (HTTP {status})",
        "Any page that a signed-in person opens can use the agent in their name: the header is "
        "taken away on the way.",
        "nginx: remove `proxy_set_header Origin …` and `proxy_set_header Sec-Fetch-Site …`; the "
        "browser's own must reach the proxy",
    )


def _invites(told: Told) -> bool:
    return any(name.startswith("access-control-allow") for name in told.headers)


def _cors() -> Finding:
    return Finding(
        Level.PROBLEM,
        "origin",
        "answers carry a CORS header (Access-Control-Allow-…)",
        "It invites pages of other sites to read what the agent says. The proxy sends none: the "
        "web server in front adds it.",
        "nginx: remove `add_header Access-Control-Allow-Origin …` for /api/hermes/",
    )


async def _host(visit: Visit) -> list[Finding]:
    told = await _get(visit, "~/health", {"Host": REBOUND}, user=False)
    if told.ours and told.status == 200:
        return [
            Finding(
                Level.PROBLEM,
                "host",
                "the door answers under every Host name",
                "A name that an attacker points at this server (DNS rebinding) makes their page "
                "one of this origin; reads send no Origin that would give it away.",
                "nginx: proxy_set_header Host $host; (not $proxy_host or a fixed name), and a "
                "server_name of its own",
            )
        ]
    return [good("host", "another Host name is refused")]


async def _stranger(visit: Visit) -> list[Finding]:
    told = await _get(visit, "~/models", user=False)
    if told.status == 401:
        return [good("sign-in", "who is not signed in is refused")]
    if told.status == 200:
        return [
            Finding(
                Level.PROBLEM,
                "sign-in",
                "who is not signed in may ask",
                "Everyone who reaches this address uses the agent.",
                "MNOTE_WEB_AUTH, and with trusted-header a proxy that clears the header of "
                'strangers (nginx: proxy_set_header X-Forwarded-User "";)',
            )
        ]
    raise Failed(f"HTTP {told.status} {told.code}".rstrip())


async def _signed_in(visit: Visit) -> list[Finding]:
    if not visit.signed_in:
        return [
            Finding(
                Level.NOTE,
                "sign-in",
                "no sign-in was given",
                "The cookie and the event stream were not looked at.",
                "--login LINK (that `serve` prints), or --cookie NAME=VALUE",
            )
        ]
    told = await _get(visit, "~/models")
    if told.status == 200:
        return [good("sign-in", "the sign-in is good, models are listed")]
    visit.run = False
    return [
        Finding(
            Level.PROBLEM,
            "sign-in",
            f"a signed-in page gets HTTP {told.status} {told.code}".rstrip(),
            "The panel does not work for this user.",
            "hermes_client_unauthorized: sign in anew; hermes_client_upstream_…: run "
            "hermes-client-proxy doctor on the server",
        )
    ]


async def _cookie(visit: Visit) -> list[Finding]:
    if visit.set_cookie is None:
        return []
    jar = SimpleCookie(visit.set_cookie)
    morsel = next(iter(jar.values()))
    https = visit.page.url.startswith("https://")
    wanted = (
        (morsel["httponly"], "HttpOnly", "A script that got into the page can carry it away."),
        (
            str(morsel["samesite"]).lower() == "strict",
            "SameSite=Strict",
            "Browsers send it along with requests that other sites cause.",
        ),
        (
            morsel["secure"] or not https,
            "Secure",
            "Browsers also send it without TLS, where everyone on the way reads it.",
        ),
        (not morsel["domain"], "no Domain", "Every host below that domain gets it."),
    )
    found = [
        Finding(
            Level.PROBLEM,
            "cookie",
            f"the session cookie lacks {flag}",
            why,
            f"MNOTE_WEB_PUBLIC_ORIGIN={visit.page.url}"
            if flag == "Secure"
            else "nginx: remove proxy_cookie_flags and proxy_cookie_domain for this path",
        )
        for there, flag, why in wanted
        if not there
    ]
    secure = ", Secure" if morsel["secure"] else ""
    return found or [good("cookie", f"the session cookie is HttpOnly, SameSite=Strict{secure}")]


async def _past_the_proxy(visit: Visit) -> list[Finding]:
    """Is Hermes' own API server open to the same network?"""
    if is_loopback(visit.host):
        return []
    url = f"http://{visit.host}:{visit.hermes_port}/v1/capabilities"
    try:
        async with asyncio.timeout(5):
            async with visit.page.client.get(url, allow_redirects=False) as answer:
                status = answer.status
    except (TimeoutError, aiohttp.ClientError, OSError):
        return [good("Hermes", f"port {visit.hermes_port} of Hermes is closed from here")]
    return [
        Finding(
            Level.PROBLEM if status == 200 else Level.WARNING,
            "Hermes",
            f"Hermes' own API answers at {visit.host} port {visit.hermes_port} (HTTP {status})",
            "It can be asked past the proxy: its key alone stands between strangers and the agent."
            if status != 200
            else "Strangers command the agent past the proxy, without any key.",
            "API_SERVER_HOST=127.0.0.1 in the .env of Hermes, or close the port",
        )
    ]


async def _events(visit: Visit) -> list[Finding]:
    """A run: when does the first byte come, and do events come as they happen?"""
    found: list[Finding] = []
    for _ in range(RUNS if visit.signed_in and visit.run else 0):
        found = await _one_run(visit)
        if found[-1].level is not Level.PROBLEM:
            break
    return found


async def _one_run(visit: Visit) -> list[Finding]:
    page = visit.page
    ids = page.ids()
    run_id = str((await page.start(ids, f"stream {WORDS} {STEP_MS}"))["runId"])
    began = time.monotonic()
    at: list[float] = []
    first: float | None = None
    words = output = ""
    ended = False
    async with page.events(run_id, ids["sessionId"]) as (answer, events):
        if answer.status != 200:
            raise Failed(f"HTTP {answer.status} in place of the event stream")
        async for event in _to_the_end(events):
            ended = ended or (event.terminal and not event.name)
            output = str(event.data.get("output")) if ended else ""
            first = first if first is not None else time.monotonic() - began
            if event.kind == "message.delta" and not event.name:
                at.append(event.at)
                words += str(event.data.get("delta"))
            visit.seen.append(json.dumps(event.data).encode())
    found = _head(answer.headers)
    told = f"the first byte after {first or 0:.1f} s, {len(at)} pieces"
    gaps = [after - before for before, after in zip(at, at[1:], strict=False)]
    if gaps:
        told += f", the longest gap {max(gaps):.1f} s"
    due = (WORDS - 1) * STEP_MS / 1000
    scripted = f"word{WORDS}" in words
    if not ended:
        found.append(_cut(time.monotonic() - began))
        return found
    visit.scripted = output.endswith(f"word{WORDS}")
    if visit.scripted and words != output:
        found.append(
            Finding(
                Level.PROBLEM,
                "events",
                f"events are lost on the way: of {WORDS} words {len(at)} came, {told}",
                "The panel shows an answer with holes, and perhaps no approval that waits.",
                "nothing between may change text/event-stream: take filters and rewriting of "
                "answers (nginx: sub_filter, a WAF's response rules) off for /api/hermes/",
            )
        )
        return found
    heaped = scripted and (not gaps or at[-1] - at[0] < due / 3 or max(gaps) > due / 2)
    if heaped or (first or 0) > FIRST_BYTE:
        found.append(
            Finding(
                Level.PROBLEM,
                "events",
                f"events are held back on the way: {told}",
                "The answer comes in one heap at the end, and approvals after their time.",
                "nginx: proxy_buffering off; proxy_cache off; gzip off; proxy_read_timeout 1h; "
                "(Caddy: flush_interval -1)",
            )
        )
    else:
        found.append(good("events", f"events come as they happen: {told}"))
    return found


async def _to_the_end(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The events until the stream ends, however it does."""
    try:
        async for event in events:
            yield event
    except Failed:
        return


def _cut(seconds: float) -> Finding:
    return Finding(
        Level.PROBLEM,
        "events",
        f"the event stream was cut after {seconds:.0f} s, before the run's end",
        "The panel connects again and again, and shows what comes meanwhile late.",
        "nginx: proxy_read_timeout 1h; (a heartbeat comes every 15 s, so any limit above that "
        "will do; MNOTE_WEB_HERMES_HEARTBEAT_SECONDS makes it come more often)",
    )


async def _silence(visit: Visit) -> list[Finding]:
    """Does a stream survive while the agent says nothing? It waits for an approval meanwhile."""
    if not (visit.scripted and visit.idle > 0):
        return []
    page, ids = visit.page, visit.page.ids()
    run_id = str((await page.start(ids, "approve ls doctor"))["runId"])
    began = time.monotonic()
    asked = ""
    beats = 0
    async with page.events(run_id, ids["sessionId"]) as (answer, events):
        if answer.status != 200:
            raise Failed(f"HTTP {answer.status} in place of the event stream")
        cut = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(visit.idle):
                async for event in _to_the_end(events):
                    asked = str(event.data.get("approvalId") or asked)
                    beats += event.name == "heartbeat"
                cut = True
    took = time.monotonic() - began
    if asked:
        answered = {**ids, "approvalId": asked, "choice": "deny"}
        await page.ask("POST", f"/runs/{run_id}/approval", json=answered)
    await page.ask("POST", f"/runs/{run_id}/abort", json=dict(ids))
    if cut:
        return [_cut(took)]
    if visit.idle > HEARTBEAT and beats < 2:
        return [
            Finding(
                Level.PROBLEM,
                "events",
                f"of the heartbeats of {visit.idle:g} s of silence {beats or 'none'} arrived",
                "Without them pages and proxies take a silent stream for a dead one.",
                "nothing between may hold back or take out small events: nginx: proxy_buffering "
                "off; gzip off;",
            )
        ]
    return [good("events", f"an event stream survives {visit.idle:g} s of silence")]


async def _large_body(visit: Visit) -> list[Finding]:
    """A request as large as the door takes: does it come through?"""
    page = visit.page
    raw = b'{"workspaceId": "doctor", "title": "' + b"x" * LARGE_BODY + b'"}'
    headers = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin", **page.headers}
    if page.cookie:
        headers["Cookie"] = page.cookie
    try:
        async with asyncio.timeout(page.patience):
            async with page.client.post(
                f"{page.url}{PREFIX}/sessions", data=raw, headers=headers, allow_redirects=False
            ) as answer:
                ours = "X-Trace-Id" in answer.headers
                status = f"HTTP {answer.status}"
    except TimeoutError:
        raise Failed("no answer in time") from None
    except (aiohttp.ClientError, OSError) as error:
        ours, status = False, type(error).__name__
    told = f"a request of {LARGE_BODY // 1024} KiB"
    if ours:
        return [good("requests", f"{told} comes through")]
    return [
        Finding(
            Level.PROBLEM,
            "requests",
            f"{told} does not come through ({status})",
            "Long messages, and pages with much on them, fail in a way that the panel cannot tell.",
            "nginx, for /api/hermes/: client_max_body_size 2m;",
        )
    ]


def _head(headers: Mapping[str, Any]) -> list[Finding]:
    if "content-encoding" in headers:
        return [
            Finding(
                Level.WARNING,
                "events",
                f"the event stream is compressed ({headers['content-encoding']})",
                "A compressor waits for enough to compress: events come late, in heaps.",
                "nginx: gzip off; for /api/hermes/ (the proxy itself asks for no-transform)",
            )
        ]
    return []


async def _key(visit: Visit) -> list[Finding]:
    """The key must be in nothing that was answered, pages of the origin included."""
    if visit.key is None:
        return []
    await _get(visit, "/")
    for path in ("~/health", "~/tools", "~/nothing/here", "~/sessions?workspaceId=w"):
        await _get(visit, path)
    if any(visit.key.encode() in raw for raw in visit.seen):
        return [
            Finding(
                Level.PROBLEM,
                "key",
                "the key of Hermes stands in an answer",
                "Every visitor can read it and command the agent past the proxy.",
                "a new API_SERVER_KEY at once; keep the key out of pages and of Hermes' texts",
            )
        ]
    return [good("key", f"the key of Hermes is in none of {len(visit.seen)} answers")]
