"""Final checks of a soak, once all clients have stopped: open transactions, contents of the logs, committed offsets."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from fencepost.history.writer import ClientHistory
from fencepost.soak.plan import TRANSACTION_TIMEOUT_MS, Partition, group_id

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
SETTLE_TIMEOUT_S = TRANSACTION_TIMEOUT_MS / 1000 + 20
COMMAND_TIMEOUT_S = 60.0
QUERY_TIMEOUT_S = 30.0
RETRY_PAUSE_S = 0.1
READ_TIMEOUT_S = 30.0  # without a single record
# Errors of librdkafka for a partition whose leader has moved, or is not known yet.
LED_ELSEWHERE = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
)
RECORDS_PER_LINE = 5_000  # of the final read in the history


class ClosingError(Exception):
    """The broker did not answer the final checks."""


@dataclass(frozen=True, slots=True)
class Content:
    """Contents of all partitions at one isolation level. digests: of offsets and values, in their order."""

    records_count: int
    digests: dict[Partition, str]
    end_offsets: dict[Partition, int]


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """The end offset of a partition. Retries while nobody leads it yet, or another node does; librdkafka does not.

    Raises KafkaException.
    """
    deadline_s = time.monotonic() + QUERY_TIMEOUT_S
    while True:
        try:
            # Shorter: a query that began before all were led goes on for its whole time.
            end_offset: int = consumer.get_watermark_offsets(partition, QUERY_TIMEOUT_S / 5)[1]
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in LED_ELSEWHERE:
                raise
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_PAUSE_S)
            # Without this, librdkafka keeps its metadata from the time when nobody led the partition.
            consumer.list_topics(partition.topic, timeout=QUERY_TIMEOUT_S)
        else:
            return end_offset


def open_transactions(bootstrap_servers: str) -> list[str]:
    """Transactional ids, with their states, that are neither empty nor complete; from `fencepost transactions list`."""
    command = [sys.executable, "-m", "fencepost", "transactions", "list", "--bootstrap", bootstrap_servers, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClosingError("fencepost transactions list does not end") from error
    if done.returncode != 0:
        raise ClosingError(f"fencepost transactions list ended with {done.returncode}: {done.stderr.strip()}")
    return [
        f"{row['transactional_id']}: {row['state']}" for row in json.loads(done.stdout) if row["state"] in OPEN_STATES
    ]


def wait_until_settled(bootstrap_servers: str) -> list[str]:
    """Wait until no transaction is open; returns those that are still open after SETTLE_TIMEOUT_S."""
    deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        left = open_transactions(bootstrap_servers)
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(0.5)


class Examiner:
    """Reads offsets and records with confluent-kafka, for all kinds of clients."""

    def __init__(self, bootstrap_servers: str, partitions: Sequence[Partition]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._partitions = list(partitions)

    def unstable_partitions(self) -> list[str]:
        """Partitions, internal ones included, whose last stable offset is not their high watermark."""
        committed, uncommitted = self._consumer("read_committed"), self._consumer("read_uncommitted")
        found = []
        try:
            topics = committed.list_topics(timeout=QUERY_TIMEOUT_S).topics
            for topic, description in sorted(topics.items()):
                for number in description.partitions:
                    partition = TopicPartition(topic, number)
                    last_stable_offset = _end_offset(committed, partition)
                    high_watermark = _end_offset(uncommitted, partition)
                    if last_stable_offset != high_watermark:
                        offsets = f"last stable offset {last_stable_offset}, high watermark {high_watermark}"
                        found.append(f"{topic}-{number}: {offsets}")
        except KafkaException as error:
            raise ClosingError(f"asking for offsets: {error}") from error
        finally:
            committed.close()
            uncommitted.close()
        return found

    def record_everything(self, history: ClientHistory) -> Content:
        """Read all partitions as read_committed, and record that as the final read, RECORDS_PER_LINE a line."""
        stretches: dict[Partition, list[tuple[int, str]]] = {partition: [] for partition in self._partitions}
        starts = dict.fromkeys(self._partitions, 0)

        def write(partition: Partition, end_offset: int) -> None:
            call = history.final_read([(*partition, starts[partition], end_offset)])
            call.ok((*partition, offset, value) for offset, value in stretches[partition])
            starts[partition], stretches[partition] = end_offset, []

        def seen(partition: Partition, offset: int, value: str) -> None:
            if len(stretches[partition]) == RECORDS_PER_LINE:
                write(partition, offset)
            stretches[partition].append((offset, value))

        content = self.content("read_committed", seen)
        for partition, end_offset in content.end_offsets.items():
            if starts[partition] < end_offset:
                write(partition, end_offset)
        return content

    def record_offsets(self, history: ClientHistory, kinds: Sequence[str]) -> None:
        """Record the groups' committed offsets as the history's final offsets."""
        for kind in kinds:
            group = group_id(kind)
            call = history.final_offsets(group)
            consumer = Consumer({**self._configuration("read_committed"), "group.id": group})
            asked = [TopicPartition(*one) for one in self._partitions if one.topic == f"inputs-{kind}"]
            try:
                answered = consumer.committed(asked, QUERY_TIMEOUT_S)
            except KafkaException as error:
                raise ClosingError(f"offsets of {group}: {error}") from error
            finally:
                consumer.close()
            call.ok([(one.topic, one.partition, one.offset if one.offset >= 0 else None) for one in answered])

    def content(self, isolation_level: str, seen: Callable[[Partition, int, str], None] = lambda *_: None) -> Content:
        """Read all partitions. seen: called for each record, with its offset and value."""
        digests = {partition: hashlib.sha256() for partition in self._partitions}
        count = 0
        consumer = self._consumer(isolation_level)
        try:
            end_offsets = {
                partition: _end_offset(consumer, TopicPartition(*partition)) for partition in self._partitions
            }
            for partition, offset, value in _records(consumer, self._partitions):
                count += 1
                digests[partition].update(b"%d %s\n" % (offset, value.encode()))
                seen(partition, offset, value)
        except KafkaException as error:
            raise ClosingError(f"reading as {isolation_level}: {error}") from error
        finally:
            consumer.close()
        return Content(count, {partition: one.hexdigest() for partition, one in digests.items()}, end_offsets)

    def _consumer(self, isolation_level: str) -> Consumer:
        return Consumer({**self._configuration(isolation_level), "group.id": "examiner"})

    def _configuration(self, isolation_level: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap_servers,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "check.crcs": True,
        }


def _records(consumer: Consumer, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, int, str]]:
    """Read all records of these partitions, from beginning to end. Raises ClosingError, KafkaException."""
    consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in partitions])
    unread = set(partitions)
    heard_at_s = time.monotonic()
    while unread:
        messages = consumer.consume(num_messages=10_000, timeout=0.2)
        if messages:
            heard_at_s = time.monotonic()
        elif time.monotonic() - heard_at_s > READ_TIMEOUT_S:
            raise ClosingError(f"not read to their ends: {sorted(unread)}")
        for message in messages:
            partition = Partition(message.topic(), message.partition())
            error = message.error()
            if error is None:
                yield partition, message.offset(), message.value().decode()
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                unread.discard(partition)
            else:
                raise KafkaException(error)
