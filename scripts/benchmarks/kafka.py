"""Apache Kafka, one KRaft node, as the subject of a measurement: as its own start script runs it.

Its defaults acknowledge what the operating system has in its page cache. With `log.flush.interval.messages` 1 it syncs
each batch before it replies, those of its own topics, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from scripts.benchmarks.broker_process import BrokerProcess
from scripts.benchmarks.figures import DURABLE_REFERENCE, REFERENCE
from scripts.benchmarks.measuring import REMOVED_AT_ONCE

JAVA_OPTIONS = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What kafka-server-start.sh and kafka-run-class.sh give a broker."""

SETTINGS = {
    # Its defaults, where the oracle of the tests has smaller ones.
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "share.coordinator.state.topic.num.partitions": "50",
    **REMOVED_AT_ONCE,
}


FLUSHED_EACH_MESSAGE = {"log.flush.interval.messages": "1"}


class KafkaSubject:
    """Apache Kafka with its defaults, or as durable as Fencepost is by default."""

    can_be_launched = True
    is_to_be_warmed = True

    def __init__(self, *, is_durable: bool = False) -> None:
        self.name = DURABLE_REFERENCE if is_durable else REFERENCE
        self._settings = {**SETTINGS, **(FLUSHED_EACH_MESSAGE if is_durable else {})}

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> BrokerProcess:
        """Formats the directory where that was not done yet; the node itself is not waited for.

        Raises KafkaUnavailableError.
        """
        port = free_port()
        node = ApacheKafka(data_directory, port, properties={**self._settings, **settings}, java_options=JAVA_OPTIONS)
        command = node.prepare()
        return BrokerProcess(
            ("127.0.0.1", port), command, data_directory.with_name(f"{data_directory.name}.broker.log")
        )
