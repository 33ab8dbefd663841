"""ListOffsets: the offset that belongs to a timestamp, or to one of the special marks (KIP-79, KIP-734)."""

from fencepost.protocol.schema import field, int8, int16, int32, int64, message, struct


@struct
class ListOffsetsPartition:
    """A timestamp to look up, or a mark: -1 latest, -2 earliest, -3 greatest timestamp, -4 earliest local, -5 latest
    tiered, -6 earliest not yet uploaded.
    """

    partition_index: int32 = 0
    current_leader_epoch: int32 = field(versions="4+", default=-1)
    timestamp: int64 = 0


@struct
class ListOffsetsTopic:
    """Lookups in a topic."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = []


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Find offsets. `isolation_level` 1 makes the last stable offset the latest."""

    replica_id: int32 = 0  # -1 for a client
    isolation_level: int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: int32 = field(versions="10+", default=0)


@struct
class ListOffsetsPartitionResponse:
    """The first record at or after the timestamp; offset and timestamp -1 without an error when there is none.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
    OFFSET_NOT_AVAILABLE.
    """

    partition_index: int32 = 0
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = field(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """Offsets of a topic."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """One answer per lookup."""

    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = []
