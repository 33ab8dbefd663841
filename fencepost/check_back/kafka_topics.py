"""The topics of any Kafka that the check-back writes and reads: its journal, and those of `record` resolvers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, TOPIC_CONFIGS, Entry

T = TypeVar("T")

POLL_MS: Final = 200
TIMEOUT_S: Final = 30.0
LOG_APPEND_TIME: Final = 1


class _Clients:
    """kafka-python's clients on one thread of their own: they are not for several. options: of theirs.

    After a failure they are created again.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._options = options
        self._thread = ThreadPoolExecutor(1, name)
        self._made: dict[str, Any] = {}

    def admin(self) -> Any:
        from kafka.admin import KafkaAdminClient

        return self._client("admin", partial(KafkaAdminClient, **self._options))

    def producer(self) -> Any:
        from kafka import KafkaProducer

        return self._client("producer", partial(KafkaProducer, acks="all", **self._options))

    def consumer(self, isolation: str) -> Any:
        """It has no group, and reads its assigned partitions."""
        from kafka import KafkaConsumer

        make = partial(
            KafkaConsumer,
            group_id=None,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            **self._options,
        )
        return self._client(isolation, make)

    def _client(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    async def run(self, work: Callable[[], T]) -> T:
        """Do something with the clients. Raises Unavailable."""
        from kafka.errors import KafkaError

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except (KafkaError, OSError, TimeoutError) as error:
            await loop.run_in_executor(self._thread, self._close)
            raise Unavailable(str(error) or type(error).__name__) from None

    def _close(self) -> None:
        made, self._made = self._made, {}
        for client in made.values():
            client.close()

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)


class KafkaJournal:
    """See `fencepost.check_back.ports.JournalLog`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._clients = _Clients("check-back-journal", options)
        self._existing: set[str] = set()
        self._next_offset = 0

    async def close(self) -> None:
        await self._clients.close()

    async def read_state(self) -> Mapping[str, bytes | None]:
        return await self._clients.run(self._read_state)

    async def write(self, entries: Sequence[Entry]) -> None:
        await self._clients.run(partial(self._write, entries))

    def _read_state(self) -> Mapping[str, bytes | None]:
        from kafka import TopicPartition

        found: dict[str, bytes | None] = {}
        # The journal is written without transactions: one by a foreign producer must not hide the records behind it.
        consumer = self._clients.consumer("read_uncommitted")
        if not consumer.partitions_for_topic(STATE_TOPIC):
            return found
        place = TopicPartition(STATE_TOPIC, 0)
        end = consumer.end_offsets([place])[place]
        records, self._next_offset = _read_on(consumer, place, self._next_offset, end, TIMEOUT_S)
        for record in records:
            if record.key is not None:
                key = record.key.decode("utf-8", "replace")
                found.pop(key, None)  # so that the keys are in the order of their last records
                found[key] = record.value
        return found

    def _write(self, entries: Sequence[Entry]) -> None:
        # The audit first: a decision that is in the journal is in the audit, too.
        for topic in (AUDIT_TOPIC, STATE_TOPIC):
            of_topic = [one for one in entries if one.topic == topic]
            if not of_topic:
                continue
            self._ensure(topic)
            producer = self._clients.producer()
            sent = [
                producer.send(topic, key=one.key.encode(), value=one.encoded_value(), partition=0) for one in of_topic
            ]
            for one in sent:
                one.get(timeout=TIMEOUT_S)

    def _ensure(self, topic: str) -> None:
        if topic in self._existing:
            return
        admin = self._clients.admin()
        if topic not in admin.list_topics():
            create_topic(admin, topic)
        self._existing.add(topic)


def create_topic(admin: Any, topic: str) -> None:
    """Create one of the two topics, with as many copies as the cluster makes by default."""
    from kafka.errors import TopicAlreadyExistsError

    wanted = {"num_partitions": 1, "replication_factor": -1, "configs": dict(TOPIC_CONFIGS[topic])}
    try:
        admin.create_topics({topic: wanted}, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return


class KafkaRecords:
    """See `fencepost.check_back.question.RecordReader`. Each key that is asked for is followed from then on.

    timeout_s: bound of one read, at most that of a question.
    """

    def __init__(self, options: Mapping[str, Any], timeout_s: float) -> None:
        self._clients = _Clients("check-back-records", options)
        self._timeout_s = timeout_s
        self._followed: dict[tuple[str, bytes], _Followed] = {}

    async def close(self) -> None:
        await self._clients.close()

    async def latest(self, topic: str, key: bytes) -> LatestRecord | None:
        try:
            return await self._clients.run(partial(self._latest, topic, key))
        except Unavailable as missing:
            raise ResolverUnreachable(missing.reason) from None

    def _latest(self, topic: str, key: bytes) -> LatestRecord | None:
        from kafka import TopicPartition

        consumer = self._clients.consumer("read_committed")
        numbers = consumer.partitions_for_topic(topic)
        if not numbers:
            return None
        # The high watermarks: transactions that are open now have to end before their records count, or do not.
        ends = self._clients.consumer("read_uncommitted").end_offsets(
            [TopicPartition(topic, number) for number in sorted(numbers)]
        )
        followed = self._followed.setdefault((topic, key), _Followed())
        for place, end in ends.items():
            followed.read(consumer, place, end, key, self._timeout_s)
        return followed.latest


class _Followed:
    """The latest record under a key, as far as the partitions were read."""

    def __init__(self) -> None:
        self.latest: LatestRecord | None = None
        self._next_offsets: dict[int, int] = {}

    def read(self, consumer: Any, place: Any, end: int, key: bytes, timeout_s: float) -> None:
        next_offset = self._next_offsets.get(place.partition, 0)
        records, self._next_offsets[place.partition] = _read_on(consumer, place, next_offset, end, timeout_s)
        for record in records:
            if record.key == key:
                is_append_time = record.timestamp_type == LOG_APPEND_TIME
                self.latest = LatestRecord(record.value, record.timestamp, is_append_time)


def _read_on(consumer: Any, place: Any, next_offset: int, end: int, timeout_s: float) -> tuple[list[Any], int]:
    """The committed records of a partition between two offsets, and the next offset to read. Raises TimeoutError."""
    consumer.assign([place])
    begins = consumer.beginning_offsets([place])[place]
    # Beyond the end: the topic was created again.
    consumer.seek(place, max(next_offset, begins) if next_offset <= end else begins)
    found: list[Any] = []
    give_up_at_s = time.monotonic() + timeout_s
    while consumer.position(place) < end:
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(
                f"{place.topic}-{place.partition} could not be read to its end in {timeout_s:g} s; an open transaction "
                "may be in the way"
            )
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            found += records
    return found, consumer.position(place)
