"""Requests of many kinds, put together field by field: each value may make sense, few requests do as a whole.

What no client sends is where two brokers differ most easily. There is a little of everything to be found: records, a
group with a member, committed offsets, an open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from fencepost.protocol.declaration import (
    SCHEMA_ATTRIBUTE,
    ArrayOf,
    Field,
    StructOf,
    StructSchema,
    WireType,
    struct_schema_of,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from fencepost.protocol.messages.alter_configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
)
from fencepost.protocol.messages.cluster import DescribeClusterRequest, DescribeTopicPartitionsRequest, TopicRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsRequest
from fencepost.protocol.messages.features import UpdateFeaturesRequest
from fencepost.protocol.messages.fetch import FetchRequest, ReplicaState
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.leader_epochs import OffsetForLeaderEpochRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsRequest
from fencepost.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.producers import DescribeProducersRequest
from fencepost.protocol.messages.quorum import DescribeQuorumRequest
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.primitives import RECORDS, STRING, ZERO_UUID, FixedWidth
from fencepost.protocol.record_batch import read_header
from fencepost.protocol.schema import schema_of
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, Exchange, batch
from tests.differences.random_sequences.steps import SlicedWork
from tests.differences.sequences.transactions import FAR, Transactional

STEPS_COUNT: Final = 80
PARTITIONS_COUNT: Final = 2
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
ANY: Final = 0x7FFF
BETWEEN_MS: Final = 1_750_000_000_000
"""Later than all records, and earlier than all markers."""

ASKED: Final[tuple[tuple[type[Any], int, int], ...]] = (
    (ProduceRequest, 0, ANY),
    (FetchRequest, 0, ANY),
    (ListOffsetsRequest, 0, ANY),
    (MetadataRequest, 4, ANY),
    (OffsetCommitRequest, 0, ANY),
    (OffsetFetchRequest, 0, ANY),
    (FindCoordinatorRequest, 0, ANY),
    (HeartbeatRequest, 0, ANY),
    (LeaveGroupRequest, 0, ANY),
    (DescribeGroupsRequest, 0, ANY),
    (DeleteRecordsRequest, 0, ANY),
    (InitProducerIdRequest, 0, 5),
    (OffsetForLeaderEpochRequest, 0, ANY),
    (AddPartitionsToTxnRequest, 0, 3),
    (AddOffsetsToTxnRequest, 0, ANY),
    (EndTxnRequest, 0, ANY),
    (WriteTxnMarkersRequest, 0, ANY),
    (TxnOffsetCommitRequest, 0, ANY),
    (DescribeProducersRequest, 0, ANY),
    (DescribeTransactionsRequest, 0, ANY),
    (ConsumerGroupHeartbeatRequest, 0, ANY),
    (ConsumerGroupDescribeRequest, 0, ANY),
    (SyncGroupRequest, 0, ANY),
    (ShareGroupDescribeRequest, 0, ANY),
    (StreamsGroupDescribeRequest, 0, ANY),
    (OffsetDeleteRequest, 0, ANY),
    (CreateTopicsRequest, 0, 6),
    (DeleteTopicsRequest, 0, ANY),
    (CreatePartitionsRequest, 0, ANY),
    (DescribeTopicPartitionsRequest, 0, ANY),
    (DescribeClusterRequest, 0, ANY),
    (DescribeConfigsRequest, 0, ANY),
    (AlterConfigsRequest, 0, ANY),
    (IncrementalAlterConfigsRequest, 0, ANY),
    (DescribeLogDirsRequest, 0, ANY),
    (AlterReplicaLogDirsRequest, 0, ANY),
    (ElectLeadersRequest, 0, ANY),
    (AlterPartitionReassignmentsRequest, 0, ANY),
    (ListPartitionReassignmentsRequest, 0, ANY),
    (DescribeQuorumRequest, 0, ANY),
    (UpdateFeaturesRequest, 1, ANY),
    (DescribeClientQuotasRequest, 0, ANY),
    (AlterClientQuotasRequest, 0, ANY),
    (DescribeUserScramCredentialsRequest, 0, ANY),
    (AlterUserScramCredentialsRequest, 0, ANY),
    (ListTransactionsRequest, 0, ANY),
    (DescribeAclsRequest, 0, ANY),
    (CreateAclsRequest, 0, ANY),
    (DeleteAclsRequest, 0, ANY),
    (CreateDelegationTokenRequest, 0, ANY),
    (RenewDelegationTokenRequest, 0, ANY),
    (ExpireDelegationTokenRequest, 0, ANY),
    (DescribeDelegationTokenRequest, 0, ANY),
)
"""What may be asked, from which version to which; nothing that changes the cluster or waits for other clients."""


FIXED: Final[dict[str, Any]] = {
    "replica_state": ReplicaState(),
    "replica_directory_id": ZERO_UUID,
    "high_watermark": 2**63 - 1,
    "cluster_id": None,
    "allow_auto_topic_creation": False,
    "subscribed_topic_regex": None,
    "validate_only": True,
}
"""Fields that have one value: they are between brokers, change the cluster, or take effect in Kafka's own time."""

