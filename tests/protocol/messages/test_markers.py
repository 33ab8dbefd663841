"""WriteTxnMarkers as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_marker_commits_a_producer_s_partitions() -> None:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=5,
                producer_epoch=1,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 2])],
                coordinator_epoch=3,
            )
        ]
    )
    assert_bytes(
        request, 1, "02 00 00 00 00 00 00 00 05 00 01 01 02 02 74 03 00 00 00 00 00 00 00 02 00 00 00 00 03 00 00"
    )


def test_the_version_of_the_transaction_comes_with_version_2() -> None:
    request = WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=5, producer_epoch=2, coordinator_epoch=3, transaction_version=2)]
    )
    assert_bytes(request, 2, "02 00 00 00 00 00 00 00 05 00 02 00 01 00 00 00 03 02 00 00")


def test_each_partition_has_a_result() -> None:
    reply = WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=5,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name="t", partitions=[WritableTxnMarkerPartitionResult(partition_index=0, error_code=6)]
                    )
                ],
            )
        ]
    )
    assert_bytes(reply, 1, "02 00 00 00 00 00 00 00 05 02 02 74 02 00 00 00 00 00 06 00 00 00 00")
