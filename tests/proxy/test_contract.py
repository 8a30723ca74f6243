"""The structs, the error table and openapi.yaml say the same."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

import hermes_client_proxy
from hermes_client_proxy import contract

FOLDER = Path(__file__).parents[2] / "contracts/client-proxy-v1"
SPEC: dict[str, Any] = yaml.safe_load((FOLDER / "openapi.yaml").read_text())
STRUCTS = [
    kind
    for _, kind in inspect.getmembers(contract, inspect.isclass)
    if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
]


def shape(schema: Any) -> Any:
    """What the two ways of writing a schema have in common."""
    if isinstance(schema, list):
        return [shape(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        return {"any": sorted(json.dumps(shape(s), sort_keys=True) for s in schema["anyOf"])}
    kind = schema.get("type")
    if isinstance(kind, list):
        return shape({"anyOf": [{**schema, "type": one} for one in kind]})
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    out: dict[str, Any] = {}
    if values is not None and kind != "string":
        out["values"] = sorted(map(str, values))
    elif kind is not None:
        out["type"] = kind
    if "$ref" in schema:
        out["ref"] = schema["$ref"].rpartition("/")[2]
    if "items" in schema:
        out["items"] = shape(schema["items"])
    if "properties" in schema:
        out["properties"] = {k: shape(v) for k, v in schema["properties"].items()}
        out["required"] = sorted(schema.get("required", []))
    return out


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_struct_has_the_shape_of_the_contract(kind: type[msgspec.Struct]) -> None:
    _, found = msgspec.json.schema_components([kind])

    assert shape(found[kind.__name__]) == shape(SPEC["components"]["schemas"][kind.__name__])


def test_the_contract_has_no_other_shapes_but_the_events() -> None:
    assert set(SPEC["components"]["schemas"]) == {k.__name__ for k in STRUCTS} | {"RunEvent"}


def test_the_codes_and_their_statuses_are_those_of_the_vectors() -> None:
    vectors = json.loads((FOLDER / "vectors/errors.json").read_text())
    codes = SPEC["components"]["schemas"]["ErrorBody"]["properties"]["code"]["enum"]

    assert set(codes) == set(vectors["codes"]) == set(contract.STATUS)
    for code, status in contract.STATUS.items():
        assert status in vectors["codes"][code]
    msgspec.json.decode(json.dumps(vectors["body"]), type=contract.ErrorBody)


def test_a_wrong_value_is_not_repeated() -> None:
    body = {"workspaceId": "w", "documentId": "d", "sessionId": "s", "approvalId": "a"}
    raw = json.dumps({**body, "choice": "private words"}).encode()
    with pytest.raises(contract.ProxyError) as refused:
        contract.decode(raw, contract.AnswerApproval)

    assert "private" not in refused.value.message and "choice" in refused.value.message


def test_the_package_exports_what_a_host_needs() -> None:
    assert sorted(hermes_client_proxy.__all__) == [
        "ProxyApp",
        "SessionCookie",
        "Settings",
        "SettingsError",
        "ToolEntry",
        "User",
        "create_app",
    ]


def test_the_events_of_the_vectors_are_run_events() -> None:
    vectors = json.loads((FOLDER / "vectors/events.json").read_text())

    for case in vectors["cases"]:
        for event in case["contract"]:
            jsonschema.validate(event, SPEC["components"]["schemas"]["RunEvent"])
