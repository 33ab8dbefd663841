"""DescribeLogDirs and AlterReplicaLogDirs: the partitions in the data directory, the only one.

Source: KIP-113, KIP-827; Kafka's ReplicaManager.describeLogDirs and alterReplicaLogDirs.
"""

from __future__ import annotations

from collections import defaultdict

from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api
from fencepost.broker.requests.declared_errors import PARTITION_AWAY, codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import ALTER, DESCRIBE, cluster
from fencepost.broker.storage.disk import StorageError, Volume
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NOT_KNOWN = Volume(total_bytes=-1, usable_bytes=-1)
LONGEST_DIRECTORY_NAME_BYTES = 255
FUTURE_ENDING_BYTES = len(".-future") + 32
"""Length of the suffix that Kafka appends to the directory name of a moving partition."""

FEWEST_IN_SLICES = 1_000
"""From this number of partitions on, the reply is built in slices between other requests."""


# DescribeLogDirs


@api(
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    versions="1-5",
    rights=NeededRights(cluster(DESCRIBE)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED KAFKA_STORAGE_ERROR"),
)
async def handle_describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | SlicedResponse:
    """Describe the data directory with the sizes of the given partitions, of all when `topics` is null.

    Partitions without a log here are left out.
    """
    topics = context.services.topics
    directory = topics.directory
    wanted: dict[str, frozenset[int]] | None = None
    if request.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.topics}

    def is_wanted(name: TopicPartition) -> bool:
        # A deferred directory may belong to a deleted topic.
        return topics.metadata.get(name.topic) is not None and (
            wanted is None or name.partition in wanted.get(name.topic, ())
        )

    sizes: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    sizes_bytes = await directory.sizes_bytes(is_wanted)

    def steps() -> SlicedWork[None]:
        for (topic, partition), size_bytes in sizes_bytes.items():
            sizes[topic].append(DescribeLogDirsPartition(partition_index=partition, partition_size=size_bytes))
            yield

    await run_in_slices(steps(), SLICE_S)
    try:
        volume, error = directory.volume(), ErrorCode.NONE
    except StorageError:
        volume, error = NOT_KNOWN, ErrorCode.KAFKA_STORAGE_ERROR
    found = DescribeLogDirsResult(
        error_code=error,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=topic, partitions=partitions) for topic, partitions in sizes.items()],
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
    )
    response = DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[found])
    return SlicedResponse(response) if len(sizes_bytes) >= FEWEST_IN_SLICES else response


# AlterReplicaLogDirs


def alter_replica_log_dirs_failed(
    request: AlterReplicaLogDirsRequest, error: ErrorCode, version: int
) -> AlterReplicaLogDirsResponse:
    """Every partition of the request fails with the same error."""
    return _moved(dict.fromkeys(_wanted_paths(request), error))


@api(
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    versions="1-2",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=PARTITION_AWAY
    | codes("REPLICA_NOT_AVAILABLE INVALID_TOPIC_EXCEPTION CLUSTER_AUTHORIZATION_FAILED LOG_DIR_NOT_FOUND"),
    failed=alter_replica_log_dirs_failed,
)
def handle_alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Accept moves to the one data directory, where every partition is already; refuse all others.

    Refuses, per partition: LOG_DIR_NOT_FOUND, INVALID_TOPIC_EXCEPTION (name too long), and the refusals of `find_log`.
    """
    return _moved({name: _move(context.services, name, path) for name, path in _wanted_paths(request).items()})


def _wanted_paths(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """The target directory of each partition. Of several for one partition the last counts, as in Kafka."""
    return {
        TopicPartition(topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }


def _moved(errors: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    """The results of all partitions, each topic once."""
    topics: defaultdict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for (topic, partition), error in errors.items():
        topics[topic].append(AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=error))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=results) for topic, results in topics.items()
        ]
    )


def _move(services: Services, name: TopicPartition, path: str) -> ErrorCode:
    if len(str(name)) + FUTURE_ENDING_BYTES > LONGEST_DIRECTORY_NAME_BYTES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != services.topics.directory.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    log = find_log(services.topics, *name)
    return log if isinstance(log, ErrorCode) else ErrorCode.NONE
