"""The topics of this broker that the check-back writes and reads: its journal, and those of `record` resolvers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.check_back_host.committed_reads import CommittedRead
from fencepost.broker.check_back_host.log_lookup import Logs
from fencepost.broker.check_back_host.logs import PlainRecord, ReadableLog
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.storage.disk import StorageError
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, TOPIC_CONFIGS, Entry, id_of_key
from fencepost.protocol.errors import NO_ERROR, ErrorCode

POLL_S: Final = 0.02
"""Between looks whether the transactions that hold a last stable offset have ended."""

MOST_FOLLOWED: Final = 1_000
"""Bound of the followed keys; beyond it, all are read anew."""
TAIL: Final = 64
"""How many offsets are read at first; each time that they do not have the key, LONGER times as many."""
LONGER: Final = 16


class OwnJournal:
    """See `fencepost.check_back.ports.JournalLog`.

    is_own: whether this node checks back the transactions of an id. The journal's entries on others are left out.
    """

    def __init__(self, logs: Logs, is_own: Callable[[str], bool]) -> None:
        self._logs = logs
        self._topics = logs.topics
        self._is_own = is_own
        self._read = CommittedRead(is_committed=False)

    def begin(self) -> None:
        """Read from the beginning again, for a check-back that restarts."""
        self._read = CommittedRead(is_committed=False)

    async def read_state(self) -> Mapping[str, bytes | None]:
        await self._topics.ensure_opened()
        found: dict[str, bytes | None] = {}
        if self._topics.metadata.get(STATE_TOPIC) is None:
            return found
        async for record, _ in self._read.records(self._logs.at(TopicPartition(STATE_TOPIC, 0))):
            if record.key is not None:
                key = record.key.decode("utf-8", "replace")
                transactional_id = id_of_key(key)
                if transactional_id is not None and not self._is_own(transactional_id):
                    continue
                found.pop(key, None)  # so that the keys are in the order of their last records
                found[key] = record.value
        return found

    async def write(self, entries: Sequence[Entry]) -> None:
        # The audit first: a decision that is in the journal is in the audit, too.
        for topic in (AUDIT_TOPIC, STATE_TOPIC):
            records = [PlainRecord(one.key.encode(), one.encoded_value()) for one in entries if one.topic == topic]
            if records:
                await self._append(topic, records)

    async def _append(self, topic: str, records: Sequence[PlainRecord]) -> None:
        try:
            if self._topics.metadata.get(topic) is None:
                error, message = await self._topics.create(topic, 1, TOPIC_CONFIGS[topic])
                if error not in (NO_ERROR, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise Unavailable(f"{topic} cannot be created: {message}")
        except StorageError as failure:
            raise Unavailable(f"{topic} cannot be created: {failure}") from None
        await self._logs.at(TopicPartition(topic, 0)).append(records)


class OwnRecords:
    """See `fencepost.check_back.question.RecordReader`. Each key that is asked for is followed from then on."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._followed: dict[tuple[bytes, bytes], _Followed] = {}  # by topic id and key

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        found = self._logs.topics.metadata.get(topic)
        if found is None:
            return None
        if len(self._followed) >= MOST_FOLLOWED:
            self._followed.clear()
        followed = self._followed.setdefault((found.topic_id, key), _Followed())
        try:
            logs = [self._logs.at(TopicPartition(topic, number)) for number in range(found.partition_count)]
            async with followed.lock:
                await followed.read(logs, key)
        except Unavailable as missing:
            raise ResolverUnreachable(missing.reason) from None
        return followed.latest


class _Followed:
    """The latest record under a key, as far as the logs were read."""

    def __init__(self) -> None:
        self.latest: LatestRecord | None = None
        self.lock = asyncio.Lock()
        self._reads: dict[int, CommittedRead] = {}

    async def read(self, logs: Sequence[ReadableLog], key: bytes) -> None:
        """Read the logs up to their high watermarks now, and wait until each transaction below them has ended."""
        ends = [await log.high_watermark() for log in logs]
        for number, (log, end) in enumerate(zip(logs, ends, strict=True)):
            if number not in self._reads:
                self._reads[number] = await self._read_tail(log, end, key)
            while True:
                await self._read_on(self._reads[number], log, key)
                if await log.last_stable_offset() >= end:
                    break
                await asyncio.sleep(POLL_S)

    async def _read_tail(self, log: ReadableLog, end: int, key: bytes) -> CommittedRead:
        """Read from as near to the end as the key is found: a topic keeps its old records for long."""
        length = TAIL
        while True:
            read = CommittedRead(max(0, end - length))
            if await self._read_on(read, log, key) or end <= length:
                return read
            length *= LONGER

    async def _read_on(self, read: CommittedRead, log: ReadableLog, key: bytes) -> bool:
        """Read up to the last stable offset; return whether a record has the key."""
        is_found = False
        async for record, is_append_time in read.records(log):
            if record.key == key:
                self.latest = LatestRecord(record.value, record.timestamp_ms, is_append_time)
                is_found = True
        return is_found
