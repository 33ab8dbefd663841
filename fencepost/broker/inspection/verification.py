"""Verification of a data directory: reads every file, and tries the next start. Writes nothing into it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fencepost.broker.cluster.processes.node_directories import LEASE_FILE, node_directory, node_ids
from fencepost.broker.config import Settings
from fencepost.broker.coordination.shard import RecordOrigin
from fencepost.broker.inspection.findings import Choice, Finding, Severity, finding
from fencepost.broker.inspection.metadata_copy import CopiedMetadata, metadata_path, opened_copy
from fencepost.broker.inspection.overlay_disk import OverlayDisk
from fencepost.broker.inspection.partition_scan import CheckRecords, Expectations, PartitionScan
from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.inspection.putting_back import MOVED_SUFFIX, Move
from fencepost.broker.inspection.trial_start import (
    TriedPartition,
    TriedStart,
    collected_events,
    coordinator_shard,
    try_start,
)
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    LOCK_FILE,
    RECOVERY_POINT_FILE,
    RESERVE_FILE,
    partition_directories,
)
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_offsets
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import METADATA_FILE, PartitionFiles
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.recovery.loaded_log import RecoveryRefusal
from fencepost.broker.log.recovery.recovery import LogRecovery
from fencepost.broker.log.segment.swap import finish_swaps
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import RecordBatch, read_records

_DIRECTORY_FILES = frozenset(
    {
        *(LOCK_FILE, CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE, RESERVE_FILE),
        *(LEASE_FILE, "meta.properties"),
    }
)
OFFLINE = "the partition is offline"
_LOSING = (
    *(Kind.DAMAGE, Kind.MISSING, Kind.NOT_RECORDED, Kind.FOREIGN),
    *(Kind.UNREADABLE, Kind.HEADER, Kind.SUPERFLUOUS),
)


@dataclass
class ScannedPartition:
    """A partition with all that is known of it.

    tried:       the next start's result; None if it is unknown. after_crash: that of a start after a crash.
    refusal:     cause for which one of them refuses it.
    """

    name: TopicPartition
    scan: PartitionScan
    tried: TriedPartition | None
    after_crash: TriedPartition | None
    topic_id: bytes | None
    log_start_offset: int
    refusal: RecoveryRefusal | None = None

    @property
    def problems(self) -> list[DirectoryProblem]:
        return self.scan.problems


@dataclass
class Report:
    """All results of a verification.

    of_metadata: the findings that `repair_metadata` mends; those of damage with a loss.
    moves:       files that a repair has put back in their places.
    known:       all partitions that any file mentions, with their topic ids, None if the metadata do not have them.
    """

    data_directory: str
    was_clean: bool
    partitions: list[ScannedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    of_metadata: list[Finding] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    known: dict[TopicPartition, bytes | None] = field(default_factory=dict)

    @property
    def is_healthy(self) -> bool:
        return all(one.severity is Severity.NOTE for one in self.findings)


class UnknownPartitionError(Exception):
    """A named partition is not in the directory."""


def directories_of(data_directory: str) -> list[str]:
    """The directories that hold a broker's partitions: the data directory, or those of its nodes.

    Raises StorageError.
    """
    with contextlib.closing(OverlayDisk()) as disk:
        found = [node_directory(data_directory, node_id) for node_id in node_ids(disk, data_directory)]
        if not found or partition_directories(disk.list(data_directory)):
            found.insert(0, data_directory)
    return found


def in_directories(data_directory: str, wanted: Sequence[TopicPartition]) -> list[tuple[str, Sequence[TopicPartition]]]:
    """Each directory that holds partitions, with those of them that are wanted, none for all.

    Raises StorageError, UnknownPartitionError.
    """
    directories = directories_of(data_directory)
    if len(directories) == 1 or not wanted:
        return [(directory, wanted) for directory in directories]
    found = {each: [name for name in wanted if os.path.isdir(f"{each}/{name}")] for each in directories}
    for name in wanted:
        if not any(name in names for names in found.values()):
            raise UnknownPartitionError(f"there is no partition {name} in {data_directory}")
    return [(directory, names) for directory, names in found.items() if names]


class Verification:
    """One verification of a directory, used exclusively.

    progress: called with numbers of bytes as they are read.
    """

    def __init__(
        self,
        data_directory: str,
        settings: Settings,
        clock: Clock,
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._path = data_directory
        self._settings = settings
        self._clock = clock
        self._progress = progress
        self._recovery_points: dict[TopicPartition, int] | None = {}
        self._log_starts: dict[TopicPartition, int] = {}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have a directory, in order."""
        disk = OverlayDisk()
        return sorted(partition_directories(disk.list(self._path)))

    def total_bytes(self, names: Sequence[TopicPartition]) -> int:
        """Return the size of the log files."""
        disk = OverlayDisk()
        return sum(PartitionFiles(disk, f"{self._path}/{name}").segments_bytes() for name in names)

    async def run(self, wanted: Sequence[TopicPartition] = ()) -> Report:
        """Verify the named partitions, or all. Raises StorageError, UnknownPartitionError."""
        report = Report(self._path, OverlayDisk().exists(os.path.join(self._path, CLEAN_SHUTDOWN_FILE)))
        self._read_checkpoints(report)
        found = self.partitions()
        tried = await self._try_start(report, as_after_crash=False)
        after_crash = await self._try_start(report, as_after_crash=True) if report.was_clean else tried
        report.known = dict.fromkeys([*found, *(self._recovery_points or {})])
        report.known |= {name: one.topic_id for name, one in tried.partitions.items()}
        for name in wanted:
            if name not in report.known:
                raise UnknownPartitionError(f"there is no partition {name} in {self._path}")
        lost = [name for name, one in tried.partitions.items() if name not in found and one.offline_reason is not None]
        with collected_events():
            for name in list(wanted) or sorted([*found, *lost]):
                if name in found or name in lost:
                    report.partitions.append(self._scan(report, name, tried, after_crash))
        self._name_strangers(report, found)
        for one in report.partitions:
            _add_refusal(one)
            for problem in one.problems:
                is_offline = one.tried is None or one.tried.offline_reason is not None
                found_one = finding(self._path, one.name, problem, _outcome(one, problem), is_offline=is_offline)
                report.findings.append(found_one)
            _add_stray(report, one)
        return report

    async def _try_start(self, report: Report, *, as_after_crash: bool) -> TriedStart:
        disk = OverlayDisk()
        tried = TriedStart()
        try:
            async with opened_copy(self._path) as metadata:
                if not as_after_crash:
                    self._judge_metadata(report, metadata)
                tried = await try_start(
                    self._path, disk, metadata.store, self._settings, self._clock, as_after_crash=as_after_crash
                )
        except StorageError as error:
            tried.refused = str(error)
        finally:
            disk.close()
        if tried.refused is not None and not as_after_crash:
            self._name_refusal(report, tried.refused)
        return tried

    def _judge_metadata(self, report: Report, metadata: CopiedMetadata) -> None:
        path = metadata_path(self._path)
        repair = Choice(shlex.join(["fencepost", "log", "repair", "--data-dir", self._path]), "what the copy lacks")
        backup = Choice(f"restore {FILE_NAME} from a newer backup", "what was changed since that backup")
        found = []
        if metadata.restored is not None:
            at_next_start = (
                "it is restored from its copy: topics created since are strays, what was changed or deleted since is "
                "as it was before"
            )
            found.append(Finding(Severity.REBUILT, None, path, metadata.restored, at_next_start, (repair, backup)))
        if metadata.went_back is not None:
            at_next_start = "it is used as it is: what was changed or deleted last is as it was before"
            accept = Choice(f"{repair.action} --accept-loss", "the changes that are missing")
            found.append(Finding(Severity.DAMAGE, None, path, metadata.went_back, at_next_start, (backup, accept)))
        for unusable in metadata.unusable:
            what = "it cannot be read, or is not what was written into it"
            found.append(Finding(Severity.REBUILT, None, unusable, what, "it is written anew"))
        report.findings += found
        report.of_metadata += found

    def _name_refusal(self, report: Report, refused: str) -> None:
        path = os.path.join(self._path, FILE_NAME)
        choices: tuple[Choice, ...] = ()
        if path in refused:
            choices = (
                Choice(f"restore {FILE_NAME} from a backup", "topics that were created since are strays"),
                Choice("start with another data directory, and keep this one", "all topics begin anew, empty"),
            )
        report.findings.append(
            Finding(Severity.DAMAGE, None, path, refused, "the start is refused: no partition is served", choices)
        )

    def _read_checkpoints(self, report: Report) -> None:
        costs = {
            RECOVERY_POINT_FILE: "all logs are read again, and their ends believed as they are",
            LOG_START_FILE: "all logs are read again, and their own lists give their starts",
            CLEANER_FILE: "compacted logs are cleaned again",
        }
        offsets = {}
        for name, at_next_start in costs.items():
            path = os.path.join(self._path, name)
            try:
                with contextlib.closing(OverlayDisk()) as disk:
                    content = read_small(disk, path)
                offsets[name] = decode_offsets(content) if content is not None else {}
            except CorruptCheckpointError as error:
                what = f"it cannot be read: {error}"
                choices = (Choice(f"restore {name} from a backup", "nothing is lost"),)
                report.findings.append(Finding(Severity.REBUILT, None, path, what, at_next_start, choices))
        self._recovery_points = offsets.get(RECOVERY_POINT_FILE)
        self._log_starts = offsets.get(LOG_START_FILE, {})

    def _scan(
        self, report: Report, name: TopicPartition, tried: TriedStart, after_crash: TriedStart
    ) -> ScannedPartition:
        disk = OverlayDisk()
        try:
            files = PartitionFiles(disk, f"{self._path}/{name}")
            run_to_end(finish_swaps(files, files.numbered()))
            outcome = tried.partitions.get(name)
            topic_id = None if outcome is None else outcome.topic_id
            points = self._recovery_points
            expectations = Expectations(
                recovery_point=None if points is None else points.get(name, 0),
                log_start_offset=self._log_starts.get(name, 0),
                is_clean=report.was_clean and points is not None and name in points,
                topic_id=topic_id,
                is_compacted=outcome is None or outcome.config.is_compacted,
                topics=tried.topics,
            )
            scan = PartitionScan(files, expectations, _record_check(name))
            try:
                for count in scan.run():
                    self._progress(count)
            except StorageError as error:
                scan.problems.append(DirectoryProblem(Kind.UNREADABLE, files.directory, str(error)))
            crashed = after_crash.partitions.get(name)
            expectations = expectations._replace(log_start_offset=scan.log_start_offset)
            scanned = ScannedPartition(name, scan, outcome, crashed, topic_id, expectations.log_start_offset)
            for tried_one, is_clean in ((outcome, expectations.is_clean), (crashed, False)):
                if tried_one is not None and tried_one.offline_reason is not None and scanned.refusal is None:
                    scanned.refusal = self._refusal(name, tried_one, expectations, is_clean=is_clean)
            return scanned
        finally:
            disk.close()

    def _refusal(
        self, name: TopicPartition, tried: TriedPartition, expectations: Expectations, *, is_clean: bool
    ) -> RecoveryRefusal | None:
        """Return why the start refuses a partition, with place and offsets; None if it fails in another way."""
        disk = OverlayDisk()
        try:
            loading = LogRecovery(
                PartitionFiles(disk, f"{self._path}/{name}"),
                tried.config,
                is_clean=is_clean,
                recovery_point=expectations.recovery_point or 0,
                log_start_offset=expectations.log_start_offset,
                now_ms=self._clock.now_ms(),
            )
            return run_to_end(loading.load()).refusal
        except StorageError:
            return None
        finally:
            disk.close()

    def _name_strangers(self, report: Report, found: Sequence[TopicPartition]) -> None:
        directories = {str(name) for name in found}
        for name in OverlayDisk().list(self._path):
            if (
                name in directories
                or name in _DIRECTORY_FILES
                or name.startswith(FILE_NAME)
                or name.endswith("-delete")
            ):
                continue
            what = "nothing of the broker's: it is left alone"
            if name.endswith(".tmp"):
                what = "left behind by a write that a crash interrupted"
            path = os.path.join(self._path, name)
            if name.endswith(MOVED_SUFFIX) and partition_directories([name.removesuffix(MOVED_SUFFIX)]):
                what = "an interrupted repair has left the directory of a partition here"
                choice = Choice(shlex.join(["fencepost", "log", "repair", "--data-dir", self._path]), "nothing is lost")
                report.findings.append(
                    Finding(Severity.DAMAGE, None, path, what, "the partition is offline, or begins anew", (choice,))
                )
                continue
            report.findings.append(Finding(Severity.NOTE, None, path, what, "nothing changes"))


