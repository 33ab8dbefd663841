"""Transactions as their coordinators see them, and producers as partitions see them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, RefusedError, check, error_name
from fencepost.client.view import CoordinatorKind
from fencepost.console.reading.sharing import Answer, Reads
from fencepost.console.reading.topics import BROKER_S
from fencepost.console.reading.unserved import TRANSACTION_STATE, not_asked, unserved
from fencepost.diagnosis.stuck import OPEN_STATES, CoordinatorView, OpenTransaction
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest

IDS_PER_REQUEST = 500


@dataclass(frozen=True)
class ListedTransaction:
    """A transactional id and its state, with the broker that coordinates it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass
class TransactionList:
    """The transactional ids that this user may see. missing: why there may be more of them, as sentences."""

    listed: list[ListedTransaction] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


async def list_transactions(
    cluster: Cluster, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
) -> TransactionList:
    """Ask all brokers."""
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    replies, away = await asyncio.gather(cluster.send_to_all(request, BROKER_S), unserved(cluster, TRANSACTION_STATE))
    found = TransactionList(missing=[] if away is None else [f"{away}."])
    for node_id, reply in replies.items():
        if isinstance(reply, ClusterError):
            found.missing.append(not_asked(node_id, str(reply)))
        elif reply.error_code:
            found.missing.append(not_asked(node_id, error_name(reply.error_code)))
        else:
            found.listed.extend(
                ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, node_id)
                for one in reply.transaction_states
            )
    found.listed.sort(key=lambda one: one.transactional_id)
    return found


async def transactions_of(
    reads: Reads, states: Iterable[str] = (), patience_s: float | None = None
) -> Answer[TransactionList]:
    """The transactional ids in some states, of all for none, as all who look see them. Raises ClusterError."""
    wanted = tuple(sorted(states))
    return await reads.ask(
        ("transactions", wanted), lambda cluster: list_transactions(cluster, states=wanted), patience_s
    )


async def describe_transactions(cluster: Cluster, listed: Sequence[ListedTransaction]) -> dict[str, CoordinatorView]:
    """Describe transactional ids, each at its coordinator; those that could not be described are left out."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for one in listed:
        by_node[one.coordinator].append(one.transactional_id)
    replies = await asyncio.gather(
        *(
            _describe(cluster, node_id, ids[first : first + IDS_PER_REQUEST])
            for node_id, ids in by_node.items()
            for first in range(0, len(ids), IDS_PER_REQUEST)
        )
    )
    return {one.transactional_id: one for views in replies for one in views}


async def _describe(cluster: Cluster, node_id: int, ids: list[str]) -> list[CoordinatorView]:
    try:
        reply = await cluster.send_within(DescribeTransactionsRequest(transactional_ids=ids), node_id, BROKER_S)
    except ClusterError:
        return []
    return [
        CoordinatorView(
            one.transactional_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            one.transaction_timeout_ms,
            one.transaction_start_time_ms,
            tuple(sorted((topic.topic, index) for topic in one.topics for index in topic.partitions)),
        )
        for one in reply.transaction_states
        if not one.error_code
    ]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> CoordinatorView:
    """Describe one transactional id. Raises ClusterError."""
    node_id = await cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id)
    reply = await cluster.send(DescribeTransactionsRequest(transactional_ids=[transactional_id]), node_id)
    for one in reply.transaction_states:
        check(one.error_code)
    found = await describe_transactions(cluster, [ListedTransaction(transactional_id, -1, "", node_id)])
    if transactional_id not in found:
        raise RefusedError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return found[transactional_id]


async def coordinator_view_of(cluster: Cluster, producer_id: int) -> tuple[CoordinatorView | None, str | None]:
    """The view by the coordinator of a producer id, None if none knows it; and why some could not be asked."""
    found = await list_transactions(cluster, producer_ids=[producer_id])
    views = await describe_transactions(cluster, found.listed)
    chosen = sorted(views.values(), key=lambda view: view.state not in OPEN_STATES)
    if chosen:
        return chosen[0], None
    errors = [sentence.removesuffix(".") for sentence in found.missing]
    return None, "; ".join(errors) or None


@dataclass(frozen=True)
class Producer:
    """A producer whose state a partition keeps. first_offset: of its open transaction; None without one."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_write_ms: int
    coordinator_epoch: int
    first_offset: int | None


@dataclass
class ProducerList:
    """Producers of partitions. errors: by place, why it could not be asked."""

    producers: list[Producer] = field(default_factory=list)
    errors: dict[tuple[str, int], str] = field(default_factory=dict)


async def read_producers(
    cluster: Cluster, places_by_leader: Iterable[tuple[int, Sequence[tuple[str, int]]]]
) -> ProducerList:
    """Ask leaders for the producers of their partitions."""
    found = ProducerList()
    for leader, places in places_by_leader:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in places:
            by_topic[topic].append(index)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
        )
        try:
            reply = await cluster.send_within(request, leader, BROKER_S)
        except ClusterError as error:
            found.errors.update(dict.fromkeys(places, str(error)))
            continue
        for described in reply.topics:
            for partition in described.partitions:
                if partition.error_code:
                    found.errors[described.name, partition.partition_index] = error_name(partition.error_code)
                found.producers.extend(
                    Producer(
                        described.name,
                        partition.partition_index,
                        one.producer_id,
                        one.producer_epoch,
                        one.last_sequence,
                        one.last_timestamp,
                        one.coordinator_epoch,
                        one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
                    )
                    for one in partition.active_producers
                )
    found.producers.sort(key=lambda one: (one.topic, one.partition, one.producer_id))
    return found


def open_transactions(producers: Iterable[Producer]) -> list[OpenTransaction]:
    """Those of the producers that have one, oldest first."""
    found = [
        OpenTransaction(one.producer_id, one.producer_epoch, one.first_offset, one.last_write_ms, one.coordinator_epoch)
        for one in producers
        if one.first_offset is not None
    ]
    return sorted(found, key=lambda one: one.first_offset)
