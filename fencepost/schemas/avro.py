"""Values in Avro, by fastavro. Logical types become text, as ISO 8601 and decimal numbers; bytes are as in Avro's JSON
encoding: each byte one character.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

import fastavro
import fastavro.schema

from fencepost.protocol.checked_json import shown
from fencepost.schemas.schema import Schema, SchemaError

BYTES_ENCODING: Final = "latin-1"
"""The encoding of bytes in Avro's JSON: code points 0 to 255."""

_FIELD: Final = "value"
_WRONG_SCHEMA: Final = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType)


class AvroCodec:
    """Raises SchemaError for a schema that cannot be used."""

    def __init__(self, schema: Schema) -> None:
        self._named: dict[str, Any] = {}
        try:
            for _, text in schema.dependencies:
                fastavro.schema.parse_schema(_schema_in(text), named_schemas=self._named)
            # A record of one field has the bytes of that field, and fastavro keeps the names that a record refers to.
            field = {"name": _FIELD, "type": _schema_in(schema.text)}
            whole = {"type": "record", "name": "FencepostValue", "fields": [field]}
            self._whole: Any = fastavro.schema.parse_schema(whole, named_schemas=self._named)
            self._schema: Any = self._whole["fields"][0]["type"]
        except (*_WRONG_SCHEMA, ValueError, TypeError, KeyError, RecursionError) as error:
            raise SchemaError(f"its Avro schema cannot be read: {_reason(error)}") from None

    def decode(self, content: bytes, indexes: tuple[int, ...]) -> Any:
        del indexes
        source = io.BytesIO(content)
        try:
            value: Any = fastavro.schemaless_reader(source, self._whole, None)
        except (EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError) as error:
            raise SchemaError(f"its bytes do not fit its Avro schema: {_reason(error)}") from None
        left = len(content) - source.tell()
        if left:
            raise SchemaError(f"its bytes do not fit its Avro schema: {left:,} are left over")
        return plain(value[_FIELD])

    def encode(self, value: Any, message: str) -> tuple[bytes, None]:
        if message:
            raise SchemaError("only Protobuf has messages to choose from")
        out = io.BytesIO()
        made = self._from_plain(value, self._schema, "the value")
        try:
            fastavro.schemaless_writer(out, self._whole, {_FIELD: made}, strict=True)
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError) as error:
            raise SchemaError(f"it does not fit its Avro schema: {_reason(error)}") from None
        return out.getvalue(), None

    def _from_plain(self, value: Any, schema: Any, place: str) -> Any:
        """The inverse of `plain`, by the schema. Raises SchemaError."""
        if isinstance(schema, list):
            return self._of_union(value, schema, place)
        if isinstance(schema, str):
            if schema in self._named:
                return self._from_plain(value, self._named[schema], place)
            schema = {"type": schema}
        kind, logical = schema["type"], schema.get("logicalType")
        if kind == "record":
            if not isinstance(value, Mapping):
                raise SchemaError(f"{place} must be an object for the record {schema['name']}")
            return self._of_record(value, schema, place)
        if kind == "array" and isinstance(value, list):
            return [self._from_plain(one, schema["items"], f"{place}[{at}]") for at, one in enumerate(value)]
        if kind == "map" and isinstance(value, Mapping):
            return {name: self._from_plain(one, schema["values"], f"{place}.{name}") for name, one in value.items()}
        if isinstance(kind, dict | list) or kind in self._named:
            return self._from_plain(value, kind, place)
        return _scalar(value, schema, place) if logical is None else _logical(value, schema, place)

    def _of_record(self, value: Mapping[str, Any], schema: Any, place: str) -> dict[str, Any]:
        fields = {one["name"]: one for one in schema["fields"]}
        unknown = next((name for name in value if name not in fields), None)
        if unknown is not None:
            raise SchemaError(f"{place}.{unknown}: the record {schema['name']} has no such field")
        made = {}
        for name, one in fields.items():
            if name in value:
                made[name] = self._from_plain(value[name], one["type"], f"{place}.{name}")
            elif "default" in one:
                made[name] = self._from_plain(one["default"], one["type"], f"{place}.{name}")
            else:
                raise SchemaError(f"{place}.{name} is missing")
        return made

    def _of_union(self, value: Any, branches: list[Any], place: str) -> Any:
        """The first branch that takes the value; also `{"string": "a"}`, as Avro's JSON encoding names a branch."""
        names = {_name(one): one for one in branches}
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, content),) = value.items()
            if name in names:
                try:
                    return name, self._from_plain(content, names[name], place)
                except SchemaError:
                    pass  # It may be a map, or a record, that happens to have a field of that name.
        for branch in branches:
            try:
                made = self._from_plain(value, branch, place)
            except SchemaError:
                continue
            return None if made is None else (_name(branch), made)
        raise SchemaError(f"{place} fits none of {', '.join(names)}")


def plain(value: Any) -> Any:
    """A value of fastavro's as one that JSON can have."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(BYTES_ENCODING)
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, UUID):
        return str(value)
    return [plain(one) for one in value]


_RANGES: Final = {"int": 31, "long": 63}
_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


def _scalar(value: Any, schema: Any, place: str) -> Any:
    """A value of a type without parts, as fastavro takes it. Raises SchemaError."""
    kind = schema["type"]
    if kind in ("bytes", "fixed") and isinstance(value, str):
        made = _bytes(value, place)
        if kind == "bytes" or len(made) == schema["size"]:
            return made
    elif kind in _RANGES:
        if type(value) is int and -(1 << _RANGES[kind]) <= value < 1 << _RANGES[kind]:
            return value
    elif kind in ("float", "double"):
        if value in _NUMBERS or (isinstance(value, int | float) and not isinstance(value, bool)):
            return float(value)
    elif kind == "enum":
        if value in schema["symbols"]:
            return value
    elif (kind, type(value)) in (("null", type(None)), ("boolean", bool), ("string", str)):
        return value
    name = schema.get("name", kind)
    raise SchemaError(f"{place} must be of the type {name}; it is {shown(value)}")


def _logical(value: Any, schema: Any, place: str) -> Any:
    logical = schema["logicalType"]
    try:
        if logical == "decimal" and isinstance(value, str | int | float) and not isinstance(value, bool):
            return Decimal(str(value))
        if isinstance(value, str):
            if logical == "date":
                return date.fromisoformat(value)
            if logical.startswith("time-"):
                return time.fromisoformat(value)
            if logical.startswith(("timestamp-", "local-timestamp-")):
                moment = datetime.fromisoformat(value)
                is_local = logical.startswith("local-")
                return moment if is_local or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            if logical == "uuid":
                return UUID(value)
    except (ValueError, InvalidOperation):
        raise SchemaError(f"{place} must be a {logical}; {shown(value)} is none") from None
    return _scalar(value, schema, place)


def _bytes(text: str, place: str) -> bytes:
    try:
        return text.encode(BYTES_ENCODING)
    except UnicodeEncodeError:
        raise SchemaError(f"{place} is bytes: each character is one, up to \\u00ff") from None


def _name(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name") or branch["type"])


def _schema_in(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # Of a primitive type, a registry may give the bare name.
        return text.strip()


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    text = " ".join(str(error).split())[:200]
    return text or ("they end too early" if isinstance(error, EOFError) else type(error).__name__)
