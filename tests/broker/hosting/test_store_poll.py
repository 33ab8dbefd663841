"""Looks at the store that requests share, and what becomes of them when it is slow."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.hosting import store_poll as store_poll
from fencepost.broker.hosting.store_poll import StorePoll
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import until


class Store:
    """A store whose looks end when the test says so. begun: how many have begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.store_poll = StorePoll(self.look)
        self._end: asyncio.Future[None] | None = None

    async def look(self) -> None:
        self.begun += 1
        self._end = asyncio.get_running_loop().create_future()
        await self._end

    def end(self, error: Exception | None = None) -> None:
        assert self._end is not None
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    def asked(self, count: int) -> list[asyncio.Task[bool]]:
        return [asyncio.create_task(self.store_poll.catch_up()) for _ in range(count)]


async def test_requests_that_arrive_together_share_one_look() -> None:
    store = Store()
    asked = store.asked(100)
    await until(lambda: store.begun == 1)
    store.end()
    assert await asyncio.gather(*asked) == [True] * 100
    assert store.begun == 1


async def test_requests_that_arrive_during_a_look_wait_for_the_next_and_share_it() -> None:
    store = Store()
    first = store.asked(1)
    await until(lambda: store.begun == 1)
    later = store.asked(100)
    await asyncio.sleep(0)
    store.end()
    await asyncio.gather(*first)
    await until(lambda: store.begun == 2)
    assert not any(one.done() for one in later)
    store.end()
    await asyncio.gather(*later)
    assert store.begun == 2
    store.asked(1)
    await until(lambda: store.begun == 3)
    await store.store_poll.close()


async def test_a_store_that_does_not_answer_holds_requests_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_poll, "LONGEST_WAIT_S", 0.05)
    store = Store()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.gather(*store.asked(10))
    assert loop.time() - began_s >= 0.05
    await asyncio.sleep(0.02)  # the look is older than that by now
    without_wait = store.asked(10)
    for _ in range(3):
        await asyncio.sleep(0)
    assert all(one.done() for one in without_wait)
    assert store.begun == 1
    store.end()
    await until(lambda: store.store_poll._looking is not None and store.store_poll._looking.done())
    again = store.asked(1)
    await until(lambda: store.begun == 2)
    store.end()
    await asyncio.gather(*again)


async def test_a_look_that_the_store_refuses_answers_all_that_wait() -> None:
    store = Store()
    first = store.asked(1)
    await until(lambda: store.begun == 1)
    later = store.asked(2)
    await asyncio.sleep(0)
    store.end(StorageError("the file is locked"))
    await asyncio.gather(*first, *later)
    assert store.begun == 1
    again = store.asked(1)
    await until(lambda: store.begun == 2)
    store.end()
    await asyncio.gather(*again)
