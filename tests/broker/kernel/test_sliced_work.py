"""Long work in steps: all at once, or with others in between."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.kernel.sliced_work import SlicedWork, run_in_slices, run_to_end


def count_to(last: int, seen: list[int]) -> SlicedWork[str]:
    for number in range(last):
        seen.append(number)
        yield
    return "counted"


def test_all_steps_are_done_at_once() -> None:
    seen: list[int] = []
    assert run_to_end(count_to(3, seen)) == "counted"
    assert seen == [0, 1, 2]


async def test_others_get_their_turn_between_slices() -> None:
    seen: list[int] = []
    counting = asyncio.ensure_future(run_in_slices(count_to(3, seen), 0.0))
    turns = []
    while not counting.done():
        await asyncio.sleep(0)
        turns.append(len(seen))
    assert await counting == "counted"
    assert turns == sorted(turns)
    assert {1, 2, 3} <= set(turns)
    assert await run_in_slices(count_to(100, []), 60.0) == "counted"


async def test_an_exception_in_a_step_is_raised() -> None:
    def failing() -> SlicedWork[None]:
        yield
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        run_to_end(failing())
    with pytest.raises(ValueError, match="damaged"):
        await run_in_slices(failing(), 0.0)
