"""What producers and consumers ask: each request by its name in Kafka, its words, and its answer in words.

The versions are those that a client of the party's transaction version uses, unless a word such as v2 says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import build_batch
from tests.scenarios.runner.arguments import ArgumentError, Arguments, Identity, KeyValue, by_topic
from tests.scenarios.runner.party import NOBODY, Call, Party
from tests.scenarios.runner.stage import Stage

DEFAULT_TIMEOUT_MS = 60_000
LAST_SEQUENCE = 2**31 - 1

# What clients send: librdkafka, kafka-python and sarama before KIP-890; the Java client after it.
VERSIONS = {
    "InitProducerId": {1: 4, 2: 5},
    "AddPartitionsToTxn": {1: 3, 2: 5},
    "AddOffsetsToTxn": {1: 3, 2: 4},
    "Produce": {1: 9, 2: 12},
    "TxnOffsetCommit": {1: 3, 2: 5},
    "EndTxn": {1: 3, 2: 5},
}


def version_of(api: str, party: Party, arguments: Arguments) -> int:
    version = arguments.version()
    return VERSIONS[api][party.transaction_version] if version is None else version


def named_broker(arguments: Arguments) -> int | None:
    """The broker that a step names."""
    named = arguments.option("at broker")
    return None if named is None else int(named)


def coordinator_partition(stage: Stage, transactional_id: str) -> TopicPartition:
    """The partition of `__transaction_state` in which a transactional id lives."""
    count = int(stage.settings["transaction.state.log.num.partitions"])
    return TopicPartition(TRANSACTION_STATE_TOPIC, partition_for_key(transactional_id, count))


def group_partition(stage: Stage, group_id: str) -> TopicPartition:
    """The partition of `__consumer_offsets` in which a group lives."""
    count = int(stage.settings["offsets.topic.num.partitions"])
    return TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for_key(group_id, count))


def name_of(error: int) -> str:
    return ErrorCode(error).name


class PartitionOutcome(NamedTuple):
    """What one partition answered."""

    topic_partition: TopicPartition
    outcome: str


def together(outcomes: Sequence[PartitionOutcome]) -> list[str]:
    """One line: what all partitions answered, once if it is the same."""
    if len({outcome for _, outcome in outcomes}) == 1:
        return [outcomes[0].outcome]
    return [", ".join(f"{topic_partition} {outcome}" for topic_partition, outcome in outcomes)]


class TransactionalRequest(ABC):
    """What bears the producer's identity and goes to the transaction coordinator."""

    api = ""

    def make(self, party: Party, arguments: Arguments) -> Call:
        identity = arguments.identity("as") or party.identity
        transactional_id = party.transactional_id or ""
        to = named_broker(arguments) or coordinator_partition(party.stage, transactional_id)
        version = version_of(self.api, party, arguments)
        message = self.message(transactional_id, identity, version, arguments)
        arguments.finish()
        return Call(self, self.api, message, version, to, identity)

    @abstractmethod
    def message(self, transactional_id: str, identity: Identity, version: int, arguments: Arguments) -> Any: ...

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return [name_of(response.error_code)]


