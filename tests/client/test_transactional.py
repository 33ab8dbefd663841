"""A transactional producer on brokers that refuse, move and do not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client import transactional
from fencepost.client.errors import RefusedError, UnreachableError
from fencepost.client.transactional import TransactionalProducer, UnknownOutcomeError
from fencepost.client.view import ClusterView, Partition, Topic
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, iterate_batches


class Brokers:
    """A cluster of canned answers. fails: by the name of a request, errors and codes to answer with before success."""

    def __init__(self, **fails: list[Any]) -> None:
        self.fails = fails
        self.sent: list[tuple[str, Any, int | None]] = []
        self.batches: list[Any] = []

    async def coordinator(self, _: object, __: str) -> int:
        return 1

    async def view(self, names: list[str]) -> ClusterView:
        partitions = tuple(Partition(index, index, 0, (), (), 0) for index in range(3))
        return ClusterView("c", 0, {}, {name: Topic(name, False, partitions) for name in names})

    async def send(self, request: Any, node_id: int | None = None, *, at_most: int | None = None) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.sent.append((name, request, node_id))
        code = 0
        if self.fails.get(name):
            found = self.fails[name].pop(0)
            if isinstance(found, Exception):
                raise found
            code = int(found)
        if name == "InitProducerId":
            return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=2)
        if name == "AddPartitionsToTxn":
            assert at_most == 3
            one = SimpleNamespace(partition_error_code=code)
            return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(results_by_partition=[one])])
        if name == "Produce":
            assert at_most == 11
            data = request.topic_data[0].partition_data[0]
            if not code:
                self.batches += [(data.index, one.header) for one in iterate_batches(data.records)]
            one = SimpleNamespace(error_code=code, error_message=None)
            return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[one])])
        assert at_most == 4
        return SimpleNamespace(error_code=code)

    def names(self) -> list[str]:
        return [name for name, _, _ in self.sent]


RECORDS = [Record(number, 5, b"k", b"v", ()) for number in range(3)]


async def write(brokers: Brokers, transactional_id: str | None = "t") -> TransactionalProducer:
    producer = TransactionalProducer(brokers, "topic", transactional_id)  # type: ignore[arg-type]
    await producer.start()
    await producer.write({0: RECORDS}, Codec.NONE)
    await producer.write({0: RECORDS, 1: RECORDS}, Codec.NONE)
    await producer.commit()
    return producer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "PAUSE_S", 0)


def test_partitions_join_before_they_are_written_and_sequences_go_on() -> None:
    brokers = Brokers()
    producer = asyncio.run(write(brokers))
    assert brokers.names() == [
        "InitProducerId", "AddPartitionsToTxn", "Produce", "AddPartitionsToTxn", "Produce", "Produce", "EndTxn",
    ]  # fmt: skip
    assert [(index, one.base_sequence, one.records_count) for index, one in brokers.batches] == [
        (0, 0, 3),
        (0, 3, 3),
        (1, 0, 3),
    ]
    assert all(one.is_transactional and one.producer_id == 7 and one.producer_epoch == 2 for _, one in brokers.batches)
    assert not producer.is_open


def test_without_a_transactional_id_records_are_idempotent_alone() -> None:
    brokers = Brokers()
    asyncio.run(write(brokers, None))
    assert brokers.names() == ["InitProducerId", "Produce", "Produce", "Produce"]
    assert all(not one.is_transactional and one.producer_id == 7 for _, one in brokers.batches)


@pytest.mark.parametrize("name", ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"])
@pytest.mark.parametrize(
    "failure",
    [
        UnreachableError("gone"),
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
def test_what_passes_is_asked_for_again_with_the_same_request(name: str, failure: Any) -> None:
    brokers = Brokers(**{name: [failure, failure]})
    asyncio.run(write(brokers))
    requests = [request for sent, request, _ in brokers.sent if sent == name][:3]
    assert requests[0] == requests[1] == requests[2]
    assert len(brokers.batches) == 3


def test_a_batch_that_is_there_already_counts_as_written() -> None:
    brokers = Brokers(Produce=[UnreachableError("gone"), ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
    asyncio.run(write(brokers))
    assert [(index, one.base_sequence) for index, one in brokers.batches] == [(0, 3), (1, 0)]


@pytest.mark.parametrize("name", ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"])
def test_a_refusal_is_final(name: str) -> None:
    brokers = Brokers(**{name: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with pytest.raises(RefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
        asyncio.run(write(brokers))
    assert brokers.names().count(name) == 1


def test_an_end_without_an_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "PATIENCE_S", -1)
    with pytest.raises(UnknownOutcomeError):
        asyncio.run(write(Brokers(EndTxn=[UnreachableError("gone")])))


def test_a_refusal_after_a_lost_request_is_unknown_too() -> None:
    """The transaction may have been committed, and its id have expired or been fenced since."""
    with pytest.raises(UnknownOutcomeError):
        asyncio.run(write(Brokers(EndTxn=[UnreachableError("gone"), ErrorCode.INVALID_PRODUCER_ID_MAPPING])))
