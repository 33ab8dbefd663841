"""The committed offsets of one group: all of them or an error, and their commit from outside of the group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, RefusedError, check
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

OFFSETS_PER_REQUEST: Final = 2_000


@dataclass(frozen=True)
class CommittedOffset:
    """A committed offset with the metadata of its consumer. leader_epoch: -1 if it is not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


async def read_offsets(cluster: Cluster, coordinator: int, group_id: str) -> dict[Place, CommittedOffset]:
    """The committed offsets of a group, by place. Raises ClusterError, also while a transaction that is open holds
    others for it: these would take the place of any that are committed now.
    """
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
        require_stable=True,
    )
    reply = await cluster.send(request, coordinator)
    group = reply.groups[0] if reply.groups else reply
    check(group.error_code)
    found: dict[Place, CommittedOffset] = {}
    for topic in group.topics:
        for one in topic.partitions:
            place = topic.name, one.partition_index
            if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                name = f"{place[0]}-{place[1]}"
                raise ClusterError(f"a transaction that is still open holds an offset of {group_id} for {name}")
            check(one.error_code, f"{topic.name}-{one.partition_index}")
            if one.committed_offset >= 0:
                found[place] = CommittedOffset(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
    return dict(sorted(found.items()))


async def commit_offsets(
    cluster: Cluster, coordinator: int, group_id: str, offsets: Mapping[Place, CommittedOffset]
) -> dict[str, int]:
    """Commit offsets of a group without members, and return the error codes of those that failed, by the partition's
    name. Raises ClusterError only as long as none is committed.
    """
    failed: dict[str, int] = {}
    for number, some in enumerate(_pieces(sorted(offsets.items()))):
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=one.offset,
                            committed_leader_epoch=one.leader_epoch,
                            committed_metadata=one.metadata,
                        )
                        for (_, index), one in places
                    ],
                )
                for topic, places in groupby(some, key=lambda item: item[0][0])
            ],
        )
        try:
            reply = await cluster.send(request, coordinator)
        except ClusterError as error:
            if number == 0:
                raise
            code = error.code if isinstance(error, RefusedError) else ErrorCode.NETWORK_EXCEPTION
            failed.update(dict.fromkeys((f"{topic}-{index}" for (topic, index), _ in some), code))
            continue
        failed.update(
            (f"{topic.name}-{one.partition_index}", one.error_code)
            for topic in reply.topics
            for one in topic.partitions
            if one.error_code
        )
    return failed


def _pieces(
    offsets: Sequence[tuple[Place, CommittedOffset]],
) -> Iterator[list[tuple[Place, CommittedOffset]]]:
    left = iter(offsets)
    while some := list(islice(left, OFFSETS_PER_REQUEST)):
        yield some
