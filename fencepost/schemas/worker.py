"""The process that reads and writes values: a damaged value or schema harms nothing but it.

A nested Avro value can overflow the stack of fastavro's C code, an array of nulls can announce 2**60 items, and protoc
is C++. So the process has a bound of memory, its parent ends it when a value takes too long, and answers come one by
one: the parent sees at which value it ended. Lines of JSON come in on standard input and go out on standard output.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
from typing import Any, Final

from fencepost.schemas.schema import Codec, Kind, Schema, SchemaError, schema_from_json

MOST_MEMORY_BYTES: Final = 2 << 30
LARGEST_ANSWER_BYTES: Final = 4 << 20
MOST_CODECS: Final = 500


def codec_of(schema: Schema) -> Codec:
    """Raises SchemaError."""
    if schema.kind is Kind.AVRO:
        from fencepost.schemas.avro import AvroCodec

        return AvroCodec(schema)
    if schema.kind is Kind.PROTOBUF:
        from fencepost.schemas.protobuf import ProtobufCodec

        return ProtobufCodec(schema)
    from fencepost.schemas.json_schema import JsonSchemaCodec

    return JsonSchemaCodec(schema)


class Desk:
    """Answers orders; keeps the codecs of schemas, and the reasons of those that cannot be used."""

    def __init__(self) -> None:
        self._codecs: dict[str, Codec | str] = {}

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Of an order to define a schema, nothing; to read, `value`; to write, `content` and `indexes`; or `error`."""
        try:
            if "define" in order:
                self._codecs[order["define"]] = self._codec(order["schema"])
                return {}
            codec = self._codecs[order["schema"]]
            if isinstance(codec, str):
                return {"error": codec}
            if "content" in order:
                return {"value": codec.decode(base64.b64decode(order["content"]), tuple(order["indexes"]))}
            content, indexes = codec.encode(order["value"], order["message"])
            return {"content": base64.b64encode(content).decode(), "indexes": indexes}
        except Exception as error:  # noqa: BLE001  the libraries document no complete list; one value fails, not all
            return {"error": _reason(error)}

    def _codec(self, schema: str) -> Codec | str:
        try:
            return codec_of(schema_from_json(schema))
        except Exception as error:  # noqa: BLE001  as above, for a schema
            return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, SchemaError):
        return str(error)
    if isinstance(error, MemoryError):
        return "it does not fit in the memory that reading may take"
    return f"reading it failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes our input
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Libraries that print would garble the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    desk = Desk()
    for line in sys.stdin.buffer:
        answer = desk.answer(json.loads(line))
        try:
            written = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError, MemoryError):
            written = b'{"error": "it cannot be shown as JSON"}'
        if len(written) > LARGEST_ANSWER_BYTES:
            written = b'{"error": "it is larger than 4 MiB when it is decoded"}'
        out.write(written + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
