"""The facts about a partition whose last stable offset may be stuck."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.reading.groups import lag_in, list_groups, read_committed
from fencepost.console.reading.records import read_range
from fencepost.console.reading.topics import PartitionState, read_partition
from fencepost.console.reading.transactions import coordinator_view_of, open_transactions, read_producers
from fencepost.console.record_marks import Mark, Outcomes
from fencepost.diagnosis.stuck import Facts, OpenTransaction, WaitingGroup

MOST_BATCHES_BEHIND = 5_000


async def read_facts(cluster: Cluster, http: BrokerHttp, topic: str, index: int) -> Facts:
    """Gather all that can be learnt. Raises ClusterError if the partition does not exist."""
    now_ms = int(time.time() * 1000)
    partition = await read_partition(cluster, topic, index)
    if partition.error is not None:
        reason = await http.offline_reason(topic, index)
        return Facts(topic, index, now_ms, partition_error=reason or partition.error)
    producers = await read_producers(cluster, [(partition.leader, [(topic, index)])])
    opened = open_transactions(producers.producers)
    facts = Facts(
        topic,
        index,
        now_ms,
        log_start_offset=partition.start or 0,
        high_watermark=partition.high_watermark or 0,
        last_stable_offset=partition.last_stable_offset or 0,
        open=opened,
        partition_error=next(iter(producers.errors.values()), None),
    )
    if not opened or not partition.behind or facts.partition_error:
        return facts
    holder = opened[0]
    (known, error), client, waiting, counts = await asyncio.gather(
        coordinator_view_of(cluster, holder.producer_id),
        http.client_of(holder.producer_id),
        _waiting_groups(cluster, partition),
        _count_behind(cluster, partition, opened),
    )
    return replace(
        facts,
        open=[replace(holder, began_ms=counts.first_ms), *opened[1:]],
        coordinator=known,
        coordinator_error=error,
        client=client.client,
        client_missing=client.missing,
        waiting=waiting,
        own_records=counts.own,
        committed_behind=counts.committed,
    )


async def _waiting_groups(cluster: Cluster, partition: PartitionState) -> list[WaitingGroup]:
    place = partition.topic, partition.index
    groups = await list_groups(cluster)
    committed = await read_committed(cluster, groups.listed)
    found = []
    for group_id, offsets in committed.items():
        if place in offsets:
            lag = lag_in(partition, offsets[place][0])
            if lag.blocked:
                found.append(WaitingGroup(group_id, lag))
    return sorted(found, key=lambda one: (-(one.lag.blocked or 0), one.group_id))


class _Behind(NamedTuple):
    """Behind the last stable offset: the time of the first record, records of its holder, committed ones of others.
    None for numbers if not all was read.
    """

    first_ms: int = -1
    own: int | None = None
    committed: int | None = None


async def _count_behind(cluster: Cluster, partition: PartitionState, opened: list[OpenTransaction]) -> _Behind:
    stable, end = partition.last_stable_offset or 0, partition.high_watermark or 0
    try:
        found = await read_range(cluster, partition, stable, end, most_batches=MOST_BATCHES_BEHIND)
    except ClusterError:
        return _Behind()
    first_ms = -1
    if found.batches and found.batches[0].header.base_offset <= opened[0].first_offset:
        first_ms = found.batches[0].header.max_timestamp_ms
    if not found.is_whole:
        return _Behind(first_ms)
    outcomes = Outcomes(found.batches, (), {one.producer_id: one.first_offset for one in opened}, stable)
    own = committed = 0
    for batch in found.batches:
        header = batch.header
        mark = outcomes.of(header, header.last_offset)
        if mark is Mark.OPEN and header.producer_id == opened[0].producer_id:
            own += header.records_count
        elif mark in (Mark.COMMITTED, Mark.PLAIN):
            committed += header.records_count
    return _Behind(first_ms, own, committed)