def _record_check(name: TopicPartition) -> CheckRecords | None:
    """Return how a coordinator checks its log; None if there is no coordinator."""
    shard = coordinator_shard(name.topic)
    if shard is None:
        return None

    def check(batch: RecordBatch) -> str | None:
        header = batch.header
        if header.is_control:
            return None
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
        try:
            for record in read_records(batch):
                if record.key is not None:
                    origin = RecordOrigin(record.offset, record.timestamp_ms, *producer)
                    shard.apply(record.key, record.value, origin)
        except (DecodeError, StorageError) as error:
            return f"its coordinator cannot take in the batch at offset {header.base_offset}: {error}"
        return None

    return check


def _add_refusal(one: ScannedPartition) -> None:
    """Add the reason for which the start refuses the partition, unless it was found already."""
    problems, refusal = one.problems, one.refusal
    other_topic = [problem for problem in problems if _is_of_another_topic(problem)]
    if other_topic:
        problems[:] = other_topic  # the other problems follow from one log in the place of another
        return
    reason = next(
        (
            tried.offline_reason or tried.coordinator_reason
            for tried in (one.tried, one.after_crash)
            if tried is not None and (tried.offline_reason or tried.coordinator_reason)
        ),
        None,
    )
    if reason is None or any(problem.kind in _LOSING for problem in problems):
        return
    base_offsets = one.scan.base_offsets
    if refusal is not None and refusal.is_missing:
        stem = refusal.path.removesuffix(".log")
        problems[:] = [one for one in problems if one.kind is not Kind.NOTE or not one.path.startswith(stem)]
    if refusal is None:
        path = one.scan.log_paths[0] if base_offsets else str(one.name)
        problems.append(DirectoryProblem(Kind.REFUSED, path, reason))
        return
    first_offset, end_offset = refusal.expected_offset, refusal.end_offset
    if refusal.is_of_another:
        foreign = DirectoryProblem(
            Kind.FOREIGN, refusal.path, refusal.what, first_offset=first_offset, end_offset=end_offset
        )
        problems[:] = [foreign]  # all other problems concern the other log
        return
    if refusal.is_missing and base_offsets and first_offset > base_offsets[0]:
        # Between other segments, or after them: its offsets can be kept.
        problems.append(
            DirectoryProblem(
                Kind.MISSING,
                refusal.path,
                refusal.what,
                first_offset=first_offset,
                end_offset=end_offset,
                leader_epoch=max(one.scan.max_epoch, 0),
            )
        )
    elif refusal.is_missing or all(problem.kind is not Kind.STALE for problem in problems):
        problems.append(
            DirectoryProblem(
                Kind.REFUSED,
                refusal.path,
                refusal.what,
                position=refusal.position,
                first_offset=first_offset,
                end_offset=end_offset,
            )
        )


