"""Metadata: the brokers of the cluster, its topics, and the leaders of partitions."""

from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, message, struct, uuid


@struct
class MetadataRequestTopic:
    """A topic by name or, from version 12 on, by id with a null name."""

    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    name: str | None = field(nullable="10+", default="")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Ask about some topics, or all of them: `topics` is None then, but in version 0 empty. Otherwise empty means no
    topic.
    """

    topics: list[MetadataRequestTopic] | None = field(nullable="1+", default=[])
    allow_auto_topic_creation: bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(versions="8+", default=False)


@struct
class MetadataResponseBroker:
    """Address of a broker."""

    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = field(versions="1+", default=None)


@struct
class MetadataResponsePartition:
    """Leader and replicas of a partition.

    Errors: LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE.
    """

    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = field(versions="7+", default=-1)
    replica_nodes: list[int32] = []
    isr_nodes: list[int32] = []
    offline_replicas: list[int32] = field(versions="5+", default=[])


@struct
class MetadataResponseTopic:
    """A topic with its partitions.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    name: str | None = field(nullable="12+", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    is_internal: bool = field(versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: int32 = field(versions="8+", default=-2147483648)  # the default means not requested


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker knows it. The error of version 13 is for REBOOTSTRAP_REQUIRED only (KIP-1102)."""

    throttle_time_ms: int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = field(versions="2+", default=None)
    controller_id: int32 = field(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: int32 = field(
        versions="8-10", default=-2147483648
    )  # the default means not requested
    error_code: int16 = field(versions="13+", default=0)
