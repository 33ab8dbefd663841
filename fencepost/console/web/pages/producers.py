"""Producers: all whose state the partitions keep."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.console.reading.lag_table import LONGEST_WAIT_S
from fencepost.console.reading.sharing import Reads
from fencepost.console.reading.snapshot import view_of
from fencepost.console.reading.transactions import ProducerList, read_producers, transactions_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit

MOST_PARTITIONS = 2_000
"""Partitions that are asked on one page, in the order of names."""


@dataclass(frozen=True)
class Known:
    """Producers with their transactional ids. left_out: number of partitions that were not asked."""

    found: ProducerList
    names: Mapping[int, str]
    left_out: int
    missing: Sequence[str]


async def _read(reads: Reads, cluster: Cluster, topic: str) -> Known:
    view = await cluster.view([topic]) if topic else (await view_of(reads, LONGEST_WAIT_S)).value
    by_leader: dict[int, list[Place]] = {}
    count = 0
    for one in view.topics.values():
        if one.is_internal and one.name != topic:
            continue
        for partition in one.partitions:
            if partition.leader >= 0:
                count += 1
                if count <= MOST_PARTITIONS:
                    by_leader.setdefault(partition.leader, []).append((one.name, partition.index))
    found, transactions = await asyncio.gather(
        read_producers(cluster, by_leader.items()), transactions_of(reads, (), LONGEST_WAIT_S)
    )
    names = {one.producer_id: one.transactional_id for one in transactions.value.listed}
    return Known(found, names, max(0, count - MOST_PARTITIONS), transactions.value.missing)


async def producers(visit: Visit) -> Page:
    reads, topic = visit.reads, visit.parameter("topic").strip()
    answer = await reads.ask(("producers", topic), lambda cluster: _read(reads, cluster, topic))
    known = answer.value
    listing = await reads.made(
        ("producers", tuple(sorted(visit.parameters.items()))),
        answer,
        lambda: Listing(
            known.found.producers,
            visit.parameters,
            text_of=lambda one: f"{one.producer_id} {known.names.get(one.producer_id, '')} {one.topic}-{one.partition}",
            orders={
                "producer": lambda one: one.producer_id,
                "partition": lambda one: (one.topic, one.partition),
                "written": lambda one: one.last_write_ms,
                "open": lambda one: one.first_offset,
            },
            first_order="-open",
        ),
    )
    data = {
        "listing": listing,
        "names": {
            one.producer_id: known.names[one.producer_id] for one in listing.rows if one.producer_id in known.names
        },
        "topic": topic,
        "left_out": known.left_out,
        "missing": known.missing,
        "errors": sorted(set(known.found.errors.values())),
    }
    return Page("producers.html", "Producers", data, menu="producers", refreshes=True, age_s=answer.age_s)
