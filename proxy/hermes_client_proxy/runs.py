"""Runs that this server knows: one upstream reader per run, from its start to its end.

A ``Run`` is followed by one task that fills its log, whoever watches. If the upstream's stream
breaks, the task asks for the run's status until it can say truthfully how the run ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from . import conversation, events, sse
from .approvals import Approvals
from .contract import NOT_FOUND, RATE_LIMITED, TERMINAL_EVENTS, ProxyError
from .events import INTERRUPTED, LOST, UNREACHABLE, Translator
from .eventstream import NoStream
from .logs import fingerprint, log, where
from .redact import Redactor
from .runlog import Reader, RunLog, number_of
from .settings import Settings
from .upstream import Interface, Trace, Upstream

MAX_EVENT = 16_777_216
"""The greatest single event read from the upstream, in bytes."""

MAX_KEPT_BYTES = 268_435_456
"""Bytes of ended runs' logs kept in all; the oldest go first."""

_TERMINAL_STATUS = {
    "completed": "run.completed",
    "failed": "run.failed",
    "cancelled": "run.cancelled",
    "interrupted": "run.interrupted",
}
_SEQ = re.compile(r"[0-9]{1,18}")
_BACKOFF = (0.1, 0.3, 1.0, 2.0, 5.0)
_DRAIN = 5.0
_DRAIN_TRIES = 3
_REFILL = 1.0


@dataclass(eq=False, slots=True)
class Run:
    """One run. ``user`` is who started it, "" if this server did not."""

    run_id: str
    session_id: str
    user: str
    interface: Interface
    trace: Trace
    log: RunLog
    translator: Translator
    approvals: Approvals
    last_seq: str | None = None
    unnumbered: bool = False
    """Whether events came without a number by which the stream could be taken up again."""
    abort_asked: bool = False
    gap_at: int = -1
    """The number that the log had reached when it last said that something is missing."""
    end_kind: str | None = None
    counted: bool = True
    """Whether it takes one of the places for running runs."""
    began: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0
    on_end: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def add(self, *events: bytes) -> None:
        """Appends contract events of this server's own and tells the readers."""
        for event in events:
            self.log.append(event)
        self.log.notify()

    def receive(self, raw: dict[str, Any], fallback_kind: str = "") -> None:
        """Takes one upstream event in; the readers are told with ``log.notify``."""
        for event in self.translator.translate(raw, fallback_kind):
            self.log.append(event)
        if self.translator.ended and self.end_kind is None:
            self.end_kind = str(raw.get("event") or fallback_kind)

    @property
    def resumable(self) -> bool:
        """Whether reading the upstream's stream again gives nothing twice."""
        if self.interface == "basic":
            return False
        return self.last_seq is not None or not self.unnumbered

    def outcome(self) -> str | None:
        """The kind of the run's last event, None while it goes on."""
        return self.end_kind

    def truncated(self, first: int) -> bytes:
        """The event that tells a reader from which number on it sees the run."""
        return self.translator.note("replay.truncated", **{"from": first})


