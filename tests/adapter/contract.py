"""Reads contracts/mobile-v1: vectors, scenarios and their small language (see its README)."""

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

ROOT = Path(__file__).resolve().parents[2] / "contracts" / "mobile-v1"
ABSENT = object()


def load(name: str) -> Any:
    """One file of the contract, as JSON."""
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


def vectors(direction: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All vectors of a direction, each with a name that is unique in the contract."""
    for path in sorted((ROOT / "vectors").glob(f"{direction}-*.json")):
        for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]:
            yield f"{path.stem}: {vector['name']}", vector


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """All scenarios, each with a name that is unique in the contract."""
    for path in sorted((ROOT / "scenarios").glob("*.json")):
        for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
            yield f"{path.stem}: {scenario['name']}", scenario


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
                return None if value is ABSENT else f"{at} is there: {value!r}"
            case {"$matches": str(expression)}:
                fits = isinstance(value, str) and re.search(expression, value) is not None
                return None if fits else f"{at} does not match {expression}: {value!r}"
            case {"$set": list(items)}:
                fits = isinstance(value, list) and sorted(value) == sorted(items)
                return None if fits else f"{at} is not {items} in any order: {value!r}"
            case {"$between": [low, high]}:
                fits = isinstance(value, int | float) and low <= value <= high
                return None if fits else f"{at} is not from {low} to {high}: {value!r}"
            case {"$bind": str(name)}:
                names[name] = value
                return f"{at} is missing" if value is ABSENT else None
        if not any(key.startswith("$") for key in pattern):
            if not isinstance(value, dict):
                return f"{at} is no object: {value!r}"
            for key, wanted in pattern.items():
                if problem := mismatch(wanted, value.get(key, ABSENT), names, f"{at}.{key}"):
                    return problem
            return None
        pattern = expand(pattern, names)
    if isinstance(pattern, list):
        if not isinstance(value, list) or len(value) != len(pattern):
            return f"{at} is no list of {len(pattern)}: {value!r}"
        for index, wanted in enumerate(pattern):
            if problem := mismatch(wanted, value[index], names, f"{at}[{index}]"):
                return problem
        return None
    if type(pattern) is type(value) and pattern == value:
        return None
    return f"{at} is not {str(pattern)[:200]!r}: {str(value)[:200]!r}"


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
    error = jsonschema.exceptions.best_match(validator(definition).iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message[:300]}"
