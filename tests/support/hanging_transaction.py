"""A transaction in a partition that no coordinator knows: an old client's late write, where writes are not verified."""

from __future__ import annotations

import time

from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.wire import WireConnection

HANGING_PRODUCER_ID, HANGING_PRODUCER_EPOCH = 5000, 3


def leave_hanging(host: str, port: int, topic: str) -> None:
    """Write the first record of such a transaction to partition 0, with the value `late`."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, b"late")],
        producer_id=HANGING_PRODUCER_ID,
        producer_epoch=HANGING_PRODUCER_EPOCH,
        base_sequence=0,
        is_transactional=True,
    )
    request = ProduceRequest(
        transactional_id="zombie",
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    with WireConnection(host, port) as connection:
        response = connection.call(request, ProduceResponse, 9, flexible_header=True)
    assert response.responses[0].partition_responses[0].error_code == 0
