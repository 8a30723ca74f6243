"""The contract of the device door holds for the door: schema, vectors, AsyncAPI and documents."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jsonschema
import pytest

from hermes_mobile.commands import receive
from hermes_mobile.effects import Close, Effect, Incoming, Submit, Tell, Wake
from hermes_mobile.hub import Hub
from hermes_mobile.prompts import Card, approval_card, clarify_card, confirm_card
from hermes_mobile.settings import Settings
from hermes_mobile.tokens import Peer
from scripts import make_schema

from .contract import complaint, expand, load, message, mismatch, vectors
from .contract_reader import Reader
from .hub_house import drained, next_frame

DOOR = load("door.json")
CLIENT_VECTORS = list(vectors("client"))
SERVER_VECTORS = list(vectors("server"))
CLIENT_TYPES = [frame.__struct_config__.tag for frame in make_schema.CLIENT]
SERVER_TYPES = [frame.__struct_config__.tag for frame in make_schema.SERVER]


def test_schema_is_what_the_structs_say() -> None:
    """schema.json is made, never edited."""
    assert make_schema.TARGET.read_text(encoding="utf-8") == make_schema.text(), (
        "run: python scripts/make_schema.py"
    )


def test_schema_is_a_schema() -> None:
    """schema.json keeps to JSON Schema 2020-12 and every reference in it leads somewhere."""
    schema = load("schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    for reference in _references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_schema_describes_everything() -> None:
    """No frame and no field is without a description."""
    for name, definition in load("schema.json")["$defs"].items():
        assert definition["description"], name
        for field, described in definition.get("properties", {}).items():
            assert field == "t" or described["description"], f"{name}.{field}"


def test_every_frame_has_good_and_bad_vectors() -> None:
    """No client frame goes without a vector that passes and, where it can fail, one that fails."""
    for kind in CLIENT_TYPES:
        outcomes = {
            "error" in vector["expect"]
            for _, vector in CLIENT_VECTORS
            if isinstance(vector.get("frame"), dict) and vector["frame"].get("t") == kind
        }
        assert outcomes >= ({False} if kind == "ack" else {False, True}), kind


@pytest.mark.parametrize(("name", "vector"), CLIENT_VECTORS, ids=[n for n, _ in CLIENT_VECTORS])
def test_schema_agrees_with_client_vector(name: str, vector: dict[str, Any]) -> None:
    """What the door takes the schema allows; what it refuses by its form the schema refuses."""
    frame = vector.get("frame")
    if not isinstance(frame, dict) or str(frame.get("t")).lower() not in CLIENT_TYPES:
        frame = None
    if frame is None:
        assert "schema" not in vector or "frame" in vector
        return
    refused = "error" in vector["expect"]
    expected = vector.get("schema", "invalid" if refused else "valid")

    problem = complaint("ClientFrame", expand(frame, {"card": "p-1"}))

    assert (problem is None) == (expected == "valid"), problem


def test_every_server_frame_has_vectors() -> None:
    """Every frame of the server stands in a vector whose form the schema allows."""
    shown = {
        frame.get("t")
        for _, vector in SERVER_VECTORS
        for frame in vector["frames"]
        if "schema" not in vector
    }

    assert shown >= set(SERVER_TYPES)


@pytest.mark.parametrize(("name", "vector"), SERVER_VECTORS, ids=[n for n, _ in SERVER_VECTORS])
def test_server_vector_reads_as_it_says(name: str, vector: dict[str, Any]) -> None:
    """The frames of a server vector keep to the schema, and a plain client sees what it says."""
    reader = Reader()

    for frame in vector["frames"]:
        if "$raw" in frame:
            reader.feed(frame["$raw"])
            continue
        whole = expand(frame)
        if str(frame["t"]).lower() in SERVER_TYPES and "schema" not in vector:
            assert complaint("ServerFrame", whole) is None, complaint("ServerFrame", whole)
        reader.feed(json.dumps(whole))

    for key, wanted in vector["expect"].items():
        problem = mismatch(wanted, getattr(reader, key))
        assert problem is None, f"{key}: {problem}"


class Bench:
    """The pure core with the contract's settings, and all that leaves it, by connection."""

    def __init__(self) -> None:
        self.hub = Hub(Settings.from_sources(DOOR["settings"]))
        self.now = 1000.0
        self.frames: dict[int, list[bytes]] = {}
        self.closed: dict[int, Close] = {}
        self.effects: list[Effect] = []

    def open(self, conn: int, hello: dict[str, Any] | None) -> None:
        """A connection from elsewhere; after `hello` what it was told is forgotten."""
        self.frames[conn] = []
        self.hub.opened(conn, Peer("192.0.2.1"), self.now)
        if hello is not None:
            self.feed(conn, json.dumps(hello))
            assert self.parsed(conn)[0]["t"] == "ready"
            self.frames[conn].clear()

    def feed(self, conn: int, raw: str | bytes) -> None:
        receive(self.hub, conn, raw.encode() if isinstance(raw, str) else raw, self.now)
        self.drain()

    def drain(self) -> None:
        for effect in drained(self.hub):
            match effect:
                case Wake(conn):
                    while (frame := next_frame(self.hub, conn, self.now)) is not None:
                        self.frames[conn].append(frame)
                case Close(conn, _, _, last):
                    self.closed[conn] = effect
                    if last is not None:
                        self.frames[conn].append(last)
                case _:
                    self.effects.append(effect)

    def parsed(self, conn: int) -> list[dict[str, Any]]:
        """What the connection was sent, each frame checked against the schema."""
        frames = [json.loads(frame) for frame in self.frames[conn]]
        for frame in frames:
            assert complaint("ServerFrame", frame) is None, frame
        return frames


def _card(word: str) -> Card:
    """The card a word of the scripted agent opens."""
    name, _, rest = word.partition(" ")
    if name == "approve":
        return approval_card(rest, "", "mobile:tel-1", 600.0)
    if name == "confirm":
        return confirm_card("Confirm?", "", "mobile:tel-1", 600.0)
    assert name == "clarify"
    question, *choices = rest.split("|")
    return clarify_card(question, choices, "mobile:tel-1", 600.0)


def _says(told: Tell) -> str | None:
    """What the scripted agent says to an answer."""
    if told.card.kind == "exec_approval":
        return f"approval: {told.option_id}"
    if told.card.kind == "slash_confirm":
        return f"confirm: {told.option_id}"
    if told.option_id != "other":
        label = next(o.label for o in told.card.options if o.id == told.option_id)
        return f"clarify: {label}"
    return None if told.text is None else f"clarify: {told.text}"


@pytest.mark.parametrize(("name", "vector"), CLIENT_VECTORS, ids=[n for n, _ in CLIENT_VECTORS])
def test_core_does_what_client_vector_says(name: str, vector: dict[str, Any]) -> None:
    """One message to the core, in the state of the vector, has the outcome of the vector."""
    bench, conn = Bench(), 1
    names: dict[str, Any] = {}
    hello = DOOR["hello"].get(vector["state"])
    if hello is not None and "supports" in vector:
        hello = {**hello, "supports": vector["supports"]}
    bench.open(conn, hello)
    for other, device in enumerate(vector.get("online", ()), start=2):
        bench.open(other, {**DOOR["hello"]["open"], "device": {"id": device}})
    if "after" in vector:
        names["card"] = bench.hub.cards.ask("tel-1", _card(vector["after"]), bench.now)
        bench.drain()
        assert bench.parsed(conn)[0]["text"]
        bench.frames[conn].clear()

    if "wait" in vector:
        bench.now += vector["wait"]
        bench.hub.tick(bench.now)
        bench.drain()
    else:
        bench.feed(conn, message(vector, names))

    _check(bench, conn, vector["expect"], names)


