"""docs/protocol.md and docs/ru/protocol.md say what the structs say, and both say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_mobile import protocol
from scripts import make_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"
ENGLISH = (DOCS / "protocol.md").read_text(encoding="utf-8")
RUSSIAN = (DOCS / "ru" / "protocol.md").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("text", [ENGLISH, RUSSIAN], ids=["English", "Russian"])
CONSTANTS = [name for name in vars(protocol) if re.fullmatch(r"(MAX|MIN|DEFAULT)_[A-Z_]+", name)]


def _sections(text: str) -> list[tuple[str, str]]:
    """Level-2 headings with what stands below them."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _rows(text: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def _frames(text: str) -> list[tuple[str, dict[str, str]]]:
    """The frames of a section in order: name, and field -> what stands under "required"."""
    parts = re.split(r"^### `(\w+)`$", text, flags=re.MULTILINE)
    return [
        (name, {row[0].strip("`"): row[2] for row in _rows(body) if row[0].startswith("`")})
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    ]


def _fields(
    definition: dict[str, Any], schema: dict[str, Any], prefix: str = ""
) -> dict[str, bool]:
    """All fields of a definition with those inside of them -> whether they are required."""
    found = {}
    for name, described in definition["properties"].items():
        found[prefix + name] = name in definition["required"]
        choices = [described, *described.get("anyOf", [])]
        for inner, mark in [(c, ".") for c in choices] + [(described.get("items", {}), "[].")]:
            if "$ref" in inner:
                target = schema["$defs"][inner["$ref"].rpartition("/")[2]]
                found |= _fields(target, schema, prefix + name + mark)
    return found


@BOTH
@pytest.mark.parametrize("side", ["client", "server"])
def test_tables_name_every_field(text: str, side: str) -> None:
    """Each frame has its table, and the table has each field and whether it is required."""
    heading = {
        "client": ("Client frames", "Кадры клиента"),
        "server": ("Server frames", "Кадры сервера"),
    }
    types = make_schema.CLIENT if side == "client" else make_schema.SERVER
    schema = make_schema.make()
    body = next(body for name, body in _sections(text) if name in heading[side])

    documented = _frames(body.split("### Declared", 1)[0].split("### Объявлено", 1)[0])

    assert sorted(name for name, _ in documented) == sorted(t.__struct_config__.tag for t in types)
    by_name = dict(documented)
    for frame in types:
        table = by_name[frame.__struct_config__.tag]
        fields = _fields(schema["$defs"][frame.__name__], schema)
        assert table.keys() == fields.keys(), frame.__name__
        for name, required in fields.items():
            assert (table[name] in ("yes", "да")) == required, f"{frame.__name__}.{name}"


@BOTH
def test_limits_are_the_constants(text: str) -> None:
    """Every limit stands in the table under its name with its value."""
    table = {row[0].strip("`"): row[1] for row in _rows(text) if row[0].startswith("`")}
    for name in (
        *CONSTANTS,
        "PROTOCOL_VERSION",
        "HELLO_TIMEOUT",
        "TYPING_IDLE",
        "MEDIA_CHUNK_BYTES",
    ):
        value = getattr(protocol, name)
        assert re.match(rf"`{value:g}`" if isinstance(value, float) else rf"`{value}`", table[name])


@BOTH
def test_every_code_is_explained(text: str) -> None:
    """Every error code and close code has its row."""
    codes = {row[0].strip("`") for row in _rows(text)}
    assert codes >= set(msgspec.inspect.type_info(protocol.Code).values)  # type: ignore[attr-defined]
    assert codes >= {"1008", "1009", "1013", "4001"}


@BOTH
def test_links_lead_somewhere(text: str) -> None:
    """Links inside the document find their heading, others their file."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    folder = DOCS if text is ENGLISH else DOCS / "ru"
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (folder / target).exists(), target


def test_both_languages_have_the_same_parts() -> None:
    """Sections, tables and lists correspond one to one."""

    def shape(text: str) -> list[tuple[int, int, int, list[str]]]:
        return [
            (
                len(_rows(body)),
                len(re.findall(r"^(?:- |\d\. )", body, flags=re.MULTILINE)),
                len(re.findall(r"^\*\*", body, flags=re.MULTILINE)),
                sorted(set(re.findall(r"`[A-Za-z_.:{}<>\[\]]+`", body))),
            )
            for _, body in _sections(text)
        ]

    for english, russian in zip(shape(ENGLISH), shape(RUSSIAN), strict=True):
        assert english == russian