TAGS_OF_OUR_OWN = (10_000, 10_001, 10_002)
"""Of fields that Kafka does not know."""

NEVER_NULL: Final = frozenset({"records", "topics", "topic_partitions", "users"})
"""All topics and users of the broker are others each time; Kafka does not answer a Produce without records."""

NAMED_BY: Final = (
    "topic_id",
    "name",
    "topic",
    "partition_index",
    "partition",
    "index",
    "producer_id",
    "member_id",
    "resource_name",
    "feature",
)

BROKER: Final = 4
EXACT: Final = 0
CHOICES: Final[dict[str, Sequence[Any]]] = {
    "value": ("1000", "compact", "delete", "-1", "x", ""),
    "config_operation": (0, 0, 1, 2, 3, 9, -1),
    "configuration_keys": ("log.cleaner.backoff.ms", "retention.ms", "cleanup.policy", "no.such.setting", ""),
    "AlterableConfig.name": ("retention.ms", "cleanup.policy", "segment.bytes", "no.such.setting", ""),
    "IncrementalAlterableConfig.name": ("retention.ms", "cleanup.policy", "segment.bytes", "no.such.setting", ""),
    "CreatableTopicConfig.name": ("retention.ms", "cleanup.policy", "segment.bytes", "no.such.setting", ""),
    "OpData.value": (0.0, -1.0, 1.5, 1_000_000.0),
    "key": ("producer_byte_rate", "request_percentage", "connection_creation_rate", "speed", ""),
    "entity_type": ("user", "user", "client-id", "ip", "planet", ""),
    "match_type": (0, 0, 1, 2, 7),
    "broker_ids": (1, 1, 1, 77, -1),
    "replicas": (1, 1, 1, 77, -1),
    "replication_factor": (1, 1, -1, 2, 0, -2),
    "CreatePartitionsTopic.count": (2, 3, 4, 1, 0, -1),
    "election_type": (0, 0, 1),
    "path": ("/nowhere", "nowhere", ""),
    "feature": ("group.version", "transaction.version", "share.version", "streams.version", "speed", ""),
    "max_version_level": (0, 1, 2, 9, -1),
    "upgrade_type": (1, 1, 2, 3, 0, 9),
    "endpoint_type": (1, 1, 2, 0, 7),
    "mechanism": (1, 2, 0, 9),
    "iterations": (4_096, 4_096, 4_095, 16_385, -1),
    "state_filters": ("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "PrepareCommit", "Nothing", ""),
    "duration_filter": (-1, -1, -1, -7),  # others would be answered differently, by declaration
    "transactional_id_pattern": (".*", "producer.*", "prod", "nobody.*", "[", ""),
    "resource_type_filter": (1, 2, 3, 4, 5, 6, 7),
    "pattern_type_filter": (1, 2, 3, 4),
    "resource_pattern_type": (3, 4),
    "AclCreation.resource_type": (2, 3, 4),
    "operation": (1, 2, 3),
    "permission_type": (1, 2, 3),
}
"""What to choose from, by the name of the field, or of its struct and itself."""


def _identity(element: Any) -> Any:
    """What tells the elements of a list apart."""
    names = [name for name in NAMED_BY if getattr(element, name, ZERO_UUID) != ZERO_UUID]
    return getattr(element, names[0]) if names else repr(element)


def _leave_one_marker(request: WriteTxnMarkersRequest) -> None:
    """One that goes somewhere, or none: what Kafka says of several depends on all of them, if it answers at all. And of
    an epoch that is not ahead, which would hold up the coordinator's own marker for good."""
    for marker in request.markers:
        marker.topics = [topic for topic in marker.topics if topic.partition_indexes]
        marker.producer_epoch = 0
    request.markers = [marker for marker in request.markers if marker.topics][:1]


def _leave_what_is_comparable(request: Any, topic: str, producer_id: int) -> None:
    """Without what Fencepost has declared to answer differently, or concerns the rest of the broker, too."""
    if isinstance(request, WriteTxnMarkersRequest):
        _leave_one_marker(request)
    elif isinstance(request, DescribeConfigsRequest):
        for resource in request.resources:
            if resource.resource_type == BROKER:
                resource.configuration_keys = ["log.cleaner.backoff.ms"]
    elif isinstance(request, IncrementalAlterConfigsRequest):
        # Over an operation that does not exist Kafka stumbles, if it does not refuse another one first.
        for changed in request.resources:
            unknown = [config for config in changed.configs if config.config_operation not in (0, 1, 2, 3)]
            changed.configs = unknown[:1] or changed.configs
    elif isinstance(request, AlterConfigsRequest):
        for replaced in request.resources:
            if (replaced.resource_type, replaced.resource_name) == (BROKER, ""):
                # Kafka keeps a setting of all brokers, by declaration, which may not be replaced.
                replaced.resource_name = "1"
    elif isinstance(request, OffsetDeleteRequest):
        # A group without members and offsets is there for Kafka until it looks for expired offsets the next time.
        for one in request.topics:
            one.partitions = [partition for partition in one.partitions if partition.partition_index]
    elif isinstance(request, DescribeTopicPartitionsRequest):
        request.topics = [one for one in request.topics if one.name] or [TopicRequest(topic)]
    elif isinstance(request, DescribeUserScramCredentialsRequest):
        request.users = request.users or [UserName(topic)]
    elif isinstance(request, DescribeClientQuotasRequest):
        if not any(component.match_type == EXACT for component in request.components):
            request.components = [ComponentData("user", EXACT, topic)]
    elif isinstance(request, ListTransactionsRequest):
        request.producer_id_filters = request.producer_id_filters or [producer_id]


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topic = exchange.create_topic("data", partitions=PARTITIONS_COUNT)
        self.topic_ids = [exchange.topic_id(self.topic), bytes(15) + b"\x63"]
        self.group = exchange.name("group")
        exchange.find_coordinator(self.group, GROUP)
        exchange.fill(self.topic, batch(3), batch(2))
        committed = OffsetCommitRequestTopic(self.topic, partitions=[OffsetCommitRequestPartition(0, 1)])
        exchange.call(OffsetCommitRequest(self.group, topics=[committed]), 8)
        self.producer = Transactional(exchange, "producer", 0)
        self.producer.begin(self.topic)
        self.is_cut = False
        self.choices: dict[str, Sequence[Any]] = {
            "resource_type": (2, 2, 2, 32, BROKER, 0, -1, 1, 77),
            "resource_name": (self.topic, self.topic, exchange.name("nothing"), self.group, "", "1", "77"),
            "UserName.name": (exchange.name("user"), exchange.name("nobody"), ""),
            "ScramCredentialDeletion.name": (exchange.name("user"), exchange.name("nobody"), ""),
            "ScramCredentialUpsertion.name": (exchange.name("user"), exchange.name("user"), ""),
            "DeleteTopicState.name": (exchange.name("nothing"), "a b", ""),
            "DeleteTopicState.topic_id": (self.topic_ids[1],),
            "topic_names": (exchange.name("nothing"), "a b", ""),
            "producer_id_filters": (self.producer.producer_id,) * 3 + (self.producer.producer_id + FAR,),
        } | CHOICES
        self.texts: dict[str, Sequence[str]] = {
            "topic": (self.topic, self.topic, self.topic, exchange.name("nothing"), "", "a b"),
            "group": (self.group, self.group, exchange.name("nobodies"), ""),
            "transactional_id": (self.producer.transactional_id,) * 3 + (exchange.name("nobody"), ""),
            "member": ("member", "member", "somebody", ""),
            "metadata": ("", "m", "m" * 4097),
            "assignor": ("range", "uniform", "nothing", ""),
        }
        self.numbers: dict[str, Sequence[int]] = {
            "acks": (-1, -1, 1),
            "max_bytes": (1 << 20, 1 << 20, 100, 0),
            "partition": (0, 0, 0, 1, 1, PARTITIONS_COUNT, -1),
            "producer_id": (self.producer.producer_id,) * 4 + (self.producer.producer_id + FAR, -1),
            "producer_epoch": (0, 0, 0, 1, 5),
            "coordinator_epoch": (-1, 0, 0, 0),
            "transaction_version": (0, 0, 1, 2),
            "epoch": (-1, -1, 0, 0, 0, 1, 5),
            "generation": (-1, 0, 0, 1, 1, 5),
            "timestamp": (-1, -2, -3, -4, BETWEEN_MS),
            "offset": (0, 0, 1, 3, 5, 9, -1),
            "key_type": (0, 1, 0, 1, 2, 7, -1),
            "replica_id": (-1, -1, -1, 1, -2),
            "session_id": (0,),
            "session_epoch": (-1, -1, 0),
            "isolation": (0, 1),
            "max_wait": (0, 0, 20),
            "min_bytes": (0, 1, 0),
            "transaction_timeout": (60_000, 60_000, 0, -1, 900_001),
            "rebalance_timeout": (60_000, 60_000, -1, 0),
            "timeout": (5_000,),
            "retention": (-1, -1, 60_000),
        }

    def run(self) -> None:
        for _ in range(STEPS_COUNT):
            request_type, lowest, highest = self.random.choice(ASKED)
            if request_type is DescribeLogDirsRequest and self.is_cut:
                # Segments before the beginning of a log are deleted when the broker finds the time.
                continue
            self.is_cut |= request_type is DeleteRecordsRequest
            version = self.steps.version(request_type, lowest=lowest, highest=highest)
            request = self.struct(schema_of(request_type), version)
            if isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest):
                # In Kafka an unknown group exists as soon as a client has tried to commit for it.
                request.group_id = self.group
            if isinstance(request, ProduceRequest) and self.is_of_the_producer(request):
                # With another one Kafka lets it into the producer's transaction: `producer-ids-of-others`.
                request.transactional_id = self.producer.transactional_id
            _leave_what_is_comparable(request, self.topic, self.producer.producer_id)
            name = request_type.__name__.removesuffix("Request")
            self.steps.ask(f"{name} {self.shown(request, version)}", request, version, retry=BUSY)
            if request_type is AlterUserScramCredentialsRequest:
                self.exchange.settle()
            self.settle()

    def is_of_the_producer(self, request: ProduceRequest) -> bool:
        """Whether a batch names the producer id of a transactional id."""
        return any(
            read_header(partition.records).producer_id == self.producer.producer_id
            for topic in request.topic_data
            for partition in topic.partition_data
            if partition.records
        )

    def settle(self) -> None:
        """Return when no transaction is being ended, which Kafka does after it has answered."""
        for _ in range(ATTEMPTS):
            request = DescribeTransactionsRequest([self.producer.transactional_id])
            state = self.exchange.call(request, 0).transaction_states[0].transaction_state
            if not state.startswith("Prepare"):
                break
            time.sleep(PAUSE_S)

    # One request

    def struct(self, schema: StructSchema, version: int) -> Any:
        present = [field for field in schema.fields if version in field.versions and field.tag not in TAGS_OF_OUR_OWN]
        return schema.python_class(**{field.name: self.field(field, schema.name, version) for field in present})

    def field(self, field: Field, struct: str, version: int) -> Any:
        if field.name in FIXED:
            return FIXED[field.name]
        if version in field.nullable and self.steps.happens(0.15) and field.name not in NEVER_NULL:
            return None
        choices = self.choices.get(f"{struct}.{field.name}") or self.choices.get(field.name)
        return self.value(field.type, field.name, version, choices)

    def value(self, wire_type: WireType, name: str, version: int, choices: Sequence[Any] | None) -> Any:
        random = self.random
        if isinstance(wire_type, ArrayOf):
            count = random.choice((0, 1, 1, 1, 1, 2))
            elements = [self.value(wire_type.element, name, version, choices) for _ in range(count)]
            # What is named twice in one request is answered in ways that no client knows.
            return list({_identity(element): element for element in elements}.values())
        if isinstance(wire_type, StructOf):
            return self.struct(struct_schema_of(wire_type.python_class), version)
        if choices is not None:
            return random.choice(choices)
        if isinstance(wire_type, FixedWidth):
            return self.fixed(wire_type.name, name)
        if wire_type is STRING:
            return self.text(name)
        return memoryview(self.records()) if wire_type is RECORDS else random.randbytes(4)

    def fixed(self, type_name: str, name: str) -> Any:
        if type_name == "bool":
            return self.steps.happens(0.5)
        if type_name == "uuid":
            return self.random.choice(self.topic_ids)
        for part, numbers in self.numbers.items():
            if part in name:
                return self.random.choice(numbers)
        return self.random.choice((0, 0, 0, 1, -1))

    def text(self, name: str) -> str:
        for part, texts in self.texts.items():
            if part in name:
                return self.random.choice(texts)
        return self.random.choice(self.texts["topic"])

    def records(self) -> bytes:
        if self.steps.happens(0.4):
            return batch(self.random.randint(1, 3))
        producer_id = self.fixed("int64", "producer_id")
        return batch(
            2,
            producer_id=producer_id,
            epoch=self.random.choice((0, 0, 1, -1)),
            sequence=self.random.choice((0, 0, 2, 4, -1)),
            # Outside of transactions Kafka takes it, unless one is open: `producer-ids-of-others`.
            transactional=producer_id == self.producer.producer_id or (producer_id >= 0 and self.steps.happens(0.5)),
        )

    def shown(self, value: Any, version: int) -> str:
        """What was given, for people, but for what is as it is by default."""
        shown = []
        for field in struct_schema_of(type(value)).fields:
            content = getattr(value, field.name)
            if version in field.versions and content != field.default:
                shown.append(f"{field.name}={self.shown_value(field.name, content, version)}")
        return f"({', '.join(shown)})"

    def shown_value(self, name: str, content: Any, version: int) -> str:
        if isinstance(content, list):
            return f"[{', '.join(self.shown_value(name, element, version) for element in content)}]"
        if hasattr(type(content), SCHEMA_ATTRIBUTE):
            return self.shown(content, version)
        if isinstance(content, memoryview):
            return f"{len(content)} bytes"
        if isinstance(content, str):
            return repr(self.exchange.plain_text(content))
        if name.endswith(("producer_id", "producer_id_filters")) and content >= 0:
            return f"its own + {content - self.producer.producer_id}"
        if content in self.topic_ids:
            return ("its id", "an unknown id")[self.topic_ids.index(content)]
        return repr(content)


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
