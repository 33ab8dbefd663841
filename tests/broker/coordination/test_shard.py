"""Records of the coordinators' topics that can be decoded and say what cannot be: no shard believes them, and none goes
on without them, as what they replace would be believed then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.coordination.replay import Replay
from fencepost.broker.coordination.shard import CoordinatorRecord, RecordOrigin
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.inspection.trial_start import coordinator_shard
from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.broker.share.shard import SharePartitionKey, ShareStateShard
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.shard import TransactionShard
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored import consumer_groups as consumer
from fencepost.protocol.stored import share_groups as share
from fencepost.protocol.stored import streams_groups as streams
from fencepost.protocol.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from fencepost.protocol.stored.share_group_state import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from fencepost.protocol.stored.transaction_state import (
    PartitionsSchema,
    TransactionLogValue,
    encode_transaction_log_key,
    encode_transaction_log_value,
)
from fencepost.protocol.streams_topology import StreamsTaskIds
from tests.support.memory_topics import MemoryLog

ID = bytes(15) + b"\x01"
OFFSETS, TRANSACTIONS, SHARES = (
    TopicPartition(topic, 3) for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC)
)


def commit(offset: int = 5, *, partition: int = 0) -> CoordinatorRecord:
    key = encode_offset_commit_key(OffsetCommitKey("g", "t", partition))
    return CoordinatorRecord(key, encode_offset_commit_value(OffsetCommitValue(offset)))


def member(member_id: str) -> MemberMetadata:
    return MemberMetadata(member_id, None, "client", "/127.0.0.1", 1_000, 1_000, b"subscription", b"assignment")


def generation(number: int = 3, *member_ids: str, protocol: str | None = "range") -> CoordinatorRecord:
    value = GroupMetadataValue("consumer", number, protocol, None, 1_000, [member(one) for one in member_ids])
    return CoordinatorRecord(
        encode_group_metadata_key(GroupMetadataKey("g")), encode_group_metadata_value(value, version=3)
    )


def of_consumers(key: Any, value: Any) -> CoordinatorRecord:
    return CoordinatorRecord(*consumer.CONSUMER_GROUP_RECORDS.encode(key, value))


def of_shares(key: Any, value: Any) -> CoordinatorRecord:
    return CoordinatorRecord(*share.SHARE_GROUP_RECORDS.encode(key, value))


def of_streams(key: Any, value: Any) -> CoordinatorRecord:
    return CoordinatorRecord(*streams.STREAMS_GROUP_RECORDS.encode(key, value))


def consumer_group(epoch: int = 3) -> CoordinatorRecord:
    return of_consumers(consumer.ConsumerGroupMetadataKey("g"), consumer.ConsumerGroupMetadataValue(epoch))


def consumer_target(partition: int = 0) -> CoordinatorRecord:
    value = consumer.ConsumerGroupTargetAssignmentMemberValue([consumer.AssignedTopicPartitions(ID, [partition])])
    return of_consumers(consumer.ConsumerGroupTargetAssignmentMemberKey("g", "m"), value)


def consumer_current(partition: int = 0) -> CoordinatorRecord:
    value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, assigned_partitions=[consumer.CurrentTopicPartitions(ID, [partition])]
    )
    return of_consumers(consumer.ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)


def consumer_target_epoch(epoch: int = 3) -> CoordinatorRecord:
    value = consumer.ConsumerGroupTargetAssignmentMetadataValue(epoch)
    return of_consumers(consumer.ConsumerGroupTargetAssignmentMetadataKey("g"), value)


def share_group(epoch: int = 3) -> CoordinatorRecord:
    return of_shares(share.ShareGroupMetadataKey("g"), share.ShareGroupMetadataValue(epoch))


def share_target(partition: int = 0) -> CoordinatorRecord:
    value = share.ShareGroupTargetAssignmentMemberValue([consumer.AssignedTopicPartitions(ID, [partition])])
    return of_shares(share.ShareGroupTargetAssignmentMemberKey("g", "m"), value)


def share_initialized(partition: int = 0) -> CoordinatorRecord:
    value = share.ShareGroupStatePartitionMetadataValue(
        initialized_topics=[share.ShareTopicPartitionsInfo(ID, "t", [partition])]
    )
    return of_shares(share.ShareGroupStatePartitionMetadataKey("g"), value)


def streams_group(epoch: int = 3) -> CoordinatorRecord:
    return of_streams(streams.StreamsGroupMetadataKey("g"), streams.StreamsGroupMetadataValue(epoch))


def streams_target(partition: int = 0) -> CoordinatorRecord:
    value = streams.StreamsGroupTargetAssignmentMemberValue([StreamsTaskIds("0", [partition])])
    return of_streams(streams.StreamsGroupTargetAssignmentMemberKey("g", "m"), value)


def transaction(**fields: Any) -> CoordinatorRecord:
    value = TransactionLogValue(producer_id=7, producer_epoch=1, transaction_timeout_ms=1_000, transaction_status=1)
    value.transaction_partitions = [PartitionsSchema("t", [0])]
    for name, changed in fields.items():
        setattr(value, name, changed)
    return CoordinatorRecord(encode_transaction_log_key("t"), encode_transaction_log_value(value))


def snapshot(*batches: StateBatch, epoch: int = 0, partition: int = 0) -> CoordinatorRecord:
    value = ShareSnapshotValue(epoch, 1, 1, 10, 0, 1_000, 1_000, list(batches))
    return CoordinatorRecord(*SHARE_STATE_RECORDS.encode(ShareSnapshotKey("g", ID, partition), value))


def update(*batches: StateBatch, epoch: int = 0) -> CoordinatorRecord:
    value = ShareUpdateValue(epoch, 1, 10, 0, list(batches))
    return CoordinatorRecord(*SHARE_STATE_RECORDS.encode(ShareUpdateKey("g", ID, 0), value))


POSSIBLE: list[tuple[TopicPartition, Callable[[], CoordinatorRecord]]] = [
    *((OFFSETS, make) for make in (commit, lambda: commit(-5), generation, lambda: generation(0, "a", "b"))),
    *((OFFSETS, make) for make in (consumer_group, consumer_target, consumer_current, consumer_target_epoch)),
    *((OFFSETS, make) for make in (share_group, share_target, share_initialized, streams_group, streams_target)),
    (TRANSACTIONS, transaction),
    (TRANSACTIONS, lambda: transaction(transaction_status=0, transaction_partitions=None)),
    (SHARES, lambda: snapshot(StateBatch(10, 12, 0, 1), StateBatch(13, 13, 4, 5))),
    (SHARES, lambda: update(StateBatch(10, 12, 2, 1))),
]

IMPOSSIBLE: dict[str, tuple[TopicPartition, CoordinatorRecord]] = {
    "a commit for a negative partition": (OFFSETS, commit(partition=-1)),
    "a negative generation": (OFFSETS, generation(-1)),
    "two members with one id": (OFFSETS, generation(3, "a", "a")),
    "a member without an id": (OFFSETS, generation(3, "")),
    "members without a protocol": (OFFSETS, generation(3, "a", protocol=None)),
    "a negative epoch of a consumer group": (OFFSETS, consumer_group(-1)),
    "a negative epoch of a consumer group's assignment": (OFFSETS, consumer_target_epoch(-1)),
    "a negative partition in a consumer group's target": (OFFSETS, consumer_target(-1)),
    "a negative partition of a member": (OFFSETS, consumer_current(-1)),
    "a negative epoch of a share group": (OFFSETS, share_group(-1)),
    "a negative partition in a share group's target": (OFFSETS, share_target(-1)),
    "a negative partition of a share group's topic": (OFFSETS, share_initialized(-1)),
    "a negative epoch of a streams group": (OFFSETS, streams_group(-1)),
    "a negative task": (OFFSETS, streams_target(-1)),
    "an unknown state of a transaction": (TRANSACTIONS, transaction(transaction_status=9)),
    "a negative producer id": (TRANSACTIONS, transaction(producer_id=-1)),
    "a negative producer epoch": (TRANSACTIONS, transaction(producer_epoch=-1)),
    "a next producer id that cannot be": (TRANSACTIONS, transaction(next_producer_id=-2)),
    "a negative time-out": (TRANSACTIONS, transaction(transaction_timeout_ms=-1)),
    "a negative partition of a transaction": (
        TRANSACTIONS,
        transaction(transaction_partitions=[PartitionsSchema("t", [-1])]),
    ),
    "partitions of an empty transaction": (TRANSACTIONS, transaction(transaction_status=0)),
    "partitions of a complete transaction": (TRANSACTIONS, transaction(transaction_status=4)),
    "a negative share partition": (SHARES, snapshot(partition=-1)),
    "a negative snapshot epoch": (SHARES, snapshot(epoch=-1)),
    "offsets that go backwards": (SHARES, update(StateBatch(12, 10, 0, 1))),
    "an unknown delivery state": (SHARES, update(StateBatch(10, 12, 7, 1))),
    "records that are lent": (SHARES, snapshot(StateBatch(10, 12, 1, 1))),
    "a negative count of deliveries": (SHARES, snapshot(StateBatch(10, 12, 0, -1))),
}
for topic, good in [(topic, make()) for topic, make in POSSIBLE]:
    case = f"{topic.topic} {good.key[:2].hex()} {len(IMPOSSIBLE)}"
    value = good.value or b""
    IMPOSSIBLE[f"a value of a later version: {case}"] = (topic, good._replace(value=b"\x00\x63" + value[2:]))
    IMPOSSIBLE[f"a negative version: {case}"] = (topic, good._replace(value=b"\xff\xff" + value[2:]))
    IMPOSSIBLE[f"a value that is cut: {case}"] = (topic, good._replace(value=value[:-1]))
    IMPOSSIBLE[f"an empty value: {case}"] = (topic, good._replace(value=b""))
    IMPOSSIBLE[f"a key that is cut: {case}"] = (topic, good._replace(key=good.key[:-1]))
    IMPOSSIBLE[f"a key that is too long: {case}"] = (topic, good._replace(key=good.key + b"\x00"))


async def loaded(topic_partition: TopicPartition, *records: CoordinatorRecord) -> Any:
    """A shard that has loaded a log. Raises StorageError."""
    log = MemoryLog(topic_partition)
    for record in records:
        log.append_records([record], now_ms=1_000)
    shard = coordinator_shard(topic_partition.topic)
    assert shard is not None
    is_of_transactions = topic_partition.topic == TRANSACTION_STATE_TOPIC
    replay = Replay(log, shard, only_latest_count=is_of_transactions, is_wanted=lambda: True)  # type: ignore[arg-type]
    await replay.run()
    return shard


@pytest.mark.parametrize(("topic_partition", "make"), POSSIBLE)
async def test_possible_records_are_accepted(
    topic_partition: TopicPartition, make: Callable[[], CoordinatorRecord]
) -> None:
    shard = await loaded(topic_partition, make())
    if isinstance(shard, GroupShard):
        assert list(shard.list_groups()) or shard._offsets.committed("g")
    elif isinstance(shard, TransactionShard):
        assert shard.transactions["t"].producer_id == 7
    else:
        assert isinstance(shard, ShareStateShard)
        assert shard.state(SharePartitionKey("g", ID, 0)) is not None


@pytest.mark.parametrize("case", IMPOSSIBLE)
async def test_an_impossible_record_refuses_the_load_and_is_named(case: str) -> None:
    topic_partition, record = IMPOSSIBLE[case]
    with pytest.raises(StorageError, match=r"^the record at offset 1 of /data/partition-0 cannot be what "):
        await loaded(topic_partition, next(make() for topic, make in POSSIBLE if topic == topic_partition), record)


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_shard_says_so_itself(case: str) -> None:
    topic_partition, record = IMPOSSIBLE[case]
    shard = coordinator_shard(topic_partition.topic)
    assert shard is not None
    with pytest.raises(DecodeError):
        shard.apply(record.key, record.value, RecordOrigin(0, 0))


@pytest.mark.parametrize("topic_partition", [OFFSETS, TRANSACTIONS, SHARES], ids=str)
async def test_a_record_without_a_key_refuses_the_load(topic_partition: TopicPartition) -> None:
    with pytest.raises(StorageError, match="it has no key"):
        await loaded(topic_partition, CoordinatorRecord(None, b"value"))  # type: ignore[arg-type]


@pytest.mark.parametrize("topic_partition", [OFFSETS, TRANSACTIONS, SHARES], ids=str)
async def test_a_kind_of_record_of_a_later_release_is_left_out(topic_partition: TopicPartition) -> None:
    await loaded(topic_partition, CoordinatorRecord(b"\x00\x63later", b"\x00\x00later"))
