"""DescribeTransactions and ListTransactions: what administrators see, and the filters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.handlers import transaction_admin
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests import api
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.support.longest_step import steps_until_done
from tests.support.transaction_handlers import TransactionHandlers, transaction_handlers


@pytest.fixture
async def handlers() -> AsyncIterator[TransactionHandlers]:
    """`open-1` has an open transaction in two partitions, `idle-1` has none."""
    async with transaction_handlers(out=3) as handlers:
        transactions = handlers.services.transactions
        await transactions.init_producer_id("idle-1", timeout_ms=1000)
        reply = await transactions.init_producer_id("open-1", timeout_ms=60_000)
        error = await transactions.add_partitions(
            "open-1",
            Producer(reply.producer_id, reply.producer_epoch),
            [TopicPartition("out", 2), TopicPartition("out", 0)],
            version=TransactionVersion.V1,
        )
        assert error is ErrorCode.NONE
        yield handlers


async def test_an_open_transaction_is_described_with_its_partitions(handlers: TransactionHandlers) -> None:
    response = await handlers.call(DescribeTransactionsRequest(transactional_ids=["open-1", "idle-1"]), 0)
    opened, idle = response.transaction_states
    assert (opened.error_code, opened.transaction_state, opened.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (opened.producer_id, opened.producer_epoch) == (1, 0)
    assert opened.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in opened.topics] == [("out", [0, 2])]
    assert (idle.transaction_state, idle.transaction_start_time_ms, idle.topics) == ("Empty", -1, [])


async def test_an_unknown_or_empty_id_has_an_error_of_its_own(handlers: TransactionHandlers) -> None:
    response = await handlers.call(DescribeTransactionsRequest(transactional_ids=["", "x"]), 0)
    codes = [state.error_code for state in response.transaction_states]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


@pytest.mark.parametrize(
    ("version", "filters", "shown"),
    [
        (0, {}, {"open-1", "idle-1"}),
        (0, {"state_filters": ["Ongoing"]}, {"open-1"}),
        (0, {"state_filters": ["CompleteAbort", "Dead"]}, set()),
        (0, {"producer_id_filters": [0]}, {"idle-1"}),
        (0, {"producer_id_filters": [0], "state_filters": ["Ongoing"]}, set()),
        (1, {"duration_filter": 3_600_000}, set()),
        (1, {"duration_filter": -1}, {"open-1", "idle-1"}),
        (2, {"transactional_id_pattern": "open-.*"}, {"open-1"}),
        (2, {"transactional_id_pattern": "open"}, set()),
        (2, {"transactional_id_pattern": ""}, {"open-1", "idle-1"}),
    ],
)
async def test_transactions_are_listed_if_all_filters_match(
    handlers: TransactionHandlers, version: int, filters: dict[str, Any], shown: set[str]
) -> None:
    response = await handlers.call(ListTransactionsRequest(**filters), version)
    assert response.error_code == 0
    assert response.unknown_state_filters == []
    assert {state.transactional_id for state in response.transaction_states} == shown


async def test_state_names_that_do_not_exist_are_named_in_the_reply(handlers: TransactionHandlers) -> None:
    response = await handlers.call(ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"]), 2)
    assert response.unknown_state_filters == ["Sleeping"]
    assert [state.transaction_state for state in response.transaction_states] == ["Ongoing"]


async def test_a_pattern_made_to_run_for_ever_is_matched_in_no_time(handlers: TransactionHandlers) -> None:
    transactional_id = "a" * 60
    await handlers.services.transactions.init_producer_id(transactional_id, timeout_ms=1000)
    response = await handlers.call(ListTransactionsRequest(transactional_id_pattern="(a|a|aa)+b"), 2)
    assert (response.error_code, response.transaction_states) == (ErrorCode.NONE, [])


async def test_a_pattern_that_is_none_is_refused(handlers: TransactionHandlers) -> None:
    response = await handlers.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


MANY_COUNT = 3_000


@pytest.fixture
async def many(handlers: TransactionHandlers) -> TransactionHandlers:
    for number in range(MANY_COUNT):
        await handlers.services.transactions.init_producer_id(f"many-{number}", timeout_ms=1000)
    return handlers


MANY_IDS = [f"many-{number}" for number in range(MANY_COUNT)]


@pytest.mark.parametrize(
    "request_",
    [ListTransactionsRequest(), DescribeTransactionsRequest(transactional_ids=["open-1", *MANY_IDS, "", "x"])],
    ids=["list", "describe"],
)
async def test_many_transactions_are_shown_in_slices_as_they_are_at_once(
    many: TransactionHandlers, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "SLICE_S", 0.0)
    version = 0
    answering = asyncio.ensure_future(many.call(request_, version))
    steps = await steps_until_done(answering)
    assert steps.turns_count > MANY_COUNT / 100
    monkeypatch.setattr(transaction_admin, "FEWEST_IN_SLICES", 10 * MANY_COUNT)
    assert await answering == await many.call(request_, version)
    assert len((await answering).transaction_states) >= MANY_COUNT + 2


async def test_a_list_of_many_transactions_is_of_one_moment(
    many: TransactionHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "SLICE_S", 0.0)
    listing = asyncio.ensure_future(many.call(ListTransactionsRequest(), 0))
    await asyncio.sleep(0)
    reply = await many.services.transactions.init_producer_id("late-1", timeout_ms=1000)
    producer = reply.producer
    out = [TopicPartition("out", 1)]
    late = many.services.transactions.add_partitions("late-1", producer, out, version=TransactionVersion.V1)
    assert await late is ErrorCode.NONE
    assert not listing.done()
    shown = {state.transactional_id: state.transaction_state for state in (await listing).transaction_states}
    assert len(shown) == MANY_COUNT + 2
    assert "late-1" not in shown
