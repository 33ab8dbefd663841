"""group_offsets"""

from protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid


@struct
class OffsetCommitRequestPartition:
    """OffsetCommitRequestPartition."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="6+", default=-1)
    committed_metadata: str | None = ""


@struct
class OffsetCommitRequestTopic:
    """OffsetCommitRequestTopic."""

    name: str = field(versions="2-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = []


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """OffsetCommitRequest."""

    group_id: str = ""
    generation_id_or_member_epoch: int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(versions="7+", default=None)
    retention_time_ms: int64 = field(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = []


@struct
class OffsetCommitResponsePartition:
    """OffsetCommitResponsePartition."""

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class OffsetCommitResponseTopic:
    """OffsetCommitResponseTopic."""

    name: str = field(versions="2-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = []


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """OffsetCommitResponse."""

    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = []


@struct
class OffsetFetchRequestTopic:
    """OffsetFetchRequestTopic."""

    name: str = ""
    partition_indexes: list[int32] = []


@struct
class OffsetFetchRequestTopics:
    """OffsetFetchRequestTopics."""

    name: str = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partition_indexes: list[int32] = []


@struct
class OffsetFetchRequestGroup:
    """OffsetFetchRequestGroup."""

    group_id: str = ""
    member_id: str | None = field(versions="9+", default=None)
    member_epoch: int32 = field(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = []


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """OffsetFetchRequest."""

    group_id: str = field(versions="1-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="1-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default=[])
    require_stable: bool = field(versions="7+", default=False)


@struct
class OffsetFetchResponsePartition:
    """OffsetFetchResponsePartition."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="5+", default=-1)
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopic:
    """OffsetFetchResponseTopic."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


@struct
class OffsetFetchResponsePartitions:
    """OffsetFetchResponsePartitions."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = -1
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopics:
    """OffsetFetchResponseTopics."""

    name: str = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = []


@struct
class OffsetFetchResponseGroup:
    """OffsetFetchResponseGroup."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: int16 = 0


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """OffsetFetchResponse."""

    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="1-7", default=[])
    error_code: int16 = field(versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default=[])


@struct
class OffsetDeleteRequestPartition:
    """OffsetDeleteRequestPartition."""

    partition_index: int32 = 0


@struct
class OffsetDeleteRequestTopic:
    """OffsetDeleteRequestTopic."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


@message(key=47, versions="0")
class OffsetDeleteRequest:
    """OffsetDeleteRequest."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


@struct
class OffsetDeleteResponsePartition:
    """OffsetDeleteResponsePartition."""

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class OffsetDeleteResponseTopic:
    """OffsetDeleteResponseTopic."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


@message(key=47, versions="0")
class OffsetDeleteResponse:
    """OffsetDeleteResponse."""

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
