"""What a stranger can do at the public address of a door, and whether it is fit for a chat.

Plays attacker with an ordinary token: the upgrade, a page of a foreign origin, a delivery, a token
in the address; then a large frame, silence, and how an answer arrives. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from .doctor import Finding, Level, good
from .settings import is_loopback_host

FOREIGN = "https://attacker.example"
ANSWER_SECONDS = 15.0
FRAME_BYTES = 16 * 1024 * 1024
SMALLER = (8, 4, 1)
LARGE_SECONDS = 90.0
# The scripted agent says so many words, so many milliseconds apart.
WORDS, STEP_MS = 20, 100
# A busy machine holds an answer up now and then, a proxy that collects frames holds up each.
ANSWERS = 2
SLOW_PONG = 1.0
PINGS = 8


class connect_here(connect):  # noqa: N801 — called like the function it stands for
    """Connects to this address and no other: the token is not for whom a redirect names."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """A redirect is an answer like any other status."""
        return exc


class Unfit(Exception):
    """The attempt ended without an answer; why."""


@dataclass
class Visit:
    """The address under examination. `own`: as far as is known here it is the door itself."""

    url: str
    token: str = field(repr=False)
    idle: float = 90.0
    own: bool = False
    turn: bool = True
    leak: bool = False
    device: str = field(default_factory=lambda: f"doctor-{secrets.token_hex(4)}")

    @property
    def host(self) -> str:
        """The name in the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def loopback(self) -> bool:
        """Whether the address is this machine."""
        return is_loopback_host(self.host)


async def examine(visit: Visit, told: Callable[[str], None] = lambda what: None) -> list[Finding]:
    """Everything that can be found out from here. `told` hears what is being tried."""
    found: list[Finding] = []
    if urlsplit(visit.url).scheme == "ws" and not visit.loopback:
        found.append(
            Finding(
                Level.WARNING,
                "address",
                "the address is ws://, without TLS",
                "Everyone between the app and the door reads the token and every message.",
                "a proxy with TLS before the door, and wss:// (docs/owner-guide.md)",
            )
        )
    told("is the upgrade passed through")
    entry = await _entry(visit)
    found += entry
    if entry[-1].level is Level.PROBLEM:
        return found
    # Silence takes the longest and needs nobody: it runs beside the rest.
    silence = asyncio.create_task(_silence(visit))
    try:
        for what, look in (
            ("is a page of a foreign origin refused", _origin),
            ("may an ordinary token deliver from here", _deliver),
            ("is a token in the address refused", _query_token),
            ("how does an answer arrive", _answer),
            ("does a frame of 16 MiB pass", _large_frame),
        ):
            told(what)
            try:
                found += await look(visit)
            except Unfit as error:
                found.append(_cut_short(what, error))
        told(f"does a connection survive {visit.idle:g} s of silence")
        found += await silence
    finally:
        silence.cancel()
        await asyncio.gather(silence, return_exceptions=True)
    return found


def _cut_short(what: str, error: Exception) -> Finding:
    return Finding(
        Level.WARNING,
        "address",
        f"could not be found out: {what} ({error})",
        "Something on the way ended the attempt.",
        "run the doctor again; if it stays, look into the proxy's log",
    )


@contextlib.asynccontextmanager
async def _socket(
    visit: Visit, *, headers: Mapping[str, str] | None = None, query: str = ""
) -> AsyncIterator[ClientConnection]:
    """An open WebSocket. Raises what `connect` raises."""
    socket = await connect_here(
        visit.url + query,
        additional_headers=dict(headers or {}),
        compression=None,
        max_size=FRAME_BYTES * 2,
        ping_interval=None,
        open_timeout=ANSWER_SECONDS,
        close_timeout=2.0,
        proxy=None,
        user_agent_header="hermes-mobile-doctor",
    )
    try:
        yield socket
    finally:
        await socket.close()


