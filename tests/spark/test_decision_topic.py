"""Decisions are read from the leader of their topic, also while that changes."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from fencepost.spark import decision_topic
from fencepost.spark.decision_topic import _bounds


class Asked:
    """What a consumer is to the reader: each question for the offsets has the next answer, or the next error."""

    def __init__(self, *answers: tuple[int, int] | str) -> None:
        self._answers: Iterator[tuple[int, int] | str] = iter(answers)

    def get_watermark_offsets(self, _partition: ck.TopicPartition, *, timeout: float) -> tuple[int, int]:
        answer = next(self._answers)
        if isinstance(answer, str):
            raise ck.KafkaException(ck.KafkaError(getattr(ck.KafkaError, answer)))
        return answer


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_topic, "PAUSE_S", 0)


def test_a_leader_that_moves_is_asked_again() -> None:
    consumer = Asked("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", (3, 7))
    assert _bounds(consumer, "decisions", 30) == (3, 7)


def test_a_leader_that_is_not_found_in_time_is_an_error() -> None:
    with pytest.raises(ck.KafkaException, match="NOT_LEADER_FOR_PARTITION"):
        _bounds(Asked("NOT_LEADER_FOR_PARTITION"), "decisions", -1)


def test_other_errors_are_not_waited_out() -> None:
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        _bounds(Asked("TOPIC_AUTHORIZATION_FAILED", (3, 7)), "decisions", 30)


def test_a_topic_that_is_unknown_says_nothing() -> None:
    assert _bounds(Asked("_UNKNOWN_TOPIC"), "decisions", 30) is None
