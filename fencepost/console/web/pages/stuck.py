"""Why is my last stable offset stuck? All partitions with one that lags, and the chain for one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.cluster import Cluster
from fencepost.console.reading.stuck import read_facts
from fencepost.console.reading.topics import PartitionState, read_topics
from fencepost.console.reading.transactions import list_transactions, open_transactions, read_producers
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.stuck import OPEN_STATES, OpenTransaction, explain, holder_of

MOST_ASKED = 500
"""Partitions whose producers are asked for, the worst first."""


@dataclass(frozen=True)
class StuckRow:
    """A partition whose last stable offset lags, and the transaction that holds it, if it is known."""

    partition: PartitionState
    holder: OpenTransaction | None
    transactional_id: str | None
    age_ms: int


async def stuck_partitions(visit: Visit) -> Page:
    view = await visit.cluster.view()
    topics = await read_topics(visit.cluster, view, with_sizes=False)
    partitions = [one for topic in topics for one in topic.partitions]
    held = sorted((one for one in partitions if one.behind), key=lambda one: -one.behind)
    offline = [one for one in partitions if one.error]
    rows, missing = await _rows(visit.cluster, held)
    listing = Listing(
        rows,
        visit.parameters,
        text_of=lambda row: f"{row.partition.name} {row.transactional_id or ''}",
        orders={
            "partition": lambda row: (row.partition.topic, row.partition.index),
            "behind": lambda row: row.partition.behind,
            "age": lambda row: row.age_ms,
        },
        first_order="-age",
    )
    data = {"listing": listing, "offline": offline, "missing": missing}
    return Page("stuck_list.html", "Stuck partitions", data, menu="stuck", refreshes=True)


async def _rows(cluster: Cluster, held: Sequence[PartitionState]) -> tuple[list[StuckRow], list[str]]:
    """The rows, and why a transaction that seems unknown may be known to a coordinator."""
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for one in held[:MOST_ASKED]:
        by_leader.setdefault(one.leader, []).append((one.topic, one.index))
    found, transactions = await asyncio.gather(
        read_producers(cluster, by_leader.items()),
        list_transactions(cluster, states=sorted(OPEN_STATES)),
    )
    names = {one.producer_id: one.transactional_id for one in transactions.listed}
    now_ms = int(time.time() * 1000)
    rows = []
    for partition in held:
        opened = open_transactions(
            one for one in found.producers if (one.topic, one.partition) == (partition.topic, partition.index)
        )
        holder = holder_of(opened, partition.last_stable_offset or 0)
        age_ms = max(0, now_ms - holder.last_write_ms) if holder else 0
        rows.append(StuckRow(partition, holder, names.get(holder.producer_id) if holder else None, age_ms))
    return rows, transactions.missing


async def why_stuck(visit: Visit) -> Page:
    topic, index = visit.place()
    facts = await read_facts(visit.cluster, visit.http, topic, index)
    explanation = explain(facts)
    data = {"topic": topic, "partition": index, "facts": facts, "explanation": explanation}
    return Page("stuck.html", f"Why is {topic}-{index} stuck?", data, menu="stuck", refreshes=True)
