"""Brokers for the tests of two-phase commits: Fencepost and Apache Kafka, with a topic of orders on either."""

from __future__ import annotations

from typing import Any, Final

import pytest

from fencepost.testing.remote import RemoteBroker
from scripts.apache_kafka import ApacheKafka

BROKERS: Final = ("fencepost", "apache-kafka")
KAFKA_JAVA: Final = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FENCEPOST_SETTINGS: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
KAFKA_SETTINGS: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "auto.create.topics.enable": "false",
}


class KillableKafka(RemoteBroker):
    """The view of an Apache Kafka of ours, which may be killed."""

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__(kafka.bootstrap_servers, refuse=pytest.fail)
        self._kafka = kafka

    def kill(self) -> None:
        self._kafka.kill()

    def restart(self) -> None:
        self._kafka.start()


class Orders:
    """A topic of orders, and a transactional id for the service that writes them; on the broker of a test.

    broker: a fencepost.testing broker, or the view of one that is not ours.
    """

    def __init__(self, broker: Any, name: str) -> None:
        self.broker = broker
        self.servers: str = broker.bootstrap_servers
        self.topic: str = broker.topic(name, partitions=2, configs={"retention.ms": -1})
        self.transactional_id = name

    def values(self) -> list[str]:
        """What a read_committed reader sees, once the markers of the ended transaction are written."""
        self.broker.wait_until(
            lambda: not self.state().startswith("Prepare"), 30, lambda: f"the markers are missing: {self.state()}"
        )
        return sorted(record.value.decode() for record in self.broker.records(self.topic))

    def state(self) -> str:
        """The state of the transactional id, by its coordinator; empty if there is none."""
        states: dict[str, str] = self.broker.transactions()
        return states.get(self.transactional_id, "")
