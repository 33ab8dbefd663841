"""`async_fencepost` and `AsyncBroker`: a broker on the event loop of its test."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from fencepost.testing.clock import TurnableLoop
from fencepost.testing.errors import MisuseError
from fencepost.testing.loop_broker import AsyncBroker
from tests.testing.clients import IN_ANOTHER_PROCESS


async def test_clients_and_broker_share_the_tests_loop(async_fencepost: AsyncBroker) -> None:
    assert async_fencepost.loop is asyncio.get_running_loop()
    await async_fencepost.topic("orders", partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=async_fencepost.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("orders", b"one", partition=1)
    await producer.stop()
    assert [(record.partition, record.value) for record in await async_fencepost.records("orders")] == [(1, b"one")]
    assert async_fencepost.requests("Produce", topic="orders")
    assert await async_fencepost.topics() == {"orders": 2}


async def test_a_consumer_reads_and_its_lag_is_waited_for(async_fencepost: AsyncBroker) -> None:
    assert await async_fencepost.produce("orders", "one", "two") == [0, 1]
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=async_fencepost.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    assert [(await consumer.getone()).value for _ in range(2)] == [b"one", b"two"]
    await consumer.commit()
    await async_fencepost.wait_for_lag("billing")
    assert (await async_fencepost.group("billing")).total_lag == 0
    await consumer.stop()


async def test_a_transaction_times_out_with_the_clock_of_the_loop(async_fencepost: AsyncBroker) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=async_fencepost.bootstrap_servers, transactional_id="till-1", transaction_timeout_ms=60_000
    )
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"x")
    slept = asyncio.create_task(asyncio.sleep(120))
    assert (await async_fencepost.transaction("till-1")).state == "Ongoing"
    await async_fencepost.advance(minutes=2)
    assert (await async_fencepost.transaction("till-1")).state == "CompleteAbort"
    await slept
    assert await async_fencepost.transactions() == {"till-1": "CompleteAbort"}
    await producer.stop()


async def test_clients_may_be_in_other_processes(async_fencepost: AsyncBroker) -> None:
    delay = async_fencepost.delay("Produce", seconds=0.001, client_id="elsewhere")
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IN_ANOTHER_PROCESS, async_fencepost.bootstrap_servers
    )
    assert await client.wait() == 0
    assert [record.value for record in await async_fencepost.records("orders")] == [b"from elsewhere"]
    assert delay.fired == 1


async def test_faults_meet_requests_on_the_loop(async_fencepost: AsyncBroker) -> None:
    await async_fencepost.topic("orders")
    fault = async_fencepost.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    producer = AIOKafkaProducer(bootstrap_servers=async_fencepost.bootstrap_servers, retry_backoff_ms=1)
    await producer.start()
    await producer.send_and_wait("orders", b"x")
    assert fault.fired == 1
    with async_fencepost.hold("Produce") as held:
        sending = asyncio.create_task(producer.send_and_wait("orders", b"y"))
        await asyncio.to_thread(held.wait_until_fired)
        assert not sending.done()
    await sending
    await producer.stop()


async def test_fencing_and_restarts(async_fencepost: AsyncBroker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=async_fencepost.bootstrap_servers, transactional_id="till-1")
    await producer.start()
    before = await async_fencepost.transaction("till-1")
    producer_id, epoch = await async_fencepost.fence("till-1")
    assert (producer_id, epoch) == (before.producer_id, before.producer_epoch + 1)
    await producer.stop()
    address = async_fencepost.bootstrap_servers
    await async_fencepost.restart()
    assert async_fencepost.bootstrap_servers == address
    assert await async_fencepost.transactions() == {"till-1": "Empty"}
    assert "transactional id 'till-1': Empty" in await async_fencepost.describe()


async def test_a_crash_is_refused_on_a_shared_loop(async_fencepost: AsyncBroker) -> None:
    with pytest.raises(MisuseError, match=r"cannot crash alone.*use the fixture fencepost"):
        await async_fencepost.crash()
    with pytest.raises(MisuseError, match="cannot crash alone"):
        async_fencepost.crash_after("EndTxn")


def test_a_loop_that_is_not_ours_is_not_turned_and_nothing_is_left_on_it() -> None:
    async def use() -> None:
        async with AsyncBroker() as broker:
            await broker.topic("orders")
            with pytest.raises(MisuseError, match=r"is not asyncio's own.*use a broker with a loop of its own"):
                await broker.advance(seconds=1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use())


def test_a_loop_that_was_not_turned_is_given_back() -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncBroker() as broker:
            assert isinstance(loop, TurnableLoop)
            await broker.topic("orders")
        assert type(loop) is asyncio.SelectorEventLoop
        assert asyncio.all_tasks() == {asyncio.current_task()}

    threads = set(threading.enumerate())
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(use())
    assert set(threading.enumerate()) <= threads


async def test_before_its_start_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = AsyncBroker().bootstrap_servers


@pytest.mark.asyncio(loop_scope="session")
async def test_the_loop_may_be_that_of_the_session(async_fencepost: AsyncBroker) -> None:
    assert async_fencepost.loop is asyncio.get_running_loop()
    await async_fencepost.topic("orders")
    await async_fencepost.advance(hours=1)


async def test_offsets_are_set_and_topics_deleted_from_the_loop(async_fencepost: AsyncBroker) -> None:
    await async_fencepost.topic("orders")
    await async_fencepost.set_offset("billing", "orders", 3)
    assert await async_fencepost.groups() == {"billing": "Empty"}
    await async_fencepost.delete_topic("orders")
    assert await async_fencepost.topics() == {}
