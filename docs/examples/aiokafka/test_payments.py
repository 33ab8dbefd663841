"""The service and the broker share the event loop of each test, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from payments import Payments

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def payments(async_fencepost) -> AsyncIterator[Payments]:
    await async_fencepost.topic("payments")
    await async_fencepost.topic("receipts")
    service = Payments(async_fencepost.bootstrap_servers)
    await service.start()
    yield service
    await service.stop()


async def test_a_payment_gets_a_receipt(async_fencepost, payments: Payments) -> None:
    await async_fencepost.produce("payments", "7 EUR")
    await payments.handle_one()
    assert [record.value for record in await async_fencepost.records("receipts")] == [b"received 7 EUR"]
    await async_fencepost.wait_for_lag("payments")


async def test_receipts_are_seen_only_when_they_are_committed(async_fencepost, payments: Payments) -> None:
    await async_fencepost.produce("payments", "7 EUR")
    with async_fencepost.hold("EndTxn", on="request") as held:
        handling = asyncio.create_task(payments.handle_one())
        await asyncio.to_thread(held.wait_until_fired)
        assert await async_fencepost.records("receipts") == []
    await handling
    assert len(await async_fencepost.records("receipts")) == 1


async def test_a_service_that_hangs_is_timed_out_and_leaves_nothing(async_fencepost, payments: Payments) -> None:
    await payments.producer.begin_transaction()
    await payments.producer.send_and_wait("receipts", b"never committed")
    await async_fencepost.advance(minutes=2)  # at once
    assert (await async_fencepost.transaction("payments-1")).state == "CompleteAbort"
    assert await async_fencepost.records("receipts") == []
