"""Producers: all whose state the partitions keep."""

from __future__ import annotations

import asyncio

from fencepost.console.reading.transactions import Producer, list_transactions, read_producers
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit

MOST_PARTITIONS = 2_000
"""Partitions that are asked on one page, in the order of names."""


async def producers(visit: Visit) -> Page:
    view = await visit.cluster.view()
    only = visit.parameter("topic")
    places = [
        (topic.name, partition)
        for topic in view.topics.values()
        for partition in topic.partitions
        if (topic.name == only if only else not topic.is_internal) and partition.leader >= 0
    ]
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for name, partition in places[:MOST_PARTITIONS]:
        by_leader.setdefault(partition.leader, []).append((name, partition.index))
    found, transactions = await asyncio.gather(
        read_producers(visit.cluster, by_leader.items()), list_transactions(visit.cluster)
    )
    names = {one.producer_id: one.transactional_id for one in transactions.listed}

    def text_of(one: Producer) -> str:
        return f"{one.producer_id} {names.get(one.producer_id, '')} {one.topic}-{one.partition}"

    listing = Listing(
        found.producers,
        visit.parameters,
        text_of=text_of,
        orders={
            "producer": lambda one: one.producer_id,
            "partition": lambda one: (one.topic, one.partition),
            "written": lambda one: one.last_write_ms,
            "open": lambda one: one.first_offset,
        },
        first_order="-open",
    )
    data = {
        "listing": listing,
        "names": names,
        "topic": only,
        "left_out": max(0, len(places) - MOST_PARTITIONS),
        "errors": sorted(set(found.errors.values())),
    }
    return Page("producers.html", "Producers", data, menu="producers", refreshes=True)
