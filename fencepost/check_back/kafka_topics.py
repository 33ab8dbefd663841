"""The topics of any Kafka that the check-back writes and reads: its journal, and those of `record` resolvers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, TOPIC_CONFIGS, Entry
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, LATEST, UNCOMMITTED, offset_of, read_between
from fencepost.client.errors import ClusterError, check
from fencepost.client.producing import produce_all
from fencepost.client.view import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.1


@contextmanager
def _unavailable() -> Iterator[None]:
    """Raises Unavailable for a cluster that cannot be asked."""
    try:
        yield
    except (ClusterError, TimeoutError, OSError) as error:
        raise Unavailable(str(error) or type(error).__name__) from None


async def _partitions(cluster: Cluster, topic: str) -> Sequence[Partition]:
    """The partitions of a topic; empty if there is no such topic. Raises ClusterError."""
    found = (await cluster.view([topic])).topics.get(topic)
    if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ()
    check(found.error)
    return found.partitions


class KafkaJournal:
    """See `fencepost.check_back.ports.JournalLog`. The cluster's connections are closed with it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next_offset = 0

    async def close(self) -> None:
        self._cluster.close()

    async def read_state(self) -> Mapping[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        with _unavailable():
            for partition in (await _partitions(self._cluster, STATE_TOPIC))[:1]:
                end = await offset_of(self._cluster, STATE_TOPIC, partition, LATEST)
                # The journal is written without transactions: one by a foreign producer must not hide the records
                # behind it.
                records, self._next_offset = await read_between(
                    self._cluster, STATE_TOPIC, partition, self._next_offset, end, UNCOMMITTED, TIMEOUT_S
                )
                for record, _ in records:
                    if record.key is not None:
                        key = record.key.decode("utf-8", "replace")
                        found.pop(key, None)  # so that the keys are in the order of their last records
                        found[key] = record.value
        return found

    async def write(self, entries: Sequence[Entry]) -> None:
        with _unavailable():
            # The audit first: a decision that is in the journal is in the audit, too.
            for topic in (AUDIT_TOPIC, STATE_TOPIC):
                records = [(one.key.encode(), one.encoded_value()) for one in entries if one.topic == topic]
                if records:
                    leader = await self._leader(topic)
                    await produce_all(self._cluster, topic, 0, leader, records)

    async def _leader(self, topic: str) -> int:
        """The leader of one of the two topics, which is created if it is missing."""
        give_up_at_s = time.monotonic() + TIMEOUT_S
        while True:
            partitions = await _partitions(self._cluster, topic)
            if partitions and partitions[0].leader >= 0:
                return partitions[0].leader
            if not partitions:
                await create_topic(self._cluster, topic)
            if time.monotonic() > give_up_at_s:
                raise TimeoutError(f"{topic}-0 has no leader after {TIMEOUT_S:g} s")
            await asyncio.sleep(PAUSE_S)


async def create_topic(cluster: Cluster, topic: str) -> None:
    """Create one of the two topics, if it is missing, with as many copies as the cluster makes by default."""
    configs = [CreatableTopicConfig(name, value) for name, value in TOPIC_CONFIGS[topic].items()]
    wanted = CreatableTopic(topic, num_partitions=1, replication_factor=-1, configs=configs)
    reply = await cluster.send_to_controller(CreateTopicsRequest([wanted], timeout_ms=round(TIMEOUT_S * 1000)))
    for one in reply.topics:
        if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(one.error_code, one.error_message)


class KafkaRecords:
    """See `fencepost.check_back.question.RecordReader`. Each key that is asked for is followed from then on.

    timeout_s: bound of one read, at most that of a question. The cluster's connections are closed with it.
    """

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._next_offsets: dict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
        self._latest: dict[tuple[str, bytes], LatestRecord] = {}

    async def close(self) -> None:
        self._cluster.close()

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        try:
            async with self._turn:
                with _unavailable():
                    return await self._read(topic, key)
        except Unavailable as missing:
            raise ResolverUnreachable(missing.reason) from None

    async def _read(self, topic: str, key: bytes) -> LatestRecord | None:
        partitions = await _partitions(self._cluster, topic)
        # The high watermarks: transactions that are open now have to end before their records count, or do not.
        ends = [await offset_of(self._cluster, topic, partition, LATEST) for partition in partitions]
        next_offsets = self._next_offsets[topic, key]
        for partition, end in zip(partitions, ends, strict=True):
            next_offset = next_offsets.get(partition.index, 0)
            records, next_offsets[partition.index] = await read_between(
                self._cluster, topic, partition, next_offset, end, COMMITTED, self._timeout_s
            )
            for record, is_append_time in records:
                if record.key == key:
                    self._latest[topic, key] = LatestRecord(record.value, record.timestamp_ms, is_append_time)
        return self._latest.get((topic, key)) if partitions else None
