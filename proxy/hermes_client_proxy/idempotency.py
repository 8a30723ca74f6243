"""Which starts were asked for already. Pure but for the futures that callers await.

A start is known by a scope (the user with its Idempotency-Key, or the session with its trace id)
and by the fingerprint of its body. What is held is bounded in number and in age; nothing of a body
is kept but its hash.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from .contract import CONFLICT, ProxyError

KEEP_SECONDS = 86_400.0


@dataclass(slots=True)
class Start:
    """One start; ``run_id`` resolves to the run's id or to the ProxyError that refused it."""

    fingerprint: bytes
    run_id: asyncio.Future[str]
    made_at: float
    unknown: bool = False
    """No well-formed answer came: the run may be going on, and must not be started again."""


class StartBook:
    """The starts of the last day, the oldest forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._starts: OrderedDict[bytes, Start] = OrderedDict()

    def find(self, scope: bytes, fingerprint: bytes, now: float) -> Start | None:
        """The start already asked for under *scope*.

        Raises ProxyError (conflict) if it was asked for with another body.
        """
        start = self._starts.get(scope)
        if start is None:
            return None
        if now - start.made_at > KEEP_SECONDS and start.run_id.done():
            del self._starts[scope]
            return None
        if start.fingerprint != fingerprint:
            raise ProxyError(
                CONFLICT, "This Idempotency-Key was used for another body; send a new key."
            )
        return start

    def add(self, scope: bytes, start: Start) -> None:
        """Notes *start*; forgets the oldest settled one if there are too many."""
        self._starts[scope] = start
        if len(self._starts) > self._limit:
            for old, known in list(self._starts.items())[:64]:
                if known.run_id.done():
                    del self._starts[old]
                    break

    def give_up_unsettled(self, error: ProxyError) -> None:
        """Whoever was to settle these starts is gone: their outcome stays unknown."""
        loop = asyncio.get_running_loop()
        for scope, start in list(self._starts.items()):
            if not start.run_id.done():
                lost = Start(start.fingerprint, loop.create_future(), start.made_at, unknown=True)
                lost.run_id.set_exception(error)
                lost.run_id.exception()  # retrieved: nobody need ask for it
                self._starts[scope] = lost

    def forget(self, scope: bytes, start: Start) -> None:
        """The start was refused or never sent: it may be tried again."""
        if self._starts.get(scope) is start:
            del self._starts[scope]
