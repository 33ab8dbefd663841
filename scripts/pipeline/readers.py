"""Two consumers that only count: one reads uncommitted records, one committed ones."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from scripts.pipeline.flights import PARTITION_COUNTS

POLL_S = 0.05
RECORDS_PER_POLL = 5_000
QUIET_S = 0.5
TIMEOUT_S = 20.0


class CountingReader:
    """Counts the records of a topic in a thread, from its beginning; the broker may come and go meanwhile."""

    def __init__(self, bootstrap_servers: str, topic: str, isolation_level: str) -> None:
        self.count = 0
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"counting-{isolation_level}",  # asked for by the client; nothing is committed
                "enable.auto.commit": False,
                "isolation.level": isolation_level,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader, {isolation_level}", daemon=True)

    def start(self) -> None:
        """Start to read; the topic must exist."""
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def catch_up(self) -> None:
        """Wait until no more records arrive, for a limited time."""
        deadline_s = time.monotonic() + TIMEOUT_S
        seen_count = -1
        while seen_count != self.count and time.monotonic() < deadline_s:
            seen_count = self.count
            time.sleep(QUIET_S)

    def _run(self) -> None:
        partitions = range(PARTITION_COUNTS[self._topic])
        self._consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while not self._stopping.is_set():
            messages = self._consumer.consume(RECORDS_PER_POLL, timeout=POLL_S)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            self.count += len(messages)
        self._consumer.close()
