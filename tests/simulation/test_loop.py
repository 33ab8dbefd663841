"""Virtual time, and processes that are killed or stopped."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.simulation.loop import Process, Stuck, run


def test_virtual_time_passes_without_a_waiter() -> None:
    async def sleep_long() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run(sleep_long()) == 86_400


def test_a_wait_for_what_never_comes_is_an_end() -> None:
    async def wait_in_vain() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck):
        run(wait_in_vain())


def test_what_fails_in_the_background_is_not_forgotten() -> None:
    async def fail_aside() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="failed in the background"):
        run(fail_aside())


def test_a_killed_process_does_not_even_reach_its_finally() -> None:
    async def live_and_die() -> list[str]:
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(1)
                done.append("work")
            finally:
                done.append("finally")

        process = Process("worker")
        with process.running():
            asyncio.get_running_loop().create_task(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)
        return list(done)

    assert run(live_and_die()) == []


def test_a_paused_process_does_everything_later_and_in_order() -> None:
    async def pause_and_go_on() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        done: list[tuple[str, float]] = []

        async def work(name: str, after_s: float) -> None:
            await asyncio.sleep(after_s)
            done.append((name, loop.time()))

        process = Process("worker")
        with process.running():
            at_work = [
                loop.create_task(work(name, after_s))
                for name, after_s in (("second", 2.0), ("first", 1.0), ("late", 9.0))
            ]
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(4.5)
        process.resume()
        await asyncio.gather(*at_work)
        return done

    assert run(pause_and_go_on()) == [("first", 5.0), ("second", 5.0), ("late", 9.0)]


def test_a_timer_that_is_cancelled_after_a_pause_does_not_fire() -> None:
    async def cancel_late() -> list[str]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        process = Process("worker")
        with process.running():
            timer = loop.call_later(2, fired.append, "timer")
            loop.call_later(1, timer.cancel)
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(5)
        process.resume()
        await asyncio.sleep(1)
        return fired

    assert run(cancel_late()) == []


def test_what_a_killed_process_left_is_closed_with_its_world() -> None:
    left: list[asyncio.Task[None]] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(10)

    async def begin_and_die() -> None:
        process = Process("worker")
        with process.running():
            left.append(asyncio.get_running_loop().create_task(work(), name="begun"))
            await asyncio.sleep(1)
            left.append(asyncio.get_running_loop().create_task(work(), name="not begun"))
        process.kill()
        await asyncio.sleep(1)

    run(begin_and_die())
    for task in left:
        coroutine = task.get_coro()
        assert inspect.iscoroutine(coroutine)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED, task.get_name()