class InitProducerId:
    """InitProducerId [timeout 5000] [expecting 0/3] [two-phase] [keep prepared]: get an identity. Milliseconds."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        expected = arguments.identity("expecting") or NOBODY
        timeout_ms = arguments.number("timeout", DEFAULT_TIMEOUT_MS)
        two_phase = arguments.flag("two-phase")
        to = named_broker(arguments) or coordinator_partition(party.stage, party.transactional_id or "")
        keep_prepared = arguments.flag("keep prepared")
        version = 6 if two_phase or keep_prepared else version_of("InitProducerId", party, arguments)
        arguments.finish()
        party.stage.longest_timeout_ms = max(party.stage.longest_timeout_ms, timeout_ms)
        message = InitProducerIdRequest(
            transactional_id=party.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        return Call(self, "InitProducerId", message, version, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        if response.error_code:
            return [name_of(response.error_code)]
        identity = Identity(response.producer_id, response.producer_epoch)
        party.became(identity)
        kept = Identity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        return [f"NONE {identity}" if kept.producer_id < 0 else f"NONE {identity}, open: {kept}"]


class AddPartitionsToTxn:
    """AddPartitionsToTxn out-0 out-1 [verify only]: of a client up to version 3, of a partition's leader above."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        identity = arguments.identity("as") or party.identity
        verify_only = arguments.flag("verify only")
        transactional_id = party.transactional_id or ""
        to = named_broker(arguments) or coordinator_partition(party.stage, transactional_id)
        version = version_of("AddPartitionsToTxn", party, arguments)
        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic(arguments.partitions()).items()
        ]
        if version >= 4:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                verify_only=verify_only,
                topics=topics,
            )
            message = AddPartitionsToTxnRequest(transactions=[transaction])
        elif verify_only:
            raise ArgumentError("only version 4 and 5 can verify")
        else:
            message = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=topics,
            )
        return Call(self, "AddPartitionsToTxn", message, version, to, identity)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        if response.error_code:
            return [name_of(response.error_code)]
        topics = response.results_by_topic_v3_and_below
        for transaction in response.results_by_transaction:
            topics = [*topics, *transaction.topic_results]
        return together(
            [
                PartitionOutcome(
                    TopicPartition(topic.name, result.partition_index), name_of(result.partition_error_code)
                )
                for topic in topics
                for result in topic.results_by_partition
            ]
            or [PartitionOutcome(TopicPartition("", -1), "NONE")]
        )


class AddOffsetsToTxn(TransactionalRequest):
    """AddOffsetsToTxn shop: the offsets of a group will be part of the transaction."""

    api = "AddOffsetsToTxn"

    def message(self, transactional_id: str, identity: Identity, version: int, arguments: Arguments) -> Any:
        return AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=arguments.word(),
        )


class EndTxn(TransactionalRequest):
    """EndTxn commit, EndTxn abort."""

    api = "EndTxn"

    def message(self, transactional_id: str, identity: Identity, version: int, arguments: Arguments) -> Any:
        outcome = arguments.word()
        if outcome not in ("commit", "abort"):
            raise ArgumentError(f"a transaction ends in commit or abort, not in {outcome}")
        return EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=outcome == "commit",
        )

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        if response.error_code:
            return [name_of(response.error_code)]
        if response.producer_id == -1:
            return ["NONE"]
        identity = Identity(response.producer_id, response.producer_epoch)
        if call.identity == party.identity:
            party.became(identity)
        return [f"NONE {identity}"]


class Produce:
    """Produce out-0 "a" "b" out-1 k="c" [sequence 5] [as 0/3] [acks 1] [not transactional] [as a control batch]."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        is_control = arguments.flag("as a control batch")
        identity = arguments.identity("as") or party.identity
        acks = arguments.number("acks", -1)
        sequence = arguments.option("sequence")
        is_transactional = not arguments.flag("not transactional") and party.transactional_id is not None
        named_node = named_broker(arguments)
        version = version_of("Produce", party, arguments)
        batches = arguments.records()
        if not batches:
            raise ArgumentError("say what to produce")
        sequences = {}
        topics: dict[str, list[PartitionProduceData]] = {}
        for topic_partition, records in batches:
            first_sequence = party.next_sequences.get(topic_partition, 0) if sequence is None else int(sequence)
            sequences[topic_partition] = (first_sequence + len(records)) & LAST_SEQUENCE
            batch = self._batch(
                party, records, identity, first_sequence, is_transactional=is_transactional, is_control=is_control
            )
            topics.setdefault(topic_partition.topic, []).append(
                PartitionProduceData(index=topic_partition.partition, records=memoryview(batch))
            )
        message = ProduceRequest(
            transactional_id=party.transactional_id if is_transactional else None,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        to = batches[0][0] if named_node is None else named_node
        return Call(self, "Produce", message, version, to, identity, sequences)

    def _batch(
        self,
        party: Party,
        records: Sequence[KeyValue],
        identity: Identity,
        sequence: int,
        *,
        is_transactional: bool,
        is_control: bool,
    ) -> bytearray:
        now_ms = party.stage.world.clock.now_ms()
        is_idempotent = identity != NOBODY
        return build_batch(
            [Record(offset, now_ms, record.key, record.value) for offset, record in enumerate(records)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence if is_idempotent else -1,
            is_transactional=is_transactional,
            is_control=is_control,
        )

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        outcomes = []
        for topic in response.responses:
            for partition in topic.partition_responses:
                topic_partition = TopicPartition(topic.name, partition.index)
                outcome = name_of(partition.error_code)
                if not partition.error_code:
                    outcome += f" offset {partition.base_offset}"
                    if call.identity == party.identity:
                        party.next_sequences[topic_partition] = call.sequences[topic_partition]
                outcomes.append(PartitionOutcome(topic_partition, outcome))
        if len(outcomes) == 1:
            return [outcomes[0].outcome]
        return [", ".join(f"{topic_partition} {outcome}" for topic_partition, outcome in outcomes)]


class TxnOffsetCommit:
    """TxnOffsetCommit shop in-0=5 [member m generation 3]: offsets of a group, with the transaction."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        identity = arguments.identity("as") or party.identity
        generation_id = arguments.number("generation", -1)
        member_id = arguments.option("member") or ""
        named_node = named_broker(arguments)
        version = version_of("TxnOffsetCommit", party, arguments)
        group_id = arguments.word()
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset, metadata in arguments.offsets():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        message = TxnOffsetCommitRequest(
            transactional_id=party.transactional_id or "",
            group_id=group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=data) for name, data in topics.items()],
        )
        leader = group_partition(party.stage, group_id)
        to = leader if named_node is None else named_node
        return Call(self, "TxnOffsetCommit", message, version, to, identity)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return together(_offset_outcomes(response.topics))


