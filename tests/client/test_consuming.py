"""Reading a partition from one offset up to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost import Broker
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import (
    COMMITTED,
    EARLIEST,
    LATEST,
    UNCOMMITTED,
    offset_of,
    read_between,
    visible_batches,
)
from fencepost.client.errors import ClusterError, RefusedError
from fencepost.client.producing import produce_all
from fencepost.client.session import ClientOptions
from fencepost.client.view import Partition
from fencepost.protocol.messages.fetch import AbortedTransaction
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    build_end_transaction_marker,
    iterate_batches,
)


def batches(*kinds: str) -> Sequence[RecordBatch]:
    """Batches of one offset each. A kind: `p` plain, `7` a transaction of producer 7, `7c` its commit, `7a` abort."""
    log = bytearray()
    for offset, kind in enumerate(kinds):
        if kind[1:]:
            log += build_end_transaction_marker(int(kind[0]), 0, kind[1] == "c", 0, 0, base_offset=offset)
        elif kind == "p":
            log += build_batch([Record(offset, 0, None, b"v")], base_offset=offset)
        else:
            log += build_batch(
                [Record(offset, 0, None, b"v")],
                base_offset=offset,
                producer_id=int(kind),
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
    return list(iterate_batches(log))


@pytest.mark.parametrize(
    ("log", "aborted", "seen"),
    [
        (["p", "7", "7c"], [], [0, 1]),
        (["7", "p", "7a", "7", "7c"], [(7, 0)], [1, 3]),
        (["7", "8", "7a", "8c"], [(7, 0)], [1]),
        (["7", "7a", "7", "7a", "p"], [(7, 2), (7, 0)], [4]),
        (["7", "7a", "7", "7c"], [(7, -5)], [2]),
    ],
)
def test_records_of_aborted_transactions_and_markers_are_not_seen(
    log: list[str], aborted: list[tuple[int, int]], seen: list[int]
) -> None:
    found = visible_batches(batches(*log), [AbortedTransaction(*one) for one in aborted])
    assert [batch.header.base_offset for batch in found] == seen


async def read(broker: Broker, next_offset: int = 0, isolation: int = COMMITTED, timeout_s: float = 60) -> Any:
    """Values and the offset to go on at."""
    cluster = Cluster([(broker.host, broker.port)], ClientOptions())
    try:
        partition: Partition = (await cluster.view(["receipts"])).topics["receipts"].partitions[0]
        end = await offset_of(cluster, "receipts", partition, LATEST)
        records, position = await read_between(cluster, "receipts", partition, next_offset, end, isolation, timeout_s)
        return [record.value for record, _ in records], position
    finally:
        cluster.close()


async def write(broker: Broker, *values: bytes) -> None:
    cluster = Cluster([(broker.host, broker.port)], ClientOptions())
    (leader,) = (await cluster.view()).nodes
    await produce_all(cluster, "receipts", 0, leader, [(None, value) for value in values])
    cluster.close()


async def test_reading_goes_on_behind_the_records_that_were_read_and_begins_anew_with_a_new_topic() -> None:
    with Broker() as broker:
        broker.topic("receipts")
        assert await read(broker) == ([], 0)
        await write(broker, b"1", b"2", b"3")
        assert await read(broker) == ([b"1", b"2", b"3"], 3)
        assert await read(broker, 1) == ([b"2", b"3"], 3)
        assert await read(broker, 3) == ([], 3)
        assert await read(broker, 9) == ([b"1", b"2", b"3"], 3)


async def test_large_records_are_read_in_several_fetches() -> None:
    values = [bytes([number]) * 400_000 for number in range(6)]
    with Broker() as broker:
        broker.topic("receipts")
        await write(broker, *values)
        assert await read(broker, isolation=UNCOMMITTED) == (values, 6)


async def test_a_partition_that_is_missing_is_refused() -> None:
    with Broker() as broker:
        broker.topic("receipts")
        cluster = Cluster([(broker.host, broker.port)], ClientOptions())
        (leader,) = (await cluster.view()).nodes
        absent = Partition(7, leader, 0, (leader,), (leader,), 0)
        with pytest.raises(RefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await offset_of(cluster, "receipts", absent, EARLIEST)
        with pytest.raises(ClusterError):
            await read_between(cluster, "receipts", absent, 0, 1, COMMITTED, 1)
        cluster.close()
