"""JSON Schemas written short, for the table of the output of commands.

A field is written with its type: text, time, count (an integer from 0), integer, number, flag; `texts` and `counts` are
lists. A `?` behind the type: it may be null. A `~` before the name: it may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Schema = dict[str, Any]
Shape = str | Mapping[str, Any]
"""A type, or the fields of an object, or a schema."""

_TYPES: Final[Mapping[str, Schema]] = {
    "text": {"type": "string"},
    "time": {"type": "string", "description": "local time as 2026-01-31 14:02:00.000+01:00"},
    "count": {"type": "integer", "minimum": 0},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "counts": {"type": "array", "items": {"type": "integer"}},
    "by name": {"type": "object", "additionalProperties": {"type": "integer"}},
    "any": {},
}


class Output:
    """The output of a command. is_lines: one document for each line, rather than one in all. schema: of a document."""

    def __init__(self, schema: Schema, *, is_lines: bool = False) -> None:
        self.schema = schema
        self.is_lines = is_lines


def fields(of: Mapping[str, Any]) -> Schema:
    """The schema of an object with these fields, and no others."""
    properties = {name.removeprefix("~"): _schema(shape) for name, shape in of.items()}
    required = [name for name in of if not name.startswith("~")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(shape: Shape) -> Schema:
    if isinstance(shape, str):
        name = shape.removesuffix("?")
        found = dict(_TYPES[name])
        if name != shape and found:
            found["type"] = [found["type"], "null"]
        return found
    if ("type" in shape and shape["type"] in ("array", "object")) or "anyOf" in shape:
        return dict(shape)
    return fields(shape)


def many(shape: Shape) -> Schema:
    """The schema of a list."""
    return {"type": "array", "items": _schema(shape)}


def rows(*shapes: Mapping[str, Any]) -> Output:
    """One array of objects; with several shapes, all objects of an output have one of them."""
    schemas = [many(shape) for shape in shapes]
    return Output(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})


def one(*shapes: Mapping[str, Any]) -> Output:
    """One object; with several shapes, of one of them."""
    schemas = [_schema(shape) for shape in shapes]
    return Output(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})


def done(**of: Any) -> Output:
    """One object of a change, whose `message` has the words for people."""
    return one({**of, "message": "text"})


def lines(*shapes: Mapping[str, Any]) -> Output:
    """One object in each line, while the command runs."""
    return Output(one(*shapes).schema, is_lines=True)


def any_fields(*required: str) -> Schema:
    return {"type": "object", "required": list(required)}


def opened(schema: Any) -> Any:
    """The schema, but each object may have more fields."""
    if isinstance(schema, Mapping):
        return {
            name: opened(value)
            for name, value in schema.items()
            if not (name == "additionalProperties" and value is False)
        }
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [opened(one) for one in schema]
    return schema
