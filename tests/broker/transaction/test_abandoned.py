"""Transactions that a pool of ids has left behind are aborted; those of a service that is away are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.peers import PeerUnreachable
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.transaction.abandoned import Abandoned
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.state_machine import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, TransactionVersion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)
from tests.broker.transaction.test_service import OUT_0, Broker, eventually, producer_of

BOUND_MS = 60_000
V2 = TransactionVersion.V2


class Pool:
    """A service whose ids are two-phase by name, and a bound for them."""

    def __init__(self) -> None:
        self.broker = Broker()
        settings: Settings = replace(
            self.broker.settings,
            transaction_two_phase_commit_enable=True,
            fencepost_two_phase_transactional_ids=("pool-*", "alone"),
        )
        self.broker.settings = settings
        self.broker.service = self.broker._make_service()
        self.peers: Any = None

    @property
    def abandoned(self) -> Abandoned:
        topics = cast("Any", self.broker.topics)
        return Abandoned([("pool-*", BOUND_MS)], self.broker.service, topics, self.peers)

    async def begin(self, name: str) -> Producer:
        service = self.broker.service
        producer = producer_of(await service.init_producer_id(name, timeout_ms=60_000))
        assert await service.add_partitions(name, producer, [OUT_0], version=V2) is ErrorCode.NONE
        return producer

    async def end(self, name: str, producer: Producer, *, committed: bool) -> None:
        await self.broker.service.end_transaction(name, producer, committed=committed, version=V2)
        await eventually(lambda: self.found(name).state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT))

    async def write(self, name: str, *, committed: bool = True) -> None:
        await self.end(name, await self.begin(name), committed=committed)

    def found(self, name: str) -> TransactionMetadata:
        metadata = self.broker.service.find(name)
        assert isinstance(metadata, TransactionMetadata)
        return metadata

    def pass_time(self, ms: int) -> None:
        self.broker.clock.milliseconds += ms


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool()
    await made.broker.service.start()
    await made.broker.service.ensure_loaded()
    yield made
    await made.broker.service.close()


async def test_what_a_pool_has_left_behind_is_aborted_once_it_has_gone_on_for_the_bound(pool: Pool) -> None:
    await pool.begin("pool-1-0")
    for _ in range(3):
        await pool.write("pool-0-0")
        pool.pass_time(BOUND_MS // 3)
        assert await pool.abandoned.end_all() == 0
    assert pool.found("pool-1-0").state is ONGOING
    await pool.write("pool-0-0")
    assert await pool.abandoned.end_all() == 1
    await eventually(lambda: pool.found("pool-1-0").state is COMPLETE_ABORT)
    assert await pool.abandoned.end_all() == 0


@pytest.mark.parametrize("later", ["nothing", "an abort", "another pool", "an open transaction", "an earlier one"])
async def test_a_transaction_stays_without_a_later_commit_of_its_pool(pool: Pool, later: str) -> None:
    earlier = await pool.begin("pool-9") if later == "an earlier one" else None
    await pool.begin("pool-1")
    pool.pass_time(100 * BOUND_MS)
    match later:
        case "an abort":
            await pool.write("pool-2", committed=False)
        case "another pool":
            await pool.write("alone")
        case "an open transaction":
            await pool.begin("pool-2")
        case "an earlier one":  # it began before, whenever it ends
            assert earlier is not None
            await pool.end("pool-9", earlier, committed=True)
    assert await pool.abandoned.end_all() == 0
    assert pool.found("pool-1").state is ONGOING


async def test_only_what_is_older_by_the_bound_is_aborted(pool: Pool) -> None:
    await pool.begin("pool-1")
    pool.pass_time(BOUND_MS // 2)
    await pool.begin("pool-2")
    await pool.begin("alone")
    pool.pass_time(BOUND_MS // 2)
    await pool.write("pool-3")
    assert await pool.abandoned.end_all() == 1
    assert pool.found("pool-2").state is pool.found("alone").state is ONGOING


class OtherNodes:
    """Answers as the coordinators of other nodes. starts: of their committed transactions, in ms, by id and node."""

    def __init__(self, starts: dict[int, dict[str, int]]) -> None:
        self.starts = starts

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        if node_id not in self.starts:
            raise PeerUnreachable("it is away")
        known = self.starts[node_id]
        if isinstance(message, DescribeTransactionsRequest):
            return DescribeTransactionsResponse(
                transaction_states=[
                    DescribeTransactionsTransactionState(
                        transactional_id=name,
                        transaction_state="CompleteCommit",
                        transaction_start_time_ms=known[name],
                    )
                    for name in message.transactional_ids
                ]
            )
        return ListTransactionsResponse(
            transaction_states=[ListTransactionsTransactionState(transactional_id=name) for name in known]
        )

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("late_by_ms", "ended"), [(BOUND_MS, 1), (BOUND_MS - 1, 0)])
async def test_a_later_commit_at_another_node_counts_too_and_a_node_that_is_away_does_not_matter(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, late_by_ms: int, ended: int
) -> None:
    await pool.begin("pool-1")
    start_ms = pool.found("pool-1").start_ms
    pool.peers = OtherNodes(
        {3: {"alone": start_ms + 10 * BOUND_MS, "pool-7": start_ms}, 4: {"pool-8": start_ms + late_by_ms}}
    )
    nodes = [NodeAddress(node_id, "host", node_id) for node_id in (2, 3, 4)]
    monkeypatch.setattr(pool.broker.topics.placement, "other_nodes", lambda: nodes, raising=False)
    assert await pool.abandoned.end_all() == ended
