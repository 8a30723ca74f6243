"""One connection to the door under test, and what goes wrong on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from .contract import complaint, load, mismatch, shortened
from .target import Target

__all__ = ["Failed", "Line", "Unreachable", "shown"]

# The frames that a door of protocol v1 may send, and which definition of the schema is whose.
_DEFINITIONS: dict[str, str] = {}
for _branch in load("schema.json")["$defs"]["ServerFrame"]["oneOf"]:
    _name = _branch["$ref"].rpartition("/")[2]
    _tag = load("schema.json")["$defs"][_name]["properties"]["t"]
    _DEFINITIONS[_tag.get("const") or _tag["enum"][0]] = _name


# More than any frame of protocol v1 needs; what is larger ends the connection, not this program.
MAX_MESSAGE = 32 * 1024 * 1024

# So many frames of a connection are held against the schema one by one.
SCHEMA_FRAMES = 50


class Failed(Exception):
    """The door did something else than the contract says; what."""


class Unreachable(Failed):
    """No connection came about."""


def shown(frame: Any) -> str:
    """A frame as a report shows it."""
    return shortened(json.dumps(frame, ensure_ascii=False), 240)


class connect_here(connect):  # noqa: N801 — called like the function it stands for
    """Connects to this address and no other: the token is not for whom a redirect names."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """A redirect is an answer like any other status."""
        return exc


class Line:
    """One WebSocket. Every wait ends after the target's patience."""

    def __init__(self, target: Target, socket: ClientConnection) -> None:
        self.target = target
        self.socket = socket
        self.raw = ""  # the last message as it came
        self._pings = 0
        self._read_so_far = 0
        self._shapes: set[tuple[str, ...]] = set()

    @classmethod
    async def open(
        cls,
        target: Target,
        path: str = "/ws",
        headers: Mapping[str, str] | None = None,
        *,
        compression: str | None = None,
    ) -> Line:
        """Connect. Raises `Unreachable`."""
        sent = dict(headers or {})
        host = sent.pop("Host", None)
        url = target.at(path)
        parts = urlsplit(url)
        where: dict[str, Any] = {}
        if host:
            # The address names the Host header, the arguments the machine.
            where = {"host": parts.hostname, "port": parts.port or _PORTS[parts.scheme]}
            url = parts._replace(netloc=host).geturl()
        try:
            socket = await connect_here(
                url,
                additional_headers=sent,
                compression=compression,
                max_size=MAX_MESSAGE,
                ping_interval=None,
                open_timeout=target.patience,
                close_timeout=2.0,
                proxy=None,
                user_agent_header="hermes-mobile-conform",
                **where,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            to = error.response.headers.get("Location")
            told = f", which sends on to {shortened(to)}" if to and status < 400 else ""
            raise Unreachable(f"the upgrade was answered with HTTP {status}{told}") from None
        except (TimeoutError, OSError, InvalidHandshake, InvalidMessage) as error:
            told = getattr(error, "strerror", None) or str(error) or "no answer in time"
            raise Unreachable(f"no connection: {shortened(told)}") from None
        return cls(target, socket)

    async def send(self, message: str | bytes) -> None:
        """Send one message; a door that has closed already is found out by what comes next."""
        with contextlib.suppress(ConnectionClosed):
            try:
                await asyncio.wait_for(self.socket.send(message), self.target.patience)
            except TimeoutError:
                raise Failed("the door does not take what is sent to it") from None

    async def say(self, frame: Mapping[str, Any]) -> None:
        """Send one frame."""
        await self.send(json.dumps(frame, ensure_ascii=False))

    async def frame(
        self, ignore: Collection[str] = (), *, patience: float | None = None
    ) -> dict[str, Any]:
        """The next frame that is not of a type in `ignore`, checked against the schema.

        A type that protocol v1 does not have is an addition, and passed over.
        """
        wait = self.target.patience if patience is None else patience
        try:
            async with asyncio.timeout(wait):
                while True:
                    raw = await self.socket.recv()
                    if not isinstance(raw, str):
                        raise Failed(f"the door sent a binary message of {len(raw)} bytes")
                    found = self._read(raw)
                    if found["t"] in _DEFINITIONS and found["t"] not in ignore:
                        self.raw = raw
                        return found
        except TimeoutError:
            raise Failed(f"nothing came within {wait:g} s") from None
        except ConnectionClosed as closed:
            raise Failed(f"the door {_how(closed)}") from None

    async def expect(
        self, pattern: Any, names: dict[str, Any], ignore: Collection[str] = ()
    ) -> dict[str, Any]:
        """The next frame, which fits `pattern`."""
        found = await self.frame(ignore)
        if problem := mismatch(pattern, found, names):
            raise Failed(f"{problem}, in {shown(found)}")
        return found

    async def quiet(self, ignore: Collection[str] = ()) -> None:
        """Nothing has come: a ping is sent, and the next frame is its pong."""
        self._pings += 1
        ts = f"quiet-{self._pings}"
        await self.say({"t": "ping", "ts": ts})
        found = await self.frame(ignore)
        if found != {"t": "pong", "ts": ts}:
            raise Failed(f"nothing more was to come, but there came {shown(found)}")

    async def closed(
        self, code: int, reason: str | None = None, ignore: Collection[str] = ()
    ) -> None:
        """The door closes the connection with this code, and says nothing before."""
        try:
            async with asyncio.timeout(self.target.patience):
                while True:
                    raw = await self.socket.recv()
                    found = self._read(raw) if isinstance(raw, str) else {"t": "?"}
                    if found["t"] in _DEFINITIONS and found["t"] not in ignore:
                        raise Failed(f"it was to be closed with {code}, but came {shown(found)}")
        except TimeoutError:
            raise Failed(f"the door did not close the connection (with {code})") from None
        except ConnectionClosed as closed:
            received = closed.rcvd
            if received is None or received.code != code:
                raise Failed(f"the door {_how(closed)}, not with {code}") from None
            if reason is not None and received.reason != reason:
                raise Failed(f"the door {_how(closed)}, the reason should be {reason!r}") from None

    async def close(self) -> None:
        """Go; returns once the door has let the connection go as well."""
        with contextlib.suppress(ConnectionClosed, OSError):
            await self.socket.close()

    def _read(self, raw: str) -> dict[str, Any]:
        try:
            found = json.loads(raw)
        except ValueError:
            raise Failed(f"the door sent what is no JSON: {shortened(raw)}") from None
        if not isinstance(found, dict) or not isinstance(found.get("t"), str):
            raise Failed(f"the door sent a frame without `t`: {shortened(raw)}")
        definition = _DEFINITIONS.get(found["t"])
        if definition is None:
            return found
        # A long stream is thousands of frames of one shape: the schema need not see each.
        self._read_so_far += 1
        shape = (found["t"], *(f"{name}={type(value)}" for name, value in found.items()))
        if self._read_so_far > SCHEMA_FRAMES and shape in self._shapes:
            return found
        self._shapes.add(shape)
        if problem := complaint(definition, found):
            raise Failed(f"a `{found['t']}` that the schema does not allow: {problem}")
        return found


_PORTS = {"ws": 80, "wss": 443}


def _how(closed: ConnectionClosed) -> str:
    if closed.rcvd is None:
        return "cut the connection without a close frame"
    reason = f" {closed.rcvd.reason!r}" if closed.rcvd.reason else ""
    return f"closed with {closed.rcvd.code}{reason}"
