"""Calls of client libraries that end within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from fencepost.two_phase.client_calls import BlockingCalls, LoopCalls, error_code, run_blocking, settled


class OfLibrdkafka:
    """As a producer of fencepost.two_phase over confluent-kafka."""

    fencepost_statistics = None

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []

    def commit_transaction(self, timeout_s: float) -> None:
        self.calls.append(("commit", timeout_s))

    def abort_transaction(self, timeout_s: float) -> None:
        self.calls.append(("abort", timeout_s))


class OfKafkaPython:
    """As kafka-python's producer, whose coordinator answers or does not."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.waited_ms = 0.0
        self.is_awake = False
        self._transaction_manager = self
        self._sender = self

    def begin_commit(self) -> Any:
        return self

    def wakeup(self) -> None:
        self.is_awake = True

    def wait(self, timeout_ms: float) -> bool:
        self.waited_ms = timeout_ms
        return self._answers


def test_librdkafka_gets_the_time_in_seconds() -> None:
    producer = OfLibrdkafka()
    run_blocking(BlockingCalls().commit(producer, 2.5))
    run_blocking(BlockingCalls().abort(producer, 1.0))
    assert producer.calls == [("commit", 2.5), ("abort", 1.0)]


def test_kafka_python_is_woken_and_waited_for_in_milliseconds() -> None:
    producer = OfKafkaPython(answers=True)
    run_blocking(BlockingCalls().commit(producer, 2.5))
    assert (producer.is_awake, producer.waited_ms) == (True, 2_500)


def test_a_coordinator_that_does_not_answer_in_time_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"did not answer within 2\.5 s"):
        run_blocking(BlockingCalls().commit(OfKafkaPython(answers=False), 2.5))


async def test_aiokafka_is_waited_for_no_longer_than_the_time() -> None:
    class Silent:
        async def commit_transaction(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await LoopCalls().commit(Silent(), 0.001)


def test_kafkas_code_is_found_in_the_exceptions_of_all_clients() -> None:
    class KafkaError:
        def code(self) -> int:
            return 47

    class OfPython(Exception):  # noqa: N818
        errno = 90

    assert error_code(Exception(KafkaError())) == 47
    assert error_code(OfPython("fenced")) == 90
    assert error_code(ValueError("no code")) is None


async def test_results_of_both_kinds_of_coordinators_are_taken() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    at_the_loop: Awaitable[int] = later()
    assert await settled(1) == 1
    settled_later: int = await settled(at_the_loop)
    assert settled_later == 2


def test_steps_that_wait_on_a_loop_are_refused_where_there_is_none() -> None:
    async def steps() -> None:
        await asyncio.sleep(0)

    with pytest.raises(TypeError, match="use the function that ends in _async"):
        run_blocking(steps())
