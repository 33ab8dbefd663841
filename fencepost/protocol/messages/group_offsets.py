"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of a group.

Source: KIP-98, KIP-447, KIP-709, KIP-848, KIP-890.
"""

from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid


@struct
class OffsetCommitRequestPartition:
    """The offset to commit for a partition: that of the next record to read."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="6+", default=-1)
    committed_metadata: str | None = ""


@struct
class OffsetCommitRequestTopic:
    """Offsets of a topic, known by its name or, from version 10 on, by its id."""

    name: str = field(versions="2-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = []


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Commit offsets of a group. A generation of -1 with an empty member id commits from outside the group."""

    group_id: str = ""
    generation_id_or_member_epoch: int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(versions="7+", default=None)
    retention_time_ms: int64 = field(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = []


@struct
class OffsetCommitResponsePartition:
    """Result of one offset.

    Errors: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH (9+), REBALANCE_IN_PROGRESS,
    FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (10+),
    INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (9+), COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class OffsetCommitResponseTopic:
    """The outcomes of a topic's partitions."""

    name: str = field(versions="2-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = []


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """One outcome per partition."""

    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = []


@struct
class TxnOffsetCommitRequestPartition:
    """The offset to commit for a partition."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="2+", default=-1)
    committed_metadata: str | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    """Offsets of a topic, known by its name or, from version 6 on, by its id (KIP-1319)."""

    name: str = field(versions="0-5", default="")
    topic_id: uuid = field(versions="6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitRequestPartition] = []


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    """Commit offsets of a group with a transaction; sent to the group's coordinator.

    Before version 3 it has no member; since then the group checks the member (KIP-447). From version 5 on
    AddOffsetsToTxn is not needed before (KIP-890).
    generation_id_or_member_epoch: the epoch in a group of the consumer or streams protocol.
    """

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id_or_member_epoch: int32 = field(versions="3+", default=-1)
    member_id: str = field(versions="3+", default="")
    group_instance_id: str | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


@struct
class TxnOffsetCommitResponsePartition:
    """Result of one offset.

    Errors: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (6+), GROUP_ID_NOT_FOUND (6+), STALE_MEMBER_EPOCH (6+),
    INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS,
    TRANSACTION_ABORTABLE (4+), COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    """The outcomes of a topic's partitions."""

    name: str = field(versions="0-5", default="")
    topic_id: uuid = field(versions="6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitResponsePartition] = []


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """One outcome per partition."""

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


@struct
class OffsetFetchRequestTopic:
    """Partitions of a topic (up to version 7)."""

    name: str = ""
    partition_indexes: list[int32] = []


@struct
class OffsetFetchRequestTopics:
    """Partitions of a topic, known by its name or, from version 10 on, by its id."""

    name: str = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partition_indexes: list[int32] = []


@struct
class OffsetFetchRequestGroup:
    """A group and the requested partitions, or None for all that have an offset."""

    group_id: str = ""
    member_id: str | None = field(versions="9+", default=None)
    member_epoch: int32 = field(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = []


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Ask for committed offsets: of one group, or from version 8 on of several.

    require_stable: refuse, with UNSTABLE_OFFSET_COMMIT, partitions for which a transaction holds an offset not yet
        committed (KIP-447).
    """

    group_id: str = field(versions="1-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="1-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default=[])
    require_stable: bool = field(versions="7+", default=False)


@struct
class OffsetFetchResponsePartition:
    """A committed offset, -1 without an error when there is none.

    Errors: UNSTABLE_OFFSET_COMMIT (7+), UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED; in version 1 also
    those of the group.
    """

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="5+", default=-1)
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopic:
    """Offsets of a topic (up to version 7)."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


@struct
class OffsetFetchResponsePartitions:
    """A committed offset, -1 without an error when there is none.

    Errors: UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (10+), TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = -1
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopics:
    """Offsets of a topic (from version 8 on)."""

    name: str = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = []


@struct
class OffsetFetchResponseGroup:
    """Offsets of a group.

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID,
    UNKNOWN_MEMBER_ID (9+), STALE_MEMBER_EPOCH (9+), GROUP_ID_NOT_FOUND (9+), GROUP_AUTHORIZATION_FAILED.
    """

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: int16 = 0


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The committed offsets: `topics` up to version 7, `groups` from then on.

    Errors: as OffsetFetchResponseGroup.
    """

    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="1-7", default=[])
    error_code: int16 = field(versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default=[])


@struct
class OffsetDeleteRequestPartition:
    """A partition whose offset is to be deleted."""

    partition_index: int32 = 0


@struct
class OffsetDeleteRequestTopic:
    """Partitions of a topic."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


@message(key=47, versions="0")
class OffsetDeleteRequest:
    """Delete offsets of a group. This API has no flexible version."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


@struct
class OffsetDeleteResponsePartition:
    """Result of one offset.

    Errors: GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class OffsetDeleteResponseTopic:
    """The outcomes of a topic's partitions."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


@message(key=47, versions="0")
class OffsetDeleteResponse:
    """One outcome per partition, or one error for the group.

    Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
