"""Work that runs by itself and meets something that nobody foresaw: logged once, then its policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.supervision import CURRENT, PLACES, Place, Policy, Supervisor, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.support.captured_events import capture_logs


class Unforeseen(Exception):  # noqa: N818  # what nobody has a clause for
    pass


class UnforeseenBase(BaseException):  # as extension modules raise
    pass


@pytest.fixture(autouse=True)
def places() -> Iterator[None]:
    before = dict(PLACES)
    yield
    PLACES.clear()
    PLACES.update(before)


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [Unforeseen("x"), UnforeseenBase("x"), MemoryError("x"), RecursionError("x")])
def test_a_failure_is_logged_with_name_partition_class_and_traceback(error: BaseException) -> None:
    place = Place("testing", Policy.REPORT)
    with capture_logs() as lines:
        place.callback(fail, concerns=TopicPartition("orders", 3))(error)
    (line,) = lines
    assert line["event"] == "background_work_failed"
    assert (line["work"], line["topic"], line["partition"]) == ("testing", "orders", 3)
    assert (line["error"], line["reason"], line["exc_info"]) == (type(error).__name__, "x", error)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)])
def test_what_is_no_failure_passes(error: BaseException) -> None:
    place = Place("testing", Policy.REPORT)
    with capture_logs() as lines, pytest.raises(type(error)):
        place.callback(fail)(error)
    assert not lines


def test_the_same_failure_over_and_over_becomes_a_count() -> None:
    place = Place("testing", Policy.REPORT)

    def fail_often() -> None:
        CURRENT.set(Supervisor(lambda _: None))
        for _ in range(250):
            place.attempt(fail, Unforeseen(), concerns="one")
        place.attempt(fail, Unforeseen(), concerns="another")

    with capture_logs() as lines:
        copy_context().run(fail_often)
    assert [(line["concerns"], line["failures"]) for line in lines] == [
        ("one", 1),
        ("one", 10),
        ("one", 100),
        ("another", 1),
    ]
    assert [line["exc_info"] is not None for line in lines] == [True, False, False, True]


def test_different_failures_are_counted_within_bounds() -> None:
    supervisor = Supervisor(lambda _: None)
    for number in range(3 * supervision.MAX_COUNTED_FAILURES):
        assert supervisor.count(number) == 1
    assert len(supervisor._counts) <= supervision.MAX_COUNTED_FAILURES


def test_a_task_that_fails_fails_its_partition_and_raises_in_its_waiter() -> None:
    place = Place("testing", Policy.FAIL_PARTITION)
    failed: list[BaseException] = []

    async def work() -> None:
        fail(Unforeseen())

    async def scenario() -> None:
        task = place.start(work(), on_failure=failed.append)
        with pytest.raises(Unforeseen):
            await task

    with capture_logs():
        asyncio.run(scenario())
    assert [type(error) for error in failed] == [Unforeseen]


def test_a_task_that_is_retried_ends_well_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    place = Place("testing", Policy.RETRY)
    rounds: list[int] = []

    async def work() -> None:
        rounds.append(1)
        if len(rounds) < 4:
            fail(Unforeseen())

    async def scenario() -> None:
        await place.start_retrying(work)

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert len(rounds) == 4
    assert len(lines) == 3


def test_a_policy_that_cannot_be_carried_out_stops_the_broker() -> None:
    place = Place("testing", Policy.FAIL_PARTITION)
    reasons: list[str] = []

    def work() -> None:
        CURRENT.set(Supervisor(reasons.append))
        for _ in range(2):
            place.attempt(fail, Unforeseen(), on_failure=fail)

    with capture_logs() as lines:
        copy_context().run(work)
    assert reasons == ["testing failed unexpectedly: Unforeseen"]
    assert [line["event"] for line in lines].count("broker_stopped_unexpectedly") == 1


def test_a_place_that_stops_the_broker_does_so_once() -> None:
    place = Place("testing", Policy.STOP_BROKER)
    reasons: list[str] = []

    def work() -> None:
        CURRENT.set(Supervisor(reasons.append))
        place.attempt(fail, Unforeseen("no way on"))
        place.attempt(fail, Unforeseen("no way on"))

    with capture_logs():
        copy_context().run(work)
    assert reasons == ["testing failed unexpectedly: Unforeseen: no way on"]


def test_a_name_is_given_once() -> None:
    Place("testing", Policy.REPORT)
    with pytest.raises(ValueError, match="testing"):
        Place("testing", Policy.RETRY)


async def test_tasks_that_are_ended_have_ended_whatever_they_raise() -> None:
    place = Place("testing", Policy.REPORT)
    ends = []

    async def last(error: BaseException | None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append(error)
            if error is not None:
                raise error

    tasks = [place.start(last(error)) for error in (None, Unforeseen("x"))]
    await asyncio.sleep(0)
    with capture_logs() as lines:
        await end_tasks(None, *tasks)
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)
    assert len(ends) == 2
    assert [line["reason"] for line in lines] == ["x"]
    await end_tasks()
    await end_tasks(None)
