"""Turns at the hashing of passwords: nobody who tries many delays others by more than a turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fencepost.broker.security.sasl import fair_turns
from fencepost.broker.security.sasl.exchange import TooManyWaitingError
from fencepost.broker.security.sasl.fair_turns import FairTurns


class Workers:
    """Those that want turns, and the order in which they had them."""

    def __init__(self, count: int = 1) -> None:
        self.turns = FairTurns(count)
        self.done: list[str] = []
        self.running = 0
        self.most_running = 0
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, label: str, host: str, name: str = "") -> asyncio.Task[None]:
        async def work() -> None:
            async with self.turns.turn(host, name):
                self.running += 1
                self.most_running = max(self.running, self.most_running)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.running -= 1
                self.done.append(label)

        task = asyncio.get_running_loop().create_task(work())
        self.tasks.append(task)
        return task

    async def ended(self) -> list[Any]:
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_addresses_take_turns_however_many_one_of_them_has_waiting() -> None:
    workers = Workers()
    for _ in range(100):
        workers.start("stranger", "10.0.0.1", "nobody")
    await asyncio.sleep(0)
    workers.start("alice", "10.0.0.2", "alice")
    workers.start("bob", "10.0.0.3", "bob")
    await workers.ended()
    assert workers.done.index("alice") <= 3
    assert workers.done.index("bob") <= 4
    assert len(workers.done) == 102


async def test_names_of_an_address_take_turns() -> None:
    workers = Workers()
    for _ in range(100):
        workers.start("stranger", "10.0.0.1", "nobody")
    await asyncio.sleep(0)
    workers.start("alice", "10.0.0.1", "alice")
    await workers.ended()
    assert workers.done.index("alice") <= 2


async def test_a_network_of_ipv6_has_one_share() -> None:
    workers = Workers()
    for number in range(100):
        workers.start("stranger", f"2001:db8::{number:x}", "nobody")
    await asyncio.sleep(0)
    workers.start("alice", "2001:db8:1::1", "alice")
    await workers.ended()
    assert workers.done.index("alice") <= 2


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_no_more_have_turns_at_a_time_than_there_are(count: int) -> None:
    workers = Workers(count)
    for number in range(50):
        workers.start("x", f"10.0.0.{number % 7}", str(number % 3))
    await workers.ended()
    assert workers.most_running == count
    assert len(workers.done) == 50


async def test_an_address_with_too_many_waiting_is_refused_further_ones_and_no_other_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_turns, "MAXIMUM_WAITING", 10)
    workers = Workers()
    for number in range(30):
        workers.start("stranger", "10.0.0.1", str(number))
    await asyncio.sleep(0)
    workers.start("alice", "10.0.0.2")
    found = Counter(type(outcome) for outcome in await workers.ended())
    assert found == {type(None): 12, TooManyWaitingError: 19}
    assert "alice" in workers.done


async def test_those_that_leave_while_they_wait_cost_no_turn() -> None:
    workers = Workers()
    first = [workers.start("stranger", "10.0.0.1", str(number)) for number in range(50)]
    await asyncio.sleep(0)
    alice = workers.start("alice", "10.0.0.1", "alice")
    await asyncio.sleep(0)
    for task in first[1:]:
        task.cancel()
    await alice
    await workers.ended()
    assert workers.done == ["stranger", "alice"]
    for _ in range(3):  # nothing of them is left
        workers.start("later", "10.0.0.1")
    await workers.ended()
    assert workers.done == ["stranger", "alice", *["later"] * 3]


@pytest.mark.parametrize("steps", range(8))
async def test_one_that_leaves_at_any_moment_gives_its_turn_to_the_next(steps: int) -> None:
    workers = Workers()
    for number in range(3):
        workers.start(str(number), "10.0.0.1", str(number))
    for _ in range(steps):
        await asyncio.sleep(0)
    workers.tasks[1].cancel()
    await asyncio.wait_for(workers.ended(), 10)
    workers.start("later", "10.0.0.1")
    await asyncio.wait_for(workers.ended(), 10)
    assert workers.done[-1] == "later"
    assert workers.done[0] == "0"
