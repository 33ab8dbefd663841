"""The last look at a partition: all of it, from its start to its end."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import ClientHistory, HistoryWriter, ReadRecord
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import EARLIEST, LATEST, Cluster
from tests.simulation.clients.consumer import READ_COMMITTED, Consumer


def witness_time() -> int:
    """For histories that nobody reads."""
    return 0


async def read_all(witness: Cluster, history: ClientHistory, topic_partition: TopicPartition) -> bool:
    """Read one partition from its start to its end; False when that did not work."""
    silent = HistoryWriter(lambda line: None, witness_time).client("witness")
    consumer = Consumer(witness, silent, isolation_level=READ_COMMITTED)
    records: list[ReadRecord] = []
    try:
        start = await witness.offset(topic_partition, EARLIEST)
        end = await witness.offset(topic_partition, LATEST)
        call = history.final_read([(*topic_partition, start, end)])
        consumer.assign({topic_partition: start})
        while consumer.positions[topic_partition] < end:
            position = consumer.positions[topic_partition]
            records += await consumer.poll()
            if consumer.positions[topic_partition] <= position:
                return False
    except Disconnected:
        return False
    call.ok(records)
    return True
