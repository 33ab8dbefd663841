"""A streaming query between 200 other clients: 100 write what it reads, 100 read what it writes."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence

import confluent_kafka as ck

from tests.compat.python_checks import Check, Thread, together
from tests.compat.spark.session import TIMEOUT_S, create_topic, numbers, read, read_stream, rows_of
from tests.compat.spark.streams import to_sink

WRITERS = 100
READERS = 100
# Every task of a query makes its own consumer: few partitions, which several clients share.
PARTITIONS = 20
RECORDS_EACH = 20
RECORDS_PER_BATCH = 700
# Between two records of a writer: the query has batches while all of them work.
PAUSE_S = 0.3


class Readers:
    """Consumers that read a partition each, in their own threads, until they are stopped."""

    def __init__(self, check: Check, topic: str) -> None:
        self.values: list[list[str]] = [[] for _ in range(READERS)]
        self._check = check
        self._topic = topic
        self._over = threading.Event()
        self._threads = [Thread(functools.partial(self._read, number)) for number in range(READERS)]

    def _read(self, number: int) -> None:
        consumer = ck.Consumer({"bootstrap.servers": self._check.bootstrap, "group.id": "none", "log_level": 0})
        try:
            consumer.assign([ck.TopicPartition(self._topic, number % PARTITIONS, ck.OFFSET_BEGINNING)])
            while not self._over.is_set():
                message = consumer.poll(0.2)
                if message is not None:
                    self._check.equal("a reader's error", str(message.error()), "None")
                    self.values[number].append(message.value().decode())
        finally:
            consumer.close()

    @property
    def count(self) -> int:
        return sum(len(values) for values in self.values)

    def stop(self) -> None:
        """Raises what one of them was ended by."""
        self._over.set()
        for thread in self._threads:
            thread.join()


def write(check: Check, topic: str, partition: int, values: Sequence[str], started: threading.Barrier) -> None:
    """Value after value, each of which is acknowledged before the next is sent; the second when all have started."""
    producer = ck.Producer({"bootstrap.servers": check.bootstrap, "enable.idempotence": True, "log_level": 0})
    refused: list[ck.KafkaError] = []

    def acknowledged(error: ck.KafkaError | None, _message: ck.Message) -> None:
        if error is not None:
            refused.append(error)

    for value in values:
        producer.produce(topic, value=value, partition=partition, on_delivery=acknowledged)
        left = producer.flush(TIMEOUT_S)
        check.equal("a writer's errors", (left, refused), (0, []))
        if value == values[0]:
            started.wait(TIMEOUT_S)
        time.sleep(PAUSE_S)


def stream_beside_two_hundred_clients(check: Check) -> None:
    """Every record passes through it once, and all readers of a partition see the same, in the order of its offsets."""
    source = create_topic(check, "source", PARTITIONS)
    target = create_topic(check, "target", PARTITIONS)
    written = [numbers(writer * 1_000, writer * 1_000 + RECORDS_EACH) for writer in range(WRITERS)]
    readers = Readers(check, target)
    frame = read_stream(
        check, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(RECORDS_PER_BATCH)
    )
    query = to_sink(check, frame.select("partition", "value"), topic=target)
    started = threading.Barrier(WRITERS)

    def write_all_of(writer: int) -> None:
        write(check, source, writer % PARTITIONS, written[writer], started)

    try:
        together([functools.partial(write_all_of, writer) for writer in range(WRITERS)])
        query.processAllAvailable()
        each = READERS // PARTITIONS
        check.until("the readers have all", lambda: readers.count >= each * WRITERS * RECORDS_EACH)
    finally:
        query.stop()
        readers.stop()
    rows = rows_of(read(check, subscribe=target))
    for number, values in enumerate(readers.values):
        partition = number % PARTITIONS
        in_it = [(partition, offset, value) for offset, value in enumerate(values)]
        check.equal(f"rows of partition {partition}", [row for row in rows if row[0] == partition], in_it)
    for writer, values in enumerate(written):
        # Several have written to its partition, each in its own order.
        arrived = [value for value in readers.values[writer % PARTITIONS] if int(value) // 1_000 == writer]
        check.equal(f"what writer {writer} has written", arrived, values)
    check.equal("records in all", len(rows), WRITERS * RECORDS_EACH)
