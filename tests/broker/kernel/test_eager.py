"""Coroutines that start at once."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.kernel import eager


async def test_a_coroutine_that_never_waits_is_finished_without_a_task() -> None:
    tasks_before = asyncio.all_tasks()

    async def work() -> int:
        return 7

    started = eager.start(work(), asyncio.get_running_loop())
    assert isinstance(started, eager.Finished)
    assert started.result == 7
    assert asyncio.all_tasks() == tasks_before


async def test_the_first_step_runs_before_start_returns() -> None:
    steps: list[str] = []
    gate = asyncio.get_running_loop().create_future()

    async def work() -> str:
        steps.append("first")
        steps.append(await gate)
        return "done"

    started = eager.start(work(), asyncio.get_running_loop())
    assert steps == ["first"]
    assert isinstance(started, asyncio.Task)
    gate.set_result("second")
    assert await started == "done"
    assert steps == ["first", "second"]


async def test_a_future_that_is_done_before_the_task_runs_is_not_missed() -> None:
    gate = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return int(await gate) + 1

    started = eager.start(work(), asyncio.get_running_loop())
    gate.set_result(1)
    assert isinstance(started, asyncio.Task)
    assert await started == 2


async def test_an_exception_of_the_first_step_is_raised_at_once() -> None:
    async def work() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        eager.start(work(), asyncio.get_running_loop())


async def test_a_later_exception_is_the_tasks() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    started = eager.start(work(), asyncio.get_running_loop())
    assert isinstance(started, asyncio.Task)
    with pytest.raises(ValueError, match="later"):
        await started


async def test_a_failed_future_raises_inside_the_coroutine() -> None:
    gate = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await gate
        except OSError:
            await asyncio.sleep(0)
            return "recovered"
        return "unexpected"

    started = eager.start(work(), asyncio.get_running_loop())
    gate.set_exception(OSError("no"))
    assert isinstance(started, asyncio.Task)
    assert await started == "recovered"


async def test_cancelling_reaches_the_coroutine_where_it_waits() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    started = eager.start(work(), asyncio.get_running_loop())
    assert isinstance(started, asyncio.Task)
    await asyncio.sleep(0)
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    assert seen == ["cancelled"]


async def test_after_its_first_wait_a_coroutine_may_use_timeouts() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "timed out"
        return "unexpected"

    started = eager.start(work(), asyncio.get_running_loop())
    assert isinstance(started, asyncio.Task)
    assert await started == "timed out"


async def test_what_is_finished_may_be_awaited_like_what_is_not() -> None:
    async def later() -> int:
        return 8

    started: list[eager.MaybeAwaitable[int]] = [eager.Finished(7), later()]
    assert [await one for one in started] == [7, 8]
    assert list(await asyncio.gather(eager.Finished(1), eager.Finished(2))) == [1, 2]
