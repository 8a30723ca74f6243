"""What is fuzzed: one function for each parser, bytes in, AssertionError for a broken promise.

The same functions serve the bounded tests (test_targets.py, on the corpus and on hypothesis) and
the long runs (`python -m tests.fuzz.run TARGET`, with atheris). They use only what an input gives,
so that an input that fails once fails always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import regex

from hermes_client_proxy.contract import ProxyError
from hermes_client_proxy.guard import check_json, check_origin
from hermes_client_proxy.session_ids import (
    MAX_DOCUMENT_ID,
    MAX_SESSION_ID,
    document_of,
    session_id_for,
)
from hermes_client_proxy.sse import Decoder, EventTooLarge, ServerSentEvent
from hermes_mobile import tokens
from hermes_mobile.commands import receive
from hermes_mobile.effects import Close, Submit, Tell
from hermes_mobile.hub import Hub
from hermes_mobile.protocol import (
    MAX_MEDIA_PARTS,
    MAX_OPEN_UPLOADS,
    MAX_UPLOAD_BUFFER_BYTES,
    ProtocolError,
    decode,
)
from hermes_mobile.settings import Settings
from hermes_mobile.textsplit import split
from hermes_mobile.tokens import Peer, Refused
from hermes_mobile.uploads import Uploads

SETTINGS = Settings(
    token="token-of-the-fuzzers",
    deliver_tokens=("deliver-token-of-it",),
    public_url="https://agent.example.org",
    allowed_origins=frozenset({"https://app.example.org"}),
)
HELLO = (
    b'{"t":"hello","token":"token-of-the-fuzzers","device":{"id":"tel"},"supports":["accepted"]}'
)


class Bytes:
    """Takes an input apart; at its end everything is zero."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def number(self, most: int) -> int:
        """0 to `most`."""
        return int.from_bytes(self.take(2 if most > 255 else 1), "big") % (most + 1)

    def rest(self) -> bytes:
        return self.take(len(self._data))

    @property
    def left(self) -> bool:
        return self._at < len(self._data)


def frames(data: bytes) -> None:
    """The frame decoder, and the core behind it: lines are frames of a device that said hello."""
    try:
        decode(data)
    except ProtocolError as error:
        assert error.code in ("bad_frame", "too_big"), error.code
    hub = Hub(SETTINGS)
    now = 0.0
    for conn, device in ((1, b"tel"), (2, b"pc")):
        hub.opened(conn, Peer("192.0.2.1"), now)
        receive(hub, conn, HELLO.replace(b"tel", device), now)
    for line in data.split(b"\n")[:32]:
        now += 0.25
        receive(hub, 1, line, now)
        while hub.effects:
            effect = hub.effects.popleft()
            match effect:
                case Submit(incoming):
                    assert incoming.chat == "tel" and 1 <= len(incoming.id) <= 128
                    assert len(incoming.text) <= 12_000
                    hub.taken(incoming, now)
                case Tell(card, _, _, _):
                    raise AssertionError(f"an answer to a card that nobody showed: {card}")
                case Close(conn, code, _, _):
                    assert (conn, code) == (1, 1008), "only this one, and only for its size"
                case _:
                    pass
        for conn in (1, 2):
            for frame in hub.next_frames(conn, now, 2**40):
                assert conn == 1 or b'"ready"' in frame, "another device heard of it"
                assert b"the door failed" not in frame, line
    hub.tick(now + 400.0)
    hub.effects.clear()
    assert hub.online("pc")


def uploads(data: bytes) -> None:
    """The upload assembler beside a plain model: the file is its parts, the limits hold."""
    given = Bytes(data)
    kept = Uploads()
    model: dict[str, dict[int, bytes]] = {}
    while given.left:
        id = "abcdefghij"[given.number(9)]
        part, parts = given.number(9) - 1, given.number(8) * (300 if given.number(20) == 7 else 1)
        size = given.number(255) * (32_768 if given.number(3) else 1)
        piece = bytes([given.number(255)]) * size
        broken = given.number(15) == 3

        def read(piece: bytes = piece, broken: bool = broken) -> bytes:
            if broken:
                raise ProtocolError("bad_frame", "broken")
            return piece

        before = kept.size
        try:
            done = kept.receive(
                id,
                kind="video",
                mime="",
                filename="",
                caption="",
                part=part,
                parts=parts,
                size=len(piece),
                decode=read,
            )
        except ProtocolError as error:
            assert error.code in ("bad_frame", "too_big")
            if error.code == "bad_frame":
                assert kept.size == before, "a bad part changes nothing"
            elif id not in kept.open:
                model.pop(id, None)
        else:
            assert 0 <= part < parts <= MAX_MEDIA_PARTS
            model.setdefault(id, {}).setdefault(part, piece)
            if done is not None:
                pieces = model.pop(id)
                assert sorted(pieces) == list(range(parts))
                assert bytes(done[1]) == b"".join(pieces[n] for n in range(parts))
        assert len(kept.open) <= MAX_OPEN_UPLOADS
        assert kept.size == sum(len(p) for file in model.values() for p in file.values())
        assert kept.size <= MAX_UPLOAD_BUFFER_BYTES
        assert set(kept.open) == set(model)


