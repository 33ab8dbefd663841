"""A schema: its kind, its text, and the texts that it refers to. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

LONGEST_TEXT: Final = 1 << 20
"""Characters of a schema and all that it refers to."""


class SchemaError(ValueError):
    """A schema, or a value, that cannot be used: one line for a person, without a full stop."""


class Kind(Enum):
    """Kinds of schemas, as registries name them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES: Final = {Kind.AVRO: "Avro", Kind.PROTOBUF: "Protobuf", Kind.JSON: "JSON Schema"}


@dataclass(frozen=True)
class Schema:
    """A schema with all that it needs. dependencies: names by which others refer to texts, and these, each after those
    that it refers to itself."""

    kind: Kind
    text: str
    dependencies: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind.value, "text": self.text, "dependencies": self.dependencies})


def schema_from_json(text: str) -> Schema:
    """As `Schema.to_json` made it: for the two ends of a pipe of ours."""
    content = json.loads(text)
    return Schema(Kind(content["kind"]), content["text"], tuple((name, one) for name, one in content["dependencies"]))


@dataclass(frozen=True)
class Subject:
    """A name and a version under which a registry has a schema."""

    name: str
    version: int


class Codec(Protocol):
    """Reads and writes the values of one schema. All raise SchemaError; a library may also raise anything else."""

    def decode(self, content: bytes, indexes: tuple[int, ...]) -> Any:
        """Return a value that JSON can have. indexes: of the Protobuf message in its file."""

    def encode(self, value: Any, message: str) -> tuple[bytes, tuple[int, ...] | None]:
        """Return the bytes of a value and, for Protobuf, the indexes. message: a Protobuf message's name, or empty."""
