"""ShareFetch and ShareAcknowledge as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgeRequest,
    ShareFetchableTopicResponse,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_records_are_acknowledged_with_the_next_fetch() -> None:
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=1,
        max_wait_ms=500,
        max_records=10,
        batch_size=10,
        topics=[
            ShareFetchTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    ShareFetchPartition(
                        partition_index=0,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1])
                        ],
                    )
                ],
            )
        ],
    )
    assert_bytes(
        request,
        1,
        "02 67 02 6d 00 00 00 01 00 00 01 f4 00 00 00 00 7f ff ff ff 00 00 00 0a 00 00 00 0a 02 00 01 02",
        "03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 00 02 00 00 00 00 00 00 00 01 00 00 00 00 00",
        "00 00 02 02 01 00 00 00 01 00",
    )


def test_acquired_records_have_a_count_of_deliveries() -> None:
    reply = ShareFetchResponse(
        acquisition_lock_timeout_ms=30000,
        responses=[
            ShareFetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[
                    ShareFetchPartitionData(
                        partition_index=0,
                        records=b"rec",
                        acquired_records=[AcquiredRecords(first_offset=1, last_offset=3, delivery_count=2)],
                    )
                ],
            )
        ],
    )
    assert_bytes(
        reply,
        1,
        "00 00 00 00 00 00 00 00 00 75 30 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00",
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 04 72 65 63 02 00 00 00 00 00 00 00 01 00 00 00",
        "00 00 00 00 03 00 02 00 00 00 01 00",
    )


def test_locks_are_renewed_from_version_2_on() -> None:
    request = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=2, is_renew_ack=True)
    assert_bytes(request, 2, "02 67 02 6d 00 00 00 02 01 01 00")
