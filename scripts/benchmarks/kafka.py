"""Apache Kafka, one KRaft node, as the subject of a measurement: as its own start script runs it.

Its defaults acknowledge what the operating system has in its page cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from scripts.benchmarks.broker_process import BrokerProcess
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


class KafkaSubject:
    """Apache Kafka with its defaults."""

    name = "kafka"
    can_be_launched = True
    is_to_be_warmed = True

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> BrokerProcess:
        """Formats the directory where that was not done yet; the node itself is not waited for.

        Raises KafkaUnavailableError.
        """
        port = free_port()
        node = ApacheKafka(data_directory, port, properties={**SETTINGS, **settings}, java_options=JAVA_OPTIONS)
        command = node.prepare()
        return BrokerProcess(
            ("127.0.0.1", port), command, data_directory.with_name(f"{data_directory.name}.broker.log")
        )
