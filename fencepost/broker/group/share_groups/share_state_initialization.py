"""Initialization, alteration and deletion of the state of share partitions, as a share group records it. Pure.

The group writes a record before the share coordinator initializes or deletes state, and another one afterwards, so an
interrupted change is repeated.
Source: KIP-932; Kafka's GroupMetadataManager (maybeCreateInitializeShareGroupStateRequest, initializeShareGroupState,
sharePartitionsEligibleForOffsetDeletion, alterShareGroupOffsets, maybeCleanupShareGroupState).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.share_groups.group import (
    ShareGroup,
    ShareStatePartitions,
    StatePartitions,
    StateTopics,
    difference_of_topics,
    union_of_topics,
)
from fencepost.broker.group.share_groups.records import ShareDraft, state_partitions_value
from fencepost.protocol.stored.share_groups import ShareGroupStatePartitionMetadataKey

NONE_YET = ShareStatePartitions()
UNKNOWN_TOPIC = "<UNKNOWN>"

Partitions = Mapping[bytes, Collection[int]]
"""Share partitions by topic id."""


def uninitialized(group: ShareGroup, topics: TopicCatalogue, given_up_before_ms: int) -> dict[bytes, StatePartitions]:
    """Return subscribed partitions without state whose initialization has not begun, or began too long ago."""
    known = group.state_partitions or NONE_YET
    promised = known.initializing if known.initializing_since_ms > given_up_before_ms else {}
    has_or_gets_state = union_of_topics(known.initialized, promised)
    missing = {}
    for name in sorted(group.subscribed_topics()):
        topic = topics.get(name)
        if topic is None:
            continue
        already = has_or_gets_state.get(topic.topic_id)
        if already is None or len(already.partitions) < topic.partition_count:
            partitions = frozenset(range(topic.partition_count))
            missing[topic.topic_id] = StatePartitions(
                topic.name, partitions if already is None else partitions - already.partitions
            )
    return missing


def added_partitions(group: ShareGroup, missing: Partitions) -> dict[bytes, frozenset[int]]:
    """Return the partitions, of those without state, that a topic has got since the group subscribed to it.

    A partition whose initialization was interrupted is none of them; Kafka takes it for one.
    """
    known = group.state_partitions or NONE_YET
    known_topics = union_of_topics(known.initialized, known.initializing)
    begun = {topic_id: topic.partitions for topic_id, topic in known.initializing.items()}
    return {
        topic_id: frozenset(numbers) - begun.get(topic_id, frozenset())
        for topic_id, numbers in missing.items()
        if topic_id in known_topics
    }


def begin_initializing(draft: ShareDraft, topics: StateTopics) -> None:
    """Write down that the initialization of partitions begins."""
    known = draft.group.state_partitions or NONE_YET
    _write(
        draft,
        replace(
            known,
            initializing=union_of_topics(known.initializing, topics),
            deleting={topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topics},
        ),
    )


def finish_initializing(draft: ShareDraft, partitions: Partitions, topics: TopicCatalogue) -> None:
    """Write down that partitions have state."""
    known = draft.group.state_partitions or NONE_YET
    done = {
        topic_id: StatePartitions(_name(topic_id, topics), frozenset(numbers))
        for topic_id, numbers in partitions.items()
    }
    _write(
        draft,
        replace(
            known,
            initializing=difference_of_topics(known.initializing, partitions),
            initialized=union_of_topics(known.initialized, done),
        ),
    )


def give_up_initializing(draft: ShareDraft, partitions: Partitions) -> None:
    """Write down that the initialization of partitions failed: the next heartbeat retries it."""
    known = draft.group.state_partitions or NONE_YET
    _write(draft, replace(known, initializing=difference_of_topics(known.initializing, partitions)))


def begin_deleting(
    draft: ShareDraft, names: Collection[str] | None, topics: TopicCatalogue
) -> tuple[dict[bytes, frozenset[int]], list[str]]:
    """Write down that the deletion of the state of topics, or (None) of all, begins. Returns the partitions whose state
    the share coordinator has to delete, and the names without state."""
    known = draft.group.state_partitions or NONE_YET
    of_topics = union_of_topics(known.initialized, known.initializing) if names is None else known.initialized
    to_delete: dict[bytes, frozenset[int]] = {}
    without_state: list[str] = []
    for topic_id, name in known.deleting.items():
        topic = topics.get_by_id(topic_id)
        if topic is not None and (names is None or name in names):
            to_delete[topic_id] = frozenset(range(topic.partition_count))  # an interrupted deletion
    if names is None:
        to_delete.update((topic_id, topic.partitions) for topic_id, topic in of_topics.items())
    else:
        for name in names:
            topic = topics.get(name)
            if topic is not None and topic.topic_id in of_topics:
                to_delete[topic.topic_id] = of_topics[topic.topic_id].partitions
            elif topic is None or topic.topic_id not in to_delete:
                without_state.append(name)
    _write(
        draft,
        replace(
            known,
            initializing={} if names is None else known.initializing,
            initialized={topic_id: topic for topic_id, topic in known.initialized.items() if topic_id not in to_delete},
            deleting={**known.deleting, **{topic_id: _name(topic_id, topics) for topic_id in to_delete}},
        ),
    )
    return to_delete, without_state


def finish_deleting(draft: ShareDraft, topic_ids: Collection[bytes]) -> None:
    """Write down that the state of topics is deleted."""
    known = draft.group.state_partitions or NONE_YET
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids}
    _write(draft, replace(known, deleting=deleting))


def drop_topics(draft: ShareDraft, is_deleted: Callable[[bytes], bool]) -> None:
    """Remove deleted topics from the group's record of state."""
    known = draft.group.state_partitions
    if known is None:
        return
    kept = ShareStatePartitions(
        initializing={key: topic for key, topic in known.initializing.items() if not is_deleted(key)},
        initialized={key: topic for key, topic in known.initialized.items() if not is_deleted(key)},
        deleting={key: name for key, name in known.deleting.items() if not is_deleted(key)},
        initializing_since_ms=known.initializing_since_ms,
    )
    if kept != known:
        _write(draft, kept)


def _write(draft: ShareDraft, state: ShareStatePartitions) -> None:
    draft.write(ShareGroupStatePartitionMetadataKey(draft.group.group_id), state_partitions_value(state))


def _name(topic_id: bytes, topics: TopicCatalogue) -> str:
    topic = topics.get_by_id(topic_id)
    return UNKNOWN_TOPIC if topic is None else topic.name
