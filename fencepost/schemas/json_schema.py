"""Values with a JSON Schema: JSON behind the schema's id. Values are checked when they are written, by jsonschema."""

from __future__ import annotations

import json
from typing import Any

from fencepost.protocol.checked_json import JsonError, parse
from fencepost.schemas.schema import Schema, SchemaError


class JsonSchemaCodec:
    """Raises SchemaError for a schema that cannot be used, when a value is written."""

    def __init__(self, schema: Schema) -> None:
        self._source = schema
        self._validator: Any = None

    def decode(self, content: bytes, indexes: tuple[int, ...]) -> Any:
        del indexes
        try:
            return parse(content, most_bytes=max(1, len(content)))
        except JsonError as error:
            raise SchemaError(f"its bytes are not JSON that can be read: {error}") from None

    def encode(self, value: Any, message: str) -> tuple[bytes, None]:
        if message:
            raise SchemaError("only Protobuf has messages to choose from")
        if self._validator is None:
            self._validator = _validator(self._source)
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(self._validator.iter_errors(value))
        except Unresolvable as missing:
            raise SchemaError(f"its JSON Schema refers to {missing.ref!r}, which it does not bring along") from None
        except RecursionError:
            raise SchemaError("its JSON Schema refers to itself without an end") from None
        if error is not None:
            place = error.json_path.removeprefix("$").removeprefix(".")
            raise SchemaError(
                f"it does not fit its JSON Schema{f' at {place}' if place else ''}: {error.message[:300]}"
            )
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), None


def _validator(source: Schema) -> Any:
    import jsonschema
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    try:
        schema = json.loads(source.text)
        # This registry fetches nothing: a schema must not make us call addresses.
        others: Any = Registry()
        for name, text in source.dependencies:
            resource = Resource.from_contents(json.loads(text), default_specification=DRAFT7)
            others = others.with_resource(name, resource)
            if (own := resource.id()) is not None:
                others = others.with_resource(own, resource)
        kind = validator_for(schema, default=jsonschema.Draft7Validator)
        kind.check_schema(schema)
        return kind(schema, registry=others)
    except (ValueError, TypeError, AttributeError, RecursionError, jsonschema.SchemaError) as error:
        raise SchemaError(f"its JSON Schema cannot be read: {' '.join(str(error).split())[:200]}") from None
