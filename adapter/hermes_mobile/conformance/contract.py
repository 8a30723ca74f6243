"""Reads the contract's vectors and scenarios, and their small language (see its README)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import referencing

_HERE = Path(__file__).resolve()
# Installed, the files lie beside this one; a checkout has them once, for all languages.
ROOT = next(
    (
        folder
        for folder in (_HERE.parent / "contract", _HERE.parents[3] / "contracts" / "mobile-v1")
        if (folder / "door.json").is_file()
    ),
    _HERE.parent / "contract",
)
ABSENT = object()


def load(name: str) -> Any:
    """One file of the contract, as JSON."""
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


def groups(folder: str, kind: str, prefix: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every item of the lists `kind` in `folder`: its group, the group's section, the item."""
    for path in sorted((ROOT / folder).glob(f"{prefix}*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        for item in held[kind]:
            yield path.stem, held.get("section", ""), item


def vectors(direction: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All vectors of a direction, each with a name that is unique in the contract."""
    for group, _, vector in groups("vectors", "vectors", f"{direction}-"):
        yield f"{group}: {vector['name']}", vector


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """All scenarios, each with a name that is unique in the contract."""
    for group, _, scenario in groups("scenarios", "scenarios"):
        yield f"{group}: {scenario['name']}", scenario


def expand(value: Any, names: Mapping[str, Any] | None = None) -> Any:
    """A value with its generators carried out; `names` are what `{"$name": …}` stands for."""
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$repeat": str(text), "times": int(times)}:
            return text * times
        case {"$concat": list(pieces)}:
            return "".join(expand(piece, names) for piece in pieces)
        case {"$zeros": int(size)}:
            return base64.b64encode(bytes(size)).decode()
        case {"$base64": text}:
            return base64.b64encode(expand(text, names).encode()).decode()
        case {"$card": True}:
            return (names or {})["card"]
        case {"$name": str(name)}:
            return (names or {})[name]
    return {key: expand(item, names) for key, item in value.items()}


def message(vector: Mapping[str, Any], names: Mapping[str, Any] | None = None) -> str | bytes:
    """What a vector or step sends: a text message, or the bytes of a binary one."""
    if "frame" in vector:
        return json.dumps(expand(vector["frame"], names), ensure_ascii=False)
    if "raw" in vector:
        return str(expand(vector["raw"], names))
    return base64.b64decode(expand(vector["binary"], names))


def with_names(pattern: Any, names: Mapping[str, Any]) -> Any:
    """A pattern in which what was bound before stands for its name."""
    if isinstance(pattern, dict):
        if "$name" in pattern:
            return names[pattern["$name"]]
        return {key: with_names(item, names) for key, item in pattern.items()}
    if isinstance(pattern, list):
        return [with_names(item, names) for item in pattern]
    return pattern


def mismatch(
    pattern: Any, value: Any, names: dict[str, Any] | None = None, at: str = "$"
) -> str | None:
    """Why `value` does not fit `pattern`, None when it does.

    An object fits when every field of the pattern does; other fields are free. `{"$bind": name}`
    notes the value in `names`.
    """
    names = {} if names is None else names
    if isinstance(pattern, dict):
        match pattern:
            case {"$any": True}:
                return f"{at} is missing" if value is ABSENT else None
            case {"$absent": True}:
                return None if value is ABSENT else f"{at} is there: {_shown(value)}"
            case {"$matches": str(expression)}:
                fits = isinstance(value, str) and re.search(expression, value) is not None
                return None if fits else f"{at} does not match {expression}: {_shown(value)}"
            case {"$set": list(items)}:
                fits = isinstance(value, list) and sorted(value) == sorted(items)
                return None if fits else f"{at} is not {items} in any order: {_shown(value)}"
            case {"$between": [low, high]}:
                fits = isinstance(value, int | float) and low <= value <= high
                return None if fits else f"{at} is not from {low} to {high}: {_shown(value)}"
            case {"$bind": str(name)}:
                names[name] = value
                return f"{at} is missing" if value is ABSENT else None
        if not any(key.startswith("$") for key in pattern):
            if not isinstance(value, dict):
                return f"{at} is no object: {_shown(value)}"
            for key, wanted in pattern.items():
                if problem := mismatch(wanted, value.get(key, ABSENT), names, f"{at}.{key}"):
                    return problem
            return None
        pattern = expand(pattern, names)
    if isinstance(pattern, list):
        if not isinstance(value, list) or len(value) != len(pattern):
            return f"{at} is no list of {len(pattern)}: {_shown(value)}"
        for index, wanted in enumerate(pattern):
            if problem := mismatch(wanted, value[index], names, f"{at}[{index}]"):
                return problem
        return None
    if type(pattern) is type(value) and pattern == value:
        return None
    return f"{at} is not {_shown(pattern)}: {_shown(value)}"


def _shown(value: Any) -> str:
    return "it is missing" if value is ABSENT else shortened(repr(value))


def shortened(text: str, limit: int = 200) -> str:
    """A text as a report shows it: the middle of a long one left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}…({len(text) - 2 * half} characters)…{text[-half:]}"


@cache
def validator(definition: str) -> jsonschema.protocols.Validator:
    """The validator of one definition of schema.json."""
    schema = load("schema.json")
    registry = referencing.Registry().with_resource(
        schema["$id"], referencing.Resource.from_contents(schema)
    )
    return jsonschema.Draft202012Validator(
        {"$ref": f"{schema['$id']}#/$defs/{definition}"}, registry=registry
    )


def complaint(definition: str, value: Any) -> str | None:
    """Why `value` is no `definition` of schema.json, None when it is one."""
    check = validator(definition)
    if check.is_valid(value):
        return None
    error = jsonschema.exceptions.best_match(check.iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message[:300]}"
