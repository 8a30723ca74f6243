"""Writes contracts/mobile-v1/schema.json from the frame structs of the device door.

    python scripts/make_schema.py            write the file
    python scripts/make_schema.py --check    exit 1 when the file is not what the structs say

The structs of `hermes_mobile.protocol` give the fields, their order, their types and what is
optional. Only what a struct cannot say stands here: which of a client's fields are required (the
structs take their absence, so that the error can name them), limits, and descriptions. A field that
is missing in this table, or stands in it and not in its struct, is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Union

import msgspec
from msgspec import Meta

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "contracts" / "mobile-v1" / "schema.json"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "adapter"))

from hermes_mobile import protocol as p  # noqa: E402

SCHEMA_ID = "urn:hermes-mobile:mobile-v1:schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Rule:
    """What a struct cannot say of one field. `type`: for fields that the struct keeps unread."""

    description: str
    required: bool = False
    type: Any = None
    limits: dict[str, Any] = field(default_factory=dict)
    keywords: dict[str, Any] = field(default_factory=dict)


def _rule(
    description: str,
    *,
    required: bool = False,
    type: Any = None,
    keywords: dict[str, Any] | None = None,
    **limits: Any,
) -> Rule:
    return Rule(description, required, type, limits, keywords or {})


def _base64_chars(size: int) -> int:
    return -(-size // 3) * 4


def _data(description: str, limit: int, *, required: bool = True) -> Rule:
    return _rule(
        f"{description}: base64 in the standard alphabet with padding (RFC 4648 section 4), "
        f"at most {limit} bytes decoded.",
        required=required,
        type=str,
        min_length=4,
        max_length=_base64_chars(limit),
        pattern="^[A-Za-z0-9+/]+={0,2}$",
        keywords={"contentEncoding": "base64"},
    )


NOT_BLANK = r"\S"
_ID = f"The client's own id of this {{}}; only its first {p.MAX_ID_CHARS} characters count."
# What is a control character is Unicode's business; the pattern names those of ASCII.
# No `$`: in Python it also stands before a line break at the end.
_DEVICE_ID = r"^(?![\s\S]*[\u0000-\u001f\u007f:/])"
_DEVICE_TEXT = f"Cut to {p.MAX_DEVICE_CHARS} characters, control characters are dropped."

RULES: dict[type, dict[str, Rule]] = {
    p.Hello: {
        "token": _rule("The app's token. Never in the URL.", required=True, min_length=1),
        "device": _rule("Which device this is."),
        "user": _rule("Who uses it."),
        "supports": _rule(
            "Additions to protocol v1 the client understands: `accepted`, `partial_edits`. "
            "Others are ignored."
        ),
    },
    p.HelloDevice: {
        "id": _rule(
            "The device's permanent id; it becomes the session `mobile:<id>`. No control "
            f"characters, `:` or `/`; cut to {p.MAX_DEVICE_CHARS} characters. Without it the "
            "token's bound id counts, else the server makes `dev-<hex>`.",
            pattern=_DEVICE_ID,
        ),
        "name": _rule(f"A name for people. {_DEVICE_TEXT}"),
        "platform": _rule(f"For example `android`. {_DEVICE_TEXT}"),
        "app_version": _rule(f"The app's version. {_DEVICE_TEXT}"),
    },
    p.HelloUser: {
        "id": _rule(f"The user as Hermes shall know them. {_DEVICE_TEXT}"),
        "name": _rule(f"The user's name. {_DEVICE_TEXT}"),
    },
    p.Text: {
        "id": _rule(_ID.format("message"), required=True, min_length=1),
        "text": _rule(
            "The message; not blank.",
            required=True,
            min_length=1,
            max_length=p.MAX_TEXT_CHARS,
            pattern=NOT_BLANK,
        ),
    },
    p.Audio: {
        "id": _rule(_ID.format("message"), required=True, min_length=1),
        "format": _rule(
            "The container of the recording.",
            required=True,
            keywords={"enum": list(p.AUDIO_FORMATS)},
        ),
        "data": _data("The recording", p.MAX_AUDIO_BYTES),
        "text": _rule("The transcript, if the app made one.", max_length=p.MAX_TEXT_CHARS),
    },
    p.Media: {
        "id": _rule(
            _ID.format("file") + " The same for all its parts.", required=True, min_length=1
        ),
        "kind": _rule("What it is.", required=True, keywords={"enum": list(p.MEDIA_IN)}),
        "mime": _rule("Its MIME type; without it the file name decides."),
        "filename": _rule(
            "Its name; only the last path component counts, cut to "
            f"{p.MAX_FILENAME_CHARS} characters with the extension kept."
        ),
        "caption": _rule("A caption; for `audio` the transcript.", max_length=p.MAX_TEXT_CHARS),
        "data": _data("This part's bytes", p.MAX_MEDIA_BYTES),
        "part": _rule(
            "Which part this is, from 0 and below `parts`. Default 0.",
            ge=0,
            le=p.MAX_MEDIA_PARTS - 1,
        ),
        "parts": _rule("How many parts there are. Default 1.", ge=1, le=p.MAX_MEDIA_PARTS),
    },
    p.Prompt: {
        "prompt_id": _rule("The card's `id`.", required=True, min_length=1),
        "option_id": _rule("The chosen option. It or `text` must not be blank."),
        "text": _rule(
            "The person's own answer (`clarify`). It or `option_id` must not be blank.",
            max_length=p.MAX_TEXT_CHARS,
        ),
    },
    p.Typing: {},
    p.Ping: {
        "ts": _rule(
            f"Any JSON value of at most {p.MAX_TS_BYTES} bytes; `pong` returns the same bytes.",
            type=Any,
        ),
    },
    p.Ack: {},
    p.Deliver: {
        "id": _rule(_ID.format("delivery"), required=True, min_length=1),
        "target": _rule(
            "The device, with or without `mobile:`; without it MOBILE_HOME_DEVICE.",
        ),
        "text": _rule(
            "What to show first. It or `media` must be there.", max_length=p.MAX_TEXT_CHARS
        ),
        "media": _rule("A file to show after the text."),
    },
    p.DeliverMedia: {
        "kind": _rule(
            "What it is; `audio` counts as `voice`.",
            required=True,
            keywords={"enum": [*p.MEDIA_OUT, "audio"]},
        ),
        "mime": _rule("Its MIME type; without it the file name decides."),
        "filename": _rule("Its name, cut as in `media`."),
        "caption": _rule("A caption.", max_length=p.MAX_TEXT_CHARS),
        "data": _data("The whole file", p.MAX_MEDIA_BYTES),
    },
    p.Ready: {
        "v": _rule("The protocol's version.", keywords={"const": p.PROTOCOL_VERSION}),
        "session": _rule(
            "`mobile:<device.id>`: the session in Hermes and the address of deliveries.",
            pattern="^mobile:",
        ),
        "device": _rule("The device as the server sees it."),
        "avatar_url": _rule("The avatar page; may be empty."),
        "capabilities": _rule("What this server can do."),
    },
    p.ReadyDevice: {
        "id": _rule("The id in use; keep it if you sent none.", min_length=1),
        "name": _rule("The name as said; may be empty."),
    },
    p.Capabilities: {
        "text": _rule("Text messages. Always true."),
        "voice": _rule("Voice messages. Always true."),
        "typing": _rule("`typing` frames. Always true."),
        "avatar_states": _rule("The states `avatar` may tell."),
        "media_in": _rule("Kinds of files the server takes."),
        "media_out": _rule("Kinds of files the server may send."),
        "prompts": _rule("Kinds of cards the server may show."),
        "edit": _rule("Whether a `message` may be revised under its id."),
        "max_media_bytes": _rule("Largest file in bytes, both ways."),
        "max_text_chars": _rule("Longest `text` and `caption` in characters."),
        "extensions": _rule(
            "Which of `hello.supports` are in force; absent when the client named none."
        ),
    },
    p.Message: {
        "id": _rule(
            "The agent's message; the same for all its chunks and revisions.", min_length=1
        ),
        "text": _rule("This chunk.", max_length=p.DEFAULT_CHUNK_LIMIT),
        "chunk": _rule("Which chunk this is."),
        "final": _rule("True on the last frame of the last revision."),
        "edit": _rule("True when this revises a message that was sent before."),
    },
    p.Chunk: {
        "index": _rule("From 0, below `total`.", ge=0),
        "total": _rule("How many chunks this revision has; those from `total` on are gone.", ge=1),
    },
    p.MediaOut: {
        "id": _rule("The file; the same for all its parts.", min_length=1),
        "kind": _rule("What it is."),
        "mime": _rule("Its MIME type."),
        "filename": _rule("Its name, without a path."),
        "part": _rule("Which part this is, from 0.", ge=0),
        "parts": _rule("How many parts there are.", ge=1),
        "final": _rule("True on the last part."),
        "size": _rule("The whole file's bytes; 0 where only `url` is known.", ge=0),
        "caption": _rule("A caption."),
        "data": _rule(
            "This part's bytes in base64; absent when the file is given by `url`.",
            keywords={"contentEncoding": "base64"},
        ),
        "url": _rule("Where the app fetches the file itself."),
        "reply_to": _rule("The message this file answers."),
    },
    p.PromptOut: {
        "id": _rule("The card; give it back as `prompt_id`.", min_length=1),
        "kind": _rule("What kind of question."),
        "text": _rule("The question."),
        "options": _rule("The buttons, in order."),
        "session": _rule("The Hermes session the answer goes to."),
        "timeout_seconds": _rule("What remains of the card's life, in seconds.", ge=0),
        "command": _rule("exec_approval: the exact command. Show it beside the buttons."),
        "description": _rule("exec_approval: what the command does."),
    },
    p.Option: {
        "id": _rule("Give it back as `option_id`.", min_length=1),
        "label": _rule("What the button says."),
        "style": _rule(
            "`primary`, `danger` or empty.", keywords={"enum": ["", "primary", "danger"]}
        ),
    },
    p.PromptDone: {
        "id": _rule("The card.", min_length=1),
        "option_id": _rule("What was applied; it may differ from what was sent."),
        "expired": _rule("True: its time ran out, or nothing is known of it."),
    },
    p.Avatar: {"state": _rule("What the agent is doing; an unknown state is `idle`.")},
    p.TypingOut: {"stop": _rule("True: put the sign out at once.")},
    p.Pong: {"ts": _rule("The bytes of `ping.ts`; null when it had none.", type=Any)},
    p.Error: {
        "code": _rule("What kind of refusal. An unknown code is a plain failure."),
        "message": _rule("A sentence for the app's author. Not for people."),
        "fatal": _rule("True: the connection closes with 1008 and the code as its reason."),
        "id": _rule("The `id` (or `prompt_id`) of the frame at fault, where it is known."),
    },
    p.Accepted: {"id": _rule("The text, audio or media that the agent has.", min_length=1)},
}

# What no field says alone.
FRAME_KEYWORDS: dict[type, dict[str, Any]] = {
    p.Prompt: {
        "anyOf": [
            {
                "required": [name],
                "properties": {name: {"type": "string", "pattern": NOT_BLANK}},
            }
            for name in ("option_id", "text")
        ]
    },
    p.Deliver: {
        "anyOf": [
            {
                "required": ["text"],
                "properties": {"text": {"type": "string", "pattern": NOT_BLANK}},
            },
            {"required": ["media"], "properties": {"media": {"type": "object"}}},
        ]
    },
}

CLIENT: tuple[type[Any], ...] = typing.get_args(p.ClientFrame)
SERVER: tuple[type[Any], ...] = typing.get_args(p.ServerFrame)


class TableError(Exception):
    """The table of this file and the structs do not agree."""


def make() -> dict[str, Any]:
    """The schema as one JSON value."""
    twins: dict[type, type] = {}
    for frame in (*CLIENT, *SERVER):
        _twin(frame, twins)
    if stray := [struct.__name__ for struct in RULES if struct not in twins]:
        raise TableError(f"no frame leads to {', '.join(stray)}: take it out of RULES")
    _, components = msgspec.json.schema_components(
        list(twins.values()), ref_template="#/$defs/{name}"
    )
    for struct in twins:
        _finish(struct, components[struct.__name__])
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ID,
        "title": "Hermes Mobile, WebSocket protocol v1",
        "description": (
            "Every frame of the device door. A frame is one JSON object in UTF-8. Unknown fields "
            "are allowed everywhere and ignored. `t` is written as here; the server also reads it "
            "in other cases. Lengths are Unicode characters. Made by scripts/make_schema.py."
        ),
        "anyOf": [{"$ref": "#/$defs/ClientFrame"}, {"$ref": "#/$defs/ServerFrame"}],
        "$defs": {
            "ClientFrame": _union("What a client sends.", CLIENT),
            "ServerFrame": _union("What the server sends.", SERVER),
            **components,
        },
    }


def _union(description: str, frames: tuple[type, ...]) -> dict[str, Any]:
    return {
        "description": description,
        "oneOf": [{"$ref": f"#/$defs/{frame.__name__}"} for frame in frames],
    }


def _twin(struct: Any, twins: dict[type, type]) -> type:
    """A struct of the same name whose fields say what `RULES` adds."""
    if struct in twins:
        return twins[struct]
    rules = RULES.get(struct)
    names = struct.__struct_fields__
    if rules is None or set(rules) != set(names):
        raise TableError(
            f"RULES[{struct.__name__}] names {sorted(rules or ())}, the struct has {sorted(names)}"
        )
    hints = typing.get_type_hints(struct)
    from_client = struct in CLIENT or struct.__name__.startswith(("Hello", "Deliver"))
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for info in msgspec.structs.fields(struct):
        rule = rules[info.name]
        annotation = rule.type if rule.type is not None else _bare(hints[info.name], twins)
        described = Annotated[annotation, Meta(**rule.limits)] if rule.limits else annotation
        if info.required or rule.required or _always_sent(struct, info.name):
            fields.append((info.name, described))
        elif from_client and annotation is not Any:
            fields.append((info.name, Union[described, None, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
        else:
            fields.append((info.name, Union[described, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
    config = struct.__struct_config__
    twins[struct] = msgspec.defstruct(
        struct.__name__,
        fields,
        namespace={"__doc__": struct.__doc__},
        tag_field=config.tag_field,
        tag=config.tag,
        kw_only=True,
    )
    return twins[struct]


def _always_sent(struct: Any, name: str) -> bool:
    """Whether a server's field with a default is written all the same."""
    if struct in CLIENT or struct.__struct_config__.omit_defaults:
        return False
    default = next(f.default for f in msgspec.structs.fields(struct) if f.name == name)
    return default is not None and default is not msgspec.UNSET


