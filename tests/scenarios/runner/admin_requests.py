"""What operators and brokers ask: topics, the state of transactions and producers, and markers."""

from __future__ import annotations

from typing import Any

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.scenarios.runner.arguments import ArgumentError, Arguments, by_topic
from tests.scenarios.runner.party import Call, Party
from tests.scenarios.runner.requests import PartitionOutcome, coordinator_partition, name_of, named_broker, together


class WriteTxnMarkers:
    """WriteTxnMarkers commit of 0/3 coordinator epoch 1 out-0 out-1 [transaction version 2]."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        identity = arguments.identity("of")
        if identity is None:
            raise ArgumentError("say of whom, such as: of 0/3")
        coordinator_epoch = arguments.number("coordinator epoch", 0)
        transaction_version = arguments.number("transaction version", 0)
        named_node = named_broker(arguments)
        version = arguments.version()
        outcome = arguments.word()
        if outcome not in ("commit", "abort"):
            raise ArgumentError(f"a marker says commit or abort, not {outcome}")
        partitions = arguments.partitions()
        marker = WritableTxnMarker(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            transaction_result=outcome == "commit",
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        to = partitions[0] if named_node is None else named_node
        message = WriteTxnMarkersRequest(markers=[marker])
        return Call(self, "WriteTxnMarkers", message, 2 if version is None else version, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return together(
            [
                PartitionOutcome(TopicPartition(topic.name, partition.partition_index), name_of(partition.error_code))
                for marker in response.markers
                for topic in marker.topics
                for partition in topic.partitions
            ]
        )


class DescribeTransactions:
    """DescribeTransactions till: what its coordinator knows of a transactional id."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        named_node = named_broker(arguments)
        transactional_id = arguments.word()
        arguments.finish()
        leader = coordinator_partition(party.stage, transactional_id)
        to = leader if named_node is None else named_node
        message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return Call(self, "DescribeTransactions", message, 0, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        state = response.transaction_states[0]
        if state.error_code:
            return [name_of(state.error_code)]
        partitions = sorted(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions)
        text = f"{state.transaction_state} producer {state.producer_id} epoch {state.producer_epoch}"
        return [f"{text} with {' '.join(partitions)}" if partitions else text]


class ListTransactions:
    """ListTransactions [state Ongoing] [longer than 5000]: the transactional ids of a coordinator. Milliseconds."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        state = arguments.option("state")
        to = named_broker(arguments) or 1
        message = ListTransactionsRequest(
            state_filters=[] if state is None else [state],
            duration_filter=arguments.number("longer than", -1),
            transactional_id_pattern=arguments.option("matching"),
        )
        arguments.finish()
        return Call(self, "ListTransactions", message, 2, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        if response.error_code:
            return [name_of(response.error_code)]
        lines = sorted(
            f"{state.transactional_id} {state.transaction_state} producer {state.producer_id}"
            for state in response.transaction_states
        )
        lines += [f"unknown state {name}" for name in response.unknown_state_filters]
        return lines or ["none"]


class DescribeProducers:
    """DescribeProducers out-0: the producers of a partition, as its leader remembers them."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        named_node = named_broker(arguments)
        partitions = arguments.partitions()
        topics = [
            TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(partitions).items()
        ]
        to = partitions[0] if named_node is None else named_node
        return Call(self, "DescribeProducers", DescribeProducersRequest(topics=topics), 0, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        lines = []
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    lines.append(name_of(partition.error_code))
                for producer in sorted(partition.active_producers, key=lambda producer: producer.producer_id):
                    start = producer.current_txn_start_offset
                    opened = f"transaction open since offset {start}" if start >= 0 else "no open transaction"
                    producer_name = f"producer {producer.producer_id} epoch {producer.producer_epoch}"
                    last = f"last sequence {producer.last_sequence} coordinator epoch {producer.coordinator_epoch}"
                    lines.append(f"{producer_name} {last}, {opened}")
        return lines or ["none"]


class CreateTopic:
    """CreateTopic out with 2 partitions [cleanup.policy=compact ...]."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        count = arguments.number("with", 1)
        if not arguments.flag("partitions"):
            arguments.flag("partition")
        to = named_broker(arguments) or 1
        name = arguments.word()
        configs = [word.partition("=") for word in arguments.words()]
        party.stage.topics[name] = count
        topic = CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, _, value in configs],
        )
        return Call(self, "CreateTopic", CreateTopicsRequest(topics=[topic]), 5, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return [name_of(response.topics[0].error_code)]


class DeleteTopic:
    """DeleteTopic out."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        to = named_broker(arguments) or 1
        name = arguments.word()
        arguments.finish()
        party.stage.topics.pop(name, None)
        return Call(self, "DeleteTopic", DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 4, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return [name_of(response.responses[0].error_code)]


class DeleteRecords:
    """DeleteRecords out-0 below 5: the log of a partition begins there."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        offset = arguments.number("below", -1)
        (topic_partition,) = arguments.partitions()
        partition = DeleteRecordsPartition(partition_index=topic_partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=topic_partition.topic, partitions=[partition])
        message = DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
        return Call(self, "DeleteRecords", message, 2, topic_partition)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        answer = response.topics[0].partitions[0]
        return [f"{name_of(answer.error_code)} log start {answer.low_watermark}"]


class Metadata:
    """Metadata: which topics there are."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        to = named_broker(arguments) or 1
        arguments.finish()
        return Call(self, "Metadata", MetadataRequest(topics=None), 9, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        lines = sorted(
            f"{topic.name} with {len(topic.partitions)} partitions" + (", internal" if topic.is_internal else "")
            for topic in response.topics
        )
        return lines or ["no topics"]
