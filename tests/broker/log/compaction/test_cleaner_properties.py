"""Compaction under random histories of transactions: readers, markers and producers notice nothing of it."""

from __future__ import annotations

import random

import pytest

from fencepost.broker.log.log_types import ActiveProducer
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers.producer_replay import replay
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.protocol.errors import ErrorCode
from tests.broker.log.compaction.test_cleaner import COMPACTED, batches, clean, committed, newest
from tests.support.log_world import LogWorld

STEP_COUNT = 120
PRODUCER_COUNT = 4
KEYS = [b"a", b"b", b"c", b"d"]


class History:
    """What producers, the coordinator, time and the cleaner do to a log, by chance."""

    def __init__(self, world: LogWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.epochs = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.sequences = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.open: set[int] = set()
        self.cleaned_offset = 0

    def write(self, producer_id: int, *, is_transactional: bool) -> None:
        sequence = self.sequences[producer_id]
        count = self.random.randint(1, 3)
        value = b"" if self.random.random() < 0.1 else b"%d" % self.random.randrange(10**9)
        result = self.world.append(
            *[value] * count,
            key=self.random.choice(KEYS),
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        assert result.error is ErrorCode.NONE
        self.sequences[producer_id] = sequence + count
        if is_transactional:
            self.open.add(producer_id)

    def end(self, producer_id: int) -> None:
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0
        error = self.world.end_transaction(producer_id, self.epochs[producer_id], committed=self.random.random() < 0.5)
        assert error is ErrorCode.NONE
        self.open.discard(producer_id)

    async def step(self) -> bool:
        """One thing that happens; returns whether it was a pass of the cleaner, or a restart."""
        producer_id = self.random.randrange(PRODUCER_COUNT)
        chance = self.random.random()
        if chance < 0.45:
            # An id is either that of transactions or, with the highest number, that of plain idempotent writes.
            self.write(producer_id, is_transactional=producer_id != PRODUCER_COUNT - 1)
        elif chance < 0.75:
            if producer_id in self.open:
                self.end(producer_id)
        elif chance < 0.85:
            self.world.append(b"plain" * self.random.randint(1, 20), key=self.random.choice(KEYS))
        elif chance < 0.9:
            self.world.clock.time_ms += self.random.choice([1, 500, 1000])
        elif chance < 0.98:
            self.cleaned_offset = await clean(self.world, self.cleaned_offset)
            return True
        else:
            await self.world.restart(crash=True)
            return True
        return False


def replayed(world: LogWorld) -> dict[int, tuple[int, int, bool]]:
    """Producer id -> epoch, last sequence, and whether a transaction is open, as the whole log says."""
    producers = ProducerState()
    log = world.orders
    for _ in replay(list(log.segments), producers, 0, log.log_end_offset, now_ms=world.clock.now_ms()):
        pass
    return {producer.producer_id: essence(producer) for producer in producers.active_producers()}


def essence(producer: ActiveProducer) -> tuple[int, int, bool]:
    return producer.producer_epoch, producer.last_sequence, producer.current_transaction_first_offset >= 0


def remembered(world: LogWorld) -> dict[int, tuple[int, int, bool]]:
    found = world.orders.active_producers(world.clock.now_ms())
    return {producer.producer_id: essence(producer) for producer in found}


def require_a_marker_after_every_decided_transaction(log: PartitionLog, open_ids: set[int]) -> None:
    """A marker is never dropped before its data: behind the last data of each producer comes one, unless it is open."""
    undecided: set[int] = set()
    for batch in batches(log):
        header = batch.header
        if header.is_control:
            undecided.discard(header.producer_id)
        elif header.is_transactional and header.records_count:
            undecided.add(header.producer_id)
    assert undecided <= open_ids


@pytest.mark.parametrize("seed", [0, 1, 15, 24])
async def test_a_log_says_the_same_before_and_after_every_pass(world: LogWorld, seed: int) -> None:
    world.create(COMPACTED)
    history = History(world, seed)
    before = newest(committed(world.orders))
    for _ in range(STEP_COUNT):
        is_invisible = await history.step()
        after = newest(committed(world.orders))
        if is_invisible:
            assert after == before
            assert replayed(world) == remembered(world)
            require_a_marker_after_every_decided_transaction(world.orders, history.open)
        before = after
