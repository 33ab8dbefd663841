"""A directory of every kind of log, as a clean stop or a kill -9 leaves it, and the judge of what a start makes of it.

The judge knows nothing of single damages. It knows what was acknowledged, which partitions were damaged, and one rule:
the broker serves right data, or reports the damage. It serves undamaged partitions as before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.broker.coordination.replay import Replay
from fencepost.broker.group.offsets.records import OffsetAndMetadata, offset_record
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.inspection.trial_start import coordinator_shard
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.directory.log_directory import CHECKPOINT_INTERVAL_MS, LogDirectory
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID, decode_offsets
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.shard import TransactionShard, metadata_record
from fencepost.broker.transaction.state_machine import EMPTY
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import (
    Record,
    build_batch,
    check_crc,
    iterate_batches,
    read_records,
)
from tests.support.captured_events import capture_logs
from tests.support.log_world import ManualClock

ORDERS = TopicPartition("orders", 0)
MORE_ORDERS = TopicPartition("orders", 1)
INVOICES = TopicPartition("invoices", 0)
PAYMENTS = TopicPartition("payments", 0)
KEYS = TopicPartition("keys", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
STATES = TopicPartition("__transaction_state", 0)
PARTITIONS = (ORDERS, MORE_ORDERS, INVOICES, PAYMENTS, KEYS, OFFSETS, STATES)
COORDINATED = (OFFSETS, STATES)
TOPIC_IDS = {name: bytes([7 + number]) * 16 for number, name in enumerate({one.topic: 0 for one in PARTITIONS})}
ROUNDS = 12
PLAIN = LogConfig(segment_bytes=700, index_interval_bytes=0, retention_ms=-1)
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    retention_ms=-1,
)
GROUP = "readers"
MOST_REFUSALS = 1_000
"""Of one reader; a log that refuses more ends where it cannot."""

Taken = tuple[bytes | None, bytes | None]


def config_of(topic: str) -> LogConfig:
    return COMPACTED if topic == KEYS.topic or topic.startswith("__") else PLAIN


class Acknowledged(NamedTuple):
    """The replies that a partition's writers and readers got.

    records:   by offset, all of them and those of transactions that were committed.
    producers: id, epoch and last sequence of each.
    epoch_ends: where the leader epochs end.
    coordinated: what the coordinator knows by it; None where there is none.
    """

    records: Mapping[int, Taken]
    committed: Mapping[int, Taken]
    producers: object
    epoch_ends: object
    coordinated: object


@dataclass
class Template:
    """A directory to copy. earlier: the same in the middle of its life."""

    path: Path
    earlier: Path
    is_clean: bool
    acknowledged: dict[TopicPartition, Acknowledged] = field(default_factory=dict)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)


class Found(NamedTuple):
    """What a client finds in a log: records by offset, and offsets at which it was refused."""

    records: dict[int, Taken]
    refused: list[int]


def read_all(log: PartitionLog, isolation: Isolation) -> Found:
    """Fetch as a client does that checks checksums, goes on behind what it is refused, and believes nothing twice."""
    records: dict[int, Taken] = {}
    refused: list[int] = []
    offset, end_offset = log.log_start_offset, log.log_end_offset
    while offset < end_offset and len(refused) < MOST_REFUSALS:
        read = log.read(offset, 400, isolation=isolation)
        if read.error is not ErrorCode.NONE or not read.records:
            refused.append(offset)
            offset += 1
            continue
        waiting = sorted(read.aborted_transactions or (), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        start = offset
        for batch in iterate_batches(read.records):
            header = batch.header
            if not check_crc(batch.buffer):
                refused.append(offset)
                offset += 1
                break
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                records |= {one.offset: (one.key, one.value) for one in read_records(batch) if one.offset >= start}
            offset = header.last_offset + 1
    return Found(records, refused)


async def coordinated_by(log: PartitionLog) -> object:
    """What a coordinator knows when it has loaded a log. Raises what a load is refused with."""
    shard = coordinator_shard(log.topic_partition.topic)
    if shard is None:
        return None
    is_of_transactions = isinstance(shard, TransactionShard)
    await Replay(log, shard, only_latest_count=is_of_transactions, is_wanted=lambda: True).run()
    if isinstance(shard, TransactionShard):
        return dict(shard.transactions)
    if not isinstance(shard, GroupShard):
        return None
    store = shard._offsets  # what requests are answered from
    return dict(store.committed(GROUP)), store.has_pending(GROUP)


def producers_of(log: PartitionLog) -> object:
    return {
        one.producer_id: (one.producer_epoch, one.recent_batches[-1].last_sequence if one.recent_batches else None)
        for one in log.producers.snapshot()
    }


def epoch_ends_of(log: PartitionLog) -> object:
    return [log.end_offset_for_leader_epoch(epoch) for epoch in range(3)]


async def acknowledged_by(log: PartitionLog) -> Acknowledged:
    records, committed = (read_all(log, one) for one in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED))
    assert not records.refused
    assert not committed.refused
    return Acknowledged(
        records.records, committed.records, producers_of(log), epoch_ends_of(log), await coordinated_by(log)
    )


class Directory:
    """A log directory that is started, written to and dropped."""

    def __init__(self, path: Path) -> None:
        self.disk = LocalDisk()
        self.clock = ManualClock()
        self.logs = LogDirectory(str(path), disk=self.disk, clock=self.clock, cleaner_backoff_ms=None)

    async def start(self) -> None:
        await self.logs.open(config_of)

    def log(self, name: TopicPartition) -> PartitionLog:
        found = self.logs.get(name)
        assert found is not None, name
        return found

    def drop(self) -> None:
        """As kill -9 does: nothing is written any more."""
        self.disk.close()

    async def write_round(self, number: int) -> None:
        now_ms = self.clock.now_ms()
        for name in (ORDERS, MORE_ORDERS, INVOICES):
            value = b"%s %d" % (str(name).encode(), number)
            records = [Record(one, now_ms, b"k%d" % one, value) for one in (0, 1)]
            result = self.log(name).append(memoryview(build_batch(records)), now_ms=now_ms)
            assert result.error is ErrorCode.NONE
        record = Record(0, now_ms, b"key %d" % (number % 3), b"value %d" % number * 9)
        self.log(KEYS).append(memoryview(build_batch([record])), now_ms=now_ms)
        self._write_transaction(number, now_ms)
        self._commit_offset(number, now_ms)
        state = TransactionMetadata(f"id {number % 2}", 40 + number % 2, number, 60_000, EMPTY, now_ms)
        self._write_record(STATES, metadata_record(state), now_ms)
        for name in PARTITIONS:
            await self.log(name).flushed()

    def _write_transaction(self, number: int, now_ms: int) -> None:
        log = self.log(PAYMENTS)
        idempotent = build_batch(
            [Record(0, now_ms, None, b"once %d" % number)], producer_id=5, producer_epoch=0, base_sequence=number
        )
        assert log.append(memoryview(idempotent), now_ms=now_ms).error is ErrorCode.NONE
        guard: Any = log.begin_verification(8, number, 0, transaction_version_2=True)
        batch = build_batch(
            [Record(0, now_ms, None, b"paid %d" % number)],
            producer_id=8,
            producer_epoch=number,
            base_sequence=0,
            is_transactional=True,
        )
        assert log.append(memoryview(batch), now_ms=now_ms, guard=guard).error is ErrorCode.NONE
        self._end_transaction(PAYMENTS, 8, number + 1, committed=number % 2 == 0)

    def _end_transaction(self, name: TopicPartition, producer_id: int, epoch: int, *, committed: bool) -> None:
        error = self.log(name).append_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=0,
            transaction_version=2,
            now_ms=self.clock.now_ms(),
        )
        assert error is ErrorCode.NONE

    def _commit_offset(self, number: int, now_ms: int) -> None:
        value = OffsetAndMetadata(number, -1, "", now_ms)
        self._write_record(OFFSETS, offset_record(GROUP, TopicPartition("x", number % 2), value), now_ms)
        guard: Any = self.log(OFFSETS).begin_verification(9, number, 0, transaction_version_2=True)
        record = offset_record(GROUP, TopicPartition("y", 0), value)
        self._write_record(OFFSETS, record, now_ms, producer=(9, number), guard=guard)
        self._end_transaction(OFFSETS, 9, number + 1, committed=number % 3 != 1)

    def _write_record(self, name: TopicPartition, record: Any, now_ms: int, **options: Any) -> None:
        error = self.log(name).append_records([record], now_ms=now_ms, **options)
        assert error is ErrorCode.NONE


async def build(root: Path, *, is_clean: bool) -> Template:
    """Write a directory of every kind of log, and stop it cleanly or drop it."""
    template = Template(root / "logs", root / "earlier", is_clean)
    directory = Directory(template.path)
    await directory.start()
    for name in PARTITIONS:
        directory.logs.create(name, TOPIC_IDS[name.topic], config_of(name.topic))
    for number in range(ROUNDS // 2):
        await directory.write_round(number)
    keys = directory.log(KEYS)
    now_ms = directory.clock.now_ms()
    await LogCleaning(keys, dirty_range(keys, 0, now_ms), now_ms=now_ms).run()
    directory.clock.time_ms += CHECKPOINT_INTERVAL_MS
    directory.logs.sweep(directory.clock.now_ms())
    shutil.copytree(template.path, template.earlier)
    for name in (ORDERS, PAYMENTS):
        directory.log(name).lead(2)
    for number in range(ROUNDS // 2, ROUNDS):
        await directory.write_round(number)
    template.acknowledged = {name: await acknowledged_by(directory.log(name)) for name in PARTITIONS}
    if is_clean:
        await directory.logs.close()
    directory.drop()
    content = (template.path / "recovery-point-offset-checkpoint").read_bytes()
    template.recovery_points = decode_offsets(content)
    return template


# The judge


@dataclass
class Verdict:
    """faults: what is wrong with what a start made of a damaged directory, in words."""

    faults: list[str]
    lines: list[Any]


CUTS = frozenset({"torn_tail_cut", "log_cut_before_valid_batches"})


async def judge(template: Template, path: Path, damaged: Iterable[TopicPartition], *, is_of_root: bool) -> Verdict:
    """Start a damaged copy of a template, and compare what it serves with what was acknowledged.

    damaged:    the partitions of which files were touched.
    is_of_root: a file beside the partitions' directories was touched: a start may be refused.
    """
    targets = set(damaged)
    before = {name: _log_files(path / str(name)) for name in PARTITIONS}
    directory = Directory(path)
    faults: list[str] = []
    with capture_logs() as lines:
        try:
            await directory.start()
        except StorageError as error:
            if not is_of_root or str(path) not in str(error):
                faults.append(f"the start was refused: {error}")
        except Exception as error:  # noqa: BLE001  # a start that fails otherwise is a finding
            faults.append(f"the start failed: {error!r}")
        else:
            for name in PARTITIONS:
                judging = _Judging(template, directory, name, lines, name in targets)
                try:
                    faults += [f"{name}: {fault}" for fault in await judging.faults(before[name], path / str(name))]
                except Exception as error:  # noqa: BLE001
                    faults.append(f"{name}: unexpected {error!r}")
    directory.drop()
    return Verdict(faults, [line for line in lines if line["log_level"] in ("warning", "error")])


def _log_files(directory: Path) -> dict[str, bytes]:
    files = directory.glob("*.log") if directory.is_dir() else ()
    return {one.name: one.read_bytes() for one in files if one.is_file()}


class _Judging:
    """The judgement on one partition."""

    def __init__(
        self, template: Template, directory: Directory, name: TopicPartition, lines: list[Any], is_target: bool
    ) -> None:
        self._acknowledged = template.acknowledged[name]
        self._known_end = template.recovery_points.get(name, 0)
        self._is_clean = template.is_clean
        self._logs = directory.logs
        self._name = name
        self._lines = lines
        self._is_target = is_target
        self._of_others = {
            taken for other, one in template.acknowledged.items() if other != name for taken in one.records.values()
        }

    def _is_reported(self, events: Iterable[str] | None = None) -> bool:
        """Whether a line in the log names the partition, by path or by topic and partition."""
        wanted = None if events is None else frozenset(events)
        for line in self._lines:
            if line["log_level"] not in ("warning", "error") or (wanted is not None and line["event"] not in wanted):
                continue
            if (line.get("topic"), line.get("partition")) == self._name:
                return True
            text = f"{line.get('path', '')} {line.get('reason', '')} {line.get('directory', '')}"
            if f"/{self._name}/" in text or f"/{self._name} " in f"{text} " or "-checkpoint" in text:
                return True
        return False

    async def faults(self, before: Mapping[str, bytes], path: Path) -> list[str]:
        log = self._logs.get(self._name)
        found: list[str] = []
        if log is None or log.is_offline:
            if not self._is_target:
                found.append("not served, though nothing of it was damaged")
            if not self._is_reported():
                found.append("not served, and no line says why")
        elif log.topic_id != ZERO_TOPIC_ID and log.topic_id != TOPIC_IDS[self._name.topic]:
            if not self._is_target:
                found.append("of another topic, though nothing of it was damaged")
        else:
            found += await self._served(log)
        found += self._vanished(before, _log_files(path), is_offline=log is None or log.is_offline)
        return found

    async def _served(self, log: PartitionLog) -> list[str]:
        found: list[str] = []
        known = self._acknowledged
        is_complete = True
        for isolation, expected in (
            (Isolation.READ_UNCOMMITTED, known.records),
            (Isolation.READ_COMMITTED, known.committed),
        ):
            served = read_all(log, isolation)
            if len(served.refused) >= MOST_REFUSALS:
                found.append(
                    f"{isolation.value} was refused at {len(served.refused)} offsets: it ends at {log.log_end_offset}"
                )
            if served.refused and not self._is_target:
                found.append(f"{isolation.value} was refused at {served.refused[:3]}, though nothing was damaged")
            false = [offset for offset, taken in served.records.items() if expected.get(offset) != taken]
            if false and self._may_be_of_another(served.records, false):
                return []
            if false:
                found.append(f"{isolation.value} got what was not written at {false[:3]}")
            refused = set(served.refused)
            missing = [offset for offset in expected if offset not in served.records and offset not in refused]
            is_complete &= not missing and not refused
            if missing and not self._may_be_cut(log, missing):
                found.append(f"{isolation.value} lacks {missing[:3]}… of {len(expected)}, and nothing was said")
        if not is_complete:
            return found
        if producers_of(log) != known.producers and not self._is_reported():
            found.append(f"producers {producers_of(log)} instead of {known.producers}")
        if epoch_ends_of(log) != known.epoch_ends and not self._is_reported():
            found.append(f"epochs end at {epoch_ends_of(log)} instead of {known.epoch_ends}")
        if self._name in COORDINATED:
            try:
                coordinated = await coordinated_by(log)
            except (StorageError, ValueError) as error:
                if not self._is_target:
                    found.append(f"its coordinator was refused: {error}")
            else:
                if coordinated != known.coordinated:
                    found.append(f"its coordinator knows {coordinated} instead of {known.coordinated}")
        return found

    def _may_be_of_another(self, served: Mapping[int, Taken], offsets: list[int]) -> bool:
        """Whether no broker can know better: a last segment above the recovery point of a log that was dropped, of
        which nothing has been noted yet, and in whose place another partition's stands."""
        is_unknown = not self._is_clean and self._is_target and min(offsets) >= self._known_end
        return is_unknown and all(served[offset] in self._of_others for offset in offsets)

    def _may_be_cut(self, log: PartitionLog, missing: list[int]) -> bool:
        """Whether no broker can know better: the end of a log that was dropped, above its recovery point."""
        is_end = min(missing) >= log.log_end_offset
        return not self._is_clean and self._is_target and is_end and min(missing) >= self._known_end

    def _vanished(self, before: Mapping[str, bytes], after: Mapping[str, bytes], *, is_offline: bool) -> list[str]:
        if all(after.get(name) == content for name, content in before.items()):
            return []
        if is_offline:
            return ["bytes of it changed, though it is offline"]
        return [] if self._is_reported(CUTS) else ["bytes of it are gone, and no line counts them"]
