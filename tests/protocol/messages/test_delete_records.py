"""DeleteRecords as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from tests.protocol.messages.golden import assert_bytes


def test_records_are_deleted_below_an_offset() -> None:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=1, offset=42)])],
        timeout_ms=1000,
    )
    assert_bytes(request, 2, "02 02 74 02 00 00 00 01 00 00 00 00 00 00 00 2a 00 00 00 00 03 e8 00")


def test_the_reply_has_the_new_low_watermark() -> None:
    reply = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name="t", partitions=[DeleteRecordsPartitionResult(partition_index=1, low_watermark=42)]
            )
        ]
    )
    assert_bytes(reply, 0, "00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 2a 00 00")
