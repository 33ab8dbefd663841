"""Topology of a Kafka Streams application: structs that requests, replies and stored records share.

Members send it, and the coordinator stores it.
Source: KIP-1071; Kafka's StreamsGroupHeartbeatRequest.json and StreamsGroupTopologyValue.json.
"""

from fencepost.protocol.schema import int8, int16, int32, struct, uint16


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


# The description of a topology for people (KIP-1331); the broker passes it on.


@struct
class StreamsTopologyDescriptionNode:
    """A node of a topology. node_type: 1 a source, 2 a processor, 3 a sink, whose topic may be None."""

    name: str = ""
    node_type: int8 = 0
    source_topics: list[str] = []
    sink_topic: str | None = None
    stores: list[str] = []
    successors: list[str] = []


@struct
class StreamsTopologyDescriptionSubtopology:
    """The nodes of a part of a topology."""

    subtopology_id: str = ""
    nodes: list[StreamsTopologyDescriptionNode] = []


@struct
class StreamsTopologyDescriptionGlobalStore:
    """A store of every instance, with the node that reads its topic and the one that fills it."""

    source: StreamsTopologyDescriptionNode = StreamsTopologyDescriptionNode()
    processor: StreamsTopologyDescriptionNode = StreamsTopologyDescriptionNode()


@struct
class StreamsTopologyDescription:
    """All nodes of a topology."""

    subtopologies: list[StreamsTopologyDescriptionSubtopology] = []
    global_stores: list[StreamsTopologyDescriptionGlobalStore] = []
