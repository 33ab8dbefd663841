"""DescribeProducers as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from tests.protocol.messages.golden import assert_bytes


def test_partitions_are_asked_for_by_topic() -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
    assert_bytes(request, 0, "02 02 74 03 00 00 00 00 00 00 00 01 00 00")


def test_a_producer_comes_with_the_start_of_its_open_transaction() -> None:
    reply = DescribeProducersResponse(
        topics=[
            TopicResponse(
                name="t",
                partitions=[
                    PartitionResponse(
                        partition_index=0,
                        active_producers=[
                            ProducerState(
                                producer_id=5,
                                producer_epoch=1,
                                last_sequence=9,
                                last_timestamp=1000,
                                coordinator_epoch=0,
                                current_txn_start_offset=42,
                            )
                        ],
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        0,
        "00 00 00 00 02 02 74 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 05 00 00 00 01 00 00 00 09",
        "00 00 00 00 00 00 03 e8 00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00",
    )
