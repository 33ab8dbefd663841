"""Every place that holds a topic by its name across a wait or a restart: what identifies it there, and the test in
which the topic is deleted and created again at that wait.

A new place goes into this list. The simulation does the same at any moment: `tests.simulation.clients.recreator`.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.supervision.planting import until
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, finished, open_broker

NAME: Final = "orders"
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic(NAME)
        yield opened


async def create_again(broker: HandlerBroker) -> None:
    assert await broker.topics.delete(NAME) is ErrorCode.NONE
    await broker.create_topic(NAME)


def append(broker: HandlerBroker, value: bytes) -> None:
    written = broker.log(NAME).append(memoryview(batch(value)), now_ms=NOW_MS)
    assert written.error is ErrorCode.NONE


def fetch(broker: HandlerBroker, *, by_id: bool, **session: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    topic = FetchTopic(topic_id=broker.topic_id(NAME)) if by_id else FetchTopic(topic=NAME)
    topic.partitions = [partition]
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=10_000, topics=[topic], **session)


def answered(response: Any) -> tuple[ErrorCode, bytes]:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return ErrorCode(partition.error_code), bytes(partition.records or b"")


async def a_produce_waits_for_its_sync(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, may_end = asyncio.Event(), asyncio.Event()
    sync = LocalDisk.sync

    async def slow(disk: LocalDisk, *about: Any) -> None:
        syncing.set()
        await may_end.wait()
        await sync(disk, *about)

    monkeypatch.setattr(LocalDisk, "sync", slow)
    data = TopicProduceData(name=NAME, partition_data=[PartitionProduceData(index=0, records=batch(b"of the old"))])
    waiting = asyncio.ensure_future(
        broker.call(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9),
    )
    await syncing.wait()
    await create_again(broker)
    may_end.set()
    answer = (await waiting).responses[0].partition_responses[0]
    assert answer.error_code in GONE
    assert broker.log(NAME).log_end_offset == 0


async def a_fetch_by_name_waits_for_records(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = asyncio.ensure_future(finished(broker.start(fetch(broker, by_id=False), 12)))
    await asyncio.sleep(0)
    await create_again(broker)
    append(broker, b"of the new")
    await broker.log(NAME).flushed()
    error, records = answered(broker.received(await asyncio.wait_for(waiting, 20), 12))
    assert error in GONE or b"of the new" in records


async def a_fetch_by_id_waits_for_records(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = asyncio.ensure_future(finished(broker.start(fetch(broker, by_id=True), 13)))
    await asyncio.sleep(0)
    await create_again(broker)
    append(broker, b"of the new")
    await broker.log(NAME).flushed()
    error, records = answered(broker.received(await asyncio.wait_for(waiting, 20), 13))
    assert error is not ErrorCode.NONE
    assert records == b""


async def a_fetch_session_has_the_id(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    append(broker, b"of the old")
    await broker.log(NAME).flushed()
    opened = await broker.call(fetch(broker, by_id=True, session_epoch=0), 13)
    assert opened.session_id
    await create_again(broker)
    append(broker, b"of the new")
    await broker.log(NAME).flushed()
    again = FetchRequest(max_wait_ms=0, max_bytes=10_000, session_id=opened.session_id, session_epoch=1)
    error, records = answered(await broker.call(again, 13))
    assert error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert records == b""


async def a_search_by_timestamp_pauses(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    append(broker, b"of the old")
    await broker.log(NAME).flushed()
    old = broker.log(NAME)
    await create_again(broker)
    with pytest.raises(StorageError, match="has been deleted"):
        list(old.offset_for_timestamp(NOW_MS, isolation=0))  # type: ignore[arg-type]


async def a_change_of_configs_waits_for_the_store(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node has created the topic again meanwhile."""
    store = broker.topics._store
    set_configs, topic = store.set_topic_configs, broker.topics.metadata.get(NAME)
    assert topic is not None

    async def overtaken(*about: Any, **options: Any) -> bool:
        monkeypatch.setattr(store, "set_topic_configs", set_configs)
        other = store.for_another_node()  # type: ignore[attr-defined]
        assert await other.delete_topic(NAME, topic.topic_id)
        assert await other.create_topic(type(topic)(NAME, b"again" * 3 + b"!", 1))
        return await set_configs(*about, **options)

    monkeypatch.setattr(store, "set_topic_configs", overtaken)
    outcome = await broker.topics.alter_configs(NAME, {"retention.ms": "5"})
    assert outcome[0] is ErrorCode.NONE
    await until(lambda: broker.topic_id(NAME) == b"again" * 3 + b"!")
    changed = broker.topics.metadata.get(NAME)
    assert changed is not None
    assert dict(changed.configs) == {"retention.ms": "5"}, "it is asked for by its name: of the topic that has it now"


Wait = Callable[[HandlerBroker, pytest.MonkeyPatch], Awaitable[None]]

