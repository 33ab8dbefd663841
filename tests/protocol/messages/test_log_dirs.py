"""DescribeLogDirs and AlterReplicaLogDirs as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.protocol.messages.golden import assert_bytes


def test_all_partitions_are_asked_for_by_null() -> None:
    request = DescribeLogDirsRequest(topics=None)
    assert_bytes(request, 2, "00 00")


def test_sizes_of_volumes_come_from_version_4_on() -> None:
    reply = DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir="/d",
                topics=[
                    DescribeLogDirsTopic(
                        name="t", partitions=[DescribeLogDirsPartition(partition_index=0, partition_size=100)]
                    )
                ],
                total_bytes=1000,
                usable_bytes=900,
            )
        ]
    )
    assert_bytes(
        reply,
        4,
        "00 00 00 00 00 00 02 00 00 03 2f 64 02 02 74 02 00 00 00 00 00 00 00 00 00 00 00 64 00 00 00 00",
        "00 00 00 00 00 00 00 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 03 84 00 00",
    )


def test_a_partition_moves_to_a_path() -> None:
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
    )
    assert_bytes(request, 1, "00 00 00 01 00 02 2f 64 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00")
