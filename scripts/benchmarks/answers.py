"""What a broker says when all goes well, to every request of the benchmark's clients; it keeps nothing.

Replies are objects of the protocol package, made from the request alone and a few numbers. Who answers with them does
no work of a broker: see `scripts/benchmarks/answering_limit.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)
from fencepost.protocol.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NODE_ID = 1
SOME_OFFSET = 0x0123456789ABCDEF
"""Placeholder in the reply to a Produce: the sender replaces it by the offset of the record."""
HEARTBEAT_INTERVAL_MS = 5_000

VERSIONS: dict[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 9),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 9),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 5),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.END_TXN: (0, 3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}
"""What is answered; topics have names and no ids, transactions are of version 1."""


class Answers:
    """Says yes. Knows the topics that were created, and how many records were produced."""

    def __init__(self) -> None:
        self.address = ("", 0)  # where clients are to come back to; set once it is known
        self.end_offset = 0
        self._partitions_count: dict[str, int] = {}
        self._producer_ids = itertools.count(1)
        self._makers: dict[type[Any], Callable[[Any], Any]] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            CreateTopicsRequest: self._create_topics,
            DeleteTopicsRequest: self._delete_topics,
            ListOffsetsRequest: self._list_offsets,
            FindCoordinatorRequest: self._find_coordinator,
            InitProducerIdRequest: self._init_producer_id,
            AddPartitionsToTxnRequest: self._add_partitions,
            EndTxnRequest: lambda _: EndTxnResponse(),
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            OffsetCommitRequest: self._commit_offsets,
            ProduceRequest: self._produce,
        }

    def to(self, request: Any) -> Any:
        """Raises KeyError for what no client of the benchmark asks."""
        return self._makers[type(request)](request)

    def _api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(key, *versions) for key, versions in VERSIONS.items()])

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name or "" for topic in request.topics or ()]
        host, port = self.address
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host=host, port=port)],
            cluster_id="limit",
            controller_id=NODE_ID,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index,
                            leader_id=NODE_ID,
                            leader_epoch=0,
                            replica_nodes=[NODE_ID],
                            isr_nodes=[NODE_ID],
                        )
                        for index in range(self._partitions_count.get(name, 1))
                    ],
                )
                for name in names
            ],
        )

    def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self._partitions_count.update((topic.name, topic.num_partitions) for topic in request.topics)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in request.topics])

    def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in request.topic_names])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=self.end_offset if partition.timestamp == -1 else 0,
                            leader_epoch=0,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self.address
        return FindCoordinatorResponse(
            node_id=NODE_ID,
            host=host,
            port=port,
            coordinators=[
                Coordinator(key=key, node_id=NODE_ID, host=host, port=port) for key in request.coordinator_keys
            ],
        )

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=next(self._producer_ids))

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=1,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            assignment=ConsumerGroupHeartbeatResponseAssignment(),
        )

    def _commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=partition.partition_index)
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=partition.index, base_offset=SOME_OFFSET, log_start_offset=0)
                        for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
