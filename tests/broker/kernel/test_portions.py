"""Portions: work on many items takes few in a turn of the event loop, and goes on until none is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.broker.kernel.portions import Portions
from tests.support.captured_events import capture_logs


class Worked:
    """The items worked on, and how many after each turn."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def __call__(self, portion: Iterator[int]) -> None:
        self.items.extend(portion)

    async def counts(self, turns: int) -> list[int]:
        counts = []
        for _ in range(turns):
            counts.append(len(self.items))
            await asyncio.sleep(0)
        return counts


async def test_no_turn_takes_more_than_a_portion_and_all_items_come_to_an_end() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    portions.replace(range(5))
    worked = Worked()
    portions.run(worked)
    assert await worked.counts(5) == [2, 4, 5, 5, 5]
    assert sorted(worked.items) == list(range(5))


async def test_a_run_takes_no_more_than_it_may_and_the_next_one_takes_the_others() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    portions.replace(range(7))
    worked = Worked()
    portions.run(worked, 3)
    assert await worked.counts(4) == [2, 3, 3, 3]
    portions.run(worked, 3)
    assert await worked.counts(3) == [5, 6, 6]
    portions.run(worked)
    assert sorted(worked.items) == list(range(7))


async def test_a_run_that_goes_on_is_not_begun_twice_and_takes_what_is_added() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    portions.replace(range(4))
    worked, second = Worked(), Worked()
    portions.run(worked)
    portions.items += [10, 11]
    portions.run(second)
    assert await worked.counts(4) == [2, 4, 6, 6]
    assert second.items == []


async def test_nothing_runs_where_no_item_waits() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    worked = Worked()
    portions.run(worked)
    portions.items.append(1)
    assert await worked.counts(2) == [0, 0]
    portions.run(worked)
    assert worked.items == [1]


async def test_work_that_fails_in_a_later_turn_is_logged_and_leaves_the_rest_to_the_next_run() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    portions.replace(range(6))
    worked = Worked()

    def fail_at_three(portion: Iterator[int]) -> None:
        for item in portion:
            if item == 3:
                raise RuntimeError("three")
            worked.items.append(item)

    with capture_logs() as lines:
        portions.run(fail_at_three)
        assert await worked.counts(4) == [2, 2, 2, 2]
    assert [line["concerns"] for line in lines if line["event"] == "background_work_failed"] == ["a test"]
    portions.run(worked)
    assert await worked.counts(2) == [4, 5]
    assert sorted(worked.items) == [0, 1, 2, 4, 5]


async def test_the_caller_gets_what_the_first_portion_raises_and_may_run_again() -> None:
    portions: Portions[int] = Portions(2, concerns="a test")
    portions.replace(range(3))

    def fail(_: Iterator[int]) -> None:
        raise RuntimeError("at once")

    with pytest.raises(RuntimeError, match="at once"):
        portions.run(fail)
    worked = Worked()
    portions.run(worked)
    assert await worked.counts(2) == [2, 3]
