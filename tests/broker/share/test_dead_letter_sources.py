"""Original records are read from the log of their partition, as far as it still has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.share.dead_letter_sources import SourceUnreadable, source_records
from fencepost.protocol.compression import Codec
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import build_batch
from tests.support.share_broker import NOW_MS, ShareBroker, running_share_broker


async def filled(broker: ShareBroker, codec: Codec = Codec.NONE) -> PartitionLog:
    """Two batches: offsets 0 to 2, and 3 to 5; each value is its offset."""
    await broker.create("orders")
    log = broker.node.services.topics.log(TopicPartition("orders", 0))
    assert log is not None
    for first in (0, 3):
        records = [Record(offset, NOW_MS, None, b"%d" % offset, ()) for offset in range(first, first + 3)]
        log.append(memoryview(build_batch(records, codec=codec)), now_ms=NOW_MS)
    await log.flushed()
    return log


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_the_records_of_a_range_are_read_across_batches(tmp_path: Path, codec: Codec) -> None:
    async with running_share_broker(tmp_path) as broker:
        found, last_offset = await source_records(await filled(broker, codec), 1, 4, 1_000)
        assert {offset: record.value for offset, record in found.items()} == {n: b"%d" % n for n in range(1, 5)}
        assert last_offset == 4


async def test_reading_stops_when_there_is_enough(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        found, last_offset = await source_records(await filled(broker), 0, 5, 130)
        assert (sorted(found), last_offset) == ([0, 1, 2, 3], 3)


async def test_deleted_records_are_left_out(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        log = await filled(broker)
        await broker.node.services.topics.delete_records({log.topic_partition: 4})
        found, last_offset = await source_records(log, 0, 5, 1_000)
        assert (sorted(found), last_offset) == ([4, 5], 5)
        assert await source_records(log, 0, 2, 1_000) == ({}, 2)


async def test_records_that_are_not_here_yet_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        log = await filled(broker)
        nothing = log.read(6, 1, isolation=Isolation.READ_UNCOMMITTED)
        monkeypatch.setattr(type(log), "read", lambda *_arguments, **_named: nothing)
        with pytest.raises(SourceUnreadable, match="on no disk of this node yet"):
            await source_records(log, 0, 5, 1_000)
