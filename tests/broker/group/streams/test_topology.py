"""What a topology means with the topics that there are."""

from __future__ import annotations

import pytest

from fencepost.broker.group.streams.topology import (
    ConfiguredTopology,
    InvalidTopology,
    Topology,
    TopologyProblem,
    TopologyStatus,
    configure,
)
from fencepost.protocol.streams_topology import StreamsCopartitionGroup, StreamsSubtopology, StreamsTopicInfo
from tests.support.consumer_group import image
from tests.support.streams_group import counting


def joined(repartition: StreamsTopicInfo, *sources: str, sinks: int = 1) -> Topology:
    """Subtopology `0` repartitions `left`; subtopology `1` joins that with other topics."""
    return Topology.of(
        0,
        [
            StreamsSubtopology("0", source_topics=["left"], repartition_sink_topics=["r"] * sinks),
            StreamsSubtopology(
                "1",
                source_topics=list(sources),
                repartition_source_topics=[repartition],
                copartition_groups=[StreamsCopartitionGroup(list(range(len(sources))), [], [0])],
            ),
        ],
    )


def problem_of(topology: Topology, **partition_counts: int) -> TopologyProblem | None:
    configured = configure(topology, image(**partition_counts))
    assert isinstance(configured, ConfiguredTopology)
    return configured.problem


def counts_of(topology: Topology, **partition_counts: int) -> dict[str, int]:
    """Internal topics that are to be created."""
    configured = configure(topology, image(**partition_counts))
    assert isinstance(configured, ConfiguredTopology)
    return {name: topic.partition_count for name, topic in configured.to_create.items()}


def test_a_repartition_topic_has_the_partition_count_of_its_sources() -> None:
    assert counts_of(joined(StreamsTopicInfo("r")), left=3) == {"r": 3}


def test_a_repartition_topic_follows_the_topics_that_it_is_joined_with() -> None:
    assert counts_of(joined(StreamsTopicInfo("r"), "right"), left=3, right=5) == {"r": 5}


def test_counts_go_on_through_topics_that_are_repartitioned_again() -> None:
    topology = Topology.of(
        0,
        [
            StreamsSubtopology("2", repartition_source_topics=[StreamsTopicInfo("s")], repartition_sink_topics=[]),
            StreamsSubtopology("1", repartition_source_topics=[StreamsTopicInfo("r")], repartition_sink_topics=["s"]),
            StreamsSubtopology("0", source_topics=["left"], repartition_sink_topics=["r"]),
        ],
    )
    assert counts_of(topology, left=4) == {"r": 4, "s": 4}


def test_topics_that_are_joined_have_to_be_partitioned_alike() -> None:
    problem = problem_of(joined(StreamsTopicInfo("r"), "right", "third"), left=3, right=5, third=4)
    detail = "Following topics do not have the same number of partitions: [{right=5, third=4}]"
    assert problem == (TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_a_fixed_repartition_topic_has_to_fit_what_it_is_joined_with() -> None:
    problem = problem_of(joined(StreamsTopicInfo("r", partitions=2), "right"), left=3, right=5)
    detail = (
        "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [5] of the source topic."
    )
    assert problem == (TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert counts_of(joined(StreamsTopicInfo("r", partitions=5), "right"), left=3, right=5) == {"r": 5}


def test_an_internal_topic_that_does_not_fit_is_a_problem() -> None:
    topology = joined(StreamsTopicInfo("r"))
    topology.subtopologies["1"].copartition_groups = []
    problem = problem_of(topology, left=3, r=2)
    detail = "Existing topic r has different number of partitions: expected 3, found 2"
    assert problem == (TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_only_some_missing_topics_are_named() -> None:
    topology = Topology.of(0, [StreamsSubtopology("0", source_topics=["e", "d", "c", "b", "a"])])
    problem = problem_of(topology, other=1)
    assert problem == (
        TopologyStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 2 additional topics are missing.",
    )


def test_changelog_topics_have_one_partition_per_task() -> None:
    counted = counting()
    configured = configure(Topology.of(counted.epoch, counted.subtopologies), image(words=7))
    assert isinstance(configured, ConfiguredTopology)
    assert configured.subtopologies["1"].task_count == 7
    assert {topic.partition_count for topic in configured.to_create.values()} == {7}


LOOP = [StreamsSubtopology("0", repartition_source_topics=[StreamsTopicInfo("r")], repartition_sink_topics=["r"])]
NO_SOURCE = [StreamsSubtopology("0")]
NO_SINK = [StreamsSubtopology("0", source_topics=["left"], repartition_source_topics=[StreamsTopicInfo("r")])]
WRONG_INDEX = [StreamsSubtopology("0", source_topics=["left"], copartition_groups=[StreamsCopartitionGroup([1])])]
NEGATIVE = [
    StreamsSubtopology("0", source_topics=["left"], repartition_source_topics=[StreamsTopicInfo("r", partitions=-1)])
]


@pytest.mark.parametrize("subtopologies", [LOOP, NO_SOURCE, NO_SINK, WRONG_INDEX, NEGATIVE])
def test_topologies_that_no_topics_can_make_work_are_invalid(subtopologies: list[StreamsSubtopology]) -> None:
    assert isinstance(configure(Topology.of(0, subtopologies), image(left=2)), InvalidTopology)
