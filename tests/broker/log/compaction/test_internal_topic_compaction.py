"""Compaction of the two internal topics: coordinators that load what is left know what they knew before."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fencepost.broker.coordination.shard import CoordinatorRecord, RecordOrigin, Shard
from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.offsets.records import OffsetAndMetadata, offset_record, offset_tombstone
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import MetadataImage
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.shard import TransactionShard, metadata_record
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.record_batch import read_end_transaction_marker, read_records
from fencepost.protocol.stored.transaction_state import encode_transaction_log_key
from tests.broker.log.compaction.test_cleaner import COMPACTED, batches, clean
from tests.support.log_world import NOW_MS, LogWorld
from tests.support.transaction_shard import transaction_in

STEP_COUNT = 150
GROUPS = ["group-1", "group-2"]
PARTITIONS = [TopicPartition("orders", partition) for partition in range(3)]


def append(world: LogWorld, record: CoordinatorRecord, *, producer_id: int = -1, producer_epoch: int = -1) -> None:
    producer = None if producer_id < 0 else (producer_id, producer_epoch)
    world.orders.append_records([record], now_ms=world.clock.now_ms(), producer=producer)


def load(world: LogWorld, shard: Shard) -> None:
    """As a coordinator loads a partition."""
    for batch in batches(world.orders):
        header = batch.header
        if header.is_control:
            marker = read_end_transaction_marker(batch)
            if marker is not None:
                shard.apply_marker(
                    header.producer_id, header.producer_epoch, committed=marker.committed, offset=header.base_offset
                )
            continue
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
        for record in read_records(batch):
            assert record.key is not None
            shard.apply(record.key, record.value, RecordOrigin(record.offset, record.timestamp_ms, *producer))


def known_offsets(world: LogWorld) -> dict[tuple[str, bool], list[tuple[object, ...]]]:
    shard = GroupShard(GroupConfig(), MetadataImage())
    load(world, shard)
    return {
        (group_id, require_stable): sorted(shard.offsets.fetch(group_id, PARTITIONS, require_stable=require_stable))
        for group_id in GROUPS
        for require_stable in (False, True)
    }


@pytest.mark.parametrize("seed", range(3))
async def test_committed_and_pending_offsets_survive(world: LogWorld, seed: int) -> None:
    world.create(replace(COMPACTED, transaction_partition_verification_enable=False))
    chances = random.Random(seed)
    epochs = dict.fromkeys(range(3), 0)
    cleaned_offset = 0
    for step in range(STEP_COUNT):
        group_id, partition = chances.choice(GROUPS), chances.choice(PARTITIONS)
        producer_id = chances.randrange(len(epochs))
        commit = offset_record(group_id, partition, OffsetAndMetadata(step, -1, "", NOW_MS))
        chance = chances.random()
        if chance < 0.3:
            append(world, commit)
        elif chance < 0.6:
            append(world, commit, producer_id=producer_id, producer_epoch=epochs[producer_id])
        elif chance < 0.8:
            epochs[producer_id] += 1
            world.end_transaction(producer_id, epochs[producer_id], committed=chances.random() < 0.5)
        elif chance < 0.85:
            append(world, offset_tombstone(group_id, partition))
        elif chance < 0.9:
            world.clock.time_ms += 700
        else:
            before = known_offsets(world)
            cleaned_offset = await clean(world, cleaned_offset)
            assert known_offsets(world) == before
            await world.restart(crash=True)
            assert known_offsets(world) == before


async def test_the_last_state_of_every_transactional_id_survives(world: LogWorld) -> None:
    world.create(COMPACTED)
    chances = random.Random(1)
    cleaned_offset = 0

    def known() -> TransactionShard:
        shard = TransactionShard(limits=TransactionLimits(), take_producer_id=lambda: None)
        load(world, shard)
        return shard

    for step in range(STEP_COUNT):
        transactional_id = f"tx-{chances.randrange(5)}"
        if chances.random() < 0.1:
            append(world, CoordinatorRecord(encode_transaction_log_key(transactional_id), None))
        else:
            state = chances.choice(list(TransactionState))
            metadata = transaction_in(state)._replace(transactional_id=transactional_id, last_update_ms=step)
            append(world, metadata_record(metadata))
        if step % 20 == 19:
            world.clock.time_ms += 700
            before = known()
            size_bytes = world.orders.size_bytes
            cleaned_offset = await clean(world, cleaned_offset)
            assert world.orders.size_bytes < size_bytes
            assert known().transactions == before.transactions
            assert set(known().prepared_without_completion) == set(before.prepared_without_completion)
