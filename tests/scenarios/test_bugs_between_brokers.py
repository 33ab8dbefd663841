"""Bugs in what brokers say to one another, found by invariants, in stories in which without them nothing is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.transaction import remote_markers, remote_verification
from fencepost.protocol.errors import ErrorCode
from tests.scenarios.runner.performance import perform_transcript
from tests.scenarios.runner.transcript import parse_transcript

FOLDER = Path(__file__).parent

CUT_OFF = """\
# Two brokers that cannot reach each other
brokers 1 and 2 start
admin: CreateTopic out with 2 partitions
broker 2 leads out-1
till speaks transaction version 1
till: FindCoordinator
till: InitProducerId
"""

UNVERIFIED = f"""{CUT_OFF}
brokers 1 and 2 cannot reach each other
till: Produce out-1 "a"
"""

UNMARKED = f"""{CUT_OFF}
till: AddPartitionsToTxn out-0 out-1
till: Produce out-0 "a" out-1 "b"
brokers 1 and 2 cannot reach each other
till: EndTxn commit
wait 1 minutes
"""


def _violated(text: str) -> set[int]:
    return {violation.invariant for violation in perform_transcript(parse_transcript(text)).violations}


@contextmanager
def _no_answer_is_a_yes() -> Iterator[None]:
    def refuse(queued: remote_verification._QueuedVerification, _: ErrorCode) -> None:
        queued.answer({}, ErrorCode.NONE)

    with patch.object(remote_verification._QueuedVerification, "refuse", refuse):
        yield


@contextmanager
def _no_answer_is_a_marker() -> Iterator[None]:
    answer = remote_markers._QueuedMarkers.answer

    def answer_well(
        queued: remote_markers._QueuedMarkers, error_of: Mapping[TopicPartition, ErrorCode], otherwise: ErrorCode
    ) -> None:
        answer(queued, error_of, ErrorCode.NONE if otherwise is ErrorCode.REQUEST_TIMED_OUT else otherwise)

    with patch.object(remote_markers._QueuedMarkers, "answer", answer_well):
        yield


@contextmanager
def _deposed_coordinators_are_obeyed() -> Iterator[None]:
    check_marker = ProducerState.check_marker

    def check(state: ProducerState, *marker: int) -> ErrorCode:
        error = check_marker(state, *marker)
        return ErrorCode.NONE if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED else error

    with patch.object(ProducerState, "check_marker", check):
        yield


def test_a_question_that_another_broker_does_not_answer_is_taken_for_a_yes() -> None:
    assert _violated(UNVERIFIED) == set()
    with _no_answer_is_a_yes():
        assert 14 in _violated(UNVERIFIED)


def test_a_marker_that_another_broker_does_not_acknowledge_is_taken_for_written() -> None:
    assert _violated(UNMARKED) == set()
    with _no_answer_is_a_marker():
        assert 12 in _violated(UNMARKED)


def test_a_marker_of_a_deposed_coordinator_is_obeyed() -> None:
    story = (FOLDER / "crash_matrix" / "17_deposed_coordinator_sends_markers.txt").read_text(encoding="utf-8")
    assert _violated(story) == set()
    with _deposed_coordinators_are_obeyed():
        assert 6 in _violated(story)
