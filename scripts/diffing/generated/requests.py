"""Requests of many kinds, put together field by field: each value may make sense, few requests do as a whole.

What no client sends is where two brokers differ most easily. There is a little of everything to be found: records, a
group with a member, committed offsets, an open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from protocol.declaration import SCHEMA_ATTRIBUTE, ArrayOf, Field, StructOf, StructSchema, WireType, struct_schema_of
from protocol.errors import ErrorCode
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.coordinators import FindCoordinatorRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest, ReplicaState
from protocol.messages.group_admin import DescribeGroupsRequest
from protocol.messages.group_membership import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from protocol.messages.leader_epochs import OffsetForLeaderEpochRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.markers import WriteTxnMarkersRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.share_groups import ShareGroupDescribeRequest
from protocol.messages.streams_groups import StreamsGroupDescribeRequest
from protocol.messages.transaction_admin import DescribeTransactionsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from protocol.primitives import RECORDS, STRING, ZERO_UUID, FixedWidth
from protocol.schema import schema_of
from scripts.diffing.exchange import ATTEMPTS, GROUP, PAUSE_S, Exchange, batch
from scripts.diffing.generated.steps import Steps
from scripts.diffing.sequences.transactions import FAR, Transactional

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
)
"""What may be asked, from which version to which; nothing that changes the cluster or waits for other clients."""


FIXED: Final[dict[str, Any]] = {
    "replica_state": ReplicaState(),
    "replica_directory_id": ZERO_UUID,
    "high_watermark": 2**63 - 1,
    "cluster_id": None,
    "allow_auto_topic_creation": False,
    "subscribed_topic_regex": None,
}
"""Fields that have one value: they are between brokers, change the cluster, or take effect in Kafka's own time."""

NEVER_NULL: Final = frozenset({"records", "topics"})
"""All topics of the broker are others each time; Kafka does not answer a Produce without records."""

NAMED_BY: Final = ("topic_id", "name", "topic", "partition_index", "partition", "index", "producer_id", "member_id")


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


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = Steps(exchange, random)
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
            version = self.steps.version(request_type, lowest=lowest, highest=highest)
            request = self.struct(schema_of(request_type), version)
            if isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest):
                # A group that nobody knows is one for Kafka as soon as somebody has tried to commit for it.
                request.group_id = self.group
            if isinstance(request, WriteTxnMarkersRequest):
                _leave_one_marker(request)
            name = request_type.__name__.removesuffix("Request")
            self.steps.ask(f"{name} {self.shown(request, version)}", request, version, retry=BUSY)
            self.settle()

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
        present = [field for field in schema.fields if version in field.versions]
        return schema.python_class(**{field.name: self.field(field, version) for field in present})

    def field(self, field: Field, version: int) -> Any:
        if field.name in FIXED:
            return FIXED[field.name]
        if version in field.nullable and self.steps.happens(0.15) and field.name not in NEVER_NULL:
            return None
        return self.value(field.type, field.name, version)

    def value(self, wire_type: WireType, name: str, version: int) -> Any:
        random = self.random
        if isinstance(wire_type, ArrayOf):
            count = random.choice((0, 1, 1, 1, 1, 2))
            elements = [self.value(wire_type.element, name, version) for _ in range(count)]
            # What is named twice in one request is answered in ways that no client knows.
            return list({_identity(element): element for element in elements}.values())
        if isinstance(wire_type, StructOf):
            return self.struct(struct_schema_of(wire_type.python_class), version)
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
            transactional=producer_id >= 0 and self.steps.happens(0.5),
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
        if name.endswith("producer_id") and content >= 0:
            return f"its own + {content - self.producer.producer_id}"
        if content in self.topic_ids:
            return ("its id", "an unknown id")[self.topic_ids.index(content)]
        return repr(content)


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
