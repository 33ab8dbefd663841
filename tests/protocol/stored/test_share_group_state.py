"""Records of `__share_group_state` as bytes."""

from __future__ import annotations

from fencepost.protocol.stored.share_group_state import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

TOPIC_ID = bytes(range(16))


def test_a_snapshot_and_an_update_of_one_partition_differ_in_the_version_of_their_keys() -> None:
    snapshot = SHARE_STATE_RECORDS.encode_key(ShareSnapshotKey("g", TOPIC_ID, 3))
    update = SHARE_STATE_RECORDS.encode_key(ShareUpdateKey("g", TOPIC_ID, 3))
    assert snapshot == b"\0\0" + b"\0\x01g" + TOPIC_ID + b"\0\0\0\x03"
    assert update == b"\0\x01" + snapshot[2:]


def test_the_state_is_read_as_it_was_written() -> None:
    for key, value in (
        (ShareSnapshotKey("g", TOPIC_ID, 3), ShareSnapshotValue(1, 2, 3, 40, 5, 6, 7, [StateBatch(40, 44, 2, 1)])),
        (ShareUpdateKey("g", TOPIC_ID, 3), ShareUpdateValue(1, 3, -1, -1, [StateBatch(45, 45, 4, 5)])),
    ):
        encoded_key, encoded_value = SHARE_STATE_RECORDS.encode(key, value)
        assert encoded_value is not None
        assert SHARE_STATE_RECORDS.decode_key(encoded_key) == key
        assert SHARE_STATE_RECORDS.decode_value(key, encoded_value) == value


def test_a_count_of_completed_deliveries_that_is_unknown_takes_no_bytes() -> None:
    unknown = SHARE_STATE_RECORDS.encode_value(ShareUpdateValue())
    known = SHARE_STATE_RECORDS.encode_value(ShareUpdateValue(delivery_complete_count=1))
    assert len(known) > len(unknown)
