"""Topics: all of them, one with its partitions and readers, and its settings. `topic_changes` changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import RefusedError
from fencepost.console.reading.lag_table import LONGEST_WAIT_S, GroupRow, LagTable, lag_table_of
from fencepost.console.reading.sampling import history_of
from fencepost.console.reading.settings import ResourceKind, read_settings
from fencepost.console.reading.sharing import Reads, answered, part_of
from fencepost.console.reading.snapshot import snapshot_of
from fencepost.console.reading.topics import PartitionState, TopicState, read_topics
from fencepost.console.reading.transactions import Producer, read_producers, transactions_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.plots import plot
from fencepost.console.web.visit import Page, Visit
from fencepost.protocol.errors import ErrorCode

MOST_ASKED: Final = 2_000
"""Partitions of a topic that are asked for their producers."""
MOST_SHOWN: Final = 50


async def topics(visit: Visit) -> Page:
    reads = visit.reads
    history = history_of(reads)
    snapshot = await snapshot_of(reads)
    with_internal = visit.parameter("internal") == "yes"
    listing = await reads.made(
        ("topics", tuple(sorted(visit.parameters.items()))),
        snapshot,
        lambda: Listing(
            [row for row in snapshot.value.topics if with_internal or not row.is_internal],
            visit.parameters,
            text_of=lambda row: row.name,
            orders={
                "name": lambda row: row.name,
                "partitions": lambda row: row.partitions,
                "records": lambda row: row.records,
                "size": lambda row: row.size_bytes,
                "behind": lambda row: row.behind,
            },
            first_order="name",
        ),
    )
    data = {
        "listing": listing,
        "with_internal": with_internal,
        "internal_count": sum(row.is_internal for row in snapshot.value.topics),
        "missing": snapshot.value.missing,
        "rates": plot(history.rates()),
    }
    return Page("topics.html", "Topics", data, menu="topics", refreshes=True, age_s=snapshot.age_s)


@dataclass(frozen=True)
class Writer:
    """A producer whose state the topic's partitions keep, over all of them."""

    producer_id: int
    epoch: int
    transactional_id: str | None
    partitions: int
    last_write_ms: int
    is_open: bool


@dataclass(frozen=True)
class TopicPage:
    """A topic with the partitions that one page shows, and sums over all of them."""

    name: str
    is_internal: bool
    partitions: Sequence[PartitionState]
    partitions_count: int
    records: int
    size_bytes: int | None
    behind: int
    offline_count: int


@dataclass(frozen=True)
class TopicDetails:
    """A topic and its producers. writers_missing: why some of them are unknown."""

    state: TopicState
    writers: Sequence[Writer]
    writers_missing: str | None


async def read_topic(visit: Visit, name: str) -> TopicState:
    """The state of one topic as it is now. Raises ClusterError, also if it does not exist."""
    return await _read_state(visit.cluster, name)


async def _read_state(cluster: Cluster, name: str) -> TopicState:
    view = await cluster.view([name])
    found = view.topics.get(name)
    if found is None or found.error:
        raise RefusedError(found.error if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
    states = await read_topics(cluster, view)
    return states[0]


async def _read_details(reads: Reads, cluster: Cluster, name: str) -> TopicDetails:
    state = await _read_state(cluster, name)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    answering = [one for one in state.partitions if one.error is None]
    for one in answering[:MOST_ASKED]:
        by_leader.setdefault(one.leader, []).append((name, one.index))
    producers, transactions = await asyncio.gather(
        read_producers(cluster, by_leader.items()), transactions_of(reads, (), LONGEST_WAIT_S)
    )
    names = {one.producer_id: one.transactional_id for one in transactions.value.listed}
    missing = next(iter(producers.errors.values()), None)
    if missing is None and len(answering) > MOST_ASKED:
        missing = f"only the first {MOST_ASKED:,} of {len(answering):,} partitions were asked"
    return TopicDetails(state, writers_of(producers.producers, names), missing)


async def topic(visit: Visit) -> Page:
    name, reads = visit.request.path_params["topic"], visit.reads
    history = history_of(reads)
    answer, table = await asyncio.gather(
        reads.ask(("topic", name), lambda cluster: _read_details(reads, cluster, name)),
        lag_table_of(reads),
        return_exceptions=True,
    )
    details = answered(answer)
    state = details.value.state
    missing: list[str] = []
    lags = part_of(table, LagTable((), (), {}, {}), "Groups", missing)
    listing = await reads.made(
        ("topic", name, tuple(sorted(visit.parameters.items()))),
        details,
        lambda: Listing(
            state.partitions,
            visit.parameters,
            text_of=lambda one: f"{one.index:>9}",
            orders={
                "partition": lambda one: one.index,
                "records": lambda one: one.records,
                "behind": lambda one: one.behind,
                "size": lambda one: one.size_bytes,
            },
            first_order="partition",
        ),
    )
    readers = readers_of(lags.value, name)
    data = {
        "topic": TopicPage(
            name,
            state.is_internal,
            listing.rows,
            len(state.partitions),
            state.records,
            state.size_bytes,
            state.behind,
            len(state.offline),
        ),
        "listing": listing,
        "readers": readers[:MOST_SHOWN],
        "readers_count": len(readers),
        "readers_missing": [*missing, *lags.value.missing],
        "writers": details.value.writers[:MOST_SHOWN],
        "writers_count": len(details.value.writers),
        "producers_error": details.value.writers_missing,
        "rates": plot(history.rates(name)),
    }
    age_s = max(details.age_s, lags.age_s)
    return Page("topic.html", name, data, menu="topics", refreshes=True, age_s=age_s)


def readers_of(table: LagTable, topic: str) -> list[GroupRow]:
    """The groups with offsets of a topic, with their lag in it, the greatest first."""
    found = [replace(row, lag=row.topics[topic], topics={}) for row in table.by_topic.get(topic, ())]
    return sorted(found, key=lambda row: -(row.lag.end or 0))


def writers_of(producers: Sequence[Producer], names: dict[int, str]) -> list[Writer]:
    """Producers over all partitions, the latest first."""
    grouped: dict[int, list[Producer]] = {}
    for one in producers:
        grouped.setdefault(one.producer_id, []).append(one)
    found = [
        Writer(
            producer_id,
            max(one.producer_epoch for one in states),
            names.get(producer_id),
            len(states),
            max(one.last_write_ms for one in states),
            any(one.first_offset is not None for one in states),
        )
        for producer_id, states in grouped.items()
    ]
    return sorted(found, key=lambda one: (not one.is_open, -one.last_write_ms))


async def topic_settings(visit: Visit) -> Page:
    name = visit.request.path_params["topic"]
    settings = await read_settings(visit.cluster, ResourceKind.TOPIC, name)
    data = {"name": name, "settings": settings, "wanted": visit.parameter("q").lower()}
    return Page("topic_settings.html", f"Settings of {name}", data, menu="topics")