WAITS: Final[dict[Wait, str]] = {
    a_produce_waits_for_its_sync: "the log",
    a_fetch_by_name_waits_for_records: "the log, and its name again when it is gone",
    a_fetch_by_id_waits_for_records: "the topic id",
    a_fetch_session_has_the_id: "the topic id",
    a_search_by_timestamp_pauses: "the log",
    a_change_of_configs_waits_for_the_store: "the topic id, in the store's statement",
}
"""Waits of one broker, with what each carries."""


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
async def test_a_topic_that_is_created_again_at_a_wait_is_another_one(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch, wait: Wait
) -> None:
    await wait(broker, monkeypatch)


class Place(NamedTuple):
    """A place whose test is beside its other tests. carries: what identifies the topic."""

    where: str
    carries: str
    module: str
    test: str


OFFSETS, MEMBERS, LEASES = (
    "tests.broker.group.offsets.test_decisions",
    "tests.broker.cluster.processes.test_process_member",
    "tests.broker.cluster.leases.test_lease_store",
)
TAIL = "tests.broker.cluster.postgres.test_tail"

PLACES: Final = (
    Place(
        "DeleteRecords between two logs",
        "the log",
        "tests.broker.handlers.test_delete_records",
        "test_records_of_a_topic_that_is_created_again_while_others_are_deleted_stay",
    ),
    Place(
        "checkpoints of the log directory",
        "none: entries are removed before the name is used again",
        "tests.broker.log.directory.test_directory_checkpoints",
        "test_the_next_partition_of_a_deleted_ones_name_is_not_judged_by_its_checkpoints",
    ),
    Place(
        "committed offsets",
        "the topic id in the record",
        OFFSETS,
        "test_an_offset_of_a_deleted_topic_is_none_of_the_new_one_of_its_name",
    ),
    Place(
        "removal of offsets of deleted topics",
        "the topic id in the record",
        OFFSETS,
        "test_an_offset_that_was_committed_for_the_new_topic_of_the_name_meanwhile_is_kept",
    ),
    Place(
        "offsets in open transactions",
        "the topic id in the record",
        OFFSETS,
        "test_what_is_pending_for_the_new_topic_outlives_the_removal_of_the_old_one_s_offsets",
    ),
    Place(
        "a commit of offsets that waits for a verification",
        "the topic id, compared in the decision",
        OFFSETS,
        "test_a_commit_that_waited_while_its_topic_was_created_again_is_refused",
    ),
    Place(
        "topics that a busy node knows",
        "the topic id of the placement",
        MEMBERS,
        "test_offsets_of_a_topic_that_was_created_again_are_refused_or_kept_by_a_busy_coordinator",
    ),
    Place(
        "logs that a busy node leads",
        "the topic id of the placement",
        MEMBERS,
        "test_a_node_that_is_busy_serves_nothing_of_a_topic_that_was_deleted_and_created_again",
    ),
    Place(
        "logs that are being made or opened",
        "the topic id of the placement",
        MEMBERS,
        "test_a_log_that_is_made_while_its_topic_is_created_again_is_not_served",
    ),
    Place(
        "directories that move between processes",
        "the topic id in the directory",
        MEMBERS,
        "test_a_directory_of_an_earlier_topic_is_not_taken_for_the_new_one",
    ),
    Place(
        "checkpoints of a lost process",
        "the topic id in the directory",
        MEMBERS,
        "test_what_a_node_knew_of_an_earlier_topic_is_not_applied_to_a_new_one_of_that_name",
    ),
    Place(
        "the record that a directory was created",
        "the topic id",
        LEASES,
        "test_a_directory_that_was_created_is_remembered",
    ),
    Place(
        "a planned move",
        "the topic id and the leader epoch",
        LEASES,
        "test_a_move_of_a_topic_that_was_created_again_is_refused",
    ),
    Place(
        "logs that another process has open",
        "the topic id in the rows, which keep the name",
        LEASES,
        "test_a_topic_gets_the_name_of_a_deleted_one_when_all_nodes_have_released_it",
    ),
    Place(
        "a flush under way",
        "the topic id in the rows, compared in the statement",
        TAIL,
        "test_a_flush_leaves_out_partitions_that_are_deleted_and_commits_the_rest",
    ),
    Place(
        "a flush whose answer was lost",
        "the topic id in the rows",
        TAIL,
        "test_a_flush_whose_answer_was_lost_says_again_what_it_left_out",
    ),
    Place(
        "a log whose flush is refused",
        "the topic id",
        "tests.broker.cluster.tail.test_tail_log",
        "test_a_flush_for_a_deleted_topic_is_not_acknowledged_and_ends_what_its_log_serves",
    ),
    Place(
        "a change of partitions or configs that waits for the store",
        "the topic id",
        "tests.broker.metadata.test_store",
        "test_a_topic_of_another_id_is_not_changed",
    ),
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.where)
def test_each_place_has_its_test(place: Place) -> None:
    assert callable(getattr(importlib.import_module(place.module), place.test))
