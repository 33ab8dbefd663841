"""Clients of commands: reads that go on where a broker is gone."""

from __future__ import annotations

import pytest
from kafka.errors import KafkaConnectionError

from fencepost.cli.connection import READS_TRIED, _RepeatedReads


class ClientWithADeadBroker:
    """As kafka-python's: a request that meets the dead broker fails, and the next one goes to another."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked: list[str] = []

    def _ask(self, name: str) -> str:
        self.asked.append(name)
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError("111 ECONNREFUSED")
        return name

    def describe_cluster(self) -> str:
        return self._ask("describe_cluster")

    def create_topics(self) -> str:
        return self._ask("create_topics")


def test_a_read_is_repeated_where_the_chosen_broker_is_gone_and_a_change_is_not() -> None:
    client = ClientWithADeadBroker(failures=READS_TRIED - 1)
    assert _RepeatedReads(client).describe_cluster() == "describe_cluster"
    assert len(client.asked) == READS_TRIED
    client = ClientWithADeadBroker(failures=1)
    with pytest.raises(KafkaConnectionError):
        _RepeatedReads(client).create_topics()
    assert client.asked == ["create_topics"]
    client = ClientWithADeadBroker(failures=100)
    with pytest.raises(KafkaConnectionError):
        _RepeatedReads(client).describe_cluster()
    assert len(client.asked) == READS_TRIED
