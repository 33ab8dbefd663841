"""The facts about open transactions: the log's, and those of a coordinator that knows the transaction, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.http.open_transactions import described_open
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.open_transactions import first_began_ms, holder_here, open_transactions, stuck_facts
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.diagnosis.stuck import UNLIMITED_TIMEOUT_MS, Cause, explain
from tests.broker.metrics.test_group_lags import ORDERS, World
from tests.support.http_node import http_node


def view_of(world: World) -> NodeView:
    assert world.http.node._http is not None
    view = world.http.node._http._view
    assert view is not None
    return view


async def test_a_transaction_is_as_its_coordinator_has_it_and_hangs_if_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_node(tmp_path) as http:
        await http.node.services.topics.create("orders", 1, {})
        world = World(http, monkeypatch)
        world.append(3, is_transactional=True)
        view, log, now_ms = view_of(world), world.log(), world.now_ms
        await log.flushed()
        assert log.header_at(0) is not None
        (one,) = open_transactions(view, log, {}, now_ms)
        assert (one.cause, one.began_ms, one.transaction) == (Cause.HANGING, now_ms - 60_000, None)
        assert first_began_ms(log, {}) == one.began_ms
        assert holder_here(log, [one]) == one
        assert explain(stuck_facts(view, log, [one], now_ms)).cause is Cause.HANGING
        ongoing = TransactionMetadata(
            "till", 9, 0, 50_000, TransactionState.ONGOING, now_ms, now_ms - 40_000, frozenset([ORDERS])
        )
        for known, cause in (
            (ongoing, Cause.ONGOING),
            (ongoing._replace(timeout_ms=30_000), Cause.TIMED_OUT),
            (ongoing._replace(timeout_ms=UNLIMITED_TIMEOUT_MS), Cause.TWO_PHASE),
            (ongoing._replace(state=TransactionState.PREPARE_COMMIT), Cause.PREPARE_COMMIT),
            (ongoing._replace(state=TransactionState.PREPARE_ABORT), Cause.PREPARE_ABORT),
        ):
            (one,) = open_transactions(view, log, {9: known}, now_ms)
            assert (one.cause, one.began_ms, one.transaction) == (cause, known.start_ms, known)
            assert explain(stuck_facts(view, log, [one], now_ms)).cause is cause
            assert described_open(view, one, now_ms)["cause"] == cause.value
        elsewhere = {9: ongoing._replace(partitions=frozenset())}
        assert open_transactions(view, log, elsewhere, now_ms)[0].cause is Cause.HANGING
        assert first_began_ms(log, elsewhere) == now_ms - 60_000
        monkeypatch.setattr(type(view.services.transactions), "is_loading", True)
        assert open_transactions(view, log, {}, now_ms)[0].cause is Cause.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_without_an_open_transaction_waits_for_a_flush_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_node(tmp_path) as http:
        await http.node.services.topics.create("orders", 1, {})
        world = World(http, monkeypatch)
        view, log = view_of(world), world.log()
        assert (first_began_ms(log, {}), holder_here(log, [])) == (None, None)
        assert explain(stuck_facts(view, log, [], world.now_ms)).cause is Cause.NOT_STUCK
        log.offline_reason = "the disk is full"
        assert explain(stuck_facts(view, log, [], world.now_ms)).sentence.startswith(
            "orders-0 does not answer: the disk is full."
        )
        log.offline_reason = None
