"""AlterReplicaLogDirs and DescribeLogDirs: directories of partitions, and their sizes.

Source: KIP-113, KIP-827 (sizes of volumes), KIP-1066 (cordoned directories).
"""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@struct
class AlterReplicaLogDirTopic:
    """Partitions of a topic."""

    name: str = ""
    partitions: list[int32] = []


@struct
class AlterReplicaLogDir:
    """A directory, by its absolute path, with the partitions to move into it."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Move partitions of this broker to other directories of its own."""

    dirs: list[AlterReplicaLogDir] = []


@struct
class AlterReplicaLogDirPartitionResult:
    """Result of one partition.

    Errors: LOG_DIR_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR,
    INVALID_TOPIC_EXCEPTION, CLUSTER_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    """Results of a topic."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """One result per partition."""

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


@struct
class DescribableLogDirTopic:
    """Partitions of a topic."""

    topic: str = ""
    partitions: list[int32] = []


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """Ask for the directories, with the given partitions; with all of them when `topics` is None."""

    topics: list[DescribableLogDirTopic] | None = []


@struct
class DescribeLogDirsPartition:
    """The size of a partition's segments. is_future_key: a copy that will replace the one in another directory."""

    partition_index: int32 = 0
    partition_size: int64 = 0
    offset_lag: int64 = 0
    is_future_key: bool = False


@struct
class DescribeLogDirsTopic:
    """Partitions of a topic in the directory."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


@struct
class DescribeLogDirsResult:
    """One directory. total_bytes, usable_bytes: those of its volume; -1 when unknown.

    Errors: KAFKA_STORAGE_ERROR.
    """

    error_code: int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: int64 = field(versions="4+", default=-1)
    usable_bytes: int64 = field(versions="4+", default=-1)
    is_cordoned: bool = field(versions="5+", default=False)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """One result per directory."""

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="3+", default=0)
    results: list[DescribeLogDirsResult] = []
