"""Requests for the state of share partitions as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareStatePartition,
    DeleteShareStateTopic,
    ReadShareGroupStateSummaryResponse,
    ShareStateSummary,
    ShareStateSummaryTopic,
    WriteShareGroupStateRequest,
    WriteShareStatePartition,
    WriteShareStateTopic,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_a_state_is_written_in_batches() -> None:
    request = WriteShareGroupStateRequest(
        group_id="g",
        topics=[
            WriteShareStateTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    WriteShareStatePartition(
                        partition=0,
                        state_epoch=1,
                        leader_epoch=2,
                        start_offset=3,
                        state_batches=[StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)],
                    )
                ],
            )
        ],
    )
    assert_bytes(
        request,
        0,
        "02 67 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 00 00 00 01 00 00 00 02",
        "00 00 00 00 00 00 00 03 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04 02 00 01 00 00 00 00",
    )


def test_completed_deliveries_are_counted_from_version_1_on() -> None:
    reply = ReadShareGroupStateSummaryResponse(
        results=[
            ShareStateSummaryTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    ShareStateSummary(
                        partition=0, state_epoch=1, leader_epoch=2, start_offset=3, delivery_complete_count=4
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        1,
        "02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 00 00 00 00 00 00 01 00 00 00",
        "02 00 00 00 00 00 00 00 03 00 00 00 04 00 00 00",
    )


def test_a_state_is_deleted_by_partition() -> None:
    request = DeleteShareGroupStateRequest(
        group_id="g",
        topics=[DeleteShareStateTopic(topic_id=TOPIC_ID, partitions=[DeleteShareStatePartition(partition=5)])],
    )
    assert_bytes(request, 0, "02 67 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 05 00 00 00")