def _is_of_another_topic(problem: DirectoryProblem) -> bool:
    return problem.kind is Kind.NOT_RECORDED and problem.path.endswith(METADATA_FILE)


def _add_stray(report: Report, one: ScannedPartition) -> None:
    if one.tried is None or one.topic_id is not None:
        return
    what = f"no topic {one.name.topic} with this partition is known"
    choice = Choice("move the directory away", "nothing that is served now")
    path = os.path.dirname(one.scan.log_paths[0]) if one.scan.log_paths else str(one.name)
    outcome = "it is neither served nor deleted, and keeps its topic's name from being created"
    report.findings.append(Finding(Severity.NOTE, one.name, path, what, outcome, (choice,)))


def _outcome(one: ScannedPartition, problem: DirectoryProblem) -> str:
    """Return the next start's result for the partition."""
    tried, crashed = one.tried, one.after_crash
    if tried is None:
        return "not known: the start itself is refused"
    if tried.is_stray:
        return "the directory is neither served nor deleted (stray_partition_found)"
    if tried.offline_reason is not None:
        return OFFLINE
    if tried.coordinator_reason is not None:
        return "its coordinator is offline: what it coordinates gets NOT_COORDINATOR"
    cuts = [event for event in tried.events if event["event"] in ("torn_tail_cut", "log_cut_before_valid_batches")]
    if cuts and problem.kind not in (Kind.STALE, Kind.NOTE):
        lost = sum(event.get("lost_bytes", 0) for event in cuts)
        kept = next((event["kept_as"] for event in cuts if "kept_as" in event), None)
        kept_text = f", kept in {os.path.basename(kept)}" if kept else ""
        return f"{lost:,} bytes are cut off{kept_text}; the partition is served, and goes on at {tried.log_end_offset}"
    after = "" if crashed is None or crashed.offline_reason is None else "; after a crash it would be offline"
    if problem.kind in (Kind.HEADER, Kind.DAMAGE):
        return (
            "the partition is served; consumers that read these offsets get CORRUPT_MESSAGE, or what stands there, and "
            f"only clients that check checksums refuse that{after}"
        )
    return f"the partition is served{after}"


def names_of(texts: Sequence[str]) -> list[TopicPartition]:
    """Parse `TOPIC-PARTITION` arguments. Raises UnknownPartitionError."""
    names = []
    for text in texts:
        found = partition_directories([text])
        if not found:
            raise UnknownPartitionError(f"expected TOPIC-PARTITION, such as orders-0; got {text!r}")
        names += found
    return names
