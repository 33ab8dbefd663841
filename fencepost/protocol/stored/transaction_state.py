"""The records of `__transaction_state`: the latest state per transactional id. A null value deletes the id.

Source: Kafka's TransactionLogKey.json, TransactionLogValue.json and TransactionLog; KIP-98, KIP-890, KIP-939.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack

from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import field, int8, int16, int32, int64, message, struct
from fencepost.protocol.stored.versioned import COMPACT_LENGTHS, decode_versioned, encode_versioned

KEY_VERSION = 0
MAX_REMEMBERED_KEYS = 16_384
LONGEST_REMEMBERED_ID = 256  # in characters: clients choose ids, of up to 32 KiB
MAX_REMEMBERED_TAGGED_FIELDS = 4_096
LATEST_VALUE_VERSION = 1  # written when the feature transaction.version is 1 or higher; version 0 before


@message(versions="0")
class TransactionLogKey:
    """Key of a transactional id."""

    transactional_id: str = ""


@struct
class PartitionsSchema:
    """Partitions of one topic that are part of the transaction."""

    topic: str = ""
    partition_ids: list[int32] = []


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of one transactional id.

    transaction_status is the number of a state; 0 is Empty, the only one in which transaction_partitions is None.
    transaction_start_timestamp_ms is -1 until the first transaction.
    """

    producer_id: int64 = 0
    previous_producer_id: int64 = field(versions="1+", tag=0, default=-1)
    next_producer_id: int64 = field(versions="1+", tag=1, default=-1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = field(
        versions="1+", tag=3, default=-1
    )  # Kafka has it in the schema, and never writes it
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = field(versions="1+", tag=2, default=0)
    is_guarded: bool = field(versions="1+", tag=10_000, default=False)  # not Kafka's


def encode_transaction_log_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id."""
    if len(transactional_id) <= LONGEST_REMEMBERED_ID:
        return _encode_remembered(transactional_id)
    return _encode_key(transactional_id)


def _encode_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id), KEY_VERSION)


_encode_remembered = lru_cache(MAX_REMEMBERED_KEYS)(_encode_key)
"""Every transaction writes its id three times."""


def decode_transaction_log_key(key: Buffer) -> str | None:
    """Decode a transactional id; None for a key of an unknown version. Raises DecodeError."""
    decoded = decode_versioned(TransactionLogKey, key)
    return None if decoded is None else decoded.transactional_id


def encode_transaction_log_value(value: TransactionLogValue, version: int = LATEST_VALUE_VERSION) -> bytes:
    """Encode a state. Version 0 has neither the other producer ids nor the client's version."""
    return encode_versioned(value, version)


_BEFORE_PARTITIONS = Struct(">hqhib")
_TIMES = Struct(">qq")
_TAGGED_INT64 = Struct(">BBq")
_TAGGED_INT16 = Struct(">BBh")
_TAGGED_IS_GUARDED = b"\x90\x4e\x01\x01"  # the varint of 10,000, one byte, true
PACKED_NULL_PARTITIONS = b"\0"


def pack_transaction_log_value(
    producer_id: int,
    producer_epoch: int,
    transaction_timeout_ms: int,
    transaction_status: int,
    packed_partitions: bytes,
    transaction_last_update_timestamp_ms: int,
    transaction_start_timestamp_ms: int,
    previous_producer_id: int,
    next_producer_id: int,
    client_transaction_version: int,
    next_producer_epoch: int = -1,
    is_guarded: bool = False,
) -> bytes:
    """Encode a `TransactionLogValue` of the latest version without its object: each transaction writes three.

    packed_partitions: a result of `pack_transaction_partitions`, or `PACKED_NULL_PARTITIONS`.
    """
    return (
        _BEFORE_PARTITIONS.pack(
            LATEST_VALUE_VERSION, producer_id, producer_epoch, transaction_timeout_ms, transaction_status
        )
        + packed_partitions
        + _TIMES.pack(transaction_last_update_timestamp_ms, transaction_start_timestamp_ms)
        + _pack_tagged(
            previous_producer_id, next_producer_id, client_transaction_version, next_producer_epoch, is_guarded
        )
    )


def pack_transaction_partitions(partition_ids_by_topic: Mapping[str, Sequence[int]]) -> bytes:
    """Encode the partitions of a `TransactionLogValue` of the latest version."""
    parts = [COMPACT_LENGTHS[len(partition_ids_by_topic)]]
    for topic, partition_ids in partition_ids_by_topic.items():
        name, count = topic.encode(), len(partition_ids)
        parts += (COMPACT_LENGTHS[len(name)], name, COMPACT_LENGTHS[count], pack(f">{count}iB", *partition_ids, 0))
    return b"".join(parts)


@lru_cache(MAX_REMEMBERED_TAGGED_FIELDS)  # in version 2 every transaction writes the same ones three times
def _pack_tagged(
    previous_producer_id: int,
    next_producer_id: int,
    client_transaction_version: int,
    next_producer_epoch: int,
    is_guarded: bool,
) -> bytes:
    """Encode the number of tagged fields, then those that differ from their defaults."""
    tagged = []
    if previous_producer_id != -1:
        tagged.append(_TAGGED_INT64.pack(0, 8, previous_producer_id))
    if next_producer_id != -1:
        tagged.append(_TAGGED_INT64.pack(1, 8, next_producer_id))
    if client_transaction_version != 0:
        tagged.append(_TAGGED_INT16.pack(2, 2, client_transaction_version))
    if next_producer_epoch != -1:
        tagged.append(_TAGGED_INT16.pack(3, 2, next_producer_epoch))
    if is_guarded:
        tagged.append(_TAGGED_IS_GUARDED)
    return bytes((len(tagged),)) + b"".join(tagged)


def decode_transaction_log_value(value: Buffer) -> TransactionLogValue | None:
    """Decode a state; None for a value of an unknown version. Raises DecodeError."""
    return decode_versioned(TransactionLogValue, value)
