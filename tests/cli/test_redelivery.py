"""A batch of dead letters is sent until it is acknowledged; a refusal counts only if it is certainly not written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

from fencepost.cli import redelivery
from fencepost.cli.redelivery import Letter, Redelivery, Refused
from fencepost.cli.redelivery_progress import Copy
from fencepost.client.errors import NoAnswerError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.record_batch import iterate_batches, read_records

COPY = Copy(7, 0, 3, "orders", "ab" * 16, 1, ((4, 5), (6, 6)), 1_700_000_000_000)
LETTERS = [
    Letter(0, 5, 4, ("orders", 1), b"k", b"v", (("trace", b"x"),)),
    Letter(0, 6, 6, ("orders", 1), None, b"w", ()),
]


class FakeCluster:
    """Answers each Produce with the next of some error codes; None is no answer."""

    def __init__(self, *answers: ErrorCode | None) -> None:
        self.answers = list(answers)
        self.produced: list[ProduceRequest] = []

    def send(self, request: Any, address: Any = None) -> Any:
        if isinstance(request, MetadataRequest):
            partitions = [SimpleNamespace(partition_index=number, leader_id=1) for number in (0, 1)]
            topic = SimpleNamespace(error_code=0, partitions=partitions, topic_id=(request.topics or [])[0].topic_id)
            return SimpleNamespace(topics=[topic], brokers=[SimpleNamespace(node_id=1, host="a", port=1)])
        self.produced.append(request)
        error = self.answers.pop(0)
        if error is None:
            raise NoAnswerError("no answer")
        answer = SimpleNamespace(error_code=error, error_message=None)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[answer])])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "PAUSE_S", 0.001)
    monkeypatch.setattr(redelivery, "LONGEST_WAIT_S", 0.05)


def written(cluster: Any, copy: Copy = COPY) -> None:
    command = Redelivery("b:1", "g", "dlq.orders", "cd" * 16)
    command._cluster = cluster
    command._write(copy, LETTERS)


def test_a_batch_has_the_producer_and_sequence_of_its_decision() -> None:
    cluster = FakeCluster(ErrorCode.NONE)
    written(cluster)
    (topic,) = cluster.produced[0].topic_data
    assert (topic.topic_id.hex(), topic.partition_data[0].index) == (COPY.topic_id, 1)
    (batch,) = iterate_batches(memoryview(bytes(topic.partition_data[0].records or b"")))
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (7, 0, 3)
    assert [(one.key, one.value, one.headers) for one in read_records(batch)] == [
        (b"k", b"v", (("trace", b"x"),)),
        (None, b"w", ()),
    ]


@pytest.mark.parametrize(
    "answers",
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE),
        (None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (None, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE),
    ],
)
def test_it_is_sent_until_it_is_acknowledged(answers: tuple[ErrorCode | None, ...]) -> None:
    cluster = FakeCluster(*answers)
    written(cluster)
    assert len(cluster.produced) == len(answers)


def test_a_refusal_is_certain_if_every_attempt_was_answered() -> None:
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        written(FakeCluster(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def test_a_partition_that_does_not_answer_leaves_the_batch_to_the_next_command() -> None:
    with pytest.raises(click.ClickException, match="Run the command again"):
        written(FakeCluster(*[None] * 10_000))


def test_a_partition_that_the_topic_does_not_have_refuses() -> None:
    with pytest.raises(Refused, match="has 2 partitions"):
        written(FakeCluster(), Copy(7, 0, 3, "orders", "ab" * 16, 2, ((4, 5), (6, 6)), 0))


class FencedProducer:
    """kafka-python's producer after another one with its transactional id has begun."""

    def __init__(self, error: KafkaError) -> None:
        self.error = error

    def init_transactions(self) -> None:
        pass

    def begin_transaction(self) -> None:
        raise self.error

    def close(self, timeout: float) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        ProducerFencedError(),
        InvalidProducerEpochError(),
        KafkaError(f"Cannot execute transactional method because we are in an error state: {ProducerFencedError()}"),
    ],
    ids=["fenced", "epoch", "in an error state"],
)
def test_a_command_that_a_later_one_has_fenced_says_so(error: KafkaError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.KafkaProducer", lambda **_: FencedProducer(error))
    monkeypatch.setattr(redelivery, "client_options", lambda _: {})
    with redelivery._decisions("a:1", "billing") as store, pytest.raises(click.ClickException, match="another command"):
        store({})
