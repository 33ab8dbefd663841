"""ShareFetch and ShareAcknowledge: acquisition and acknowledgement of records by members of share groups (KIP-932)."""

from fencepost.protocol.leaders import NodeEndpoint
from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid
from fencepost.protocol.schema import records as record_batches


@struct
class AcknowledgementBatch:
    """Acknowledgement of a range of records, first and last inclusive.

    acknowledge_types: one for all, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (2+).
    """

    first_offset: int64 = 0
    last_offset: int64 = 0
    acknowledge_types: list[int8] = []


@struct
class ShareFetchPartition:
    """A partition to add to the session, or to acknowledge records of."""

    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


@struct
class ShareFetchTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareFetchPartition] = []


@struct
class ShareFetchForgottenTopic:
    """Partitions to take out of the session."""

    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = []


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """Ask for records, and acknowledge earlier ones.

    share_session_epoch: 0 opens a session, -1 closes it, otherwise one more each time.
    max_records, batch_size: a limit that whole batches may exceed; the number of records per acquired range.
    share_acquire_mode: 0 whole batches, 1 no more than `max_records` (KIP-1206).
    is_renew_ack: the request only renews locks; nothing is fetched (KIP-1222).
    """

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 0x7FFFFFFF
    max_records: int32 = field(versions="1+", default=0)
    batch_size: int32 = field(versions="1+", default=0)
    share_acquire_mode: int8 = field(versions="2+", default=0)
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[ShareFetchTopic] = []
    forgotten_topics_data: list[ShareFetchForgottenTopic] = []


@struct
class ShareLeaderIdAndEpoch:
    """The leader of the partition, if it is not this node."""

    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class AcquiredRecords:
    """Records acquired by the member, first and last inclusive, with their delivery count, this one included."""

    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_count: int16 = 0


@struct
class ShareFetchPartitionData:
    """Results of a partition: of the fetch, and of the acknowledgements."""

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: ShareLeaderIdAndEpoch = ShareLeaderIdAndEpoch()
    records: record_batches = b""
    acquired_records: list[AcquiredRecords] = []


@struct
class ShareFetchableTopicResponse:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareFetchPartitionData] = []


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """Records as they are on disk, with the ranges that the member has acquired.

    Errors: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED,
    GROUP_AUTHORIZATION_FAILED. Of a partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, and of its
    acknowledgements also INVALID_REQUEST and INVALID_RECORD_STATE.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(versions="1+", default=0)
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


@struct
class ShareAcknowledgePartition:
    """A partition with the acknowledgements of its records."""

    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


@struct
class ShareAcknowledgeTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareAcknowledgePartition] = []


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Acknowledge records. The session's epoch is counted as in ShareFetch; 0 is none."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[ShareAcknowledgeTopic] = []


@struct
class ShareAcknowledgePartitionData:
    """Result of a partition's acknowledgements; with an error none of them counts."""

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    current_leader: ShareLeaderIdAndEpoch = ShareLeaderIdAndEpoch()


@struct
class ShareAcknowledgeTopicResponse:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareAcknowledgePartitionData] = []


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """Results of acknowledgements. Errors: as in ShareFetch."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(versions="2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
