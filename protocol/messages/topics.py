"""topics"""

from protocol.schema import ZERO_UUID, field, int8, int16, int32, message, struct, uuid


@struct
class CreatableReplicaAssignment:
    """CreatableReplicaAssignment."""

    partition_index: int32 = 0
    broker_ids: list[int32] = []


@struct
class CreatableTopicConfig:
    """CreatableTopicConfig."""

    name: str = ""
    value: str | None = ""


@struct
class CreatableTopic:
    """CreatableTopic."""

    name: str = ""
    num_partitions: int32 = 0
    replication_factor: int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """CreateTopicsRequest."""

    topics: list[CreatableTopic] = []
    timeout_ms: int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopicConfigs:
    """CreatableTopicConfigs."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


@struct
class CreatableTopicResult:
    """CreatableTopicResult."""

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
    """CreateTopicsResponse."""

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = []


@struct
class DeleteTopicState:
    """DeleteTopicState."""

    name: str | None = None
    topic_id: uuid = ZERO_UUID


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """DeleteTopicsRequest."""

    topics: list[DeleteTopicState] = field(versions="6+", default=[])
    topic_names: list[str] = field(versions="1-5", default=[])
    timeout_ms: int32 = 0


@struct
class DeletableTopicResult:
    """DeletableTopicResult."""

    name: str | None = field(nullable="6+", default="")
    topic_id: uuid = field(versions="6+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: str | None = field(versions="5+", default=None)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """DeleteTopicsResponse."""

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = []


@struct
class CreatePartitionsAssignment:
    """CreatePartitionsAssignment."""

    broker_ids: list[int32] = []


@struct
class CreatePartitionsTopic:
    """CreatePartitionsTopic."""

    name: str = ""
    count: int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """CreatePartitionsRequest."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: int32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopicResult:
    """CreatePartitionsTopicResult."""

    name: str = ""
    error_code: int16 = 0
    error_message: str | None = None


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """CreatePartitionsResponse."""

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = []
