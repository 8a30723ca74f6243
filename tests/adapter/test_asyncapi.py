"""asyncapi.yaml describes every frame, and all that it points at is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from scripts import make_schema

from .contract import ROOT, complaint, load

DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "asyncapi.yaml").read_text(encoding="utf-8"))
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _follow(reference: str) -> Any:
    """What a reference leads to, in this document or beside it."""
    file, _, pointer = reference.partition("#/")
    value = load(file.removeprefix("./")) if file else DOCUMENT
    for step in pointer.split("/"):
        value = value[step]
    return value


def _definition(message: dict[str, Any]) -> str:
    return str(message["payload"]["$ref"]).rpartition("/")[2]


def test_document_has_what_asyncapi_3_asks_for() -> None:
    """Version, title, servers, a channel with an address, operations with an action."""
    assert DOCUMENT["asyncapi"].startswith("3.0.")
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    for server in DOCUMENT["servers"].values():
        assert {"host", "protocol"} <= server.keys()
    assert DOCUMENT["channels"]["door"]["address"] == "/ws"
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in ("send", "receive")
        assert operation["channel"] == {"$ref": "#/channels/door"}
        assert operation["messages"]


def test_every_reference_leads_somewhere() -> None:
    """Nothing points into the void, and operations point at messages of their channel."""
    for reference in _references(DOCUMENT):
        assert _follow(reference), reference
    for operation in DOCUMENT["operations"].values():
        replies = operation.get("reply", {}).get("messages", [])
        for message in (*operation["messages"], *replies):
            assert message["$ref"].startswith("#/channels/door/messages/")


def test_every_frame_is_sent_and_received() -> None:
    """Each client frame is received by an operation, each server frame sent by one or a reply."""
    received, sent = set(), set()
    for operation in DOCUMENT["operations"].values():
        own = {_definition(_follow(_follow(m["$ref"])["$ref"])) for m in operation["messages"]}
        replies = {
            _definition(_follow(_follow(m["$ref"])["$ref"]))
            for m in operation.get("reply", {}).get("messages", [])
        }
        there, back = (own, replies) if operation["action"] == "receive" else (replies, own)
        received |= there
        sent |= back

    assert received == {frame.__name__ for frame in make_schema.CLIENT}
    assert sent == {frame.__name__ for frame in make_schema.SERVER}


def test_examples_are_frames_of_their_kind() -> None:
    """Each message is named by its `t`, and its examples keep to the schema."""
    for message in MESSAGES.values():
        for example in message["examples"]:
            assert example["payload"]["t"] == message["name"]
            assert complaint(_definition(message), example["payload"]) is None
