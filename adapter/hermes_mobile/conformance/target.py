"""The door under test: where it is, and what the kit was given to get in.

The contract's files speak to a door whose tokens and devices are those of `door.json`. Here they
become the ones of the door under test; device ids that need no agreement are fresh in every check,
because a door remembers ids and what was said under them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from .contract import load

__all__ = ["Fitted", "Needs", "Target", "TargetError"]

MAIN = "contract-main-token"
BOUND = "contract-bound-token"
SECOND = "contract-second-token"
DELIVER = "contract-deliver-token"
WRONG = "contract-wrong-token"
HOME_DEVICE = "home-1"
BOUND_DEVICE = "tel-2"
# Devices of the contract that exist only because a check says hello for them.
_DEVICES = re.compile(r"(?<![\w-])(tel-1|tel-3|tel-4|tel-8|tel-9|sender-[0-9])(?![\w-])")
_FIXED = re.compile(rf"(?<![\w-])({HOME_DEVICE}|{BOUND_DEVICE})(?![\w-])")

# An address of the documentation range: whoever is told it must not take us for the owner's
# own machine.
ELSEWHERE = {"X-Forwarded-For": "192.0.2.1"}


class TargetError(ValueError):
    """The kit was told something that cannot be; the text is for the person who called it."""


class Needs(Exception):
    """A check cannot be run against this door as it was described; why."""


@dataclass(frozen=True)
class Target:
    """A door under test. `settings`: in which of its settings it differs from the contract's.

    `hermes`: a real Hermes Agent answers, by a model that knows the scripted agent's words.
    """

    url: str
    token: str = field(repr=False)
    second: str = field(default="", repr=False)
    bound: tuple[str, str] | None = field(default=None, repr=False)
    deliver: str = field(default="", repr=False)
    home: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    agent: bool = True
    hermes: bool = False
    offers: frozenset[str] = frozenset()
    patience: float = 10.0
    run: str = field(default_factory=lambda: secrets.token_hex(3))

    @classmethod
    def of(
        cls,
        url: str,
        token: str,
        *,
        extra: str = "",
        deliver: str = "",
        home: str = "",
        settings: Mapping[str, str] | None = None,
        agent: bool = True,
        hermes: bool = False,
        patience: float = 10.0,
    ) -> Target:
        """Raises `TargetError`. `extra` is written as MOBILE_EXTRA_TOKENS is."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.query or parts.fragment or "@" in parts.netloc:
            raise TargetError("the address must look like ws://HOST:PORT/ws or wss://HOST/ws")
        if not token:
            raise TargetError("no token: give --token, or set MOBILE_TOKEN to a token of the door")
        bound, second = None, ""
        for item in (item.strip() for item in extra.split(",")):
            device, equals, held = item.partition("=")
            if equals and held.strip("="):
                bound = bound or (device.strip(), held.strip())
            elif item:
                second = second or item
        return cls(
            urlunsplit((parts.scheme, parts.netloc, parts.path or "/ws", "", "")),
            token,
            second=second,
            bound=bound,
            deliver=next((item.strip() for item in deliver.split(",") if item.strip()), ""),
            home=home.strip().removeprefix("mobile:"),
            settings=dict(settings or {}),
            agent=agent,
            hermes=hermes,
            patience=patience,
        )

    @classmethod
    def of_contract(cls, url: str, settings: Mapping[str, str] | None = None) -> Target:
        """A door that has the settings of the contract's `door.json`."""
        door = load("door.json")["settings"]
        return cls.of(
            url,
            door["MOBILE_TOKEN"],
            extra=door["MOBILE_EXTRA_TOKENS"],
            deliver=door["MOBILE_DELIVER_TOKENS"],
            home=door["MOBILE_HOME_DEVICE"],
            settings=settings,
        )

    def at(self, path: str) -> str:
        """The address for a path of the contract, in which `/ws` is the door."""
        parts = urlsplit(self.url)
        rest, _, query = path.removeprefix("/ws").partition("?")
        return urlunsplit((parts.scheme, parts.netloc, parts.path + rest, query, ""))

    def fit(self, item: Mapping[str, Any], number: int) -> Fitted:
        """A vector or scenario as this door is to be told it. Raises `Needs`."""
        text = json.dumps(item, ensure_ascii=True)
        tokens = {MAIN: self.token}
        if BOUND in text or re.search(rf'"{BOUND_DEVICE}"', text):
            if self.bound is None:
                raise Needs("a token that is bound to a device: --extra DEVICE=TOKEN")
            tokens[BOUND] = self.bound[1]
        if SECOND in text:
            if not self.second:
                raise Needs("a second token: --extra TOKEN")
            tokens[SECOND] = self.second
        if DELIVER in text or item.get("state") == "deliver_only":
            if not self.deliver:
                raise Needs("a deliver token: --deliver TOKEN")
            tokens[DELIVER] = self.deliver
        home = _names_home(item, text)
        if home and not self.home:
            raise Needs("the door's home device (MOBILE_HOME_DEVICE): --home DEVICE")
        tokens[WRONG] = f"wrong-{self.run}-{secrets.token_hex(12)}"
        fixed = {HOME_DEVICE: self.home, BOUND_DEVICE: self.bound[0] if self.bound else ""}
        locks = {name for name in ("home",) if home}
        if any(token in text for token in (BOUND, f'"{BOUND_DEVICE}"')):
            locks.add("bound")

        # A door that lists its devices knows these by their names.
        listed = "MOBILE_ALLOWED_DEVICES" in item.get("settings", {})

        def changed(value: Any, escape: bool) -> Any:
            if isinstance(value, dict):
                inner = escape or "$base64" in value
                return {k: changed(v, inner or k == "raw") for k, v in value.items()}
            if isinstance(value, list):
                return [changed(entry, escape) for entry in value]
            if not isinstance(value, str):
                return value
            for name, real in tokens.items():
                told = json.dumps(real)[1:-1] if escape else real
                value = value.replace(name, told)
                if name.upper() in value:
                    value = value.replace(name.upper(), told.swapcase())
            value = _FIXED.sub(lambda found: fixed[found[0]], value)
            if listed:
                return value
            return _DEVICES.sub(lambda found: self.fresh(found[0], number), value)

        fitted = changed(dict(item), False)
        for step in fitted.get("steps", ()):
            if "path" in step:
                step["path"] = step["path"].replace(self.token, quote(self.token, safe=""))
        return Fitted(fitted, frozenset(locks))

    def fresh(self, device: str, number: int) -> str:
        """A device id that no other check and no other run uses."""
        return f"{device}-{self.run}-{number}"


@dataclass(frozen=True)
class Fitted:
    """An item in the words of the door under test, and the devices it must have to itself."""

    item: dict[str, Any]
    locks: frozenset[str]


def _names_home(item: Mapping[str, Any], text: str) -> bool:
    """Whether the item needs the home device: it names it, or delivers without a target."""
    if "MOBILE_HOME_DEVICE" in item.get("settings", {}):
        return False
    frames = [item.get("frame"), *(step.get("frame") for step in item.get("steps", ()))]
    return f'"{HOME_DEVICE}"' in text or any(
        isinstance(frame, dict) and frame.get("t") == "deliver" and not frame.get("target")
        for frame in frames
    )