def textsplit(data: bytes) -> None:
    """The text splitter: chunks join to the text, within the limit; finished ones stay."""
    given = Bytes(data)
    limit = 1 + given.number(60)
    cut = given.number(65_535)
    text = given.rest().decode("utf-8", "replace")
    earlier = text[: cut % (len(text) + 1)]
    before = split(earlier, limit)
    after = split(text, limit, before)
    for said, chunks in ((earlier, before), (text, after), (text, split(text, limit))):
        assert "".join(chunks) == said
        assert all(0 < len(chunk) <= limit for chunk in chunks) or chunks == [""]
    start = 0
    for chunk in split(text, limit)[:-1]:
        # No visible character is torn unless it alone is longer than a chunk.
        ends = []
        for cluster in regex.finditer(r"\X", text, pos=start):
            ends.append(cluster.end())
            if cluster.end() >= start + limit:
                break
        assert start + len(chunk) in ends or ends[0] > start + limit
        start += len(chunk)


def _events(chunks: list[bytes], limit: int) -> tuple[list[ServerSentEvent], bool]:
    decoder = Decoder(limit)
    found: list[ServerSentEvent] = []
    for chunk in chunks:
        try:
            found += decoder.feed(chunk)
        except EventTooLarge:
            return found, True
    return found, False


def sse(data: bytes) -> None:
    """The event stream decoder: the same events however split; no line end in what gets out."""
    given = Bytes(data)
    size = 1 + given.number(40)
    limit = 20 + given.number(4000)
    stream = given.rest()
    whole, _ = _events([stream], 1_000_000)
    for step in (1, size):
        pieces = [stream[n : n + step] for n in range(0, len(stream), step)]
        assert _events(pieces, 1_000_000)[0] == whole
    for event in whole:
        assert "\n" not in event.event and "\r" not in event.event
        assert event.id is None or not {"\n", "\r", "\0"} & set(event.id)
        assert b"\r" not in event.data
    # Under a small limit no event is made up, and what is refused was too large.
    bounded, refused = _events([stream[n : n + 1] for n in range(len(stream))], limit)
    assert bounded == whole[: len(bounded)]
    assert all(len(event.data) <= limit for event in bounded)
    assert refused or bounded == whole


def session_ids(data: bytes) -> None:
    """The grammar: an id has one owner, and what is made for a document reads back to it."""
    text = data.decode("utf-8", "replace")
    owner = document_of(text)
    if owner is not None:
        assert text.startswith("mnote_") and len(text) <= MAX_SESSION_ID
        assert 0 < len(owner) <= MAX_DOCUMENT_ID and text.startswith(f"mnote_{owner}_")
        assert text.isascii() and not set(text) & set("/\\?#% \n\r\t\0") and ".." not in text
    document, _, trace = text.partition("|")
    try:
        made = session_id_for(document, trace or None)
    except ProxyError as error:
        assert error.status == 400 and (len(document) < 8 or document not in str(error))
    else:
        assert document_of(made) == document
        assert not trace or made == session_id_for(document, trace)


PUBLIC = "https://notes.example.org"


def origins(data: bytes) -> None:
    """Both origin guards: no page of a foreign site passes, however its headers are written."""
    host, _, origin = data.partition(b"\n")
    raw = [(b"host", host), (b"origin", origin)]
    said, name = origin.decode("latin-1").strip().lower(), host.decode("latin-1").strip().lower()
    try:
        check_origin(raw, "http", PUBLIC)
    except ProxyError:
        pass
    else:
        assert not origin or said.split("://")[0] in ("http", "https")
        reached = said.partition("://")[2]
        assert not origin or said.startswith((PUBLIC, "http://")) and "@" not in reached
        assert not origin or _bare(reached) in (_bare(name), "notes.example.org")
        assert _is_local(_bare(name)) or _bare(name) == "notes.example.org"
    try:
        check_json([(b"content-type", data)])
    except ProxyError:
        pass
    else:
        assert data.strip(b" \t").lower().startswith(b"application/json")
    headers = {"host": [host.decode("latin-1")], "origin": [origin.decode("latin-1")]}
    try:
        tokens.check_origin(headers, SETTINGS)
    except Refused:
        return
    listed = {"https://app.example.org", "https://agent.example.org"}
    reached = said.partition("://")[2]
    assert said in listed or _bare(reached).rstrip(".") == _bare(name).rstrip(".")
    assert (
        said in listed
        or _is_local(_bare(name).rstrip("."))
        or (_bare(name).rstrip(".") == "agent.example.org")
    )


def _bare(authority: str) -> str:
    """A host without its port."""
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


def _is_local(name: str) -> bool:
    """`localhost` or an address: what no foreign name can be."""
    inner = name.strip("[]")
    return (
        name == "localhost"
        or name.endswith(".localhost")
        or (name.startswith("[") and ":" in inner)
        or all(part.isdigit() for part in inner.split("."))
        or ":" in inner
    )


TARGETS: dict[str, Callable[[bytes], Any]] = {
    "frames": frames,
    "uploads": uploads,
    "textsplit": textsplit,
    "sse": sse,
    "session_ids": session_ids,
    "origins": origins,
}
