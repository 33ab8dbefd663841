"""Redelivery of dead letters: each is written once into the partition from which its original came.

Members of the group may read uncommitted records, so the copies are in no transaction: those of an aborted one would be
delivered, and again by the next attempt. Each batch is decided first, in `PROGRESS_TOPIC`, and then written under the
producer id and sequence of the decision. Decisions are written in transactions of one transactional id per group: of
two commands at the same time, the later one fences the earlier one, and continues its last batch.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import click

from fencepost.cli.committed_records import reader, records_of
from fencepost.cli.connection import admin_client, check_results, client_options
from fencepost.cli.redelivery_progress import LARGEST_BYTES, PROGRESS_TOPIC, Copy, Progress, decoded
from fencepost.cli.sending import brokers
from fencepost.client.errors import ClusterError
from fencepost.client.plans import Address
from fencepost.protocol.checked_json import JsonError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches

MOST_RECORDS: Final = 500
MOST_BYTES: Final = 512 << 10
"""Of one batch, but for its last record."""
LONGEST_WAIT_S: Final = 60.0
PAUSE_S: Final = 0.2
OLD_MS: Final = 6 * 60 * 60 * 1000
"""Logs forget producer ids after `producer.id.expiration.ms`, by default a day: an older batch is looked for."""
MARGIN_MS: Final = 60_000
"""More than clocks differ."""
TRANSACTION_TIMEOUT_MS: Final = 30_000
LARGEST_RECORD_BYTES: Final = 100 << 20

WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
TEMPORARY: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True)
class Letter:
    """A dead letter, and the record that is written for it.

    partition, offset: its place in the dead-letter topic. since: the offset behind the group's previous one there.
    target: topic and partition of the original. has_original: presence of key, value and headers.
    """

    partition: int
    offset: int
    since: int
    target: tuple[str, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    has_original: bool = True

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(len(k) + len(v or b"") for k, v in self.headers)


class Refused(Exception):  # noqa: N818  # an expected outcome
    """A partition refuses a batch, which is not written."""

    def __init__(self, code: int, message: str | None) -> None:
        self.code = code
        super().__init__(f"{ErrorCode(code).name}{f': {message}' if message else ''}")


@dataclass
class Outcome:
    """Written records by target, those that an earlier command had decided on, and the letters without a record."""

    written: Counter[tuple[str, int]] = field(default_factory=Counter)
    continued_count: int = 0
    lost: list[Letter] = field(default_factory=list)


# Progress


def read_progress(bootstrap: str, group: str, topic_id: str) -> dict[int, Progress]:
    """Progress of a group by partition of a dead-letter topic, which is known by its id in hexadecimal.

    Raises ClickException.
    """
    found: dict[int, Progress] = {}
    with reader(bootstrap) as consumer:
        if PROGRESS_TOPIC not in consumer.topics():
            return found
        for record in records_of(consumer, [PROGRESS_TOPIC]):
            try:
                progress = decoded(record.key, record.value)
            except JsonError as error:
                raise click.ClickException(
                    f"the progress of redeliveries in {PROGRESS_TOPIC}-{record.partition} cannot be read at offset "
                    f"{record.offset}: {error}"
                ) from None
            if progress is not None and (progress.group, progress.topic_id) == (group, topic_id):
                found[progress.partition] = progress
    return found


# The command


class Redelivery:
    """One command. Entered, it is the only one for its group, and earlier ones are fenced."""

    def __init__(self, bootstrap: str, group: str, dead_topic: str, dead_topic_id: str) -> None:
        self.outcome = Outcome()
        self._bootstrap = bootstrap
        self._group = group
        self._dead_topic = dead_topic
        self._dead_topic_id = dead_topic_id
        self._progress: dict[int, Progress] = {}
        self._unstored: set[int] = set()
        self._sequences: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._producer_id: tuple[int, int] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            _create_progress_topic(self._bootstrap)
            self._cluster = self._stack.enter_context(brokers(self._bootstrap))
            self._decisions = self._stack.enter_context(_decisions(self._bootstrap, self._group))
            self._progress = read_progress(self._bootstrap, self._group, self._dead_topic_id)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def is_done(self, partition: int, offset: int) -> bool:
        progress = self._progress.get(partition)
        return progress is not None and offset in progress.done

    def continue_interrupted(self, letters_at: Callable[[int, Sequence[int]], Sequence[Letter]]) -> None:
        """Complete the batches that earlier commands have decided on. letters_at: reader of dead letters at offsets."""
        for progress in self._progress.values():
            copy = progress.copy
            if copy is None:
                continue
            if not self._exists(copy):
                progress.copy = None  # it went with the topic
            elif time.time() * 1000 - copy.decided_ms > OLD_MS and self._is_written(copy):
                self._complete(progress)
            else:
                offsets = [offset for _, offset in copy.places]
                letters = letters_at(progress.partition, offsets)
                is_whole = [letter.offset for letter in letters] == offsets
                if (is_whole and self._is_accepted(copy, letters)) or self._is_written(copy):
                    self._complete(progress)
                else:
                    progress.copy = None  # retention has deleted some, or they are refused: they are decided on anew
            self._store(progress)

    def _is_accepted(self, copy: Copy, letters: Sequence[Letter]) -> bool:
        try:
            self._write(copy, letters)
        except Refused:
            return False
        return True

    def _complete(self, progress: Progress) -> None:
        assert progress.copy is not None
        self.outcome.continued_count += len(progress.copy.places)
        progress.complete()

    def deliver(self, letters: Iterable[Letter]) -> None:
        """Write dead letters, in batches of one partition of the dead-letter topic and one target. Raises
        ClickException."""
        batch: list[Letter] = []
        size_bytes = 0
        for letter in letters:
            if batch and (
                (letter.partition, letter.target) != (batch[0].partition, batch[0].target)
                or len(batch) == MOST_RECORDS
                or size_bytes + letter.size_bytes > MOST_BYTES
            ):
                self._deliver(batch)
                batch, size_bytes = [], 0
            batch.append(letter)
            size_bytes += letter.size_bytes
        if batch:
            self._deliver(batch)
        if self._unstored:
            self._store(self._progress[min(self._unstored)])

    def _deliver(self, letters: Sequence[Letter]) -> None:
        first = letters[0]
        topic, partition = first.target
        progress = self._progress.setdefault(
            first.partition, Progress(self._group, self._dead_topic_id, first.partition)
        )
        producer_id, epoch = self._identity()
        topic_id = self._topic_id(topic)
        sequence = self._sequences[topic_id, partition]
        places = tuple((letter.since, letter.offset) for letter in letters)
        now_ms = int(time.time() * 1000)
        progress.copy = Copy(producer_id, epoch, sequence, topic, topic_id, partition, places, now_ms)
        self._store(progress)
        try:
            self._write(progress.copy, letters)
        except Refused as refused:
            progress.copy = None
            self._store(progress)
            if refused.code not in TOO_LARGE or len(letters) == 1:
                raise click.ClickException(
                    f"{topic}-{partition} refuses the dead letter at offset {first.offset} of "
                    f"{self._dead_topic}-{first.partition}: {refused}. Leave it out with --from-topic or --offsets, or "
                    "change the topic"
                ) from None
            for letter in letters:
                self._deliver([letter])
            return
        self._sequences[topic_id, partition] += len(letters)
        self.outcome.written[first.target] += len(letters)
        progress.complete()
        self._unstored.add(first.partition)

    # Decisions

    def _store(self, progress: Progress) -> None:
        """Write the progress of a partition; raises ClickException if a later command has taken over."""
        # Together with all that is complete: logs recognise only the last batches of a producer.
        stored = [progress, *(self._progress[number] for number in sorted(self._unstored - {progress.partition}))]
        records = {one.key: one.encoded() for one in stored}
        if any(len(value) > LARGEST_BYTES for value in records.values()):
            raise click.ClickException(
                f"too many single dead letters of {self._dead_topic} were chosen so far to remember them: deliver all "
                "again, without --offsets"
            )
        self._decisions(records)
        self._unstored.clear()

    def _identity(self) -> tuple[int, int]:
        """A new producer id for the copies of this command, and its epoch."""
        if self._producer_id is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
            reply = self._retried(lambda: self._cluster.send(request), lambda reply: int(reply.error_code))
            self._producer_id = reply.producer_id, reply.producer_epoch
        return self._producer_id

    # Partitions

    def _metadata(self, topic: MetadataRequestTopic) -> tuple[Any, Mapping[int, Address]]:
        reply = self._cluster.send(MetadataRequest(topics=[topic], allow_auto_topic_creation=False))
        return reply.topics[0], {node.node_id: Address(node.host, node.port) for node in reply.brokers}

    def _topic_id(self, name: str) -> str:
        topic, _ = self._metadata(MetadataRequestTopic(name=name))
        if topic.error_code:
            raise click.ClickException(
                f"the topic {name}, from which dead letters came, cannot be written: "
                f"{ErrorCode(topic.error_code).name}. Create it, or leave them out with --from-topic"
            )
        return bytes(topic.topic_id).hex()

    def _exists(self, copy: Copy) -> bool:
        """Whether the topic of a decision is still there."""
        wanted = MetadataRequestTopic(topic_id=bytes.fromhex(copy.topic_id), name=None)
        topic, _ = self._metadata(wanted)
        return bool(topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID)

    def _leader(self, topic_id: str, partition: int) -> Address | None:
        """Raises ClickException if the topic has no such partition."""
        topic, nodes = self._metadata(MetadataRequestTopic(topic_id=bytes.fromhex(topic_id), name=None))
        numbers = {one.partition_index: one.leader_id for one in topic.partitions}
        if not topic.error_code and partition not in numbers:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic has {len(numbers)} partitions")
        return nodes.get(numbers.get(partition, -1))

    def _write(self, copy: Copy, letters: Sequence[Letter]) -> None:
        """Write a batch until it is acknowledged. Raises Refused if it is certain that it is not written."""
        records = [
            Record(index, copy.decided_ms, letter.key, letter.value, letter.headers)
            for index, letter in enumerate(letters)
        ]
        batch = build_batch(
            records,
            producer_id=copy.producer_id,
            producer_epoch=copy.producer_epoch,
            base_sequence=copy.base_sequence,
        )
        data = PartitionProduceData(copy.partition, memoryview(batch))
        topic = TopicProduceData(name=copy.topic, topic_id=bytes.fromhex(copy.topic_id), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        is_certain = True
        give_up_at_s = time.monotonic() + LONGEST_WAIT_S
        while True:
            reason = "it has no leader"
            leader = self._leader(copy.topic_id, copy.partition)
            if leader is not None:
                try:
                    reply = self._cluster.send(request, leader)
                except ClusterError as error:
                    is_certain, reason = False, str(error)
                else:
                    answer = reply.responses[0].partition_responses[0]
                    if answer.error_code in WRITTEN:
                        return
                    if answer.error_code not in TEMPORARY and is_certain:
                        raise Refused(answer.error_code, answer.error_message)
                    reason = ErrorCode(answer.error_code).name
                    is_certain = is_certain and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if time.monotonic() > give_up_at_s:
                raise click.ClickException(
                    f"{copy.topic}-{copy.partition} did not acknowledge a batch in {LONGEST_WAIT_S:.0f} s: {reason}. "
                    "Run the command again: it continues with this batch, and repeats nothing"
                )
            time.sleep(PAUSE_S)

    def _is_written(self, copy: Copy) -> bool:
        """Look for a batch in its partition. Raises ClusterError."""
        topic_id = bytes.fromhex(copy.topic_id)
        leader = self._leader(copy.topic_id, copy.partition)
        if leader is None:
            raise ClusterError(f"{copy.topic}-{copy.partition} has no leader: run the command again later")
        asked = ListOffsetsPartition(partition_index=copy.partition, timestamp=copy.decided_ms - MARGIN_MS)
        listed = self._cluster.send(
            ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=copy.topic, partitions=[asked])], timeout_ms=10_000
            ),
            leader,
        )
        offset = listed.topics[0].partitions[0].offset
        while offset >= 0:
            wanted = FetchPartition(partition=copy.partition, fetch_offset=offset, partition_max_bytes=MOST_BYTES)
            topics = [FetchTopic(topic=copy.topic, topic_id=topic_id, partitions=[wanted])]
            reply = self._cluster.send(
                FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=MOST_BYTES, topics=topics), leader
            )
            found = reply.responses[0].partitions[0] if reply.responses else None
            if reply.error_code or found is None or found.error_code:
                raise ClusterError(f"{copy.topic}-{copy.partition} cannot be read: run the command again later")
            position = offset
            try:
                for batch in iterate_batches(found.records or b""):
                    header = batch.header
                    if (header.producer_id, header.base_sequence) == (copy.producer_id, copy.base_sequence):
                        return True
                    offset = header.last_offset + 1
            except DecodeError as error:
                raise ClusterError(f"{copy.topic}-{copy.partition} cannot be read: {error}") from None
            if offset == position:
                return False
        return False

    def _retried(self, send: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
        give_up_at_s = time.monotonic() + LONGEST_WAIT_S
        while True:
            reply = send()
            error = error_of(reply)
            if not error:
                return reply
            if error not in TEMPORARY or time.monotonic() > give_up_at_s:
                raise ClusterError(f"the broker refused a producer id: {ErrorCode(error).name}")
            time.sleep(PAUSE_S)


def _create_progress_topic(bootstrap: str) -> None:
    from kafka.errors import TopicAlreadyExistsError

    with admin_client(bootstrap) as admin:
        if PROGRESS_TOPIC in admin.list_topics():
            return
        wanted = {"num_partitions": 1, "replication_factor": -1, "configs": {"cleanup.policy": "compact"}}
        results = admin.create_topics({PROGRESS_TOPIC: wanted}, raise_errors=False)["topics"]
        if results[0]["error_code"] != TopicAlreadyExistsError.errno:
            check_results(results)


@contextmanager
def _decisions(bootstrap: str, group: str) -> Iterator[Callable[[Mapping[bytes, bytes]], None]]:
    """Writes records of `PROGRESS_TOPIC`, durable together when the call returns. Raises ClickException after a later
    command has begun."""
    from kafka import KafkaProducer
    from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

    fenced = (InvalidProducerEpochError, ProducerFencedError)
    producer = KafkaProducer(
        **client_options(bootstrap),
        transactional_id=f"fencepost-redelivery-{group}",
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        max_request_size=LARGEST_RECORD_BYTES,
    )

    def store(records: Mapping[bytes, bytes]) -> None:
        try:
            producer.begin_transaction()
            for key, value in records.items():
                producer.send(PROGRESS_TOPIC, key=key, value=value, partition=0)
            producer.commit_transaction()
        except KafkaError as error:
            # Once fenced, kafka-python refuses each further call by a KafkaError that has the reason only in its text.
            in_text = any(one.__name__ in str(error) for one in fenced)
            if isinstance(error, fenced) or isinstance(error.__cause__, fenced) or in_text:
                raise click.ClickException(
                    f"another command has begun to deliver the dead letters of group {group} again: it continues"
                ) from None
            raise

    try:
        producer.init_transactions()
        yield store
    finally:
        producer.close(timeout=1)
