"""Why is my last stable offset stuck? All partitions with one that lags, and the chain for one of them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.console.reading.lag_table import LONGEST_WAIT_S
from fencepost.console.reading.sharing import Reads
from fencepost.console.reading.snapshot import snapshot_of
from fencepost.console.reading.stuck import read_facts
from fencepost.console.reading.topics import PartitionState
from fencepost.console.reading.transactions import Producer, open_transactions, read_producers, transactions_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.stuck import OPEN_STATES, OpenTransaction, explain, holder_of

MOST_SHOWN: Final = 50
MOST_ASKED: Final = 500
"""Partitions whose producers are asked for, the worst first."""


@dataclass(frozen=True)
class StuckRow:
    """A partition whose last stable offset lags, and the transaction that holds it, if it is known."""

    partition: PartitionState
    holder: OpenTransaction | None
    transactional_id: str | None
    age_ms: int


@dataclass(frozen=True)
class Held:
    """Partitions that transactions hold, and why a transaction that seems unknown may be known to a coordinator."""

    rows: Sequence[StuckRow]
    missing: Sequence[str]


async def stuck_partitions(visit: Visit) -> Page:
    reads = visit.reads
    snapshot = await snapshot_of(reads)
    answer = await reads.ask(("held", snapshot.number), lambda cluster: _read_held(reads, cluster, snapshot.value.held))
    listing = await reads.made(
        ("stuck", tuple(sorted(visit.parameters.items()))),
        answer,
        lambda: Listing(
            answer.value.rows,
            visit.parameters,
            text_of=lambda row: f"{row.partition.name} {row.transactional_id or ''}",
            orders={
                "partition": lambda row: (row.partition.topic, row.partition.index),
                "behind": lambda row: row.partition.behind,
                "age": lambda row: row.age_ms,
            },
            first_order="-age",
        ),
    )
    offline = snapshot.value.offline
    data = {
        "listing": listing,
        "offline": offline[:MOST_SHOWN],
        "offline_count": len(offline),
        "unasked": max(0, len(snapshot.value.held) - MOST_ASKED),
        "missing": answer.value.missing,
    }
    age_s = max(snapshot.age_s, answer.age_s)
    return Page("stuck_list.html", "Stuck partitions", data, menu="stuck", refreshes=True, age_s=age_s)


async def _read_held(reads: Reads, cluster: Cluster, held: Sequence[PartitionState]) -> Held:
    by_leader: dict[int, list[Place]] = defaultdict(list)
    for one in held[:MOST_ASKED]:
        by_leader[one.leader].append((one.topic, one.index))
    found, transactions = await asyncio.gather(
        read_producers(cluster, by_leader.items()), transactions_of(reads, OPEN_STATES, LONGEST_WAIT_S)
    )
    names = {one.producer_id: one.transactional_id for one in transactions.value.listed}
    producers: dict[Place, list[Producer]] = defaultdict(list)
    for producer in found.producers:
        producers[producer.topic, producer.partition].append(producer)
    now_ms = int(time.time() * 1000)
    rows = []
    for partition in held:
        opened = open_transactions(producers.get((partition.topic, partition.index), ()))
        holder = holder_of(opened, partition.last_stable_offset or 0)
        age_ms = max(0, now_ms - holder.last_write_ms) if holder else 0
        rows.append(StuckRow(partition, holder, names.get(holder.producer_id) if holder else None, age_ms))
    return Held(rows, transactions.value.missing)


async def why_stuck(visit: Visit) -> Page:
    topic, index = visit.place()
    answer = await visit.reads.ask(
        ("why stuck", topic, index), lambda cluster: read_facts(cluster, visit.http, topic, index)
    )
    facts = answer.value
    data = {"topic": topic, "partition": index, "facts": facts, "explanation": explain(facts)}
    title = f"Why is {topic}-{index} stuck?"
    return Page("stuck.html", title, data, menu="stuck", refreshes=True, age_s=answer.age_s)