class OffsetCommit:
    """OffsetCommit shop in-0=5: offsets of a group, outside any transaction."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        named_node = named_broker(arguments)
        group_id = arguments.word()
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset, metadata in arguments.offsets():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        message = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=data) for name, data in topics.items()],
        )
        leader = group_partition(party.stage, group_id)
        to = leader if named_node is None else named_node
        return Call(self, "OffsetCommit", message, 8, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        return together(_offset_outcomes(response.topics))


class OffsetFetch:
    """OffsetFetch shop [in-0 in-1] [stable]: what a group has committed; stable: unless a transaction may change it."""

    def make(self, party: Party, arguments: Arguments) -> Call:
        named_node = named_broker(arguments)
        is_stable = arguments.flag("stable")
        group_id = arguments.word()
        partitions = arguments.partitions()
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
        message = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics if partitions else None)],
            require_stable=is_stable,
        )
        leader = group_partition(party.stage, group_id)
        to = leader if named_node is None else named_node
        return Call(self, "OffsetFetch", message, 8, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        group = response.groups[0]
        if group.error_code:
            return [name_of(group.error_code)]
        found = []
        for topic in group.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    found.append(f"{topic_partition} {name_of(partition.error_code)}")
                elif partition.committed_offset < 0:
                    found.append(f"{topic_partition} has no offset")
                else:
                    metadata = f'"{partition.metadata}"' if partition.metadata else ""
                    found.append(f"{topic_partition}={partition.committed_offset}{metadata}")
        return [", ".join(found) or "no offsets"]


class FindCoordinator:
    """FindCoordinator [of group shop]: which broker looks after this transactional id, or a group?"""

    def make(self, party: Party, arguments: Arguments) -> Call:
        group_id = arguments.option("of group")
        transactional_id = arguments.option("of id") or party.transactional_id or ""
        to = named_broker(arguments) or 1
        arguments.finish()
        message = FindCoordinatorRequest(
            key_type=1 if group_id is None else 0, coordinator_keys=[transactional_id if group_id is None else group_id]
        )
        return Call(self, "FindCoordinator", message, 4, to)

    def describe(self, party: Party, call: Call, response: Any) -> list[str]:
        coordinator = response.coordinators[0]
        if coordinator.error_code:
            return [name_of(coordinator.error_code)]
        return [f"NONE broker {coordinator.node_id}"]


def _offset_outcomes(topics: Sequence[Any]) -> list[PartitionOutcome]:
    return [
        PartitionOutcome(TopicPartition(topic.name, partition.partition_index), name_of(partition.error_code))
        for topic in topics
        for partition in topic.partitions
    ]
