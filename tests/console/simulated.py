"""A cluster of any size without brokers: it answers in the protocol's messages, and counts what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, EARLIEST
from fencepost.client.errors import RefusedError, UnreachableError
from fencepost.client.session import ClientOptions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import group_admin, group_offsets, list_offsets, log_dirs, metadata, producers
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsResponse, ListTransactionsResponse

ELEMENTS = 250_000
"""A broker closes the connection of a request with more elements."""


class SimulatedCluster(Cluster):
    """topics: number of partitions by name. nodes: number of brokers, which lead the partitions in turn. groups: number
    of groups, each with offset 0 in all partitions of three topics.

    ends: high watermarks that are not 10. asked: how many requests of each kind came. largest: elements of the largest.
    silent: brokers that accept requests and never answer. dead: brokers that cannot be reached.
    """

    def __init__(self, topics: Mapping[str, int], *, nodes: int = 3, groups: int = 0, user: str = "") -> None:
        super().__init__([("simulated", 9092)], ClientOptions(client_id=user))
        self.topics = dict(topics)
        self.ids = {name: index.to_bytes(16, "big") for index, name in enumerate(self.topics, 1)}
        self.nodes = range(1, nodes + 1)
        self.groups = [f"group-{number}" for number in range(groups)]
        self.ends: dict[str, int] = {}
        self.stable: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        self.largest = 0
        self.silent: set[int | None] = set()
        self.dead: set[int] = set()
        self.refused: set[int] = set()
        self.user_name = user

    @property
    def identity(self) -> str:
        return self.user_name

    async def send(self, request: Any, node_id: int | None = None, *, at_most: int | None = None) -> Any:
        if self.is_closed:
            raise UnreachableError("this client was closed")
        kind = type(request).__name__.removesuffix("Request")
        self.asked[kind] += 1
        await asyncio.sleep(0)
        if node_id in self.dead:
            raise UnreachableError(f"no broker answers at broker-{node_id}")
        if node_id in self.silent:
            await asyncio.Event().wait()
        answer = getattr(self, f"_{kind.lower()}", None)
        if answer is None:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        return answer(request, node_id)

    def leader(self, index: int) -> int:
        return self.nodes[index % len(self.nodes)]

    def _metadata(self, request: metadata.MetadataRequest, _: int | None) -> Any:
        names = self.topics if request.topics is None else [one.name or "" for one in request.topics]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=node, host="b", port=node) for node in self.nodes],
            cluster_id="simulated",
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    name=name,
                    topic_id=self.ids[name],
                    partitions=[
                        metadata.MetadataResponsePartition(partition_index=index, leader_id=self.leader(index))
                        for index in range(self.topics[name])
                    ],
                )
                if name in self.topics
                else metadata.MetadataResponseTopic(name=name, error_code=unknown)
                for name in names
            ],
        )

    def _listoffsets(self, request: list_offsets.ListOffsetsRequest, _: int | None) -> Any:
        self.largest = max(self.largest, sum(len(topic.partitions) for topic in request.topics))

        def offset_of(name: str, timestamp: int) -> int:
            if timestamp == EARLIEST:
                return 0
            end = self.ends.get(name, 10)
            return self.stable.get(name, end) if request.isolation_level == COMMITTED else end

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=0 if topic.name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            offset=offset_of(topic.name, one.timestamp),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _describelogdirs(self, request: log_dirs.DescribeLogDirsRequest, node: int | None) -> Any:
        names = self.topics if request.topics is None else [one.topic for one in request.topics]
        topics = [
            log_dirs.DescribeLogDirsTopic(
                name=name,
                partitions=[
                    log_dirs.DescribeLogDirsPartition(partition_index=index, partition_size=100)
                    for index in range(self.topics.get(name, 0))
                    if self.leader(index) == node
                ],
            )
            for name in names
        ]
        return log_dirs.DescribeLogDirsResponse(results=[log_dirs.DescribeLogDirsResult(topics=topics)])

    def _listgroups(self, _: Any, node: int | None) -> Any:
        if node in self.refused:
            return group_admin.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        mine = self.groups[(node or 0) - 1 :: len(self.nodes)]
        return group_admin.ListGroupsResponse(
            groups=[group_admin.ListedGroup(group_id=one, group_state="Stable", group_type="classic") for one in mine]
        )

    def topics_of(self, group_id: str) -> list[str]:
        """The topics that a group reads."""
        number, names = self.groups.index(group_id), list(self.topics)
        return sorted({names[(number * step + step) % len(names)] for step in (1, 2, 7)})

    def _offsetfetch(self, request: group_offsets.OffsetFetchRequest, _: int | None) -> Any:
        def partitions(name: str) -> list[group_offsets.OffsetFetchResponsePartitions]:
            return [
                group_offsets.OffsetFetchResponsePartitions(partition_index=index) for index in range(self.topics[name])
            ]

        return group_offsets.OffsetFetchResponse(
            groups=[
                group_offsets.OffsetFetchResponseGroup(
                    group_id=one.group_id,
                    topics=[
                        group_offsets.OffsetFetchResponseTopics(name=name, partitions=partitions(name))
                        for name in self.topics_of(one.group_id)
                    ],
                )
                for one in request.groups
            ]
        )

    def _describegroups(self, request: group_admin.DescribeGroupsRequest, _: int | None) -> Any:
        return group_admin.DescribeGroupsResponse(
            groups=[group_admin.DescribedGroup(group_id=one, group_state="Stable") for one in request.groups]
        )

    def _listtransactions(self, *_: Any) -> Any:
        return ListTransactionsResponse()

    def _describetransactions(self, *_: Any) -> Any:
        return DescribeTransactionsResponse()

    def _describeproducers(self, request: producers.DescribeProducersRequest, _: int | None) -> Any:
        self.largest = max(self.largest, sum(len(topic.partition_indexes) for topic in request.topics))
        return producers.DescribeProducersResponse()


def large(user: str = "") -> SimulatedCluster:
    """50,000 partitions, 10,000 of them of one topic, and 2,000 groups."""
    topics = {"wide": 10_000} | {f"topic-{number:04}": 10 for number in range(4_000)}
    return SimulatedCluster(topics, groups=2_000, user=user)