def _check(bench: Bench, conn: int, expect: dict[str, Any], names: dict[str, Any]) -> None:
    match expect:
        case {"taken": wanted}:
            (effect,) = bench.effects
            assert isinstance(effect, Submit)
            assert bench.parsed(conn) == []
            assert mismatch(wanted, _incoming(effect.incoming)) is None, mismatch(
                wanted, _incoming(effect.incoming)
            )
            if "accepted" in expect:
                bench.hub.taken(effect.incoming, bench.now)
                bench.drain()
                told = [{"t": "accepted", "id": expect["accepted"]}] if expect["accepted"] else []
                assert bench.parsed(conn) == told
        case {"kept": True}:
            assert (bench.parsed(conn), bench.effects) == ([], [])
            assert len(bench.hub.devices["tel-1"].uploads.open) == 1
        case {"ignored": True}:
            assert (bench.parsed(conn), bench.effects, bench.closed) == ([], [], {})
        case {"pong": ts}:
            assert bench.frames[conn] == [f'{{"t":"pong","ts":{expand(ts)}}}'.encode()]
        case {"ready": wanted}:
            frame = bench.parsed(conn)[0]
            assert frame["t"] == "ready"
            assert mismatch(wanted, frame) is None, mismatch(wanted, frame)
            assert bench.effects == []
        case {"error": wanted}:
            _check_error(bench, conn, wanted, names)
        case {"prompt_done": wanted}:
            _check_answer(bench, conn, wanted, expect.get("says"), names)
        case {"delivered": wanted}:
            _check_delivery(bench, conn, wanted)
        case _:
            raise AssertionError(f"nobody knows how to check {expect}")


def _incoming(incoming: Incoming) -> dict[str, Any]:
    return {
        "kind": incoming.kind,
        "id": incoming.id,
        "text": incoming.text,
        "filename": incoming.filename,
        "mime": incoming.mime,
        "format": incoming.format,
        "size": len(incoming.data),
        "sha256": hashlib.sha256(incoming.data).hexdigest(),
    }


def _check_error(bench: Bench, conn: int, wanted: dict[str, Any], names: dict[str, Any]) -> None:
    (frame,) = bench.parsed(conn)
    assert frame["t"] == "error"
    assert bench.effects == []
    assert (frame["code"], frame["fatal"]) == (wanted["code"], wanted["fatal"]), frame
    assert frame.get("id") == expand(wanted["id"], names)
    if "field" in wanted:
        said = frame["message"]
        assert f"`{wanted['field']}`" in said or f"`$.{wanted['field']}" in said, said
    if wanted["fatal"]:
        assert (bench.closed[conn].code, bench.closed[conn].reason) == (1008, wanted["code"])
    else:
        assert bench.closed == {}
        bench.frames[conn].clear()
        bench.feed(conn, '{"t":"ping","ts":"alive"}')
        assert bench.parsed(conn) == [{"t": "pong", "ts": "alive"}]


def _check_answer(
    bench: Bench, conn: int, wanted: dict[str, Any], says: Any, names: dict[str, Any]
) -> None:
    if bench.effects:
        (told,) = bench.effects
        assert isinstance(told, Tell)
        assert bench.parsed(conn) == []  # the card closes when the agent has the answer
        assert _says(told) == expand(says)
        bench.hub.cards.answered(told.card_id, True, None, bench.now)
        bench.drain()
    else:
        assert says is None
    (frame,) = bench.parsed(conn)
    assert frame["t"] == "prompt_done"
    assert mismatch(wanted, frame, names) is None, mismatch(wanted, frame, names)


def _check_delivery(bench: Bench, conn: int, wanted: dict[str, Any]) -> None:
    assert (bench.parsed(conn), bench.effects) == ([], [])
    shown = {
        device.id: [f for f in bench.parsed(device.conn.id) if f["t"] in ("message", "media")]
        for device in bench.hub.known()
        if device.conn is not None
    }
    frames = shown.pop(wanted["to"])
    assert not any(shown.values())
    texts = [frame for frame in frames if frame["t"] == "message"]
    files = [frame for frame in frames if frame["t"] == "media"]
    assert frames == texts + files
    if "text" in wanted:
        assert ("".join(frame["text"] for frame in texts) or None) == expand(wanted["text"])
    if wanted.get("media") is None:
        assert files == []
    else:
        assert mismatch(wanted["media"], files[0]) is None, mismatch(wanted["media"], files[0])


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [r for item in value.values() for r in _references(item)]
    if isinstance(value, list):
        return [r for item in value for r in _references(item)]
    return []
