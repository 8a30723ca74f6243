"""How a check comes in: a fresh device with the target's token."""

from __future__ import annotations

from typing import Any

from .line import Line
from .target import Target

STATES = ("avatar", "typing")


async def enter(
    target: Target, number: int, *, supports: tuple[str, ...] = (), device: str = "tel-1"
) -> Line:
    """A connection after its `ready`."""
    line = await Line.open(target)
    hello: dict[str, Any] = {
        "t": "hello",
        "token": target.token,
        "device": {"id": target.fresh(device, number)},
    }
    await line.say({**hello, "supports": list(supports)} if supports else hello)
    await line.expect({"t": "ready"}, {})
    return line
