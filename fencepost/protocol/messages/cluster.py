"""DescribeCluster and DescribeTopicPartitions: replacements of Metadata for admin clients (KIP-700, KIP-966).

Tagged fields from 10,000 on are not Kafka's: a broker of several describes its nodes and moves in them.
"""

from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Ask for the brokers. `endpoint_type` is 1 for brokers and 2 for controllers (KIP-919)."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = field(versions="1+", default=1)
    include_fenced_brokers: bool = field(versions="2+", default=False)


@struct
class DescribedListener:
    """A broker's address for the clients of one of its listeners."""

    name: str = ""
    host: str = ""
    port: int32 = 0


@struct
class DescribeClusterBroker:
    """Address of a broker; `is_fenced` if it is not live.

    Not Kafka's, of a broker of several: its state (alive, leaving, gone; "" without states), the time at which that
    began, and its listeners.
    """

    broker_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None
    is_fenced: bool = field(versions="2+", default=False)
    state: str = field(tag=10_000, default="")
    since_ms: int64 = field(tag=10_001, default=-1)
    listeners: list[DescribedListener] = field(tag=10_002, default=[])


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The brokers of the cluster.

    Errors: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field(versions="1+", default=1)
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: int32 = -2147483648  # the default means not requested


@struct
class TopicRequest:
    """A topic to describe."""

    name: str = ""


@struct
class Cursor:
    """Position at which the description continues: a topic and its first partition not yet described."""

    topic_name: str = ""
    partition_index: int32 = 0


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Ask for partitions, of all topics when `topics` is empty, with a limit per reply; `cursor` is the end of the
    previous reply.
    """

    topics: list[TopicRequest] = []
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    """Leader and replicas of a partition.

    Not Kafka's, of a broker of several: the node that an administrator has chosen to lead it, and the node that it is
    being moved to; -1 for none.
    Errors: LEADER_NOT_AVAILABLE.
    """

    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = -1
    replica_nodes: list[int32] = []
    isr_nodes: list[int32] = []
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32] = []
    chosen_leader: int32 = field(tag=10_000, default=-1)
    next_leader: int32 = field(tag=10_001, default=-1)


@struct
class DescribeTopicPartitionsResponseTopic:
    """A topic, or the part of it that fitted into the reply.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    name: str | None = ""
    topic_id: uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: int32 = -2147483648  # the default means not requested


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """Topics in the order of their names. `next_cursor` is None when that was all."""

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
