"""Consumers: what they fetch, and what of it they hand to the application.

Source: Kafka's CompletedFetch and FetchCollector; KIP-98 for the aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import ClientHistory, ReadRecord
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.record_batch import iterate_batches, read_end_transaction_marker, read_records
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import EARLIEST, Cluster

FETCH_VERSIONS: Final = (4, 11, 12)
MAXIMUM_WAIT_MS: Final = 250
READ_COMMITTED: Final = 1
READ_UNCOMMITTED: Final = 0


def read_fetched(data: Any, position: int, isolation_level: int) -> tuple[list[tuple[int, str | None]], int]:
    """What an application is given of a partition's answer: (offset, value), and where to go on.

    data:     `PartitionData` of a FetchResponse.
    position: the offset that was asked for; batches may begin before it.
    """
    records: list[tuple[int, str | None]] = []
    upcoming = sorted(data.aborted_transactions or (), key=lambda aborted: -aborted.first_offset)
    aborted_producers: set[int] = set()
    for batch in iterate_batches(data.records or b""):
        header = batch.header
        while upcoming and upcoming[-1].first_offset <= header.last_offset:
            aborted_producers.add(upcoming.pop().producer_id)
        is_aborted = header.is_transactional and header.producer_id in aborted_producers
        if header.is_control:
            marker = read_end_transaction_marker(batch)
            if marker is not None and not marker.committed:
                aborted_producers.discard(header.producer_id)
        elif not is_aborted or isolation_level == READ_UNCOMMITTED:
            records += (
                (record.offset, None if record.value is None else record.value.decode())
                for record in read_records(batch)
                if record.offset >= position
            )
        position = max(position, header.last_offset + 1)
    return records, position


class Consumer:
    """Reads the partitions that it was assigned.

    fetch_bytes: the most that one answer should hold; small ones begin and end inside transactions.
    """

    def __init__(
        self,
        cluster: Cluster,
        history: ClientHistory,
        *,
        isolation_level: int,
        fetch_version: int = 12,
        fetch_bytes: int = 65536,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._history = history
        self._isolation_level = isolation_level
        self._fetch_version = fetch_version
        self._fetch_bytes = fetch_bytes

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        """Read these partitions from now on, from these offsets."""
        self.positions = dict(positions)
        self._history.assign((topic, partition, offset) for (topic, partition), offset in positions.items())

    async def poll(self) -> list[ReadRecord]:
        """Ask the leader of one partition for all partitions that it leads. Raises Disconnected."""
        if not self.positions:
            return []
        partitions = list(self.positions)
        self._cluster.chance.shuffle(partitions)
        address = await self._cluster.leader(partitions[0])
        asked = [partition for partition in partitions if await self._cluster.leader(partition) == address]
        try:
            response = await self._cluster.send(address, self._request(asked), self._fetch_version, channel="fetch")
        except Disconnected:
            for topic_partition in asked:
                self._cluster.forget_leader(topic_partition)
            raise
        records: list[ReadRecord] = []
        out_of_range = []
        for topic in response.responses:
            for data in topic.partitions:
                topic_partition = TopicPartition(topic.topic, data.partition_index)
                error = ErrorCode(data.error_code)
                if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(topic_partition)
                elif error is not ErrorCode.NONE:
                    self._cluster.forget_leader(topic_partition)
                elif topic_partition in self.positions:
                    position = self.positions[topic_partition]
                    read, self.positions[topic_partition] = read_fetched(data, position, self._isolation_level)
                    records += ((*topic_partition, offset, value) for offset, value in read)
        if records:
            self._history.polled(records)
        for topic_partition in out_of_range:
            offset = self.positions[topic_partition] = await self._cluster.offset(topic_partition, EARLIEST)
            self._history.seek([(*topic_partition, offset)])
        return records

    def _request(self, partitions: Iterable[TopicPartition]) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[TopicPartition(topic, partition)],
                    partition_max_bytes=self._fetch_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=MAXIMUM_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
        )


def flattened(offsets: dict[TopicPartition, int]) -> Iterator[tuple[str, int, int]]:
    """As histories and requests have them: (topic, partition, offset)."""
    return ((topic, partition, offset) for (topic, partition), offset in offsets.items())
