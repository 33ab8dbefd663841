"""Operations that must not block the event loop: their longest steps are measured, by name.

Each prepares what it needs and does, within `measured`, what counts. Others add theirs to `OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fencepost.protocol.messages.cluster import DescribeTopicPartitionsRequest, TopicRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_admin import ListGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from fencepost.protocol.messages.log_dirs import DescribeLogDirsRequest
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from scripts.benchmarks import loop_records
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import (
    READ_UNCOMMITTED,
    end_transaction_request,
    find_group_coordinator,
    find_transaction_coordinator,
    init_producer_id_request,
    offsets_request,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.loop_bench import Bench

PARTITIONS_PER_TOPIC = 5_000
TIMEOUT_MS = 120_000


class Operation(NamedTuple):
    """settings: of the broker, beside those that all have."""

    name: str
    run: Callable[[Bench], None]
    settings: Mapping[str, str] = {}


# Topics


def _creation(topic: str, partition_count: int) -> CreateTopicsRequest:
    wanted = CreatableTopic(name=topic, num_partitions=partition_count, replication_factor=1)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)


def _create(bench: Bench) -> None:
    bench.measure(_creation("one", bench.sizes["partitions"]))


def _create_many(bench: Bench) -> None:
    topics = [
        CreatableTopic(name=f"topic-{number}", num_partitions=10, replication_factor=1)
        for number in range(bench.sizes["partitions"] // 10)
    ]
    bench.measure(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS))


def _create_by_metadata(bench: Bench) -> None:
    bench.measure(MetadataRequest(topics=[MetadataRequestTopic(name="one")], allow_auto_topic_creation=True))


def _recreate(bench: Bench) -> None:
    _with_records(bench)
    bench.client.call(DeleteRecordsRequest(topics=[DeleteRecordsTopic("one", [DeleteRecordsPartition(0, -1)])]))
    require_success(bench.client.call(DeleteTopicsRequest(topic_names=["one"], timeout_ms=TIMEOUT_MS)))
    bench.measure(_creation("one", bench.sizes["partitions"]))


def _grow(bench: Bench) -> None:
    require_success(bench.client.call(_creation("one", 1)))
    wanted = CreatePartitionsTopic("one", bench.sizes["partitions"] + 1, None)
    bench.measure(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))


def _delete(bench: Bench) -> None:
    """With the sweeps that remove the files."""
    _with_records(bench)
    bench.measure(DeleteTopicsRequest(topic_names=["one"], timeout_ms=TIMEOUT_MS))


def _with_records(bench: Bench) -> int:
    """A topic with a record in each of its partitions; how many it has."""
    count = bench.sizes["partitions"]
    require_success(bench.client.call(_creation("one", count)))
    _produce_to_all(bench, count)
    return count


def _produce_to_all(bench: Bench, count: int) -> None:
    batch = BatchTemplate(record_bytes=10, records_count=1).batch()
    require_success(bench.client.call(produce_request("one", [(partition, batch) for partition in range(count)])))


def _delete_records(bench: Bench) -> None:
    count = _with_records(bench)
    partitions = [DeleteRecordsPartition(partition, -1) for partition in range(count)]
    bench.measure(DeleteRecordsRequest(topics=[DeleteRecordsTopic("one", partitions)], timeout_ms=TIMEOUT_MS))


# Descriptions


def _many_topics(bench: Bench) -> None:
    left = bench.sizes["described_partitions"]
    while left > 0:
        count = min(PARTITIONS_PER_TOPIC, left)
        left -= count
        require_success(bench.client.call(_creation(f"topic-{left}", count)))


def _metadata(bench: Bench) -> None:
    _many_topics(bench)
    bench.measure(MetadataRequest(topics=None))


def _metadata_of_one(bench: Bench) -> None:
    require_success(bench.client.call(_creation("one", 1)))
    count = 1
    while count < bench.sizes["described_partitions"]:
        count = min(bench.sizes["described_partitions"], count + PARTITIONS_PER_TOPIC)
        grown = CreatePartitionsTopic("one", count, None)
        require_success(bench.client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=TIMEOUT_MS)))
    bench.measure(MetadataRequest(topics=None))


def _describe_topic_partitions(bench: Bench) -> None:
    require_success(bench.client.call(_creation("one", bench.sizes["partitions"])))
    asked = [TopicRequest("one")]
    bench.measure(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=bench.sizes["partitions"]))


def _list_offsets(bench: Bench) -> None:
    count = _with_records(bench)
    bench.measure(offsets_request("one", range(count), READ_UNCOMMITTED))


def _describe_log_dirs(bench: Bench) -> None:
    _many_topics(bench)
    bench.measure(DescribeLogDirsRequest(topics=None))


def _describe_configs(bench: Bench) -> None:
    """Topics that an admin client may name in one request."""
    count = bench.sizes["partitions"] // 5
    topics = [CreatableTopic(name=f"topic-{n}", num_partitions=1, replication_factor=1) for n in range(count)]
    require_success(bench.client.call(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)))
    asked = [DescribeConfigsResource(2, f"topic-{n}", None) for n in range(count)]
    bench.measure(DescribeConfigsRequest(resources=asked, include_synonyms=True, include_documentation=True))


# Records and offsets


def _produce(bench: Bench) -> None:
    count = bench.sizes["partitions"]
    require_success(bench.client.call(_creation("one", count)))
    with bench.measured():
        _produce_to_all(bench, count)


def _fetch(bench: Bench) -> None:
    count = _with_records(bench)
    partitions = [FetchPartition(partition=partition, partition_max_bytes=1_000) for partition in range(count)]
    bench.measure(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="one", partitions=partitions)]))


def _commit_request(count: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition, 1) for partition in range(count)]
    return OffsetCommitRequest(group_id="group", topics=[OffsetCommitRequestTopic(name="one", partitions=partitions)])


def _commit_offsets(bench: Bench) -> None:
    find_group_coordinator(bench.client, "group")
    count = bench.sizes["partitions"]
    require_success(bench.client.call(_creation("one", count)))
    wait_until_answered(bench.client, _commit_request(1))
    bench.measure(_commit_request(count))


def _fetch_offsets(bench: Bench) -> None:
    _commit_offsets(bench)
    bench.measure(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)]))


def _delete_offsets(bench: Bench) -> None:
    _commit_offsets(bench)
    partitions = [OffsetDeleteRequestPartition(partition) for partition in range(bench.sizes["partitions"])]
    bench.measure(OffsetDeleteRequest(group_id="group", topics=[OffsetDeleteRequestTopic("one", partitions)]))


def _list_groups(bench: Bench) -> None:
    """With one group for each producer of the sizes."""
    find_group_coordinator(bench.client, "group")
    require_success(bench.client.call(_creation("one", 1)))
    wait_until_answered(bench.client, _commit_request(1))
    for number in range(bench.sizes["producers"]):
        request = _commit_request(1)
        request.group_id = f"group-{number}"
        require_success(bench.client.call(request))
    bench.measure(ListGroupsRequest())


# Transactions


def _begin_transaction(bench: Bench) -> tuple[int, int]:
    count = bench.sizes["partitions"]
    require_success(bench.client.call(_creation("one", count)))
    find_transaction_coordinator(bench.client, "transaction")
    producer = wait_until_answered(bench.client, init_producer_id_request("transaction", 600_000))
    return producer.producer_id, producer.producer_epoch


def _add_partitions(bench: Bench, producer: tuple[int, int]) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="transaction",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic("one", list(range(bench.sizes["partitions"])))],
    )
    wait_until_answered(bench.client, request)


def _add_to_transaction(bench: Bench) -> None:
    producer = _begin_transaction(bench)
    with bench.measured():
        _add_partitions(bench, producer)


def _commit_transaction(bench: Bench) -> None:
    """Until it is complete: only then its producer can begin anew."""
    producer = _begin_transaction(bench)
    _add_partitions(bench, producer)
    batch = BatchTemplate(record_bytes=10, records_count=1, is_transactional=True).batch(producer, 0)
    batches = [(partition, batch) for partition in range(bench.sizes["partitions"])]
    require_success(bench.client.call(produce_request("one", batches, "transaction")))
    with bench.measured():
        require_success(bench.client.call(end_transaction_request("transaction", producer)))
        wait_until_answered(bench.client, init_producer_id_request("transaction", 600_000))


def _write_markers(bench: Bench) -> None:
    """As a coordinator on another node asks for them."""
    count = _with_records(bench)
    marker = WritableTxnMarker(
        producer_id=1_000_000,
        producer_epoch=1,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="one", partition_indexes=list(range(count)))],
    )
    bench.measure(WriteTxnMarkersRequest(markers=[marker]))


def _list_transactions(bench: Bench) -> None:
    """With one transactional id for each producer of the sizes."""
    find_transaction_coordinator(bench.client, "transaction")
    wait_until_answered(bench.client, init_producer_id_request("transaction", 600_000))
    for number in range(bench.sizes["producers"]):
        wait_until_answered(bench.client, init_producer_id_request(f"transaction-{number}", 600_000))
    bench.measure(ListTransactionsRequest())


_PAGE_CACHE = {"log.flush.interval.messages": "1000000"}
_SWEPT = {"log.retention.check.interval.ms": "500"}
OPERATIONS: Sequence[Operation] = (
    Operation("creation of a topic", _create),
    Operation("creation of many topics", _create_many),
    Operation("creation by a Metadata request", _create_by_metadata),
    Operation("creation of a topic of a deleted name", _recreate),
    Operation("growth of a topic", _grow),
    Operation("deletion of a topic", _delete),
    Operation("DeleteRecords", _delete_records),
    Operation("Metadata", _metadata),
    Operation("Metadata of one topic", _metadata_of_one),
    Operation("DescribeTopicPartitions", _describe_topic_partitions),
    Operation("ListOffsets", _list_offsets),
    Operation("DescribeLogDirs", _describe_log_dirs),
    Operation("DescribeConfigs", _describe_configs),
    Operation("Produce to all partitions", _produce),
    Operation("Fetch of all partitions", _fetch),
    Operation("OffsetCommit", _commit_offsets),
    Operation("OffsetFetch", _fetch_offsets),
    Operation("OffsetDelete", _delete_offsets),
    Operation("ListGroups", _list_groups, _PAGE_CACHE),
    Operation("AddPartitionsToTxn", _add_to_transaction),
    Operation("commit of a transaction", _commit_transaction),
    Operation("WriteTxnMarkers", _write_markers),
    Operation("ListTransactions", _list_transactions, _PAGE_CACHE),
    Operation("Produce of a large batch", loop_records.produce_large),
    Operation("Produce of a large batch that is compressed anew", loop_records.produce_large_with_topic_time),
    Operation("Produce of a batch that expands to 95 MB", loop_records.produce_bomb),
    Operation("compaction of large batches", loop_records.compact_large, {"log.cleaner.backoff.ms": "500", **_SWEPT}),
    Operation("DescribeProducers", loop_records.describe_producers, _PAGE_CACHE),
    Operation("roll of a segment with many producers", loop_records.roll_with_producers, _PAGE_CACHE),
)
