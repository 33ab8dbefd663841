"""Clients of commands: reads that go on where a broker is gone, and where a coordinator is not ready."""

from __future__ import annotations

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    NotCoordinatorError,
)

from fencepost.cli import connection
from fencepost.cli.connection import READS_TRIED, _RepeatedReads


class ClientWithADeadBroker:
    """As kafka-python's: a request that meets the dead broker fails, and the next one goes to another."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or KafkaConnectionError("111 ECONNREFUSED")
        self.asked: list[str] = []

    def _ask(self, name: str) -> str:
        self.asked.append(name)
        if self.failures:
            self.failures -= 1
            raise self.error
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


@pytest.mark.parametrize(
    "error", [CoordinatorLoadInProgressError(), CoordinatorNotAvailableError(), NotCoordinatorError()]
)
def test_a_read_is_repeated_while_a_coordinator_moves_or_reads_its_log(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "COORDINATOR_PAUSE_S", 0.0)
    client = ClientWithADeadBroker(failures=20, error=error)
    assert _RepeatedReads(client).describe_cluster() == "describe_cluster"
    monkeypatch.setattr(connection, "COORDINATORS_MOVE_S", 0.0)
    client = ClientWithADeadBroker(failures=10_000, error=error)
    with pytest.raises(type(error)):
        _RepeatedReads(client).describe_cluster()


def test_an_error_that_does_not_pass_is_shown_at_once() -> None:
    client = ClientWithADeadBroker(failures=1, error=GroupAuthorizationFailedError())
    with pytest.raises(GroupAuthorizationFailedError):
        _RepeatedReads(client).describe_cluster()
