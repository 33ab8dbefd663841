"""A loop whose clock is turned, and the wall clock that follows it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fencepost.testing.clock import TurnableClock, TurnableLoop


def run(work: Any) -> Any:
    loop = TurnableLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


def test_timers_run_in_their_order_while_hours_pass_at_once() -> None:
    async def work(loop: TurnableLoop) -> list[str]:
        order: list[str] = []
        loop.call_later(7_200, order.append, "late")
        loop.call_later(3_600, order.append, "early")
        loop.call_later(90_000, order.append, "tomorrow")
        await loop.turn(86_400)
        return order

    begin_s = time.monotonic()
    assert run(work) == ["early", "late"]
    assert time.monotonic() - begin_s < 3_600


def test_the_wall_clock_is_ahead_by_as_much_as_the_loop_was_turned() -> None:
    async def work(loop: TurnableLoop) -> tuple[float, float, int]:
        await loop.turn(10)
        clock = TurnableClock(loop, ahead_s=5)
        before_s = clock.ahead_s
        await loop.turn(60)
        return before_s, clock.ahead_s, clock.now_ms() - time.time_ns() // 1_000_000

    before_s, after_s, ahead_ms = run(work)
    assert before_s == 5
    assert after_s == pytest.approx(65, abs=1)
    assert ahead_ms == pytest.approx(after_s * 1_000, abs=1_000)


def test_a_loop_of_asyncio_is_lent_and_given_back_unless_it_was_turned() -> None:
    loop = asyncio.SelectorEventLoop()
    with TurnableLoop.made_of(loop) as can_be_turned:
        assert can_be_turned
        assert isinstance(loop, TurnableLoop)
    assert type(loop) is asyncio.SelectorEventLoop
    with TurnableLoop.made_of(loop):
        loop.offset_s = 1.0
    assert isinstance(loop, TurnableLoop)
    loop.close()


def test_a_loop_of_another_class_is_not_turned() -> None:
    class Other(asyncio.SelectorEventLoop):
        pass

    loop = Other()
    with TurnableLoop.made_of(loop) as can_be_turned:
        assert not can_be_turned
    loop.close()
