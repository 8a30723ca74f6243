"""Writing the body of an open answer straight to its connection.

An ASGI server's ``send`` is a coroutine that takes a dictionary, and a task must be woken to await
it: for a stream of small events that is most of what writing costs. Under the one server whose
connections are known here an event is written where it arises. Under any other, or behind a
middleware that wraps ``send``, nothing is written here and the stream's task awaits ``send``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from .logs import log, where


def straight_writer(send: Send) -> Callable[[bytes], bool] | None:
    """What writes a piece of the body, as ``send`` would, for an answer whose head was sent; None
    if *send* is not uvicorn's own or the body is not sent in chunks.

    The function returns False, and has written nothing, if ``send`` would wait or the connection
    is closing; it raises nothing. It must not be called while ``send`` waits.
    """
    answer: Any = getattr(send, "__self__", None)
    if type(answer) is not RequestResponseCycle or send != answer.send:
        return None
    try:
        transport, flow = answer.transport, answer.flow
        chunked = answer.chunked_encoding and answer.scope["method"] != "HEAD"
        if not chunked or flow.write_paused not in (False, True):
            return None
    except AttributeError:  # a uvicorn that works otherwise
        return None
    write, is_closing = transport.write, transport.is_closing

    def write_chunk(data: bytes) -> bool:
        if flow.write_paused or is_closing():
            return False
        try:
            write(b"%x\r\n%s\r\n" % (len(data), data))
        except Exception as error:
            # How much of it is on its way is not known: this stream ends, no other.
            log.error("send_failed", **where(error))
            transport.abort()
            return False
        return True

    return write_chunk
