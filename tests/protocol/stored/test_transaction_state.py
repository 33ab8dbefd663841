"""The records of `__transaction_state`, byte for byte as Apache Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.schema import DecodeError
from fencepost.protocol.stored.transaction_state import (
    PACKED_NULL_PARTITIONS,
    PartitionsSchema,
    TransactionLogValue,
    decode_transaction_log_key,
    decode_transaction_log_value,
    encode_transaction_log_key,
    encode_transaction_log_value,
    pack_transaction_log_value,
    pack_transaction_partitions,
)

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
topics = st.dictionaries(st.text(max_size=5), st.lists(int32s, max_size=5), max_size=5)
many_topics = st.just({f"{number}" + 200 * "x": list(range(number)) for number in range(130, 270)})
EMPTY_V0 = bytes.fromhex(
    "0000 0000000000000007 0000 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff".replace(" ", "")
)
ONGOING_V1 = bytes.fromhex(
    (
        "0001 0000000000000007 0003 0000ea60 01 02 04 6f7574 03 00000000 00000001 00 00000000000007d0 00000000000003e8 "
        "02 00 08 0000000000000007 02 02 0002"
    ).replace(" ", "")
)
EMPTY = TransactionLogValue(
    producer_id=7,
    producer_epoch=0,
    transaction_timeout_ms=60_000,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=1_000,
    transaction_start_timestamp_ms=-1,
)
ONGOING = TransactionLogValue(
    producer_id=7,
    previous_producer_id=7,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema("out", [0, 1])],
    transaction_last_update_timestamp_ms=2_000,
    transaction_start_timestamp_ms=1_000,
    client_transaction_version=2,
)


def test_a_key_is_version_0_and_the_transactional_id() -> None:
    assert encode_transaction_log_key("tx-1").hex() == "0000000474782d31"
    assert decode_transaction_log_key(bytes.fromhex("0000000474782d31")) == "tx-1"


def test_version_0_has_the_bytes_of_kafka() -> None:
    assert encode_transaction_log_value(EMPTY, 0) == EMPTY_V0
    assert decode_transaction_log_value(EMPTY_V0) == EMPTY


def test_version_1_has_the_bytes_of_kafka_and_is_the_default() -> None:
    assert encode_transaction_log_value(ONGOING) == ONGOING_V1
    assert decode_transaction_log_value(memoryview(ONGOING_V1)) == ONGOING


@given(
    producer_id=int64s,
    producer_epoch=int16s,
    timeout_ms=int32s,
    status=st.integers(0, 7),
    partitions=st.one_of(st.none(), topics, many_topics),
    times_ms=st.tuples(int64s, int64s),
    other_producer_ids=st.tuples(st.one_of(st.just(-1), int64s), st.one_of(st.just(-1), int64s)),
    client_transaction_version=int16s,
    next_producer_epoch=int16s,
)
def test_a_packed_state_has_the_bytes_of_an_encoded_one(
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: dict[str, list[int]] | None,
    times_ms: tuple[int, int],
    other_producer_ids: tuple[int, int],
    client_transaction_version: int,
    next_producer_epoch: int,
) -> None:
    value = TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=other_producer_ids[0],
        next_producer_id=other_producer_ids[1],
        producer_epoch=producer_epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_status=status,
        transaction_partitions=None if partitions is None else [PartitionsSchema(*one) for one in partitions.items()],
        transaction_last_update_timestamp_ms=times_ms[0],
        transaction_start_timestamp_ms=times_ms[1],
        client_transaction_version=client_transaction_version,
        next_producer_epoch=next_producer_epoch,
    )
    packed = pack_transaction_log_value(
        producer_id,
        producer_epoch,
        timeout_ms,
        status,
        PACKED_NULL_PARTITIONS if partitions is None else pack_transaction_partitions(partitions),
        *times_ms,
        *other_producer_ids,
        client_transaction_version,
        next_producer_epoch,
    )
    assert packed == encode_transaction_log_value(value)


def test_version_0_forgets_what_only_version_1_can_hold() -> None:
    stored = decode_transaction_log_value(encode_transaction_log_value(ONGOING, 0))
    assert stored is not None
    assert (stored.previous_producer_id, stored.client_transaction_version) == (-1, 0)


def test_null_partitions_differ_from_none_left() -> None:
    choices: tuple[list[PartitionsSchema] | None, ...] = (None, [])
    for version in (0, 1):
        for partitions in choices:
            value = TransactionLogValue(transaction_partitions=partitions)
            assert decode_transaction_log_value(encode_transaction_log_value(value, version)) == value


def test_unknown_versions_are_reported_as_none() -> None:
    assert decode_transaction_log_key(b"\x00\x01\x00\x01x") is None
    assert decode_transaction_log_value(b"\x00\x02anything") is None
    assert decode_transaction_log_value(b"\xff\xffanything") is None


@pytest.mark.parametrize("size", [*range(2), 5, 10, len(ONGOING_V1) - 1])
def test_truncated_values_are_undecodable(size: int) -> None:
    with pytest.raises(DecodeError):
        decode_transaction_log_value(ONGOING_V1[:size])


def test_truncated_keys_are_undecodable() -> None:
    for size in range(8):
        with pytest.raises(DecodeError):
            decode_transaction_log_key(bytes.fromhex("0000000474782d31")[:size])
