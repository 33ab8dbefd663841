"""The process that reads values, and what ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from fencepost.schemas.schema import Kind, Schema
from fencepost.schemas.workers import ENDED, GIVEN_UP, TOO_LONG, VALUE_TIMEOUT_S, Order, Worker, WorkerClosedError

NUMBER = Schema(Kind.AVRO, '"int"')
CHAIN = Schema(Kind.AVRO, '{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}')
NULLS = Schema(Kind.AVRO, '{"type":"array","items":"null"}')
STACK_OVERFLOW = Order(CHAIN, b"\x02" * 1_000_000 + b"\x00")
ENDLESS = Order(NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
"""An array that announces 2**62 items, which take no bytes."""


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    made = Worker()
    yield made
    await made.close()


async def test_values_are_read_in_their_order(worker: Worker) -> None:
    answers = await worker.carry_out([Order(NUMBER, bytes([2 * number])) for number in range(60)])
    assert [one["value"] for one in answers] == list(range(60))
    assert await worker.carry_out([Order(NUMBER, value=4)]) == [{"content": "CA==", "indexes": None}]


async def test_a_value_that_overflows_the_stack_fails_alone(worker: Worker) -> None:
    answers = await worker.carry_out([Order(NUMBER, b"\x02"), STACK_OVERFLOW, Order(NUMBER, b"\x04")])
    assert answers == [{"value": 1}, {"error": ENDED}, {"value": 2}]


async def test_a_value_without_an_end_fails_alone_and_is_not_waited_for_again(worker: Worker) -> None:
    assert await worker.carry_out([ENDLESS, Order(NUMBER, b"\x04")]) == [{"error": TOO_LONG}, {"value": 2}]
    started_s = time.monotonic()
    assert await worker.carry_out([ENDLESS, Order(NUMBER, b"\x06")]) == [{"error": TOO_LONG}, {"value": 3}]
    assert time.monotonic() - started_s < VALUE_TIMEOUT_S


async def test_after_some_ended_processes_the_rest_is_not_read(worker: Worker) -> None:
    chains = [Order(CHAIN, b"\x02" * (1_000_000 + number)) for number in range(3)]
    answers = await worker.carry_out([*chains, Order(NUMBER, b"\x02")])
    assert answers == [{"error": ENDED}, {"error": ENDED}, {"error": GIVEN_UP}, {"error": GIVEN_UP}]
    assert await worker.carry_out([Order(NUMBER, b"\x02")]) == [{"value": 1}]


async def test_a_value_that_is_large_when_it_is_read_is_refused(worker: Worker) -> None:
    # A million nulls in 4 bytes.
    answers = await worker.carry_out([Order(NULLS, b"\x80\x89\x7a\x00"), Order(NUMBER, b"\x02")])
    assert answers[0] == {"error": "it is larger than 4 MiB when it is decoded"}
    assert answers[1] == {"value": 1}


async def test_a_call_that_is_given_up_leaves_no_answer_to_the_next(worker: Worker) -> None:
    call = asyncio.create_task(worker.carry_out([Order(NUMBER, b"\x02"), ENDLESS]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await worker.carry_out([Order(NUMBER, b"\x08")]) == [{"value": 4}]


async def test_a_process_that_was_killed_between_calls_is_started_again(worker: Worker) -> None:
    await worker.carry_out([Order(NUMBER, b"\x02")])
    assert worker._process is not None
    worker._process.kill()
    await worker._process.wait()
    assert await worker.carry_out([Order(NUMBER, b"\x08")]) == [{"value": 4}]


async def test_calls_at_once_get_their_own_answers(worker: Worker) -> None:
    calls = [worker.carry_out([Order(NUMBER, bytes([2 * number]))] * 3) for number in range(10)]
    assert await asyncio.gather(*calls) == [[{"value": number}] * 3 for number in range(10)]


async def test_a_closed_worker_has_waited_for_each_process_that_it_ended() -> None:
    worker = Worker()
    started: list[asyncio.subprocess.Process | None] = []
    await worker.carry_out([Order(NUMBER, b"\x02")])
    started.append(worker._process)
    assert (await worker.carry_out([ENDLESS]))[0] == {"error": TOO_LONG}
    await worker.carry_out([Order(NUMBER, b"\x02")])
    started.append(worker._process)
    assert (await worker.carry_out([STACK_OVERFLOW]))[0] == {"error": ENDED}
    await worker.close()
    assert all(process is not None and process.returncode is not None for process in started)


async def test_a_call_that_is_under_way_starts_no_process_after_the_end() -> None:
    worker = Worker()
    await worker.carry_out([Order(NUMBER, b"\x02")])
    call = asyncio.create_task(worker.carry_out([ENDLESS, Order(NUMBER, b"\x02")]))
    await asyncio.sleep(0)
    await worker.close()
    with pytest.raises(WorkerClosedError):
        await call
    assert worker._process is None
