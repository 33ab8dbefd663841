"""What administrators do meanwhile: they look at transactions and producers, and delete topics and create them anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.applications import Play
from tests.simulation.clients.cluster import TRANSACTION, Cluster


def administrator(topics: Mapping[str, int], scratch: str | None) -> Play:
    """topics:  by name, with their partitions.
    scratch: one that may be deleted, created anew and given partitions at any time.
    """

    async def play(life: Life) -> None:
        cluster = life.cluster()
        while life.goes_on():
            await life.think(0.1, 1.0)
            try:
                if scratch is not None and life.chance.random() < 0.5:
                    await _change(life, cluster, scratch)
                else:
                    await _look(life, cluster, topics)
            except Disconnected:
                await cluster.back_off()
        cluster.close()

    return play


async def _change(life: Life, cluster: Cluster, scratch: str) -> None:
    """Raises Disconnected."""
    request: Any = life.chance.choice(
        (
            DeleteTopicsRequest(topic_names=[scratch], timeout_ms=1000),
            CreateTopicsRequest(
                topics=[CreatableTopic(name=scratch, num_partitions=1, replication_factor=1)], timeout_ms=1000
            ),
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=scratch, count=2, assignments=None)], timeout_ms=1000
            ),
        )
    )
    version = 5 if isinstance(request, CreateTopicsRequest) else 3
    await cluster.send(cluster.any_node(), request, version)


async def _look(life: Life, cluster: Cluster, topics: Mapping[str, int]) -> None:
    """Raises Disconnected."""
    listed = await cluster.send(cluster.any_node(), ListTransactionsRequest(), 1)
    for transaction in listed.transaction_states[:2]:
        transactional_id = transaction.transactional_id
        await cluster.ask_coordinator(
            TRANSACTION, transactional_id, DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
        )
    topic = life.chance.choice(list(topics))
    await cluster.send(
        cluster.any_node(),
        DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(range(topics[topic])))]),
        0,
    )
