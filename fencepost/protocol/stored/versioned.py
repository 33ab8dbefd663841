"""Common format of the keys and values of Kafka's internal topics: an int16 version, then a message of it."""

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from fencepost.protocol.primitives import Buffer, DecodeError, write_unsigned_varint
from fencepost.protocol.schema import decode, encode_chunks, schema_of

Message = TypeVar("Message")
Key = TypeVar("Key")

VALUE_VERSION = 0  # of `RecordKinds`
_VERSION = Struct(">h")
_VERSION_BYTES = _VERSION.size
_versions: dict[type[Any], frozenset[int]] = {}


def _compact_length(length: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, length + 1)
    return bytes(out)


class _CompactLengths(dict[int, bytes]):
    def __missing__(self, length: int) -> bytes:
        return _compact_length(length)


COMPACT_LENGTHS: Final[Mapping[int, bytes]] = _CompactLengths(
    (length, _compact_length(length)) for length in range(256)
)
"""The encoded length of a compact string or array: one more, as an unsigned varint. Most are looked up; others are
encoded."""


def encode_versioned(message_object: Any, version: int) -> bytes:
    """Encode the version, then the message."""
    out = bytearray(_VERSION.pack(version))
    encode_chunks(message_object, version, out)
    return bytes(out)


def decode_versioned(message_type: type[Message], buffer: Buffer) -> Message | None:
    """Decode a message; None for an unknown version, which a reader has to skip: a newer broker wrote it.

    Raises DecodeError for anything else.
    """
    version = read_version(buffer)
    versions = _versions.get(message_type)
    if versions is None:
        versions = _versions[message_type] = frozenset(schema_of(message_type).versions)
    if version not in versions:
        return None
    return decode(message_type, buffer, version, _VERSION_BYTES)


def decode_known(message_type: type[Message], buffer: Buffer) -> Message:
    """Decode a message that must not be skipped.

    Raises DecodeError also for an unknown version. Source: Kafka's CoordinatorRecordSerde, which skips keys of unknown
    kinds (KIP-915), but no values.
    """
    message = decode_versioned(message_type, buffer)
    if message is None:
        raise DecodeError(f"its value has version {read_version(buffer)}, which only a later release knows")
    return message


def read_version(buffer: Buffer) -> int:
    """Read the version at the start. Raises DecodeError if there is none."""
    if len(buffer) < _VERSION_BYTES:
        raise DecodeError(f"{len(buffer)} bytes are too few for a version", position=0, expected="version")
    version: int = _VERSION.unpack_from(buffer)[0]
    return version


class RecordKinds(Generic[Key]):
    """The kinds of records that something consists of. The version of a key is the kind; values have version 0.

    values: the type of the value by that of the key; None for values that are not read.
    """

    def __init__(self, values: Mapping[type[Key], type[Any] | None]) -> None:
        self._values = values
        self._versions = {declared: schema_of(declared).versions.first for declared in values}
        self._keys = {version: declared for declared, version in self._versions.items()}

    def encode(self, key: Key, value: Any | None) -> tuple[bytes, bytes | None]:
        """Encode a record; the value of a tombstone is None."""
        return self.encode_key(key), None if value is None else self.encode_value(value)

    def encode_key(self, key: Key) -> bytes:
        return encode_versioned(key, self._versions[type(key)])

    def decode_key(self, key: Buffer) -> Key | None:
        """Decode a key; None for another kind of record. Raises DecodeError."""
        declared = self._keys.get(read_version(key))
        return None if declared is None else decode_versioned(declared, key)

    def encode_value(self, value: Any) -> bytes:
        return encode_versioned(value, VALUE_VERSION)

    def decode_value(self, key: Key, value: Buffer) -> Any:
        """Decode the value of a key; None if such values are not read. Raises DecodeError, also for an unknown
        version."""
        declared = self._values[type(key)]
        return None if declared is None else decode_known(declared, value)
