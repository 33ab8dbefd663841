"""High watermarks of partitions, led here or elsewhere: the lag of a share group is counted from them.

Source: Kafka's NetworkPartitionMetadataClient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = get_logger(__name__)

LIST_OFFSETS_VERSION: Final = 6
ANY_REPLICA: Final = -1
LATEST: Final = -1
TIME_OUT_S: Final = 10.0


async def end_offsets(
    topics: Topics, peers: Peers | None, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int | ErrorCode]:
    """Return the high watermark of each partition, asked of its leader.

    Refuses, per partition: NOT_LEADER_OR_FOLLOWER (no leader is known, or it does not answer), the leader's errors.
    """
    found: dict[TopicPartition, int | ErrorCode] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        partition_log = topics.log(partition)
        leader = None if partition_log is not None or peers is None else topics.placement.leader(partition)
        if partition_log is not None:
            found[partition] = partition_log.high_watermark
        elif leader is None or topics.placement.is_local(partition):
            found[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            elsewhere.setdefault(leader.node_id, []).append(partition)
    if peers is not None and elsewhere:
        for answer in await asyncio.gather(*(_of_node(peers, node_id, asked) for node_id, asked in elsewhere.items())):
            found |= answer
    return found


async def _of_node(
    peers: Peers, node_id: int, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | ErrorCode]:
    asked: dict[str, list[ListOffsetsPartition]] = {}
    for topic, number in partitions:
        asked.setdefault(topic, []).append(ListOffsetsPartition(number, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=ANY_REPLICA, topics=[ListOffsetsTopic(name, wanted) for name, wanted in asked.items()]
    )
    found: dict[TopicPartition, int | ErrorCode] = dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        response: ListOffsetsResponse = await peers.request(node_id, request, LIST_OFFSETS_VERSION, TIME_OUT_S)
    except PeerUnreachable as unreachable:
        log.warning("end_offsets_not_answered", node_id=node_id, reason=str(unreachable))
        return found
    for topic_response in response.topics:
        for partition in topic_response.partitions:
            error = received_error(partition.error_code)
            name = TopicPartition(topic_response.name, partition.partition_index)
            found[name] = partition.offset if error is ErrorCode.NONE else error
    return found
