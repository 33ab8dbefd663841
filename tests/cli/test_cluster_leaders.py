"""Commands for leaders refuse clusters of other brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import pytest

from fencepost.cli import cluster_leaders
from fencepost.cli.cluster_leaders import drain, move
from fencepost.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
)


class TwoBrokers:
    """Two brokers that do not tell their states, as those of Apache Kafka."""

    def __init__(self) -> None:
        self.changes: list[Any] = []

    async def send(self, request: Any, _node_id: int | None = None) -> Any:
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(
                brokers=[DescribeClusterBroker(broker_id=node_id, host="kafka", port=9092) for node_id in (1, 2)]
            )
        if type(request).__name__ == "DescribeTopicPartitionsRequest":
            return DescribeTopicPartitionsResponse()
        self.changes.append(request)
        raise AssertionError(request)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> TwoBrokers:

    made = TwoBrokers()
    monkeypatch.setattr(cluster_leaders, "ask_cluster", lambda _bootstrap, ask: asyncio.run(ask(made)))
    return made


@pytest.mark.parametrize("target", [2, None])
def test_a_move_does_not_take_away_the_replicas_of_other_brokers(brokers: TwoBrokers, target: int | None) -> None:
    with pytest.raises(click.ClickException, match="nothing was changed"):
        move("kafka:9092", "orders", 0, target, wait_s=None)
    assert brokers.changes == []


@pytest.mark.parametrize("is_over", [True, False])
def test_a_drain_sets_nothing_at_other_brokers(brokers: TwoBrokers, is_over: bool) -> None:
    with pytest.raises(click.ClickException, match="nothing was changed"):
        drain("kafka:9092", 1, is_over=is_over, wait_s=None)
    assert brokers.changes == []
