"""A limiter: bursts are spread over turns of the event loop, in order, and nobody waits without a reason."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter


class Visitors:
    """`turn` counts the turns of the event loop while `entered` notes the callers that were admitted in each."""

    def __init__(self, limiter: PerTurnLimiter) -> None:
        self.limiter = limiter
        self.entered: list[tuple[str, int]] = []
        self.turn = 0

    async def visit(self, name: str) -> None:
        await self.limiter.acquire()
        self.entered.append((name, self.turn))

    async def count_turns_until_all_are_done(self, tasks: list[asyncio.Task[None]]) -> None:
        while not all(task.done() for task in tasks):
            self.turn += 1
            await asyncio.sleep(0)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.entered]


async def test_callers_within_the_bound_of_a_turn_do_not_wait() -> None:
    visitors = Visitors(PerTurnLimiter(2))
    await visitors.visit("a")
    await visitors.visit("b")
    assert visitors.entered == [("a", 0), ("b", 0)]


async def test_no_turn_lets_more_through_and_all_come_through_in_order() -> None:
    visitors = Visitors(PerTurnLimiter(2))
    names = [f"visitor-{number}" for number in range(7)]
    tasks = [asyncio.create_task(visitors.visit(name)) for name in names]
    await visitors.count_turns_until_all_are_done(tasks)
    assert visitors.names == names
    turns = [turn for _, turn in visitors.entered]
    assert max(turns.count(turn) for turn in turns) == 2
    assert len(set(turns)) == 4


async def test_a_caller_of_greater_weight_counts_as_several() -> None:
    limiter = PerTurnLimiter(4)
    entered: list[int] = []

    async def visit(name: int) -> None:
        await limiter.acquire(3)
        entered.append(name)

    visits = [asyncio.create_task(visit(name)) for name in range(4)]
    counts = []
    while len(entered) < len(visits):
        await asyncio.sleep(0)
        counts.append(len(entered))
    assert counts[0] == 2, "the second one begins in a turn that has room for one"
    assert all(now - before <= 2 for before, now in pairwise(counts))
    assert entered == [0, 1, 2, 3]


async def test_a_later_caller_does_not_overtake_waiting_ones() -> None:
    visitors = Visitors(PerTurnLimiter(1))
    tasks = [asyncio.create_task(visitors.visit(name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(visitors.visit("d")))
    await visitors.count_turns_until_all_are_done(tasks)
    assert visitors.names == ["a", "b", "c", "d"]


async def test_a_cancelled_waiter_does_not_use_up_a_turn() -> None:
    visitors = Visitors(PerTurnLimiter(1))
    tasks = [asyncio.create_task(visitors.visit(name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await visitors.count_turns_until_all_are_done(tasks)
    assert visitors.names == ["a", "c"]
    assert tasks[1].cancelled()


async def test_after_a_pause_no_caller_waits() -> None:
    visitors = Visitors(PerTurnLimiter(1))
    await visitors.visit("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await visitors.visit("b")
    assert visitors.entered == [("a", 0), ("b", 0)]
