"""OffsetCommit, OffsetFetch, TxnOffsetCommit and OffsetDelete as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_an_offset_is_committed_with_leader_epoch_and_metadata() -> None:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=1, committed_offset=42, committed_leader_epoch=3, committed_metadata="x"
                    )
                ],
            )
        ],
    )
    assert_bytes(
        request,
        8,
        "02 67 00 00 00 01 02 6d 00 02 02 74 02 00 00 00 01 00 00 00 00 00 00 00 2a 00 00 00 03 02 78 00",
        "00 00",
    )


def test_topics_have_ids_from_version_10_on() -> None:
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                topic_id=TOPIC_ID,
                partitions=[OffsetCommitRequestPartition(committed_offset=1, committed_metadata=None)],
            )
        ],
    )
    assert_bytes(
        request,
        10,
        "02 67 ff ff ff ff 01 00 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 00 00",
        "00 00 00 00 00 01 ff ff ff ff 00 00 00 00",
    )


def test_all_offsets_of_a_group_are_asked_for_by_null() -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True)
    assert_bytes(request, 8, "02 02 67 00 00 01 00")


def test_version_6_of_a_transactions_offsets_has_topic_ids() -> None:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=None)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=5,
        producer_epoch=1,
        topics=[TxnOffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    assert_bytes(
        request,
        6,
        "02 78 02 67 00 00 00 00 00 00 00 05 00 01 ff ff ff ff 01 00 02 00 01 02 03 04 05 06 07 08 09 0a",
        "0b 0c 0d 0e 0f 02 00 00 00 00 00 00 00 00 00 00 00 07 ff ff ff ff 00 00 00 00",
    )


def test_a_transaction_s_offsets_name_its_producer() -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=5,
        producer_epoch=1,
        generation_id_or_member_epoch=2,
        member_id="m",
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=None)
                ],
            )
        ],
    )
    assert_bytes(
        request,
        3,
        "02 78 02 67 00 00 00 00 00 00 00 05 00 01 00 00 00 02 02 6d 00 02 02 74 02 00 00 00 00 00 00 00",
        "00 00 00 00 07 ff ff ff ff 00 00 00 00",
    )
