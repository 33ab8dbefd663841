"""The log of a partition that another node leads, read and written by Fetch, ListOffsets and Produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fencepost.broker.check_back_host.logs import CHUNK_BYTES, Chunk, PlainRecord
from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AbortedRange
from fencepost.check_back.ports import Unavailable
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import build_batch

FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 6
PRODUCE_VERSION: Final = 9
"""The last versions that name topics."""
CONSUMER: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ALL_REPLICAS: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
TIME_OUT_S: Final = 15.0


class LogElsewhere:
    """See `fencepost.broker.check_back_host.logs.ReadableLog`."""

    def __init__(self, place: TopicPartition, node_id: int, peers: Peers, clock: Clock) -> None:
        self.place = place
        self._node_id = node_id
        self._peers = peers
        self._clock = clock

    async def read(self, offset: int, *, is_committed: bool = True) -> Chunk:
        topic, number = self.place
        wanted = FetchPartition(number, fetch_offset=offset, partition_max_bytes=CHUNK_BYTES)
        request = FetchRequest(
            replica_id=CONSUMER,
            max_bytes=CHUNK_BYTES,
            isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
            topics=[FetchTopic(topic, partitions=[wanted])],
        )
        partition = await self._only(request, FETCH_VERSION, "responses", "partitions")
        error = received_error(partition.error_code)
        if error not in (NO_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise Unavailable(f"{self.place} cannot be read from node {self._node_id}: {error.name}")
        aborted = [AbortedRange(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()]
        records = memoryview(b"") if partition.records is None else partition.records
        log_start_offset = 0
        if error is not NO_ERROR:
            log_start_offset = await self._offset(EARLIEST, READ_UNCOMMITTED)
        return Chunk(records, aborted, log_start_offset, error)

    async def high_watermark(self) -> int:
        return await self._offset(LATEST, READ_UNCOMMITTED)

    async def last_stable_offset(self) -> int:
        return await self._offset(LATEST, READ_COMMITTED)

    async def _offset(self, mark: int, isolation: int) -> int:
        topic, number = self.place
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(number, timestamp=mark)])],
        )
        partition = await self._only(request, LIST_OFFSETS_VERSION, "topics", "partitions")
        self._check(partition.error_code, "tell its offsets")
        return int(partition.offset)

    async def append(self, records: Sequence[PlainRecord]) -> None:
        topic, number = self.place
        now_ms = self._clock.now_ms()
        batch = build_batch([Record(index, now_ms, one.key, one.value) for index, one in enumerate(records)])
        partitions = [PartitionProduceData(number, memoryview(batch))]
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=int(TIME_OUT_S * 1000),
            topic_data=[TopicProduceData(topic, partition_data=partitions)],
        )
        partition = await self._only(request, PRODUCE_VERSION, "responses", "partition_responses")
        self._check(partition.error_code, "take records")

    async def _only(self, request: Any, version: int, topics: str, partitions: str) -> Any:
        """The answer about the one partition of a request."""
        try:
            response = await self._peers.request(self._node_id, request, version, TIME_OUT_S)
        except PeerUnreachable as unreachable:
            raise Unavailable(f"{self.place} is not reached: {unreachable}") from None
        found = [partition for topic in getattr(response, topics) for partition in getattr(topic, partitions)]
        if len(found) != 1:
            raise Unavailable(f"node {self._node_id} did not answer about {self.place}")
        return found[0]

    def _check(self, code: int, what: str) -> None:
        error = received_error(code)
        if error is not NO_ERROR:
            raise Unavailable(f"node {self._node_id} does not {what} for {self.place}: {error.name}")
