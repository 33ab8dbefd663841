"""What the check-back reads of the broker's own logs: committed records alone, and not before it can know them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.broker.check_back_host.log_lookup import Logs
from fencepost.broker.check_back_host.own_topics import OwnJournal
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.node import Node
from fencepost.check_back.question import LatestRecord
from fencepost.check_back.records import STATE_TOPIC, Command, command_entry
from tests.support.check_back_broker import ScriptedSource, running_check_back

KEY = b"sink"


class Plain(NamedTuple):
    key: bytes | None
    value: bytes | None


async def decisions(node: Node, **configs: str) -> PartitionLog:
    await node.services.topics.create("decisions", 1, configs)
    log = node.services.topics.log(TopicPartition("decisions", 0))
    assert log is not None
    return log


async def append(log: PartitionLog, value: bytes | None, *, key: bytes = KEY, producer_id: int | None = None) -> None:
    producer = None if producer_id is None else (producer_id, 0)
    log.append_records([Plain(key, value)], now_ms=1_000 + log.log_end_offset, producer=producer)
    await log.flushed()


async def end(log: PartitionLog, producer_id: int, *, committed: bool) -> None:
    log.append_marker(producer_id, 0, committed, coordinator_epoch=0, transaction_version=0, now_ms=2_000)
    await log.flushed()


async def test_the_latest_committed_record_under_a_key_is_found_also_among_aborted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        assert source.records is not None
        assert await source.records.latest("decisions", KEY) is None
        log = await decisions(node)
        assert await source.records.latest("decisions", KEY) is None
        await append(log, b"first")
        await append(log, b"of another", key=b"other")
        assert await source.records.latest("decisions", KEY) == LatestRecord(b"first", 1_000, False)
        await append(log, b"aborted", producer_id=7)
        await end(log, 7, committed=False)
        assert await source.records.latest("decisions", KEY) == LatestRecord(b"first", 1_000, False)
        await append(log, b"committed", producer_id=8)
        await end(log, 8, committed=True)
        assert await source.records.latest("decisions", KEY) == LatestRecord(b"committed", 1_004, False)
        await append(log, None)
        assert await source.records.latest("decisions", KEY) == LatestRecord(None, 1_006, False)


async def test_it_waits_until_the_transactions_that_were_open_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        assert source.records is not None
        log = await decisions(node)
        await append(log, b"first")
        await append(log, b"decided", producer_id=7)
        waiting = asyncio.create_task(source.records.latest("decisions", KEY))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await end(log, 7, committed=True)
        found = await asyncio.wait_for(waiting, 60)
        assert found is not None
        assert found.value == b"decided"


async def test_it_says_whether_the_broker_set_the_timestamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        assert source.records is not None
        log = await decisions(node, **{"message.timestamp.type": "LogAppendTime"})
        await append(log, b"first")
        found = await source.records.latest("decisions", KEY)
        assert found is not None
        assert found.is_append_time


async def test_a_transaction_of_a_stranger_hides_nothing_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is written without transactions: a successor must know what was noted behind one that stays open."""
    source = ScriptedSource()
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        journal = OwnJournal(Logs(node.services.topics, node.services.clock), lambda _: True)
        await journal.write([command_entry(Command("writer-1", "commit", "1:0", 1_000))])
        before = await journal.read_state()
        log = node.services.topics.log(TopicPartition(STATE_TOPIC, 0))
        assert log is not None
        await append(log, b"{}", key=b"stranger", producer_id=7)
        await journal.write([command_entry(Command("writer-2", "abort", "1:0", 1_000))])
        assert log.last_stable_offset < log.high_watermark
        successor = OwnJournal(Logs(node.services.topics, node.services.clock), lambda _: True)
        found = await successor.read_state()
        assert len(found) > len(before)
        assert any("writer-2" in key for key in found)
