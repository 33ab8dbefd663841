"""metadata"""

from protocol.schema import ZERO_UUID, field, int16, int32, message, struct, uuid


@struct
class MetadataRequestTopic:
    """MetadataRequestTopic."""

    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    name: str | None = field(nullable="10+", default="")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """MetadataRequest."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+", default=[])
    allow_auto_topic_creation: bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(versions="8+", default=False)


@struct
class MetadataResponseBroker:
    """MetadataResponseBroker."""

    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = field(versions="1+", default=None)


@struct
class MetadataResponsePartition:
    """MetadataResponsePartition."""

    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = field(versions="7+", default=-1)
    replica_nodes: list[int32] = []
    isr_nodes: list[int32] = []
    offline_replicas: list[int32] = field(versions="5+", default=[])


@struct
class MetadataResponseTopic:
    """MetadataResponseTopic."""

    error_code: int16 = 0
    name: str | None = field(nullable="12+", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    is_internal: bool = field(versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: int32 = field(versions="8+", default=-2147483648)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """MetadataResponse."""

    throttle_time_ms: int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = field(versions="2+", default=None)
    controller_id: int32 = field(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: int32 = field(versions="8-10", default=-2147483648)
    error_code: int16 = field(versions="13+", default=0)