class Runs:
    """Every run of this process, by id, and who may have how many."""

    def __init__(self, settings: Settings, upstream: Upstream, redactor: Redactor) -> None:
        self._settings = settings
        self._upstream = upstream
        self._counters = upstream.counters
        self._redactor = redactor
        self._runs: dict[str, Run] = {}
        self._active: dict[str, str] = {}  # session id -> run id ("" while starting)
        self._running: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._attaching: dict[tuple[str, str], asyncio.Task[Run]] = {}
        self._readers: set[Reader] = set()
        self.closing = False

    # -- counting ---------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Runs under way."""
        return sum(self._running.values())

    @property
    def streams(self) -> int:
        """Open event streams."""
        return sum(self._streams.values())

    @property
    def readers(self) -> Collection[Reader]:
        """The readers of the open event streams."""
        return self._readers

    def known(self) -> Iterable[Run]:
        """Every run whose events are kept."""
        return self._runs.values()

    def active(self, session_id: str) -> bool:
        """Whether a run of this session is under way, as far as this process knows."""
        return session_id in self._active

    def reserve(self, user: str, session_id: str) -> None:
        """Takes the place of one run before it is started. Raises ProxyError (rate_limited)."""
        if (
            self.running >= self._settings.max_runs
            or self._running[user] >= self._settings.max_runs_per_user
        ):
            raise ProxyError(
                RATE_LIMITED, "Too many runs are under way; wait for one to end.", retry_after=5
            )
        self._running[user] += 1
        self._active[session_id] = ""

    def release(self, user: str, session_id: str) -> None:
        """Gives the place back: the run was not started."""
        self._leave(user)
        self._active.pop(session_id, None)

    def _leave(self, user: str) -> None:
        self._running[user] -= 1
        if self._running[user] <= 0:
            del self._running[user]

    # -- knowing ----------------------------------------------------------------------------------

    def get(self, run_id: str) -> Run | None:
        """The run, if this process knows it (still)."""
        return self._runs.get(run_id)

    def follow(
        self,
        run_id: str,
        session_id: str,
        user: str,
        interface: Interface,
        trace: Trace,
        on_end: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Run:
        """The run just started (its place was reserved); its reader opens at once."""
        known = self._runs.get(run_id)
        if known is not None:  # a repeated start that only the upstream recognised
            self.release(user, session_id)
            if known.end_kind is None:
                self._active[known.session_id] = run_id
            return known
        run = self._make(run_id, session_id, user, interface, trace)
        self._counters.runs["started"] += 1
        if on_end is not None:
            run.on_end.append(on_end)
        self._active[session_id] = run_id
        run.task = self._spawn(self._follow(run, None))
        return run

    async def attach(
        self,
        run_id: str,
        session_id: str,
        trace: Trace,
        owned: Callable[[dict[str, Any]], Coroutine[Any, Any, bool]],
    ) -> Run:
        """A run of the session that this process did not start, found through the upstream.

        Raises ProxyError (not_found) if there is no such run of this session.
        """
        known = self._runs.get(run_id)
        if known is None:
            asked = (run_id, session_id)  # another session's question may have another answer
            task = self._attaching.get(asked)
            if task is None:
                task = asyncio.create_task(self._attach(run_id, session_id, trace, owned))
                self._attaching[asked] = task
                task.add_done_callback(lambda _: self._attaching.pop(asked, None))
                task.add_done_callback(lambda t: t.cancelled() or t.exception())
            known = await asyncio.shield(task)
        if known.session_id != session_id:
            raise unknown_run()
        return known

    async def _attach(
        self,
        run_id: str,
        session_id: str,
        trace: Trace,
        owned: Callable[[dict[str, Any]], Coroutine[Any, Any, bool]],
    ) -> Run:
        status = await self._upstream.run_status(trace, run_id)
        if status is None or not await owned(status):
            raise unknown_run()
        interface = await self._upstream.interface(trace)
        if run_id in self._runs:
            return self._runs[run_id]
        run = self._make(run_id, session_id, "", interface, trace)
        self._counters.runs["attached"] += 1
        run.counted = not _has_ended(status)
        if run.counted:
            self._running[""] += 1
            self._active.setdefault(session_id, run_id)
        run.task = self._spawn(self._follow(run, status))
        return run

    def _make(
        self, run_id: str, session_id: str, user: str, interface: Interface, trace: Trace
    ) -> Run:
        approvals = Approvals(run_id, addressed=interface == "replayable")
        run = Run(
            run_id,
            session_id,
            user,
            interface,
            trace,
            RunLog(self._settings.log_events, self._settings.log_bytes),
            Translator(run_id, session_id, self._redactor, approvals),
            approvals,
        )
        self._runs[run_id] = run
        self._forget_old()
        return run

    def _forget_old(self) -> None:
        now = time.monotonic()
        kept = 0
        ended = [run for run in self._runs.values() if run.ended_at and not run.log.readers]
        for run in sorted(ended, key=lambda run: -run.ended_at):
            kept += run.log.size
            if now - run.ended_at > self._settings.log_keep or kept > MAX_KEPT_BYTES:
                del self._runs[run.run_id]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- following --------------------------------------------------------------------------------

    async def _follow(self, run: Run, status: dict[str, Any] | None) -> None:
        try:
            if _has_ended(status):
                await self._drain(run)
                if not run.translator.ended:
                    self._judge(run, status)
            elif run.user or run.interface == "replayable":
                await self._watch(run)
            else:
                # The older interface has one reader per run, and this run's may be another
                # server's: it is never taken away.
                self._note_gap(run)
                await self._poll(run)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # A reader must never be left in silence, whatever went wrong here.
            log.error("run_reader_failed", trace_id=run.trace.trace_id, **where(error))
            self._finish(run, "run.failed", error=UNREACHABLE)
        self._settle(run)

    def _settle(self, run: Run) -> None:
        run.ended_at = time.monotonic()
        run.log.end()
        if run.counted:
            self._leave(run.user)
        if self._active.get(run.session_id) == run.run_id:
            del self._active[run.session_id]
        for work in run.on_end:
            self._spawn(work())
        run.on_end.clear()
        asyncio.get_running_loop().call_later(self._settings.log_keep + 1, self._forget_old)
        seconds = run.ended_at - run.began
        kind = run.end_kind or ""
        outcome = kind.removeprefix("run.") if kind in TERMINAL_EVENTS else "other"
        counters = self._counters
        counters.runs_ended[outcome] += 1
        counters.run_seconds.add(seconds)
        counters.events += run.log.next
        log.info(
            "run_ended",
            run=run.run_id,
            user=fingerprint(run.user),
            outcome=kind if kind in TERMINAL_EVENTS else "other",
            seconds=round(seconds, 3),
            events=run.log.next,
            kept_bytes=run.log.size,
            trace_id=run.trace.trace_id,
        )

    def _finish(self, run: Run, kind: str, **fields: Any) -> None:
        run.receive({"event": kind, "timestamp": int(time.time()), **fields})
        run.log.notify()

    async def _watch(self, run: Run) -> None:
        """Reads the upstream's stream; after a break finds out what became of the run."""
        failures = 0
        while True:
            before = run.log.next
            result = await self._read_stream(run)
            if run.translator.ended:
                return
            self._counters.upstream_lost[result] += 1
            self._upstream.forget_interface()
            if not run.resumable and result != "refused":
                break
            failures = 0 if run.log.next > before else failures + 1
            status = await self._ask_until_told(run)
            if _has_ended(status):
                await self._drain(run)
            if run.translator.ended or self._judge(run, status):
                return
            if result == "none" and failures > 3:
                break
            await asyncio.sleep(_pause(failures))
        # What is sent from here on cannot be read; how the run ends can.
        self._note_gap(run)
        await self._poll(run)

    async def _ask_until_told(self, run: Run) -> dict[str, Any] | None:
        """The run's status; if the upstream stays out of reach, the run's end is written."""
        began = time.monotonic()
        failures = 0
        while True:
            try:
                return await self._upstream.run_status(run.trace, run.run_id)
            except ProxyError:
                if time.monotonic() - began > self._settings.lost_after:
                    self._note_gap(run)
                    self._finish(run, "run.failed", error=UNREACHABLE)
                    return None
            failures += 1
            await asyncio.sleep(_pause(failures))

    async def _drain(self, run: Run) -> None:
        """Reads what the stream of an ended run still holds, where that may be read again."""
        if run.resumable:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN):
                    # The line that broke once may break again: what can still be had is not given
                    # up at the first failure.
                    for failures in range(_DRAIN_TRIES):
                        if failures:
                            await asyncio.sleep(_pause(failures - 1))
                        await self._read_stream(run)
                        if run.translator.ended or not run.resumable:
                            return

    def _note_gap(self, run: Run) -> None:
        if run.gap_at != run.log.next:  # said already, and nothing came since
            run.add(run.truncated(run.log.next + 1))
            run.gap_at = run.log.next

    async def _read_stream(self, run: Run) -> Literal["refused", "none", "broke"]:
        """Reads until the run's end or the stream's.

        "refused" if the request never reached the upstream, "none" if there was no stream.
        """
        take = partial(self._take, run, sse.Decoder(MAX_EVENT))
        try:
            await self._upstream.read_events(run.trace, run.run_id, run.last_seq, take)
        except NoStream as failure:
            return "none" if failure.sent else "refused"
        return "broke"

    def _take(self, run: Run, decoder: sse.Decoder, chunk: bytes) -> None:
        """Takes in what one read of the upstream's stream brought, and tells the readers once."""
        try:
            for event in decoder.feed(chunk):
                raw: events.Delta | dict[str, Any] | None
                try:
                    raw = events.read_delta(event.data)  # nearly every event is one
                except (ValueError, RecursionError):
                    if (raw := events.read(event.data)) is None:
                        continue
                if run.interface == "replayable" and event.id is not None:
                    if run.last_seq is not None and _not_after(event.id, run.last_seq):
                        continue
                    run.last_seq = event.id if _SEQ.fullmatch(event.id) else run.last_seq
                if run.last_seq is None and not run.unnumbered:
                    run.unnumbered = not _is_note(raw)
                if isinstance(raw, events.Delta):
                    if (data := run.translator.delta(raw)) is not None:
                        run.log.append(data)
                elif _is_note(raw):
                    self._note_gap(run)
                else:
                    with contextlib.suppress(RecursionError):  # nested too deeply: it alone is lost
                        run.receive(raw, event.event)
        finally:
            run.log.notify()
        if run.translator.ended:
            raise _Ended

    def _judge(self, run: Run, status: dict[str, Any] | None) -> bool:
        if status is None:
            self._note_gap(run)
            self._finish(run, "run.failed", error=LOST)
            return True
        kind = _TERMINAL_STATUS.get(str(status.get("status")))
        if kind is not None:
            fields = {
                name: status[name]
                for name in ("output", "usage", "completed", "partial", "interrupted")
                if status.get(name) is not None
            }
            if kind == "run.interrupted":
                fields["error"] = INTERRUPTED
            elif kind == "run.failed":
                fields["error"] = ""
            # The same end told after another restart is the same event, with the same id.
            if (ended_at := conversation.seconds(status.get("updated_at"))) is not None:
                fields["timestamp"] = ended_at
            self._note_gap(run)
            self._finish(run, kind, **fields)
            return True
        if status.get("status") == "waiting_for_approval":
            waiting = status.get("approval")
            if isinstance(waiting, dict) and run.interface == "replayable":
                if not run.approvals.open:
                    run.receive({**waiting, "event": "approval.request"})
                    run.log.notify()
            elif status.get("last_event") in (None, "approval.request") and (
                request := run.approvals.lost()
            ):
                # The status stays after the request ran out; its last event tells.
                run.add(run.translator.note(request.pop("event"), **request))
        return False

    async def _poll(self, run: Run) -> None:
        """Asks until the run has ended or nobody can tell any more."""
        while True:
            status = await self._ask_until_told(run)
            if run.translator.ended or self._judge(run, status):
                return
            await asyncio.sleep(self._settings.poll)

    # -- watching ---------------------------------------------------------------------------------

    async def refilled(self, run: Run, last_event_id: str | None) -> None:
        """Waits a moment until the log of a run found again has what *last_event_id* names, so
        that a returning reader need not see everything anew. A start that Hermes recognised as a
        repeated one finds its run again too."""
        number = number_of(last_event_id)
        patience = run.began + _REFILL - time.monotonic()
        if number is None or patience <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                reader = Reader(run.log, 0, run.truncated)
                try:
                    while run.log.next <= number and not run.log.ended:
                        await reader.wait()
                finally:
                    reader.close()

    def open_reader(self, run: Run, user: str, last_event_id: str | None) -> Reader | None:
        """A reader of the run, None if it has the last event already.

        Raises ProxyError (rate_limited). Every reader has to be given back.
        """
        position = run.log.after(last_event_id)
        ended = run.log.ended or run.end_kind is not None
        if ended and run.log.next and position == run.log.next:
            self._counters.replays["ended"] += 1
            return None
        if (
            self.streams >= self._settings.max_streams
            or self._streams[user] >= self._settings.max_streams_per_user
        ):
            raise ProxyError(
                RATE_LIMITED, "Too many event streams are open; close one.", retry_after=5
            )
        self._streams[user] += 1
        if last_event_id:
            self._counters.replays["hit" if position else "miss"] += 1
        reader = Reader(run.log, position, run.truncated)
        reader.closing = self.closing
        self._readers.add(reader)
        return reader

    def close_reader(self, reader: Reader, user: str) -> None:
        """Gives a reader back."""
        reader.close()
        self._readers.discard(reader)
        self._streams[user] -= 1
        if self._streams[user] <= 0:
            del self._streams[user]

    def begin_closing(self) -> None:
        """Ends every reader; the runs themselves go on upstream."""
        self.closing = True
        for reader in list(self._readers):
            reader.closing = True
            reader.wake()

    def begin_anew(self) -> None:
        """Forgets what was followed before a close, or in an event loop that is gone: Hermes knows
        those runs, and they are found again there."""
        for kept in (self._runs, self._active, self._running, self._streams, self._attaching):
            kept.clear()
        self._tasks.clear()
        self._readers.clear()
        self.closing = False

    async def close(self) -> None:
        """Stops following. Nothing is aborted."""
        self.begin_closing()
        tasks = [*self._tasks, *self._attaching.values()]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


class _Ended(Exception):
    """The run has ended: nothing more is to be read of its stream."""


def _pause(failures: int) -> float:
    return _BACKOFF[min(failures, len(_BACKOFF) - 1)]


def _has_ended(status: dict[str, Any] | None) -> bool:
    return status is not None and status.get("status") in _TERMINAL_STATUS


def unknown_run() -> ProxyError:
    """There is no such run, or none that this session may see."""
    return ProxyError(NOT_FOUND, "This session has no such run, or it is too long ago.")


def _is_note(raw: events.Delta | dict[str, Any]) -> bool:
    """Whether this is no event of the run but the upstream's word that it has lost some."""
    return isinstance(raw, dict) and raw.get("event") == "replay.truncated"


def _not_after(event_id: str, last: str) -> bool:
    return bool(_SEQ.fullmatch(event_id) and _SEQ.fullmatch(last)) and int(event_id) <= int(last)
