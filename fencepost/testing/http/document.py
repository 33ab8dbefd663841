"""The OpenAPI document of the control API, made from the table of operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fencepost.testing.http.kinds import Schema, Shape, described
from fencepost.testing.http.operation import Operation, Parameter
from fencepost.testing.http.operations import OPERATIONS
from fencepost.testing.http.refusals import ERROR, STATUSES

JSON: Final = "application/json"
OPENAPI_VERSION: Final = "3.1.0"


def document(version: str) -> dict[str, Any]:
    """The document. version: of Fencepost."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "fencepost test-broker",
            "version": version,
            "summary": "Kafka brokers for tests: each test starts one, sets faults, turns its clock, and closes it.",
        },
        "paths": paths,
        "components": {
            "schemas": {shape.name: shape.definition() for shape in _shapes()},
            "responses": {
                str(status): {"description": text, "content": {JSON: {"schema": ERROR.schema()}}}
                for status, text in STATUSES.items()
            },
        },
    }


def _shapes() -> Iterable[Shape]:
    yield from ERROR.shapes()
    for operation in OPERATIONS:
        yield from operation.result.shapes()


def _operation(operation: Operation) -> Schema:
    in_query = () if operation.has_body else operation.parameters
    described_operation: Schema = {
        "operationId": operation.name,
        "summary": operation.text,
        "parameters": [_parameter(one, "path") for one in operation.in_path]
        + [_parameter(one, "query") for one in in_query],
        "responses": {
            str(operation.status): {
                "description": "Done.",
                "content": {JSON: {"schema": operation.result.schema()}},
            },
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in STATUSES if status != 405},
        },
    }
    if operation.has_body:
        needed = [parameter.name for parameter in operation.parameters if parameter.is_required]
        described_operation["requestBody"] = {
            "required": bool(needed),
            "content": {
                JSON: {
                    "schema": {
                        "type": "object",
                        "properties": {one.name: _schema(one) for one in operation.parameters},
                        "additionalProperties": False,
                        **({"required": needed} if needed else {}),
                    }
                }
            },
        }
    return described_operation


def _schema(parameter: Parameter) -> Schema:
    schema = parameter.kind.schema()
    if parameter.default is None:
        nullable = schema.get("type") == "null" or "null" in schema.get("type", ()) or "anyOf" in schema
        schema = schema if nullable else {**schema, "type": [schema["type"], "null"]}
    elif not parameter.is_required:
        schema["default"] = parameter.default
    return described(schema, parameter.text)


def _parameter(parameter: Parameter, place: str) -> Schema:
    schema = parameter.kind.schema()
    if place == "query" and isinstance(schema.get("type"), list):  # a query has no null
        schema["type"] = schema["type"][0]
    if parameter.default is not None and not parameter.is_required:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path" or parameter.is_required,
        "description": parameter.text,
        "schema": schema,
    }