async def _frame(socket: ClientConnection, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    try:
        async with asyncio.timeout(seconds):
            found = json.loads(await socket.recv())
    except TimeoutError:
        raise Unfit(f"no answer within {seconds:g} s") from None
    except ConnectionClosed as closed:
        raise Unfit(_how(closed)) from None
    except ValueError:
        raise Unfit("an answer that is no JSON") from None
    if not isinstance(found, dict):
        raise Unfit("an answer that is no frame")
    return found


def _how(closed: ConnectionClosed) -> str:
    if closed.rcvd is None:
        return "the connection was cut without a close frame"
    return f"the connection was closed with {closed.rcvd.code} {closed.rcvd.reason}".rstrip()


async def _hello(socket: ClientConnection, visit: Visit, token: str | None) -> dict[str, Any]:
    hello: dict[str, Any] = {"t": "hello", "device": {"id": visit.device, "name": "Doctor"}}
    if token is not None:
        hello["token"] = token
    with contextlib.suppress(ConnectionClosed):
        await socket.send(json.dumps(hello))
    return await _frame(socket)


@contextlib.asynccontextmanager
async def _entered(
    visit: Visit, *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[ClientConnection]:
    """A connection after its `ready`. Raises `Unfit`."""
    try:
        async with _socket(visit, headers=headers) as socket:
            told = await _hello(socket, visit, visit.token)
            if told.get("t") != "ready":
                raise Unfit(f"hello was answered with {told.get('code', told.get('t'))}")
            yield socket
    except (OSError, InvalidHandshake, InvalidMessage) as error:
        raise Unfit(f"no connection ({type(error).__name__})") from None


# --------------------------------------------------------------------------------------------------
# One question each


async def _entry(visit: Visit) -> list[Finding]:
    """Does a WebSocket come about at all, and does the token open it?"""
    began = time.monotonic()
    try:
        async with _socket(visit) as socket:
            upgraded = time.monotonic() - began
            told = await _hello(socket, visit, visit.token)
    except InvalidStatus as error:
        return [_no_upgrade(error.response.status_code, error.response.headers.get("Location"))]
    except ssl.SSLError as error:
        return [
            Finding(
                Level.PROBLEM,
                "address",
                f"TLS fails: {getattr(error, 'verify_message', None) or error.reason or error}",
                "Apps refuse a certificate that they cannot check.",
                "a certificate for exactly this name (Caddy and Tailscale get one by themselves)",
            )
        ]
    except (TimeoutError, OSError) as error:
        return [
            Finding(
                Level.PROBLEM,
                "address",
                f"{visit.url} cannot be reached: {_reason(error)}",
                "Nobody gets as far as the door.",
                "check the name, the port, the firewall, and whether the proxy runs",
            )
        ]
    except (InvalidHandshake, InvalidMessage) as error:
        return [
            Finding(
                Level.PROBLEM,
                "upgrade",
                f"the answer to the upgrade is no WebSocket: {error}",
                "What stands before the door does not speak WebSocket on to it.",
                _UPGRADE_LINES,
            )
        ]
    except Unfit as error:
        return [
            Finding(
                Level.PROBLEM,
                "upgrade",
                f"the WebSocket opens, but `hello` gets no answer: {error}",
                "Something on the way opens the connection and passes nothing on.",
                _UPGRADE_LINES,
            )
        ]
    if told.get("t") == "ready":
        return [good("upgrade", f"the upgrade is passed through, open in {upgraded * 1000:.0f} ms")]
    code = told.get("code")
    if code == "auth_failed":
        return [
            good("upgrade", "the upgrade is passed through"),
            Finding(
                Level.PROBLEM,
                "token",
                "the door does not know this token (or lists its devices)",
                "Nothing more can be examined with it.",
                "--token with the MOBILE_TOKEN of this door; MOBILE_ALLOWED_DEVICES must let "
                f"{visit.device} in, or be unset meanwhile",
            ),
        ]
    return [
        good("upgrade", "the upgrade is passed through"),
        Finding(
            Level.PROBLEM,
            "token",
            f"`hello` was answered with {code or told.get('t')}",
            "Nothing more can be examined.",
            "a token that may chat under any device id: --token",
        ),
    ]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


_UPGRADE_LINES = (
    "nginx, in `location = /ws`: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; "
    'proxy_set_header Connection "upgrade";'
)


def _no_upgrade(status: int, sent_to: str | None) -> Finding:
    if 300 <= status < 400:
        to = (sent_to or "").partition("?")[0]
        secure = to.startswith("https://")
        return Finding(
            Level.PROBLEM,
            "upgrade",
            f"the upgrade is sent on to {to or 'nowhere'} (HTTP {status})",
            "Apps do not follow: the token is not for whom a redirect names.",
            f"give apps the address itself: wss{to.removeprefix('https')}"
            if secure
            else "let the proxy pass /ws on by itself (nginx: no `return` or `rewrite` before "
            "`location = /ws`)",
        )
    if status in (502, 503, 504):
        return Finding(
            Level.PROBLEM,
            "upgrade",
            f"the proxy answers HTTP {status}",
            "It is there, the door behind it is not.",
            "start the gateway (hermes gateway run); the proxy's target must be MOBILE_PORT",
        )
    if status in (401, 403, 407, 429):
        return Finding(
            Level.PROBLEM,
            "upgrade",
            f"the upgrade is refused with HTTP {status}, although no Origin was sent",
            "A firewall, a sign-in or a limit stands before the door; apps cannot pass it.",
            "let /ws pass there, the door asks for a token by itself (nginx, in `location = /ws`: "
            "auth_basic off; auth_request off;)",
        )
    return Finding(
        Level.PROBLEM,
        "upgrade",
        f"the upgrade does not reach the door: HTTP {status}",
        "The proxy drops the Upgrade header, or sends /ws somewhere else. No app can connect.",
        _UPGRADE_LINES,
    )


async def _foreign(visit: Visit, origin: str, page: str) -> Finding:
    try:
        async with _socket(visit, headers={"Origin": origin}):
            pass
    except InvalidStatus as error:
        return good("origin", f"{page} is refused (HTTP {error.response.status_code})")
    except (OSError, InvalidHandshake, InvalidMessage):
        return good("origin", f"{page} is refused (no connection)")
    return Finding(
        Level.PROBLEM,
        "origin",
        f"{page} may connect",
        "Any web page that someone visits may talk to this door from their browser: "
        "the proxy takes the Origin header away, or the door does not look at it.",
        'nginx: remove `proxy_set_header Origin "";`; MOBILE_ALLOWED_ORIGINS must list '
        "your own pages only",
    )


async def _origin(visit: Visit) -> list[Finding]:
    """A page of another site makes a visitor's browser connect."""
    found = [
        await _foreign(visit, FOREIGN, f"a page of a foreign origin ({FOREIGN})"),
        await _foreign(visit, "null", "a page with the origin null, as sandboxed ones have,"),
    ]
    if all(finding.level is Level.GOOD for finding in found):
        del found[1:]
    scheme = {"ws": "http", "wss": "https"}[urlsplit(visit.url).scheme]
    own = f"{scheme}://{urlsplit(visit.url).netloc}"
    try:
        async with _socket(visit, headers={"Origin": own}):
            pass
    except InvalidStatus:
        found.append(
            Finding(
                Level.NOTE,
                "origin",
                f"pages of {own} itself may not connect",
                "Apps are not concerned; the chat page of this address is.",
                f"MOBILE_PUBLIC_URL={own}, and pass the Host header on "
                "(nginx: proxy_set_header Host $host;)",
            )
        )
    except (OSError, InvalidHandshake, InvalidMessage) as error:
        raise Unfit(f"no connection ({type(error).__name__})") from None
    return found


async def _deliver(visit: Visit) -> list[Finding]:
    """The loopback trap: an ordinary token may deliver if the door takes us for its own machine."""
    async with _entered(visit) as socket:
        ask = {"t": "deliver", "id": secrets.token_hex(8), "target": visit.device, "text": "doctor"}
        await socket.send(json.dumps(ask))
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            told = await _frame(socket, max(0.1, deadline - time.monotonic()))
            if told.get("t") == "message":
                break
            if told.get("t") == "error":
                if told.get("code") == "forbidden":
                    return [good("deliveries", "an ordinary token may not deliver from here")]
                raise Unfit(f"deliver was answered with {told.get('code')}")
    trap = (
        "nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; and in any case "
        f"MOBILE_PUBLIC_URL={_https(visit.url)} (or MOBILE_LOOPBACK_DELIVER=off), then restart"
    )
    if visit.loopback and visit.own:
        return [
            Finding(
                Level.NOTE,
                "deliveries",
                "an ordinary token may deliver from this machine, at the door's own address",
                "That is as it should be while nothing publishes the door: a proxy or tunnel on "
                "this machine would make strangers look the same (the loopback trap).",
                "before you publish it: MOBILE_PUBLIC_URL=https://YOUR.NAME",
            )
        ]
    if visit.loopback:
        return [
            Finding(
                Level.WARNING,
                "deliveries",
                "an ordinary token may deliver at this address (the loopback trap, if it is a "
                "proxy's)",
                "If this is the door itself, only programs of this machine can do so. If it is a "
                "proxy or tunnel, every stranger with a token may write into every device.",
                trap.replace(_https(visit.url), "https://YOUR.NAME"),
            )
        ]
    return [
        Finding(
            Level.PROBLEM,
            "deliveries",
            "an ordinary token may deliver from here: the loopback trap",
            "The door takes whoever comes through the proxy for a program of its own machine, so "
            "everyone with any token may write into every device as if they were the agent.",
            trap,
        )
    ]


def _https(url: str) -> str:
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"


async def _query_token(visit: Visit) -> list[Finding]:
    """A token in the address ends in access logs: the door must not look at it."""
    # The real token goes into an address only where no one else's log is on the way, or if asked.
    real = visit.loopback or visit.leak
    token = visit.token if real else f"doctor-{secrets.token_hex(12)}"
    query = f"?token={quote(token, safe='')}"
    try:
        async with _socket(visit, query=query) as socket:
            # Without the real token it shows whether the address is preferred to `hello`.
            told = await _hello(socket, visit, None if real else visit.token)
    except InvalidStatus as error:
        return [
            good("token", f"a token in the address is refused (HTTP {error.response.status_code})")
        ]
    except (OSError, InvalidHandshake, InvalidMessage) as error:
        raise Unfit(f"no connection ({type(error).__name__})") from None
    if real and told.get("t") == "ready":
        return [
            Finding(
                Level.PROBLEM,
                "token",
                "a token in the address opens the door",
                "Addresses end in the access logs of every proxy on the way, tokens with them.",
                "this door does not keep to protocol v1: update it, and make new tokens",
            )
        ]
    if not real and told.get("t") != "ready":
        return [
            Finding(
                Level.WARNING,
                "token",
                "a wrong token in the address keeps a right one in `hello` out",
                "So the address is looked at, and right tokens in it may open the door: they end "
                "in access logs.",
                "update the door; --try-query-token finds out for sure",
            )
        ]
    if real:
        return [good("token", "a token in the address does not open the door")]
    return [
        good(
            "token",
            "what stands in the address is not looked at (tried with a made-up token, so that "
            "yours is in no log)",
        )
    ]


async def _answer(visit: Visit) -> list[Finding]:
    """How fast a frame comes back, and whether an answer grows or arrives at once."""
    async with _entered(visit) as socket:
        delays = []
        for number in range(PINGS):
            began = time.monotonic()
            await socket.send(json.dumps({"t": "ping", "ts": number}))
            while (await _frame(socket)).get("t") != "pong":
                pass
            delays.append(time.monotonic() - began)
            await asyncio.sleep(0.05)
        found = [_pongs(delays)]
        if visit.turn:
            for _ in range(ANSWERS):
                answers = await _growing(socket)
                if answers.level is not Level.PROBLEM:
                    break
            found.append(answers)
        return found


def _pongs(delays: list[float]) -> Finding:
    middle, worst = statistics.median(delays), max(delays)
    told = f"a frame is back after {middle * 1000:.0f} ms (worst {worst * 1000:.0f} ms)"
    if middle < SLOW_PONG:
        return good("latency", told)
    return Finding(
        Level.WARNING,
        "latency",
        told,
        "Something on the way holds frames back: every word and every card comes late.",
        "nginx: proxy_buffering off;",
    )


async def _growing(socket: ClientConnection) -> Finding:
    began = time.monotonic()
    await socket.send(
        json.dumps({"t": "text", "id": secrets.token_hex(8), "text": f"stream {WORDS} {STEP_MS}"})
    )
    seen: list[float] = []
    text = ""
    try:
        while True:
            told = await _frame(socket, 60.0)
            if told.get("t") == "error":
                raise Unfit(f"the agent answered {told.get('code')}")
            if told.get("t") == "message":
                seen.append(time.monotonic() - began)
                text = str(told.get("text"))
                if told.get("final"):
                    break
    except Unfit as error:
        return Finding(
            Level.WARNING,
            "answers",
            f"no answer came to its end: {error}",
            "The agent or its model does not answer; nothing can be said of buffering.",
            "logs/agent.log of the Hermes home; --no-turn leaves this out",
        )
    scripted = text.endswith(f"word{WORDS}")
    due = (WORDS - 1) * STEP_MS / 1000
    gaps = [after - before for before, after in zip(seen, seen[1:], strict=False)]
    told_times = f"the first words after {seen[0]:.1f} s, {len(seen)} updates"
    if gaps:
        told_times += f", the longest gap {max(gaps):.1f} s"
    # Said over two seconds, and here all at once or in a few heaps: held back on the way.
    heaps = 1 + sum(gap > 3 * STEP_MS / 1000 for gap in gaps)
    late = seen[0] > due / 2 or (gaps and max(gaps) > due / 2)
    if scripted and (late or len(seen) < WORDS / 4):
        return Finding(
            Level.PROBLEM,
            "answers",
            f"answers are held back on the way: {told_times}, in {heaps} heap(s)",
            f"The agent spoke every {STEP_MS} ms. A proxy that collects frames makes the chat feel "
            "dead, and cards come late.",
            "nginx: proxy_buffering off; (and no compression or scanning of /ws)",
        )
    if not scripted and len(seen) == 1:
        return Finding(
            Level.NOTE,
            "answers",
            f"the answer came whole: {told_times}",
            "Either Hermes does not stream, or something on the way holds it back.",
            "streaming.enabled: true in Hermes' config.yaml; nginx: proxy_buffering off;",
        )
    return good("answers", f"answers grow as they are written: {told_times}")


async def _large_frame(visit: Visit) -> list[Finding]:
    """The largest message that protocol v1 allows."""
    began = time.monotonic()
    problem = await _passes(visit, FRAME_BYTES)
    if problem is None:
        return [good("frames", f"a frame of 16 MiB passes, in {time.monotonic() - began:.1f} s")]
    most = "not even 1 MiB does"
    for mebibytes in SMALLER:
        if await _passes(visit, mebibytes * 1024 * 1024) is None:
            most = f"{mebibytes} MiB do"
            break
    return [
        Finding(
            Level.PROBLEM,
            "frames",
            f"a frame of 16 MiB does not pass ({problem}); {most}",
            "Photos and recordings that an app sends in one frame end the connection, and the app "
            "tries again for ever.",
            "raise the WebSocket message limit of what stands before the door to 16 MiB, or let "
            "the apps send files in smaller parts",
        )
    ]


async def _passes(visit: Visit, size: int) -> str | None:
    """Why a frame of so many bytes does not pass, None when it does."""
    head = '{"t":"ping","ts":"large"'
    frame = head + " " * (size - len(head) - 1) + "}"
    try:
        async with _entered(visit) as socket:
            async with asyncio.timeout(LARGE_SECONDS):
                await socket.send(frame)
                while True:
                    told = await _frame(socket, LARGE_SECONDS)
                    if told.get("t") == "pong":
                        return None
                    if told.get("t") == "error":
                        return str(told.get("code"))
    except TimeoutError:
        return f"it is not through after {LARGE_SECONDS:g} s"
    except (Unfit, OSError) as error:
        return str(error)
    except ConnectionClosed as closed:
        return _how(closed)


async def _silence(visit: Visit) -> list[Finding]:
    """A connection on which nobody says anything: phones lie on tables."""
    began = time.monotonic()
    try:
        async with _entered(visit_as(visit, "-idle")) as socket:
            try:
                async with asyncio.timeout(visit.idle):
                    while True:
                        await socket.recv()
            except TimeoutError:
                pass
            except ConnectionClosed as closed:
                return [_not_idle(visit, time.monotonic() - began, _how(closed))]
            try:
                await socket.send('{"t":"ping","ts":"awake"}')
                while (await _frame(socket)).get("t") != "pong":
                    pass
            except (Unfit, ConnectionClosed) as error:
                how = _how(error) if isinstance(error, ConnectionClosed) else str(error)
                return [_not_idle(visit, time.monotonic() - began, how)]
    except Unfit as error:
        return [_cut_short(f"does a connection survive {visit.idle:g} s of silence", error)]
    return [good("silence", f"a connection survives {visit.idle:g} s of silence")]


def visit_as(visit: Visit, suffix: str) -> Visit:
    """The same visit as another device: one device has one connection."""
    return Visit(visit.url, visit.token, visit.idle, visit.own, device=visit.device + suffix)


def _not_idle(visit: Visit, seconds: float, how: str) -> Finding:
    return Finding(
        Level.PROBLEM,
        "silence",
        f"a silent connection ended after {seconds:.0f} s ({how})",
        "Apps lose their connection again and again; what the agent says meanwhile waits for them.",
        "nginx: proxy_read_timeout 120s; proxy_send_timeout 120s; (the door asks for a sign of "
        "life every 15 s, so any limit above that will do)",
    )
