"""Records of internal topics are shown as text, and what is not known as it is."""

from __future__ import annotations

import json

import pytest

from fencepost.console.reading.internal_records import decoded
from fencepost.protocol.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.stored.versioned import encode_versioned
from tests.diagnosis.test_transaction_history import ONGOING, record


def test_a_transaction_has_the_name_of_its_state_and_its_partitions() -> None:
    stored = record(0, ONGOING, orders=[0, 2])
    assert stored.key is not None
    assert stored.value is not None
    found = decoded("__transaction_state", bytes(stored.key), bytes(stored.value))
    assert found is not None
    name, value = found
    assert name == "till"
    assert value is not None
    fields = json.loads(value)
    assert (fields["transaction_status"], fields["transaction_partitions"]) == ("Ongoing", ["orders-0", "orders-2"])
    assert decoded("__transaction_state", bytes(stored.key), None) == ("till", None)


def test_a_committed_offset_names_group_and_partition() -> None:
    key = encode_versioned(OffsetCommitKey("billing", "orders", 1), 1)
    value = encode_versioned(OffsetCommitValue(offset=7, metadata="m"), 3)
    found = decoded("__consumer_offsets", key, value)
    assert found is not None
    assert found[0] == "offset: billing, orders-1"
    assert json.loads(found[1] or "")["offset"] == 7


@pytest.mark.parametrize(
    ("topic", "key"),
    [("orders", b"\x00\x00"), ("__transaction_state", b"\x00\x09"), ("__consumer_offsets", b"\x00"), ("orders", None)],
)
def test_what_is_not_known_stays_as_it_is(topic: str, key: bytes | None) -> None:
    assert decoded(topic, key, b"value") is None
