"""Topology of a Kafka Streams application: structs that requests, replies and stored records share.

Members send it, and the coordinator stores it.
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
    """Address at which a process answers interactive queries."""

    host: str = ""
    port: uint16 = 0


@struct
class StreamsTaskIds:
    """Tasks of a subtopology; a task's number is that of the partitions that it reads."""

    subtopology_id: str = ""
    partitions: list[int32] = []


@struct
class StreamsTopicInfo:
    """An internal topic. partitions: 0 if other topics determine it. replication_factor: 0 for the default."""

    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[StreamsKeyValue] = []


@struct
class StreamsCopartitionGroup:
    """Topics that must have the same number of partitions, by their indexes in the lists of the subtopology."""

    source_topics: list[int16] = []
    source_topic_regex: list[int16] = []
    repartition_source_topics: list[int16] = []


@struct
class StreamsSubtopology:
    """A part of the topology that is processed as a whole: its source, sink and changelog topics."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[StreamsTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[StreamsTopicInfo] = []
    copartition_groups: list[StreamsCopartitionGroup] = []
