"""The core against a model, in any order of connects, drops, frames, timers and agent output.

A `View` is what a well-behaved app makes of the frames it gets; it lives longer than its
connections. Frames that were taken from the hub have arrived; what a real network loses no test of
the core can know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes_mobile import hub as hub_module
from hermes_mobile import outbox
from hermes_mobile.commands import receive
from hermes_mobile.dedup import WINDOW_SECONDS
from hermes_mobile.effects import Close, Expired, Incoming, Submit, Tell, Wake
from hermes_mobile.hub import Hub
from hermes_mobile.outbox import OutboxFull, OutgoingMedia
from hermes_mobile.prompts import State, approval_card, clarify_card, confirm_card
from hermes_mobile.protocol import DEFAULT_CHUNK_LIMIT, HELLO_TIMEOUT
from hermes_mobile.settings import Settings
from hermes_mobile.tokens import Peer

from .hub_house import drained, next_frame

SETTINGS = Settings(
    token="main",
    extra_tokens=((None, "second"), ("tab", "bound")),
    deliver_tokens=("deliver",),
    prompt_ttl=100.0,
    home_device="tel",
)
CHATS = ("tel", "tab", "pc")
SMALL_BOX = 40
MACHINE_EXAMPLES = 120
UNKNOWN_CARD = "p-unknown"


@dataclass
class Shown:
    """A message as the app has put it together."""

    chunks: dict[int, str] = field(default_factory=dict)
    total: int = 0
    finals: int = 0

    @property
    def text(self) -> str:
        assert sorted(self.chunks) == list(range(self.total)), "a chunk is missing"
        return "".join(self.chunks[index] for index in range(self.total))


@dataclass
class View:
    """What the app of one device shows."""

    chat: str
    messages: dict[str, Shown] = field(default_factory=dict)
    files: dict[str, list[int]] = field(default_factory=dict)
    cards: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # its prompt_done
    # An app that keeps what it showed when the line breaks, and one that begins anew.
    sticky: tuple[str, bool] = ("idle", False)
    fresh: tuple[str, bool] = ("idle", False)

    def take(self, frame: dict[str, Any]) -> None:
        getattr(self, f"_{frame['t']}")(frame)

    def _ready(self, frame: dict[str, Any]) -> None:
        assert frame["session"] == f"mobile:{self.chat}"
        self.fresh = ("idle", False)

    def _message(self, frame: dict[str, Any]) -> None:
        new = frame["id"] not in self.messages
        shown = self.messages.setdefault(frame["id"], Shown())
        chunk = frame["chunk"]
        if new:
            assert "edit" not in frame, "the first frame of a message is no edit"
        elif chunk["index"] in shown.chunks:
            assert frame.get("edit") is True
        assert 0 <= chunk["index"] < chunk["total"]
        assert len(frame["text"]) <= DEFAULT_CHUNK_LIMIT
        assert not frame["final"] or chunk["index"] == chunk["total"] - 1
        shown.total = chunk["total"]
        shown.chunks[chunk["index"]] = frame["text"]
        shown.chunks = {i: t for i, t in shown.chunks.items() if i < shown.total}
        shown.finals += frame["final"]

    def _media(self, frame: dict[str, Any]) -> None:
        parts = self.files.setdefault(frame["id"], [])
        if frame["part"] == 0:
            parts.clear()
        parts.append(frame["part"])

    def _prompt(self, frame: dict[str, Any]) -> None:
        assert frame["session"] == self.chat, "a card of another device"
        assert self.cards.get(frame["id"]) is None, "a card that was settled is shown again"
        assert frame["timeout_seconds"] >= 0
        self.cards[frame["id"]] = None

    def _prompt_done(self, frame: dict[str, Any]) -> None:
        self.cards[frame["id"]] = frame

    def _avatar(self, frame: dict[str, Any]) -> None:
        self.sticky = (frame["state"], self.sticky[1])
        self.fresh = (frame["state"], self.fresh[1])

    def _typing(self, frame: dict[str, Any]) -> None:
        on = not frame.get("stop", False)
        self.sticky = (self.sticky[0], on)
        self.fresh = (self.fresh[0], on)

    def _pong(self, frame: dict[str, Any]) -> None:
        assert frame["ts"] == 7

    def _error(self, frame: dict[str, Any]) -> None:
        assert frame["code"] in {
            "bad_frame", "forbidden", "unsupported_frame", "too_big", "internal_error",
        }  # fmt: skip
        assert not frame["fatal"]

    def _accepted(self, frame: dict[str, Any]) -> None:
        pass


@dataclass
class Line:
    """One connection as the test sees it."""

    chat: str | None = None  # its device, once it is ready
    greeted: bool = False
    deliver: bool = False
    closing: int | None = None
    woken: bool = False


@dataclass
class Said:
    """A message of the agent."""

    text: str
    final: bool


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.hub = Hub(SETTINGS, deliver_secret="internal")
        self.now = 1000.0
        self.lines: dict[int, Line] = {}
        self.last_conn = 0
        self.views = {chat: View(chat) for chat in CHATS}
        self.owners: dict[str, str] = {}
        self.said: dict[str, dict[str, Said]] = {chat: {} for chat in CHATS}
        self.told: dict[str, list[str]] = {chat: [] for chat in CHATS}  # deliveries and the like
        self.files: dict[str, list[str]] = {chat: [] for chat in CHATS}
        self.cards: dict[str, str] = {}  # id -> device
        self.turns: set[str] = set()
        self.waiting: list[Incoming] = []
        self.typed: dict[tuple[str, str], Incoming] = {}  # texts that answer a card
        self.tells: list[Tell] = []
        self.answering: str | None = None
        self.taken: dict[tuple[str, str], float] = {}
        self.closed_now: list[Close] = []
        self.submitted_now: list[Incoming] = []
        self.count = 0

    # The shell

    def settle(self) -> None:
        """Carry the effects out as the server does."""
        self.closed_now, self.submitted_now = [], []
        for effect in drained(self.hub):
            if isinstance(effect, Wake):
                if effect.conn in self.lines:
                    self.lines[effect.conn].woken = True
            elif isinstance(effect, Close):
                self.closed_now.append(effect)
                line = self.lines.get(effect.conn)
                if line is not None and line.closing is None:
                    line.closing = effect.code
                    if effect.last is not None:
                        last = json.loads(effect.last)
                        assert effect.code == 1008
                        assert last["fatal"] and last["code"] == effect.reason
            elif isinstance(effect, Submit):
                key = (effect.incoming.chat, effect.incoming.id)
                since = self.taken.get(key)
                assert since is None or self.now - since >= WINDOW_SECONDS, "submitted twice"
                assert key not in {(i.chat, i.id) for i in self.waiting}
                assert effect.incoming.device.id == effect.incoming.chat
                self.typed.pop(key, None)
                self.submitted_now.append(effect.incoming)
                self.waiting.append(effect.incoming)
            elif isinstance(effect, Tell):
                assert effect.card.reference == self.cards[effect.card_id]
                assert effect.card_id not in {t.card_id for t in self.tells}
                self.tells.append(effect)
            else:
                assert isinstance(effect, Expired)

    def feed(self, conn: int, **frame: Any) -> None:
        receive(self.hub, conn, json.dumps(frame).encode(), self.now)
        self.settle()

    def take_one(self, conn: int) -> dict[str, Any] | None:
        line = self.lines[conn]
        raw = next_frame(self.hub, conn, self.now)
        if raw is None:
            line.woken = False
            return None
        frame: dict[str, Any] = json.loads(raw)
        if not line.greeted:
            assert frame["t"] == "ready", "something came before ready"
            line.greeted = True
        if line.chat is not None:
            self.views[line.chat].take(frame)
        else:
            assert frame["t"] in {"ready", "error", "pong"}
        return frame

    def alive(self, *, chat: bool | None = None) -> list[int]:
        return [
            conn
            for conn, line in self.lines.items()
            if line.closing is None and (chat is None or (line.chat is not None) is chat)
        ]

    def pick(self, data: st.DataObject, items: list[Any]) -> Any:
        return data.draw(st.sampled_from(items))

    def words(self, chat: str, length: int) -> str:
        self.count += 1
        return (f"{chat}|{self.count} " + "Wörter und mehr. " * (length // 16 + 1))[: length + 12]

    # Connections

    @initialize(supports=st.sampled_from([None, ["partial_edits"]]))
    def the_first_device(self, supports: list[str] | None) -> None:
        self.connect("1.1.1.1")
        self.say_hello(1, "tel", "main", supports)

    @rule(address=st.sampled_from(["1.1.1.1", "2.2.2.2"]))
    def connect(self, address: str) -> None:
        self.last_conn += 1
        self.lines[self.last_conn] = Line()
        self.hub.opened(self.last_conn, Peer(address), self.now)
        self.settle()

    @precondition(lambda self: any(not self.lines[c].greeted for c in self.alive(chat=False)))
    @rule(
        data=st.data(),
        chat=st.sampled_from(CHATS),
        token=st.sampled_from(["main", "main", "second", "bound", "deliver", "wrong"]),
        supports=st.sampled_from([None, [], ["accepted"], ["partial_edits", "accepted", "new"]]),
    )
    def hello(self, data: st.DataObject, chat: str, token: str, supports: list[str] | None) -> None:
        fresh = [c for c in self.alive(chat=False) if self.hub.connections[c].grant is None]
        if fresh:
            self.say_hello(self.pick(data, fresh), chat, token, supports)

    def say_hello(self, conn: int, chat: str, token: str, supports: list[str] | None) -> None:
        others = {c for c in self.alive(chat=True) if self.lines[c].chat == chat}
        refused = self.hub.connections[conn].refused
        self.feed(conn, t="hello", token=token, device={"id": chat}, supports=supports)
        line = self.lines[conn]
        allowed = {"main": chat != "tab", "second": chat != "tab", "bound": chat == "tab"}
        if not refused and token == "deliver" and chat != "tab":
            if self.owners.get(chat) is None:
                line.deliver = True
                assert line.closing is None
        elif not refused and allowed.get(token) and self.owners.get(chat, token) == token:
            self.owners[chat] = token
            if any(other > conn for other in others if not self.hub.connections[other].refused):
                assert line.closing == 4001, "a late hello of an older connection"
                assert others <= set(self.alive()), "the living connection stays"
                return
            line.chat = chat
            assert line.closing is None
            assert [(c.conn, c.code) for c in self.closed_now] == [(o, 4001) for o in others]
            assert line.woken
        else:
            assert line.closing == 1008 or self.hub.connections[conn].refused
            assert others <= set(self.alive()), "the living connection stays"

    @rule(chat=st.sampled_from(CHATS), partial=st.booleans(), reads=st.booleans())
    def come_back(self, chat: str, partial: bool, reads: bool) -> None:
        if self.owners.get(chat) != "second":
            self.connect("3.3.3.3")
            token = "bound" if chat == "tab" else "main"
            self.say_hello(self.last_conn, chat, token, ["partial_edits"] if partial else None)
            if reads:
                self.drain_all(self.last_conn)

    @precondition(lambda self: any(not self.lines[c].greeted for c in self.alive(chat=False)))
    @rule(data=st.data(), raw=st.sampled_from([b"{}", b"[", b"\xff", b'{"t":"text","id":"a"}']))
    def a_first_frame_that_is_no_hello(self, data: st.DataObject, raw: bytes) -> None:
        fresh = [c for c in self.alive(chat=False) if self.hub.connections[c].grant is None]
        if fresh:
            conn = self.pick(data, fresh)
            receive(self.hub, conn, raw, self.now)
            self.settle()
            assert self.hub.connections[conn].refused

    @precondition(lambda self: self.lines)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        conn = self.pick(data, sorted(self.lines))
        self.hub.closed(conn, self.now)
        self.hub.closed(conn, self.now)
        del self.lines[conn]
        self.settle()

    @rule()
    def what_closes_has_gone(self) -> None:
        for conn in [c for c, line in self.lines.items() if line.closing is not None]:
            self.hub.closed(conn, self.now)
            del self.lines[conn]
        self.settle()

    @precondition(lambda self: self.alive(chat=True))
    @rule(data=st.data())
    def too_slow(self, data: st.DataObject) -> None:
        conn = self.pick(data, self.alive(chat=True))
        self.hub.too_slow(conn)
        self.settle()
        assert [(c.conn, c.code) for c in self.closed_now] == [(conn, 1013)]

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0, 2.99, 3.0, 14.99, 15.0, 60.0, 100.0, 700.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        rings = 0
        while (at := self.hub.due) is not None and at <= until:
            self.now = max(self.now, at)
            self.hub.tick(self.now)
            due = self.hub.due
            assert due is None or due > self.now, "the timer would ring for ever"
            self.settle()
            rings += 1
            assert rings < 1000
        self.now = until
        for conn, opened in self.hub._unauthenticated.items():
            assert opened + HELLO_TIMEOUT > self.now, conn
        for card in self.hub.cards.prompts.open.values():
            assert card.deadline > self.now or card.state is State.ANSWERING
        for device in self.hub.known():
            assert device.idle_at is None or device.idle_at > self.now

    # What arrives at the devices

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), number=st.integers(1, 6))
    def take(self, data: st.DataObject, number: int) -> None:
        conn = self.pick(data, self.alive())
        for _ in range(number):
            if self.take_one(conn) is None:
                break

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        self.drain_all(self.pick(data, self.alive()))

    def drain_all(self, conn: int) -> None:
        while self.take_one(conn) is not None:
            pass
        box = self.hub.connections[conn].box
        assert (box.frames, box.bytes, len(box)) == (0, 0, 0)
        chat = self.lines[conn].chat
        if chat is not None:
            self.everything_arrived(chat)

    def everything_arrived(self, chat: str) -> None:
        view, device = self.views[chat], self.hub.devices.get(chat)
        for id, said in self.said[chat].items():
            shown = view.messages[id]
            assert shown.text == said.text
            assert shown.finals == said.final
        order = [id for id in view.messages if id in self.said[chat]]
        assert order == [id for id in self.said[chat] if id in view.messages]
        assert all(shown.text.startswith(f"{chat}|") for shown in view.messages.values())
        extra = [s.text for id, s in view.messages.items() if id not in self.said[chat]]
        assert extra == self.told[chat]
        assert list(view.files) == self.files[chat]
        assert all(parts in ([0], [0, 1]) for parts in view.files.values())
        state = device.state if device is not None else ("idle", False)
        assert view.sticky == view.fresh == state
        for id, owner in self.cards.items():
            opened = self.hub.cards.prompts.open.get(id)
            if owner != chat:
                assert id not in view.cards
            elif opened is not None:
                done = view.cards[id]
                assert (done is None) is not opened.other_told
                assert done is None or done.get("option_id") == "other"
            elif id in view.cards:
                done, outcome = view.cards[id], self.hub.cards.prompts.outcome(id)
                assert done is not None and outcome is not None
                assert done.get("option_id") == outcome.option_id
                assert done.get("expired", False) == outcome.expired

    # What devices send

    @precondition(lambda self: self.alive(chat=True))
    @rule(
        data=st.data(),
        id=st.sampled_from(["a", "b", "c"]),
        frame=st.sampled_from(
            [
                {"t": "text", "text": "hi"},
                {"t": "audio", "format": "wav", "data": "AAAA"},
                {"t": "media", "kind": "image", "data": "AAAA"},
                {"t": "media", "kind": "video", "data": "AAAA", "part": 0, "parts": 2},
                {"t": "media", "kind": "video", "data": "AAAA", "part": 1, "parts": 2},
                {"t": "text", "text": " "},
                {"t": "media", "kind": "none", "data": "AAAA"},
                {"t": "media", "kind": "image", "data": "A"},
            ]
        ),
    )
    def send(self, data: st.DataObject, id: str, frame: dict[str, Any]) -> None:
        self.send_one(self.pick(data, self.alive(chat=True)), id, frame)

    def send_one(self, conn: int, id: str, frame: dict[str, Any]) -> None:
        chat = self.lines[conn].chat
        assert chat is not None
        key = (chat, id)
        since = self.taken.get(key)
        free = (
            key not in {(i.chat, i.id) for i in self.waiting}
            and key not in self.typed
            and (since is None or self.now - since >= WINDOW_SECONDS)
        )
        asked = any(
            c.chat == chat
            and (
                c.state is State.AWAITING_TEXT
                or (c.state is State.ANSWERING and c.answer == ("other", None))
            )
            for c in self.hub.cards.prompts.open.values()
        )
        tells = len(self.tells)
        self.feed(conn, id=id, **frame)
        new = {(i.chat, i.id) for i in self.submitted_now}
        if frame.get("text") == "hi" and free:
            if new != {key}:
                assert asked, "a message was lost"
                self.typed[key] = Incoming(chat, id, "text", "hi", self.hub.devices[chat].info)
        elif not free:
            assert not new and len(self.tells) == tells

    @precondition(lambda self: self.alive(chat=True))
    @rule(
        data=st.data(),
        raw=st.sampled_from(
            [
                b'{"t":"typing"}', b'{"t":"ping","ts":7}', b'{"t":"ack","id":5}', b'{"t":"news"}',
                b'{"t":"hello","token":"main"}', b"nonsense", b'{"t":5}', b'{"t":"prompt"}',
                b'{"t":"deliver","id":"d","target":"tel","text":"x"}', b"\xff\xfe", b"[" * 9999,
            ]
        ),
    )  # fmt: skip
    def send_something_else(self, data: st.DataObject, raw: bytes) -> None:
        conn = self.pick(data, self.alive(chat=True))
        receive(self.hub, conn, raw, self.now)
        self.settle()
        assert not self.closed_now or self.hub.connections[conn].box.full

    @precondition(lambda self: any(self.lines[c].deliver for c in self.alive()))
    @rule(
        data=st.data(),
        id=st.sampled_from(["a", "b", "c", "d"]),
        to=st.sampled_from(["tel", "mobile:tab", "pc", None, "nobody"]),
    )
    def deliver(self, data: st.DataObject, id: str, to: str | None) -> None:
        conn = self.pick(data, [c for c in self.alive() if self.lines[c].deliver])
        chat = (to or "tel").removeprefix("mobile:")
        text = self.words(chat, 20)
        key = (f"\0{self.hub.connections[conn].sender}", id)
        since = self.taken.get(key)
        online = self.hub.online(chat)
        room = online and not self.nearly_full(chat)
        if online and not room:
            return  # what then happens is the business of `test_outbox`
        self.feed(conn, t="deliver", id=id, target=to, text=text)
        if room and (since is None or self.now - since >= WINDOW_SECONDS):
            self.taken[key] = self.now
            self.told[chat].append(text)

    def nearly_full(self, chat: str) -> bool:
        device = self.hub.devices.get(chat)
        return device is not None and device.box.frames > SMALL_BOX - 4

    @precondition(lambda self: self.alive(chat=True))
    @rule(
        data=st.data(),
        option=st.sampled_from(["", "once", "deny", "c0", "other", "nonsense"]),
        text=st.sampled_from(["", "mine"]),
    )
    def answer(self, data: st.DataObject, option: str, text: str) -> None:
        conn = self.pick(data, self.alive(chat=True))
        chat = self.lines[conn].chat
        id = self.pick(data, [UNKNOWN_CARD, *self.cards])
        before = {t.card_id for t in self.tells}
        self.feed(conn, t="prompt", prompt_id=id, option_id=option, text=text)
        new = {t.card_id for t in self.tells} - before
        assert new <= ({id} if self.cards.get(id) == chat else set())
        if id == UNKNOWN_CARD:
            self.views[chat].cards.pop(id, None)  # type: ignore[index]

    # What the agent does

    @rule(chat=st.sampled_from(CHATS), final=st.booleans(), length=st.sampled_from([0, 9, 8000]))
    def say(self, chat: str, final: bool, length: int) -> None:
        text = self.words(chat, length)
        try:
            id = self.hub.say(chat, text, final=final, now=self.now)
        except OutboxFull:
            pass
        else:
            self.said[chat][id] = Said(text, final)
        self.settle()

    def open_messages(self) -> list[tuple[str, str]]:
        return [
            (chat, id) for chat in CHATS for id, said in self.said[chat].items() if not said.final
        ]

    @precondition(lambda self: self.open_messages())
    @rule(
        data=st.data(),
        final=st.booleans(),
        grow=st.sampled_from([-5000, -3, 0, 1, 40, 4000]),
    )
    def revise(self, data: st.DataObject, final: bool, grow: int) -> None:
        chat, id = self.pick(data, self.open_messages())
        said = self.said[chat][id]
        text = said.text + "é" * grow if grow >= 0 else said.text[: max(12, len(said.text) + grow)]
        # Never refused, however full the box is: it stands on the screen already.
        assert self.hub.say(chat, text, edit_of=id, final=final, now=self.now) == id
        said.text, said.final = text, final
        self.settle()

    @precondition(lambda self: self.open_messages())
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        chat, id = self.pick(data, self.open_messages())
        said = self.said[chat][id]
        said.final = True
        self.hub.withdraw(chat, id, self.now)
        self.settle()

    @rule(chat=st.sampled_from(CHATS), size=st.sampled_from([0, 3 * 1024 * 1024 + 1]))
    def show(self, chat: str, size: int) -> None:
        media = OutgoingMedia("image", "image/png", "a.png", bytes(size))
        try:
            self.files[chat].append(self.hub.show(chat, media, self.now))
        except OutboxFull:
            pass
        self.settle()

    @rule(
        chat=st.sampled_from(CHATS),
        kind=st.sampled_from(["exec_approval", "slash_confirm", "clarify", "open"]),
        timeout=st.sampled_from([0.5, 20.0, 1000.0]),
    )
    def ask(self, chat: str, kind: str, timeout: float) -> None:
        card = {
            "exec_approval": approval_card("ls", "", chat, timeout, reference=chat),
            "slash_confirm": confirm_card("t", "m", chat, timeout, reference=chat),
            "clarify": clarify_card("q", ["x", "y"], chat, timeout, reference=chat),
            "open": clarify_card("q", None, chat, timeout, reference=chat),
        }[kind]
        try:
            self.cards[self.hub.cards.ask(chat, card, self.now)] = chat
        except OutboxFull:
            pass
        self.settle()

    @precondition(lambda self: self.cards)
    @rule(data=st.data(), option=st.sampled_from([None, "deny"]), expired=st.booleans())
    def close_card(self, data: st.DataObject, option: str | None, expired: bool) -> None:
        id = self.pick(data, list(self.cards))
        self.hub.cards.close(id, option, expired=expired, now=self.now)
        self.settle()

    @rule(chat=st.sampled_from(CHATS))
    def turn_started(self, chat: str) -> None:
        self.turns.add(chat)
        self.hub.turn_started(chat, self.now)
        self.settle()

    @rule(chat=st.sampled_from(CHATS))
    def turn_ended(self, chat: str) -> None:
        self.turns.discard(chat)
        self.hub.turn_ended(chat, self.now)
        for said in self.said[chat].values():
            said.final = True
        self.settle()
        device = self.hub.devices.get(chat)
        assert device is None or device.state == ("idle", False)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), takes=st.booleans())
    def hand_over(self, data: st.DataObject, takes: bool) -> None:
        chat = self.pick(data, sorted({i.chat for i in self.waiting}))
        incoming = next(i for i in self.waiting if i.chat == chat)
        self.waiting.remove(incoming)
        if takes:
            self.taken[incoming.chat, incoming.id] = self.now
            self.hub.taken(incoming, self.now)
        else:
            self.hub.refused(incoming, self.now)
        self.settle()

    @precondition(lambda self: self.tells)
    @rule(data=st.data(), how=st.sampled_from(["taken", "then", "late", "fails"]))
    def agent_hears_answer(self, data: st.DataObject, how: str) -> None:
        tell = self.tells.pop(self.pick(data, list(range(len(self.tells)))))
        chat = self.cards[tell.card_id]
        typed = self.hub.cards._texts.get(tell.card_id)
        key = (typed.chat, typed.id) if typed is not None else None
        if how == "fails":
            self.hub.cards.answer_failed(tell.card_id, self.now)
            if key is not None:
                del self.typed[key]
        else:
            then = self.words(chat, 9) if how == "then" and not self.nearly_full(chat) else None
            self.hub.cards.answered(tell.card_id, how != "late", then, self.now)
            if then is not None:
                self.told[chat].append(then)
            if key is not None and how != "late" and tell.text is not None:
                del self.typed[key]
                self.taken[key] = self.now
        self.settle()

    # Whole stories, which single steps would tell too seldom

    @precondition(lambda self: self.alive(chat=True))
    @rule(data=st.data(), id=st.sampled_from(["a", "b", "c"]))
    def a_text_that_is_taken(self, data: st.DataObject, id: str) -> None:
        conn = self.pick(data, self.alive(chat=True))
        before = len(self.waiting)
        self.send_one(conn, id, {"t": "text", "text": "hi"})
        if len(self.waiting) > before and before == 0:
            incoming = self.waiting.pop()
            self.taken[incoming.chat, incoming.id] = self.now
            self.hub.taken(incoming, self.now)
            self.settle()

    @precondition(lambda self: self.alive(chat=True))
    @rule(data=st.data(), reads=st.booleans())
    def a_question_to_be_typed(self, data: st.DataObject, reads: bool) -> None:
        conn = self.pick(data, self.alive(chat=True))
        chat = self.lines[conn].chat
        assert chat is not None
        if self.tells or self.nearly_full(chat):
            return
        self.drain_all(conn)
        card = clarify_card("q", ["x"], chat, 1000.0, reference=chat)
        id = self.hub.cards.ask(chat, card, self.now)
        self.cards[id] = chat
        self.settle()
        self.drain_all(conn)
        self.feed(conn, t="prompt", prompt_id=id, option_id="other")
        self.hub.cards.answered(self.tells.pop().card_id, True, None, self.now)
        self.settle()
        if reads:
            self.drain_all(conn)

    # What always holds

    @invariant()
    def nothing_waits_unnoticed(self) -> None:
        for conn, line in self.lines.items():
            if line.closing is None and self.hub.connections[conn].box:
                assert line.woken, "frames wait and no one was told"

    @invariant()
    def accounts_are_right(self) -> None:
        for device in self.hub.known():
            box = device.box
            items = [*box._items, *([box._leaving[0]] if box._leaving else [])]
            assert box.frames == sum(item.number for item in items)
            assert box.bytes == sum(item.weight for item in items)
            under_way = [i for i in self.waiting if i.chat == device.id]
            typed = [i for i in self.typed.values() if i.chat == device.id]
            assert device.under_way == len(under_way) + len(typed)
            assert device.under_way_bytes == sum(len(i.data) for i in under_way)
            if device.conn is None:
                assert not device.uploads.open and device.uploads.size == 0

    @invariant()
    def nothing_is_kept_for_nothing(self) -> None:
        for device in self.hub.known():
            waits = (
                device.conn
                or device.box
                or device.in_turn
                or device.under_way
                or device.idle_at is not None
                or self.hub.cards.prompts.of(device.id)
                or any(not a.sent_final or a.waiting for a in device.answers.values())
            )
            assert waits, f"{device.id} is away and nothing of it is needed"
        assert set(self.hub.connections) == set(self.lines)
        assert set(self.hub.cards._texts) <= set(self.hub.cards.prompts.open)
        assert set(self.hub.cards._unseen) <= set(self.hub.cards.prompts.open)

    @invariant()
    def strangers_are_bounded(self) -> None:
        assert len(self.hub._unauthenticated) <= hub_module.MAX_UNAUTHENTICATED
        assert set(self.hub._rejections) <= set(self.hub._unauthenticated)
        for chat in CHATS:
            lines = [c for c in self.alive(chat=True) if self.lines[c].chat == chat]
            assert len(lines) <= 1
            assert bool(lines) == self.hub.online(chat)


def test_the_core_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_UNAUTHENTICATED", 3)
    monkeypatch.setattr(outbox, "MAX_OUTBOX_FRAMES", SMALL_BOX)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=MACHINE_EXAMPLES,
            stateful_step_count=80,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
