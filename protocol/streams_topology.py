"""What an application of Kafka Streams consists of, as its members tell it and as the coordinator writes it down.

Requests, replies and records have these parts in common, field by field.
Source: KIP-1071; Kafka's StreamsGroupHeartbeatRequest.json and StreamsGroupTopologyValue.json.
"""

from fencepost.protocol.schema import int16, int32, struct, uint16


@struct
class StreamsKeyValue:
    """A config of a topic, or a tag of a member."""

    key: str = ""
    value: str = ""


@struct
class StreamsEndpoint:
    """Where a process answers interactive queries."""

    host: str = ""
    port: uint16 = 0


@struct
class StreamsTaskIds:
    """Tasks of a subtopology; a task has the number of the partitions that it reads."""

    subtopology_id: str = ""
    partitions: list[int32] = []


@struct
class StreamsTopicInfo:
    """An internal topic. partitions: 0 when it follows from other topics. replication_factor: 0 for the default."""

    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[StreamsKeyValue] = []


@struct
class StreamsCopartitionGroup:
    """Topics that have to have as many partitions as each other, by their places in the lists of the subtopology."""

    source_topics: list[int16] = []
    source_topic_regex: list[int16] = []
    repartition_source_topics: list[int16] = []


@struct
class StreamsSubtopology:
    """A part of the topology that is processed as a whole: what it reads, what it writes, where its state is logged."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[StreamsTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[StreamsTopicInfo] = []
    copartition_groups: list[StreamsCopartitionGroup] = []
