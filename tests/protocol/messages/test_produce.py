"""Produce as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_topics_have_names_until_version_12() -> None:
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"rec")])],
    )
    assert_bytes(request, 9, "02 78 ff ff 00 00 03 e8 02 02 74 02 00 00 00 00 04 72 65 63 00 00 00")


def test_topics_have_ids_from_version_13_on() -> None:
    request = ProduceRequest(
        acks=1,
        topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=1, records=None)])],
    )
    assert_bytes(
        request,
        13,
        "00 00 01 00 00 00 00 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 00 00 00 01 00 00 00",
        "00",
    )


def test_the_records_at_fault_are_named_by_their_indexes() -> None:
    reply = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                partition_responses=[
                    PartitionProduceResponse(
                        index=0,
                        error_code=87,
                        base_offset=-1,
                        record_errors=[BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key")],
                        error_message="refused",
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        8,
        "00 00 00 01 00 01 74 00 00 00 01 00 00 00 00 00 57 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff",
        "ff ff ff ff ff ff ff ff ff 00 00 00 01 00 00 00 03 00 06 6e 6f 20 6b 65 79 00 07 72 65 66 75 73",
        "65 64 00 00 00 00",
    )
