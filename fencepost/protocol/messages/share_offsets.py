"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets: start offsets of share partitions."""

from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of a topic."""

    topic_name: str = ""
    partitions: list[int32] = []


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """A group. topics: None for all topics that it reads."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Ask for the share-partition start offsets of groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """A partition. start_offset, lag: -1 when not known yet."""

    partition_index: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = 0
    lag: int64 = field(versions="1+", default=-1)
    error_code: int16 = 0
    error_message: str | None = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """Partitions of a topic."""

    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """A group. Errors: the coordinator's; GROUP_AUTHORIZATION_FAILED."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: int16 = 0
    error_message: str | None = None


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """One description per group. Lag since version 1 (KIP-1226)."""

    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


@struct
class AlterShareGroupOffsetsRequestPartition:
    """The new start offset of a partition."""

    partition_index: int32 = 0
    start_offset: int64 = 0


@struct
class AlterShareGroupOffsetsRequestTopic:
    """Partitions of a topic."""

    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Set the start offsets of an empty group."""

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


@struct
class AlterShareGroupOffsetsResponsePartition:
    """Whether a partition was moved. Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED."""

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


@struct
class AlterShareGroupOffsetsResponseTopic:
    """Partitions of a topic."""

    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """Results. Errors: INVALID_GROUP_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (of another kind), the
    coordinator's, GROUP_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """A topic that the group is to forget."""

    topic_name: str = ""


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Make an empty group forget topics."""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """Whether a topic was forgotten. Errors: UNKNOWN_TOPIC_OR_PARTITION, the coordinator's."""

    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = None


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """Results. Errors: INVALID_GROUP_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, the coordinator's."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