def _bare(annotation: Any, twins: dict[type, type]) -> Any:
    """The annotation without absence (None, Unset), its structs replaced by their twins."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _twin(annotation, twins)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        kept = [a for a in arguments if a not in (type(None), msgspec.UnsetType)]
        if len(kept) != 1:
            raise TableError(f"{annotation} is more than one type: give its rule a `type`")
        return _bare(kept[0], twins)
    if origin is tuple:
        return types.GenericAlias(tuple, (_bare(arguments[0], twins), ...))
    if origin is list:
        return types.GenericAlias(list, (_bare(arguments[0], twins),))
    return annotation


def _finish(struct: type, schema: dict[str, Any]) -> None:
    """Put descriptions and keywords where msgspec has no place for them."""
    schema["description"] = " ".join((struct.__doc__ or "").split())
    for name, rule in RULES[struct].items():
        written = schema["properties"][name]
        target = written
        if "anyOf" in written and rule.keywords:
            target = next(choice for choice in written["anyOf"] if choice != {"type": "null"})
        target.update(rule.keywords)
        # A sibling of $ref is allowed since 2019-09.
        written["description"] = rule.description
    schema.update(FRAME_KEYWORDS.get(struct, {}))


def text() -> str:
    """The file's content."""
    return json.dumps(make(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the file; the process's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    if not options.check:
        TARGET.write_text(text(), encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text():
        return 0
    print(f"{TARGET} is not what the structs say: run python scripts/make_schema.py")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
