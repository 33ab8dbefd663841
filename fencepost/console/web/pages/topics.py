"""Topics: all of them, one with its partitions and readers, its settings, and their changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.client.errors import RefusedError, check
from fencepost.console.reading.groups import ListedGroup, lags_of, list_groups, read_committed
from fencepost.console.reading.settings import ResourceKind, alter_settings, read_settings
from fencepost.console.reading.topics import TopicState, read_topics
from fencepost.console.reading.transactions import Producer, list_transactions, read_producers
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path, whole_number
from fencepost.diagnosis.lag import Lag, total
from fencepost.diagnosis.words import counted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TIMEOUT_MS = 10_000
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


@change("create-topic")
async def create_topic(visit: Visit, form: Form) -> Change:
    name = field_of(form, "name", "the name of the topic")
    partitions = whole_number(form.get("partitions") or "-1", "partitions", -1, 10_000)
    factor = whole_number(form.get("replication_factor") or "-1", "replication factor", -1, 100)
    configs = _settings_of(form.get("configs", ""))

    async def send(*, validate_only: bool) -> Any:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
                )
            ],
            timeout_ms=TIMEOUT_MS,
            validate_only=validate_only,
        )
        reply = await visit.cluster.send_to_controller(request)
        check(reply.topics[0].error_code, reply.topics[0].error_message)

    await send(validate_only=True)

    async def perform() -> str:
        await send(validate_only=False)
        return f"Topic {name} was created."

    effects = [
        f"The topic {name} is created with "
        + ("the broker's default of partitions." if partitions < 0 else f"{counted(partitions, 'partition')}."),
        *(f"{key} = {value}" for key, value in configs),
    ]
    details = f"partitions {partitions}, replication factor {factor}, {dict(configs)}"
    return Change(
        "Create topic", name, effects, perform, "/topics", path("topics", name), is_dangerous=False, details=details
    )


def _settings_of(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise BadFormError(f"{line!r} is no setting: write name=value, one on a line")
            found.append((name.strip(), value.strip()))
    return found


@change("delete-topic")
async def delete_topic(visit: Visit, form: Form) -> Change:
    state = await read_topic(visit, field_of(form, "name", "the topic"))
    readers = await _readers(visit, state)

    async def perform() -> str:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=state.name)], topic_names=[state.name], timeout_ms=TIMEOUT_MS
        )
        reply = await visit.cluster.send_to_controller(request)
        check(reply.responses[0].error_code, reply.responses[0].error_message)
        return f"Topic {state.name} was deleted."

    effects = [
        f"The topic {state.name} and its {counted(len(state.partitions), 'partition')} are deleted.",
        f"Up to {counted(state.records, 'record')} are lost for ever.",
        *(
            [f"{counted(len(readers), 'group')} read it: {', '.join(one.group_id for one in readers[:5])}."]
            if readers
            else []
        ),
    ]
    return Change("Delete topic", state.name, effects, perform, path("topics", state.name), "/topics")


@change("add-partitions")
async def add_partitions(visit: Visit, form: Form) -> Change:
    state = await read_topic(visit, field_of(form, "name", "the topic"))
    count = whole_number(form.get("count", ""), "the number of partitions", 1, 10_000)

    async def send(*, validate_only: bool) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=state.name, count=count, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=validate_only,
        )
        reply = await visit.cluster.send_to_controller(request)
        check(reply.results[0].error_code, reply.results[0].error_message)

    await send(validate_only=True)

    async def perform() -> str:
        await send(validate_only=False)
        return f"Topic {state.name} has {counted(count, 'partition')} now."

    effects = [
        f"{state.name} grows from {len(state.partitions):,} to {count:,} partitions; it can never have fewer again.",
        "Records of one key may go to another partition than before.",
    ]
    address = path("topics", state.name)
    return Change("Add partitions", state.name, effects, perform, address, address, details=f"to {count}")


@change("delete-records")
async def delete_records(visit: Visit, form: Form) -> Change:
    state = await read_topic(visit, field_of(form, "name", "the topic"))
    index = whole_number(form.get("partition", ""), "the partition", 0, 2**31 - 1)
    partition = next((one for one in state.partitions if one.index == index), None)
    if partition is None:
        raise NotFoundError(f"{state.name} has no partition {index}")
    start, end = partition.start or 0, partition.high_watermark or 0
    offset = whole_number(form.get("offset", ""), "the offset", start, end)

    async def perform() -> str:
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=state.name, partitions=[DeleteRecordsPartition(index, offset)])],
            timeout_ms=TIMEOUT_MS,
        )
        reply = await visit.cluster.send(request, partition.leader)
        check(reply.topics[0].partitions[0].error_code)
        return f"{partition.name} begins at offset {offset:,} now."

    effects = [f"All records of {partition.name} from offset {start:,} to {offset - 1:,} are deleted for ever."]
    if offset == start:
        raise BadFormError(f"{partition.name} begins at offset {start:,}: nothing would be deleted")
    address = path("topics", state.name)
    return Change("Delete records", partition.name, effects, perform, address, address, details=f"below {offset}")


@change("alter-topic-setting")
async def alter_topic_setting(visit: Visit, form: Form) -> Change:
    name = field_of(form, "topic", "the topic")
    setting = field_of(form, "setting", "the setting")
    is_reset = form.get("reset") == "yes"
    value = None if is_reset else form.get("value", "")
    known = {one.name: one for one in await read_settings(visit.cluster, ResourceKind.TOPIC, name)}
    if setting not in known:
        raise NotFoundError(f"a topic has no setting {setting}")
    await alter_settings(visit.cluster, ResourceKind.TOPIC, name, [(setting, value)], validate_only=True)

    async def perform() -> str:
        await alter_settings(visit.cluster, ResourceKind.TOPIC, name, [(setting, value)])
        return f"{setting} of {name} was " + ("reset to its default." if is_reset else f"set to {value}.")

    present = known[setting].value
    effects = [
        f"{setting} of topic {name}: {present} → " + ("its default" if value is None else f"{value}"),
    ]
    back = path("topics", name, "settings")
    return Change("Change setting", name, effects, perform, back, back, details=f"{setting}: {present} -> {value}")
