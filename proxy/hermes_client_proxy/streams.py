"""One browser's event stream: what is new goes out at once, heartbeats in between."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import msgspec
from starlette.types import Receive, Send

from . import sse
from .logs import log
from .runlog import Reader
from .runs import Run
from .settings import Settings
from .straight import straight_writer

CHUNK = 65_536
"""About so many bytes go out in one write at most."""


async def stream(
    run: Run,
    reader: Reader,
    receive: Receive,
    send: Send,
    settings: Settings,
) -> None:
    """Sends the run's events until its end, the browser's leaving, or the server's closing; the
    answer's head is sent already.

    Every byte of an event has been through the redactor when the run's translator encoded it.

    A browser that takes nothing for ``slow_reader`` seconds is left: only its own stream ends.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    left = asyncio.ensure_future(_left(receive))
    left.add_done_callback(lambda _: reader.wake())
    sending_since = 0.0
    due = False
    cut_off = False

    def beat() -> None:
        nonlocal due
        due = True
        reader.wake()

    def watch() -> None:
        nonlocal cut_off
        if sending_since and loop.time() - sending_since >= settings.slow_reader:
            cut_off = True
            task.cancel()

    reader.push = straight_writer(send) or reader.push
    timers = _Every(settings.heartbeat, beat), _Every(settings.slow_reader / 4, watch)
    try:
        data = sse.retry(int(settings.retry * 1000)) + _heartbeat(run)
        more = True
        while not left.done():
            if data or not more:
                sending_since = loop.time()
                await send({"type": "http.response.body", "body": data, "more_body": more})
                sending_since = 0.0
                if not more:
                    reader.outcome = "closing" if reader.closing else "ended"
                    return
            else:
                await reader.wait()
            data = reader.take(CHUNK)
            if due:
                due = False
                data += _heartbeat(run)
            if reader.at_end:
                more = False
            elif reader.closing:
                data += _closing(run, reader)
                more = False
    except asyncio.CancelledError:
        if not cut_off:
            raise
        task.uncancel()
        reader.outcome = "slow"
        log.warning("slow_reader_cut_off", run=run.run_id, trace_id=run.trace.trace_id)
    finally:
        for timer in timers:
            timer.stop()
        left.cancel()


class _Every:
    """Calls *act* every so many seconds until it is stopped.

    A function that calls itself again later would hold itself, and with it the whole run's log,
    until the garbage collector comes.
    """

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._act = act
        self._timer = self._loop.call_later(seconds, self._again)

    def _again(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._again)
        self._act()

    def stop(self) -> None:
        self._timer.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _heartbeat(run: Run) -> bytes:
    data = {
        "event": "heartbeat",
        "run_id": run.run_id,
        "session_id": run.session_id,
        "timestamp": int(time.time()),
    }
    return sse.comment("keepalive") + sse.encode(msgspec.json.encode(data), event="heartbeat")


def _closing(run: Run, reader: Reader) -> bytes:
    # Spread out, so that not every browser is back at the same moment.
    pause = random.randint(1000, 3000)
    note = run.translator.note("proxy.closing")
    return sse.retry(pause) + sse.encode(note, id=reader.last_id)
