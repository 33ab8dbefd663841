"""Resolution of an application's topology with the existing topics. Pure.

The result holds the number of tasks of each subtopology, the internal topics to create, and problems of the topics.

Source: KIP-1071; Kafka's StreamsTopology, InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer,
ChangelogTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from fencepost.broker.group.consumer.subscriptions import TopicCatalogue, metadata_hash
from fencepost.protocol.streams_topology import StreamsSubtopology, StreamsTopicInfo

MAX_NAMES_IN_A_MESSAGE = 3

PartitionCount = Callable[[str], int | None]
"""Function from a topic name to its present or future partition count; None for a missing topic."""


class TopologyStatus(IntEnum):
    """Statuses of a group in replies to its members, with the protocol's numbers. Source: KIP-1071, KIP-1266."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class TopologyProblem(NamedTuple):
    """Status that keeps the topology from running; the detail is for people."""

    status: TopologyStatus
    detail: str


class StreamsInternalTopic(NamedTuple):
    """A topic that the broker creates for the application. replication_factor: 0 or -1 for the default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class Topology:
    """Topology of an application: its subtopologies by id."""

    epoch: int
    subtopologies: Mapping[str, StreamsSubtopology]

    @classmethod
    def of(cls, epoch: int, subtopologies: Iterable[StreamsSubtopology]) -> Topology:
        return cls(epoch, {subtopology.subtopology_id: subtopology for subtopology in subtopologies})

    @cached_property
    def subtopology_of_source(self) -> Mapping[str, str]:
        """Id of the subtopology that reads a topic, by topic name."""
        return {
            name: subtopology_id
            for subtopology_id, subtopology in self.subtopologies.items()
            for name in source_names(subtopology)
        }

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """All topics that have to exist before the application can run."""
        names = set(self.subtopology_of_source)
        for subtopology in self.subtopologies.values():
            names.update(topic.name for topic in subtopology.state_changelog_topics)
        return frozenset(names)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose partition counts are known."""

    task_count: int
    source_topics: frozenset[str]
    repartition_sink_topics: frozenset[str]
    repartition_source_topics: Mapping[str, StreamsInternalTopic]
    state_changelog_topics: Mapping[str, StreamsInternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def topics_read(self) -> list[str]:
        return sorted(self.source_topics | self.repartition_source_topics.keys())


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """Topology resolved with the existing topics. problem: None when it can run.

    metadata_hash: hash of the required topics that exist.
    subtopologies: sorted by id; none when sources are missing or partition counts are wrong.
    to_create:     internal topics that do not exist yet.
    """

    metadata_hash: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    to_create: Mapping[str, StreamsInternalTopic]
    problem: TopologyProblem | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class InvalidTopology(NamedTuple):
    """Refusal of a topology that can work with no topics (STREAMS_INVALID_TOPOLOGY); the reason is for people."""

    reason: str


class _ProblemError(Exception):
    """First problem of a topology. Raised and caught within `configure`."""

    def __init__(self, found: TopologyProblem | InvalidTopology) -> None:
        super().__init__()
        self.found = found


def source_names(subtopology: StreamsSubtopology) -> list[str]:
    """Return the topics that a subtopology reads, its repartition source topics included."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def configure(topology: Topology, topics: TopicCatalogue) -> ConfiguredTopology | InvalidTopology:
    """Resolve the topology with these topics."""
    hashed = metadata_hash(topology.required_topics, topics)
    try:
        return _configure(topology, topics, hashed)
    except _ProblemError as problem:
        if isinstance(problem.found, InvalidTopology):
            return problem.found
        return ConfiguredTopology(hashed, {}, {}, problem.found)


def _configure(topology: Topology, topics: TopicCatalogue, hashed: int) -> ConfiguredTopology:
    subtopologies = topology.subtopologies.values()
    missing = {name for each in subtopologies for name in each.source_topics if topics.get(name) is None}
    if missing:
        raise _ProblemError(
            TopologyProblem(TopologyStatus.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")
        )
    decided: dict[str, int] = {}

    def partition_count(name: str) -> int | None:
        topic = topics.get(name)
        return decided.get(name) if topic is None else topic.partition_count

    decided.update(_repartition_counts(list(subtopologies), partition_count))
    _enforce_copartitioning(subtopologies, partition_count, decided)
    task_counts = {}
    for subtopology_id, subtopology in topology.subtopologies.items():
        counts = [partition_count(name) for name in source_names(subtopology)]
        task_counts[subtopology_id] = max((count for count in counts if count is not None), default=0)
        if task_counts[subtopology_id] <= 0:
            raise _ProblemError(InvalidTopology(f"No source topics found for subtopology {subtopology_id}"))
        decided.update((topic.name, task_counts[subtopology_id]) for topic in subtopology.state_changelog_topics)
    configured = {
        subtopology_id: ConfiguredSubtopology(
            task_counts[subtopology_id],
            frozenset(subtopology.source_topics),
            frozenset(subtopology.repartition_sink_topics),
            _internal(subtopology.repartition_source_topics, decided),
            _internal(subtopology.state_changelog_topics, decided),
        )
        for subtopology_id, subtopology in sorted(topology.subtopologies.items())
    }
    to_create = _missing_internal_topics(configured.values(), topics)
    if not to_create:
        return ConfiguredTopology(hashed, configured, {}, None)
    detail = f"Internal topics are missing: {_summary(to_create)}"
    return ConfiguredTopology(
        hashed, configured, to_create, TopologyProblem(TopologyStatus.MISSING_INTERNAL_TOPICS, detail)
    )


def _repartition_counts(subtopologies: Sequence[StreamsSubtopology], partition_count: PartitionCount) -> dict[str, int]:
    """Return the partition count of each repartition topic: its own, or the greatest one of the topics that feed it."""
    counts = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    unknown = {name for subtopology in subtopologies for name in subtopology.repartition_sink_topics} - counts.keys()
    while unknown:
        before = len(unknown)
        for subtopology in subtopologies:
            known = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
            known += map(partition_count, subtopology.source_topics)
            most = max((count for count in known if count is not None), default=None)
            if most is not None:
                counts.update((name, most) for name in subtopology.repartition_sink_topics if name in unknown)
                unknown.difference_update(subtopology.repartition_sink_topics)
        if len(unknown) == before:
            reason = (
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
            raise _ProblemError(InvalidTopology(reason))
    if any(topic.name not in counts for each in subtopologies for topic in each.repartition_source_topics):
        reason = (
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
        raise _ProblemError(InvalidTopology(reason))
    return counts


def _enforce_copartitioning(
    subtopologies: Iterable[StreamsSubtopology], partition_count: PartitionCount, decided: dict[str, int]
) -> None:
    """Give the topics of each copartition group one partition count: repartition topics are changed, others checked."""
    repartition = {topic.name: topic for each in subtopologies for topic in each.repartition_source_topics}
    fixed = {name for name, topic in repartition.items() if topic.partitions}
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            try:
                names = {subtopology.source_topics[index] for index in group.source_topics}
                names |= {subtopology.repartition_source_topics[at].name for at in group.repartition_source_topics}
            except IndexError:
                reason = (
                    f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that is not there."
                )
                raise _ProblemError(InvalidTopology(reason)) from None
            counts = {name: partition_count(name) or 0 for name in sorted(names)}
            external = {name: count for name, count in counts.items() if name not in repartition}
            # Kafka compares all fixed topics here, also those of other copartition groups.
            alike = external or {name: counts[name] for name in counts if name in fixed} or counts
            if not alike:
                continue
            if (external or fixed & counts.keys()) and len(set(alike.values())) > 1:
                listed = ", ".join(f"{name}={count}" for name, count in alike.items())
                raise _incorrect(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
            count = max(alike.values())
            for name in counts.keys() - external.keys():
                if name in fixed and counts[name] != count:
                    raise _incorrect(
                        f"Number of partitions [{counts[name]}] of repartition topic [{name}] doesn't match number of "
                        f"partitions [{count}] of the source topic."
                    )
                decided[name] = count


def _incorrect(detail: str) -> _ProblemError:
    return _ProblemError(TopologyProblem(TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS, detail))


def _internal(infos: Iterable[StreamsTopicInfo], decided: Mapping[str, int]) -> dict[str, StreamsInternalTopic]:
    topics = {}
    for info in infos:
        partition_count = info.partitions or decided[info.name]
        if partition_count < 0:
            raise _ProblemError(InvalidTopology(f"Internal topic {info.name} has {partition_count} partitions."))
        configs = {config.key: config.value for config in info.topic_configs}
        topics[info.name] = StreamsInternalTopic(info.name, partition_count, info.replication_factor, configs)
    return topics


def _missing_internal_topics(
    subtopologies: Iterable[ConfiguredSubtopology], topics: TopicCatalogue
) -> dict[str, StreamsInternalTopic]:
    missing = {}
    for subtopology in subtopologies:
        for wanted in (
            *subtopology.repartition_source_topics.values(),
            *subtopology.state_changelog_topics.values(),
        ):
            topic = topics.get(wanted.name)
            if topic is None:
                missing[wanted.name] = wanted
            elif topic.partition_count != wanted.partition_count:
                raise _incorrect(
                    f"Existing topic {wanted.name} has different number of partitions: expected "
                    f"{wanted.partition_count}, found {topic.partition_count}"
                )
    return missing


def _summary(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:MAX_NAMES_IN_A_MESSAGE])
    more = len(listed) - MAX_NAMES_IN_A_MESSAGE
    return f"{shown} and {more} additional topics" if more > 0 else shown
