"""The topics of this broker that the check-back writes and reads: its journal, and those of `record` resolvers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.broker.check_back.committed_reads import CommittedRead
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, TOPIC_CONFIGS, Entry
from fencepost.protocol.errors import NO_ERROR, ErrorCode

POLL_S: Final = 0.02
"""Between looks whether the transactions that hold a last stable offset have ended."""

MOST_FOLLOWED: Final = 1_000
"""Keys that are followed; beyond it, all begin anew."""


class _PlainRecord(NamedTuple):
    key: bytes | None
    value: bytes | None


class OwnJournal:
    """See `fencepost.check_back.ports.JournalLog`."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._read = CommittedRead()

    def begin(self) -> None:
        """Read from the beginning again, for a check-back that begins anew."""
        self._read = CommittedRead()

    async def read_state(self) -> Mapping[str, bytes | None]:
        await self._topics.ensure_opened()
        found: dict[str, bytes | None] = {}
        if self._topics.metadata.get(STATE_TOPIC) is None:
            return found
        async for record, _ in self._read.records(_log(self._topics, TopicPartition(STATE_TOPIC, 0))):
            if record.key is not None:
                key = record.key.decode("utf-8", "replace")
                found.pop(key, None)  # so that the keys are in the order of their last records
                found[key] = record.value
        return found

    async def write(self, entries: Sequence[Entry]) -> None:
        # The audit first: a decision that is in the journal is in the audit, too.
        for topic in (AUDIT_TOPIC, STATE_TOPIC):
            records = [_PlainRecord(one.key.encode(), one.encoded_value()) for one in entries if one.topic == topic]
            if records:
                await self._append(topic, records)

    async def _append(self, topic: str, records: Sequence[_PlainRecord]) -> None:
        try:
            if self._topics.metadata.get(topic) is None:
                error, message = await self._topics.create(topic, 1, TOPIC_CONFIGS[topic])
                if error not in (NO_ERROR, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise Unavailable(f"{topic} cannot be created: {message}")
            log = _log(self._topics, TopicPartition(topic, 0))
            error = log.append_records(records, now_ms=self._clock.now_ms())
            if error is not NO_ERROR:
                raise Unavailable(f"{topic} refuses records: {error.name}")
            await log.flushed()
        except StorageError as failure:
            raise Unavailable(f"{topic} cannot be written: {failure}") from None


class OwnRecords:
    """See `fencepost.check_back.question.RecordReader`. Each key that is asked for is followed from then on."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._followed: dict[tuple[bytes, bytes], _Followed] = {}  # by topic id and key

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        found = self._topics.metadata.get(topic)
        if found is None:
            return None
        logs = [_log(self._topics, TopicPartition(topic, number)) for number in range(found.partition_count)]
        if len(self._followed) >= MOST_FOLLOWED:
            self._followed.clear()
        followed = self._followed.setdefault((found.topic_id, key), _Followed())
        try:
            async with followed.lock:
                await followed.read(logs, key)
        except Unavailable as missing:
            raise ResolverUnreachable(missing.reason) from None
        return followed.latest


class _Followed:
    """The latest record under a key, of what has been read."""

    def __init__(self) -> None:
        self.latest: LatestRecord | None = None
        self.lock = asyncio.Lock()
        self._reads: dict[int, CommittedRead] = {}

    async def read(self, logs: Sequence[PartitionLog], key: bytes) -> None:
        """Read what was in the logs when this was called, with what open transactions before that become of."""
        ends = [log.high_watermark for log in logs]
        for number, (log, end) in enumerate(zip(logs, ends, strict=True)):
            read = self._reads.setdefault(number, CommittedRead())
            while True:
                async for record, is_append_time in read.records(log):
                    if record.key == key:
                        self.latest = LatestRecord(record.value, record.timestamp_ms, is_append_time)
                if log.last_stable_offset >= end:
                    break
                await asyncio.sleep(POLL_S)


def _log(topics: Topics, place: TopicPartition) -> PartitionLog:
    """The log of a partition. Raises Unavailable."""
    log = topics.log(place)
    if log is None:
        raise Unavailable(f"{place} is not led by this broker: {topics.error_of_absent_log(place).name}")
    return log
