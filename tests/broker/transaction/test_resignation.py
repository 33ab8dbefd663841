"""A coordinator whose partition goes to another node: what it had begun it neither answers as done nor carries on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import ErrorCode
from tests.support.fake_peers import turns
from tests.support.memory_topics import INTERNAL_PARTITION_COUNT, MemoryLog, MemoryTopics, in_page_cache

ID = "tx"
V2 = TransactionVersion.V2
OUT = TopicPartition("out", 0)
STATE = TopicPartition(TRANSACTION_STATE_TOPIC, partition_for_key(ID, INTERNAL_PARTITION_COUNT))


class Coordinator:
    """A coordinator over logs in memory, with an open transaction on OUT."""

    def __init__(self) -> None:
        self.topics = MemoryTopics(out=1)
        self.service = TransactionService(
            cast("Any", self.topics), ProducerIds(InMemoryMetadataStore()), Settings(), SystemClock()
        )
        self.producer = Producer(-1, -1)

    async def begin(self) -> None:
        await self.service.start()
        reply = await self.service.init_producer_id(ID, timeout_ms=60_000)
        self.producer = Producer(reply.producer_id, reply.producer_epoch)
        assert await self.service.add_partitions(ID, self.producer, (OUT,), version=V2) is ErrorCode.NONE

    def end(self) -> asyncio.Task[ErrorCode]:
        async def ended() -> ErrorCode:
            return (await self.service.end_transaction(ID, self.producer, committed=True, version=V2)).error

        return asyncio.create_task(ended())

    @property
    def states(self) -> MemoryLog:
        return self.topics.logs[STATE]

    @property
    def marker_count(self) -> int:
        return len(self.topics.logs[OUT].markers)

    def state(self) -> str:
        found = self.service.find(ID)
        return found.state.name if isinstance(found, TransactionMetadata) else found.name


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    coordinator = Coordinator()
    await coordinator.begin()
    yield coordinator
    await coordinator.service.close()


async def test_a_decision_that_is_not_durable_yet_is_answered_not_coordinator_and_sends_no_marker(
    coordinator: Coordinator,
) -> None:
    coordinator.states.flush_gate.clear()
    ending = coordinator.end()
    await turns()
    assert coordinator.state() == "PREPARE_COMMIT"
    coordinator.topics.resign(STATE)
    coordinator.states.flush_gate.set()
    assert await ending is ErrorCode.NOT_COORDINATOR
    await turns()
    assert coordinator.marker_count == 0
    assert coordinator.state() == "NOT_COORDINATOR"


async def test_the_next_leader_completes_prepared_transactions_in_a_higher_epoch(coordinator: Coordinator) -> None:
    coordinator.states.flush_gate.clear()
    ending = coordinator.end()
    await turns()
    coordinator.topics.resign(STATE)
    coordinator.states.flush_gate.set()
    await ending
    coordinator.topics.lead(STATE)
    assert coordinator.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    await turns(50)
    assert coordinator.state() == "COMPLETE_COMMIT"
    (written,) = coordinator.topics.logs[OUT].markers
    assert written.marker.coordinator_epoch == 1


async def test_a_completion_whose_markers_are_written_does_not_complete_after_the_partition_has_gone(
    coordinator: Coordinator,
) -> None:
    coordinator.topics.logs[OUT].flush_gate.clear()
    assert await coordinator.end() is ErrorCode.NONE
    await turns()
    assert coordinator.marker_count == 1, "written, not durable yet"
    record_count = len(coordinator.states.batches)
    coordinator.topics.resign(STATE)
    coordinator.topics.logs[OUT].flush_gate.set()
    await turns()
    assert len(coordinator.states.batches) == record_count
    coordinator.topics.lead(STATE)
    await turns(50)
    assert coordinator.state() == "COMPLETE_COMMIT"
    assert coordinator.marker_count == 2


async def test_a_request_that_waits_for_markers_is_refused_when_the_coordinator_moves(
    coordinator: Coordinator,
) -> None:
    coordinator.topics.logs[OUT].flush_gate.clear()
    assert await coordinator.end() is ErrorCode.NONE
    waiting = asyncio.create_task(coordinator.service.init_producer_id(ID, timeout_ms=60_000))
    await turns()
    assert not waiting.done()
    coordinator.topics.resign(STATE)
    assert (await waiting).error is ErrorCode.NOT_COORDINATOR


async def test_markers_that_have_not_left_when_the_coordinator_goes_never_do(coordinator: Coordinator) -> None:
    with in_page_cache():
        ended = await coordinator.service.end_transaction(ID, coordinator.producer, committed=True, version=V2)
        assert ended.error is ErrorCode.NONE
        next_producer = Producer(ended.producer_id, ended.producer_epoch)
        waiting = asyncio.ensure_future(coordinator.service.add_partitions(ID, next_producer, (OUT,), version=V2))
        coordinator.topics.resign(STATE)
        assert await waiting is ErrorCode.NOT_COORDINATOR
        await turns()
        assert coordinator.marker_count == 0


async def test_other_partitions_are_left_alone(coordinator: Coordinator) -> None:
    other = TopicPartition(TRANSACTION_STATE_TOPIC, (STATE.partition + 1) % INTERNAL_PARTITION_COUNT)
    coordinator.topics.resign(other)
    coordinator.topics.resign(OUT)
    coordinator.topics.logs[OUT].disk_failed = False
    assert await coordinator.end() is ErrorCode.NONE
    await turns(50)
    assert coordinator.state() == "COMPLETE_COMMIT"
