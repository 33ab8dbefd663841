"""OffsetFetch: the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fencepost.broker.group.offsets.commits import FetchedOffset, Fetcher
from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.api import (
    RequestContext,
    SlicedResponse,
    api,
    written_in_slices,
)
from fencepost.broker.requests.declared_errors import GROUP_MEMBER, codes
from fencepost.broker.requests.declared_rights import Items, Needed, NeededRights
from fencepost.broker.rights.needed_rights import (
    DESCRIBE,
    GROUP,
    TOPIC,
    lacks,
    named,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from fencepost.broker.kernel.sliced_work import SlicedWork
    from fencepost.broker.security.authorizer import Rights


FIRST_VERSION_WITH_TOPIC_IDS = 10  # KIP-848
FETCH_HAS_TOP_LEVEL_ERROR = 2
FIRST_BATCH_FETCH = 8  # KIP-709


def offset_fetch_failed(request: OffsetFetchRequest, error: ErrorCode, version: int) -> OffsetFetchResponse:
    if version >= FIRST_BATCH_FETCH:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=error) for group in request.groups]
        )
    if version >= FETCH_HAS_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=-1, metadata="", error_code=error
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _with_described_offsets(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    """Offsets of topics that the client may not describe: an error if they are named, else left out."""
    if response.groups:
        are_named = {group.group_id: group.topics is not None for group in request.groups}
        for group in response.groups:
            group.topics = yield from _described_offsets(rights, group.topics, are_named[group.group_id])
    else:
        response.topics = yield from _described_offsets(rights, response.topics, request.topics is not None)


def _described_offsets(rights: Rights, topics: list[Any], are_named: bool) -> SlicedWork[list[Any]]:
    shown = []
    for topic in topics:
        yield
        # A topic without a name was given by an id that no topic has.
        if topic.name and not rights.may(DESCRIBE, TOPIC, topic.name):
            if not are_named:
                continue
            for partition in topic.partitions:
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                partition.committed_offset = partition.committed_leader_epoch = -1
                partition.metadata = ""
        shown.append(topic)
    return shown


@api(
    OffsetFetchRequest,
    OffsetFetchResponse,
    versions="1-10",
    rights=NeededRights(
        lambda rights, context, request: (
            lacks(rights, Needed(DESCRIBE, GROUP, request.group_id)) if context.api_version < 8 else None
        ),
        (Items("groups", "groups", named(DESCRIBE, GROUP, "group_id"), in_order=True, versions=(8, 99)),),
        finish=_with_described_offsets,
    ),
    errors=GROUP_MEMBER
    | codes(
        "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND "
        "UNSTABLE_OFFSET_COMMIT UNKNOWN_TOPIC_ID STALE_MEMBER_EPOCH"
    ),
    failed=offset_fetch_failed,
)
async def handle_offset_fetch(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | SlicedResponse:
    """Return committed offsets of one group, or of many (8 and later), for given partitions or all (topics null)."""
    version = context.api_version
    slices = Slices(SLICE_S)
    if version >= FIRST_BATCH_FETCH:
        groups = [await _fetch_group(context, group, request.require_stable, slices) for group in request.groups]
        count = sum(1 + len(topic.partitions) for group in groups for topic in group.topics) + len(groups)
        return written_in_slices(OffsetFetchResponse(groups=groups), count)
    fetched = await context.services.groups.fetch_offsets(
        request.group_id,
        None
        if request.topics is None
        else [
            TopicPartition(topic.name, partition) for topic in request.topics for partition in topic.partition_indexes
        ],
        require_stable=request.require_stable,
    )
    if isinstance(fetched, ErrorCode):
        return offset_fetch_failed(request, fetched, version)
    await slices.turn()
    response = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=offset.topic_partition.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=offset.error,
                    )
                    for offset in offsets
                ],
            )
            for name, offsets in _by_topic(fetched, sort=request.topics is None)
        ]
        + [OffsetFetchResponseTopic(name=topic.name) for topic in request.topics or () if not topic.partition_indexes]
    )
    return written_in_slices(response, len(fetched))


async def _fetch_group(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool, slices: Slices
) -> OffsetFetchResponseGroup:
    await slices.turn()
    topics = context.services.topics
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted: list[TopicPartition] | None = None
    unread: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        wanted = []
        for requested in group.topics:
            name = requested.name
            if by_id:
                topic = topics.metadata.get_by_id(requested.topic_id)
                if topic is None:
                    unread.append(
                        _unknown_topic(requested.topic_id, requested.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID)
                    )
                    continue
                name = topic.name
            if not requested.partition_indexes:
                unread.append(OffsetFetchResponseTopics(name=name, topic_id=requested.topic_id))
            wanted.extend(TopicPartition(name, partition) for partition in requested.partition_indexes)
    fetched = await context.services.groups.fetch_offsets(
        group.group_id,
        wanted,
        fetcher=Fetcher(group.member_id, group.member_epoch),
        require_stable=require_stable,
    )
    if isinstance(fetched, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=fetched)
    answered = []
    for name, offsets in _by_topic(fetched, sort=wanted is None):
        await slices.turn()
        answer = OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=offset.topic_partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                    error_code=offset.error,
                )
                for offset in offsets
            ],
        )
        if by_id:
            topic = topics.metadata.get(name)
            if topic is None:
                continue  # deleted while its offsets were read: its id is unknown now
            answer.topic_id = topic.topic_id
        answered.append(answer)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=answered + unread)


def _unknown_topic(topic_id: bytes, partitions: Iterable[int], error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, metadata="", error_code=error)
            for partition in partitions
        ],
    )


def _by_topic(fetched: list[FetchedOffset], *, sort: bool) -> Iterable[tuple[str, Iterable[FetchedOffset]]]:
    if sort:
        fetched = sorted(fetched, key=lambda offset: offset.topic_partition)
    return groupby(fetched, key=lambda offset: offset.topic_partition.topic)
