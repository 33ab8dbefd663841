"""Changes of topics: made, grown, changed, emptied and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.errors import check
from fencepost.console.reading.groups import list_groups, read_committed
from fencepost.console.reading.settings import ResourceKind, Setting, alter_settings, read_settings
from fencepost.console.reading.topics import TopicState
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.pages.topics import read_topic
from fencepost.console.web.visit import BadFormError, NotFoundError, Visit, path, whole_number
from fencepost.diagnosis.words import counted
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
from fencepost.protocol.primitives import ZERO_UUID

TIMEOUT_MS: Final = 10_000
ABSENT: Final = "not there"


def identity(state: TopicState) -> Mapping[str, object]:
    """The world's entry on a topic's id: one that was deleted and made again is another topic."""
    return {f"the id of topic {state.name}": state.topic_id.hex()}


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
        return reply.topics[0]

    checked = await send(validate_only=True)

    async def perform() -> str:
        await send(validate_only=False)
        return f"Topic {name} was created."

    # Brokers before Kafka 2.4 do not tell these numbers.
    count, copies = max(partitions, checked.num_partitions), max(factor, checked.replication_factor)
    effects = [
        f"The topic {name} is created with "
        + ("the broker's default of partitions" if count < 0 else counted(count, "partition"))
        + ("." if copies < 0 else f", each with {counted(copies, 'copy')}."),
        *(f"{key} = {value}" for key, value in configs),
    ]
    return Change(
        "Create topic",
        name,
        effects,
        perform,
        "/topics",
        path("topics", name),
        is_dangerous=False,
        world={"the number of partitions": count, "the number of copies": copies},
        values=[
            ("topic", ABSENT, f"{count} partitions, {copies} copies"),
            *((key, "the default", value) for key, value in configs),
        ],
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
    """The topic is deleted by its id, so that a topic made anew under its name stays."""
    state = await read_topic(visit, field_of(form, "name", "the topic"))
    readers = await _readers(visit, state.name)

    async def perform() -> str:
        one = DeleteTopicState(name=state.name)
        if state.topic_id != ZERO_UUID:
            one = DeleteTopicState(name=None, topic_id=state.topic_id)
        request = DeleteTopicsRequest(topics=[one], topic_names=[state.name], timeout_ms=TIMEOUT_MS)
        reply = await visit.cluster.send_to_controller(request)
        check(reply.responses[0].error_code, reply.responses[0].error_message)
        return f"Topic {state.name} was deleted."

    effects = [
        f"The topic {state.name} and its {counted(len(state.partitions), 'partition')} are deleted.",
        f"Up to {counted(state.records, 'record')} are lost for ever.",
    ]
    if readers:
        more = f" and {len(readers) - 5:,} more" if len(readers) > 5 else ""
        effects.append(f"{counted(len(readers), 'group')} read it: {', '.join(readers[:5])}{more}.")
    world = {
        **identity(state),
        "the number of partitions": len(state.partitions),
        "whether it has records": "yes" if state.records else "no",
        "groups that read it": ", ".join(readers) or "none",
    }
    return Change(
        "Delete topic",
        state.name,
        effects,
        perform,
        path("topics", state.name),
        "/topics",
        world=world,
        values=[("topic", f"{len(state.partitions)} partitions, up to {state.records} records", "deleted")],
    )


async def _readers(visit: Visit, topic: str) -> list[str]:
    """The groups with committed offsets of a topic, as they are now."""
    committed = await read_committed(visit.cluster, (await list_groups(visit.cluster)).listed)
    return sorted(group_id for group_id, places in committed.items() if any(name == topic for name, _ in places))


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

    present = len(state.partitions)
    effects = [
        f"{state.name} grows from {present:,} to {count:,} partitions; it can never have fewer again.",
        "Records of one key may go to another partition than before.",
    ]
    address = path("topics", state.name)
    return Change(
        "Add partitions",
        state.name,
        effects,
        perform,
        address,
        address,
        world={**identity(state), "the number of partitions": present},
        values=[("partitions", str(present), str(count))],
    )


@change("delete-records")
async def delete_records(visit: Visit, form: Form) -> Change:
    state = await read_topic(visit, field_of(form, "name", "the topic"))
    index = whole_number(form.get("partition", ""), "the partition", 0, 2**31 - 1)
    partition = next((one for one in state.partitions if one.index == index), None)
    if partition is None:
        raise NotFoundError(f"{state.name} has no partition {index}")
    if partition.error is not None:
        raise BadFormError(f"{partition.name} does not answer: {partition.error}")
    start, end = partition.start or 0, partition.high_watermark or 0
    offset = whole_number(form.get("offset", ""), "the offset", 0)
    if offset > end:
        raise BadFormError(f"the offset may be at most {end:,}, the end of {partition.name}; it is {offset:,}")
    if offset <= start:
        raise BadFormError(f"{partition.name} begins at offset {start:,}: nothing would be deleted")

    async def perform() -> str:
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=state.name, partitions=[DeleteRecordsPartition(index, offset)])],
            timeout_ms=TIMEOUT_MS,
        )
        reply = await visit.cluster.send(request, partition.leader)
        check(reply.topics[0].partitions[0].error_code)
        return f"{partition.name} begins at offset {offset:,} now."

    effects = [f"All records of {partition.name} from offset {start:,} to {offset - 1:,} are deleted for ever."]
    address = path("topics", state.name)
    return Change(
        "Delete records",
        partition.name,
        effects,
        perform,
        address,
        address,
        # A new leader may have cut the log: other records may have these offsets then.
        world={
            **identity(state),
            f"the leader epoch of {partition.name}": partition.leader_epoch,
            f"the first offset of {partition.name}": start,
        },
        values=[(f"first offset of {partition.name}", str(start), str(offset))],
    )


@change("alter-topic-setting")
async def alter_topic_setting(visit: Visit, form: Form) -> Change:
    name = field_of(form, "topic", "the topic")
    setting = field_of(form, "setting", "the setting")
    is_reset = form.get("reset") == "yes"
    value = None if is_reset else form.get("value", "")
    state = await read_topic(visit, name)
    known = {one.name: one for one in await read_settings(visit.cluster, ResourceKind.TOPIC, name)}
    if setting not in known:
        raise NotFoundError(f"a topic has no setting {setting}")
    await alter_settings(visit.cluster, ResourceKind.TOPIC, name, [(setting, value)], validate_only=True)

    async def perform() -> str:
        await alter_settings(visit.cluster, ResourceKind.TOPIC, name, [(setting, value)])
        return f"{setting} of {name} was " + ("reset to its default." if is_reset else f"set to {value}.")

    present, then = text_of(known[setting]), "its default" if value is None else value
    back = path("topics", name, "settings")
    return Change(
        "Change setting",
        name,
        [f"{setting} of topic {name}: {present} → {then}"],
        perform,
        back,
        back,
        world={**identity(state), **as_it_is(known[setting])},
        values=[(setting, present, then)],
    )


def text_of(setting: Setting) -> str:
    """The value of a setting, but of a secret only that it is one."""
    return "a secret" if setting.is_secret else "null" if setting.value is None else setting.value


def as_it_is(setting: Setting) -> Mapping[str, object]:
    """The world's entries on a setting. Brokers do not tell whether a secret has changed."""
    return {setting.name: text_of(setting), f"the source of {setting.name}": setting.source}
