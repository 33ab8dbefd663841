"""Topics: all of them, one with its partitions and readers, and its settings. `topic_changes` changes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.errors import RefusedError
from fencepost.console.reading.groups import ListedGroup, lags_of, list_groups, read_committed
from fencepost.console.reading.settings import ResourceKind, read_settings
from fencepost.console.reading.topics import TopicState, read_topics
from fencepost.console.reading.transactions import Producer, list_transactions, read_producers
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.lag import Lag, total
from fencepost.protocol.errors import ErrorCode

GROUPS_KEPT_S = 30.0


async def topics(visit: Visit) -> Page:
    view = await visit.cluster.view()
    states = await read_topics(visit.cluster, view)
    with_internal = visit.parameter("internal") == "yes"
    listing = Listing(
        [state for state in states if with_internal or not state.is_internal],
        visit.parameters,
        text_of=lambda state: state.name,
        orders={
            "name": lambda state: state.name,
            "partitions": lambda state: len(state.partitions),
            "records": lambda state: state.records,
            "size": lambda state: state.size_bytes,
            "behind": lambda state: state.behind,
        },
        first_order="name",
    )
    data = {
        "listing": listing,
        "with_internal": with_internal,
        "internal_count": sum(state.is_internal for state in states),
    }
    return Page("topics.html", "Topics", data, menu="topics", refreshes=True)


@dataclass(frozen=True)
class Reader:
    """A group that has committed offsets of a topic."""

    group_id: str
    kind: str
    state: str
    lag: Lag


@dataclass(frozen=True)
class Writer:
    """A producer whose state the topic's partitions keep, over all of them."""

    producer_id: int
    epoch: int
    transactional_id: str | None
    partitions: int
    last_write_ms: int
    is_open: bool


async def read_topic(visit: Visit, name: str) -> TopicState:
    """The state of one topic. Raises ClusterError, also if it does not exist."""
    view = await visit.cluster.view([name])
    found = view.topics.get(name)
    if found is None or found.error:
        raise RefusedError(found.error if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
    states = await read_topics(visit.cluster, view)
    return states[0]


async def topic(visit: Visit) -> Page:
    name = visit.request.path_params["topic"]
    state = await read_topic(visit, name)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for one in state.partitions:
        if one.error is None:
            by_leader.setdefault(one.leader, []).append((name, one.index))
    producers, transactions, readers = await asyncio.gather(
        read_producers(visit.cluster, by_leader.items()), list_transactions(visit.cluster), _readers(visit, state)
    )
    names = {one.producer_id: one.transactional_id for one in transactions.listed}
    listing = Listing(
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
    )
    data = {
        "topic": state,
        "listing": listing,
        "readers": readers,
        "writers": writers_of(producers.producers, names)[:50],
        "producers_error": next(iter(producers.errors.values()), None),
    }
    return Page("topic.html", name, data, menu="topics", refreshes=True)


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


async def _readers(visit: Visit, state: TopicState) -> list[Reader]:
    groups = await _groups_of(visit, state.name)
    partitions = {(state.name, one.index): one for one in state.partitions}
    lags = {}
    for group_id, offsets in (await read_committed(visit.cluster, groups)).items():
        of_topic = {place: value for place, value in offsets.items() if place in partitions}
        if of_topic:
            lags[group_id] = lags_of(of_topic, partitions)
    every = [(one, partitions[one.topic, one.partition]) for found in lags.values() for one in found]
    await visit.session.readable_counts.fill(visit.cluster, every)
    return [
        Reader(group.group_id, group.kind, group.state, total(one.lag for one in lags[group.group_id]))
        for group in groups
        if group.group_id in lags
    ]


async def _groups_of(visit: Visit, topic: str) -> Sequence[ListedGroup]:
    """The groups with offsets of a topic, as of at most GROUPS_KEPT_S ago: to find them all groups have to be asked."""
    kept = visit.session.groups_by_topic
    if kept is None or time.monotonic() - kept[0] > GROUPS_KEPT_S:
        listed = (await list_groups(visit.cluster)).listed
        committed = await read_committed(visit.cluster, listed)
        by_topic: dict[str, list[ListedGroup]] = {}
        for group in listed:
            for name in {name for name, _ in committed.get(group.group_id, {})}:
                by_topic.setdefault(name, []).append(group)
        visit.session.groups_by_topic = kept = time.monotonic(), by_topic
    return kept[1].get(topic, ())


async def topic_settings(visit: Visit) -> Page:
    name = visit.request.path_params["topic"]
    settings = await read_settings(visit.cluster, ResourceKind.TOPIC, name)
    data = {"name": name, "settings": settings, "wanted": visit.parameter("q").lower()}
    return Page("topic_settings.html", f"Settings of {name}", data, menu="topics")
