"""CreateTopics, DeleteTopics and CreatePartitions: administration of topics (KIP-4, KIP-195, KIP-516)."""

from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, message, struct, uuid


@struct
class CreatableReplicaAssignment:
    """The brokers for the replicas of one partition, given by hand."""

    partition_index: int32 = 0
    broker_ids: list[int32] = []


@struct
class CreatableTopicConfig:
    """A setting for the new topic."""

    name: str = ""
    value: str | None = ""


@struct
class CreatableTopic:
    """A topic to create. -1 partitions or replicas stand for the broker's defaults, or for the given assignments."""

    name: str = ""
    num_partitions: int32 = 0
    replication_factor: int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics, each separately; or only check whether that is possible."""

    topics: list[CreatableTopic] = []
    timeout_ms: int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopicConfigs:
    """A setting that the new topic has, and the source of its value."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


@struct
class CreatableTopicResult:
    """Result of one topic.

    Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED,
    NOT_CONTROLLER.
    """

    name: str = ""
    topic_id: uuid = field(versions="7+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: str | None = ""
    topic_config_error_code: int16 = field(versions="5+", tag=0, default=0)
    num_partitions: int32 = field(versions="5+", default=-1)
    replication_factor: int16 = field(versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(versions="5+", default=[])


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = []


@struct
class DeleteTopicState:
    """A topic to delete, by name or else by id."""

    name: str | None = None
    topic_id: uuid = ZERO_UUID


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics: up to version 5 `topic_names`, from then on `topics`."""

    topics: list[DeleteTopicState] = field(versions="6+", default=[])
    topic_names: list[str] = field(versions="1-5", default=[])
    timeout_ms: int32 = 0


@struct
class DeletableTopicResult:
    """Result of one topic.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, TOPIC_AUTHORIZATION_FAILED,
    INVALID_REQUEST.
    """

    name: str | None = field(nullable="6+", default="")
    topic_id: uuid = field(versions="6+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: str | None = field(versions="5+", default=None)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = []


@struct
class CreatePartitionsAssignment:
    """The brokers for the replicas of one new partition."""

    broker_ids: list[int32] = []


@struct
class CreatePartitionsTopic:
    """A topic and how many partitions it is to have in all."""

    name: str = ""
    count: int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Give topics more partitions; or only check whether that is possible."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: int32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopicResult:
    """Result of one topic.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST,
    TOPIC_AUTHORIZATION_FAILED.
    """

    name: str = ""
    error_code: int16 = 0
    error_message: str | None = None


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = []
