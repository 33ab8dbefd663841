"""Scan of one partition: reads all its files, every byte of every segment, and compares them, which no start does.

`broker.log.recovery.recovery` has the same rules, for files that a crash may have left unfinished.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.inspection.segment_scan import Damaged, Found, Mended, Whole, scan_segment
from fencepost.broker.log.files.checkpoints import (
    ZERO_TOPIC_ID,
    CorruptCheckpointError,
    EpochStart,
    decode_epochs,
    decode_partition_metadata,
)
from fencepost.broker.log.files.file_names import INDEX_SUFFIXES, LOST_SUFFIX, file_name
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import (
    LEADER_EPOCH_FILE,
    METADATA_FILE,
    RECOVERY_MARK_FILE,
    PartitionFiles,
)
from fencepost.broker.log.files.producer_snapshot import CorruptSnapshot, ProducerSnapshot, decode_snapshot
from fencepost.broker.log.files.segment_checksums import CHECKSUMS_FILE, START_SUFFIX, FileRecord
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.producers.producer_replay import NEVER_EXPIRE_MS, replay_batch
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.recovery.recovery_mark import read_mark
from fencepost.broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from fencepost.broker.log.segment.segment_files import has_other_start
from fencepost.broker.log.segment.time_index import TimeIndex
from fencepost.broker.log.segment.transaction_index import TransactionIndex, TransactionIndexEntry
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import HEADER_BYTES, BatchHeader, RecordBatch, read_header

KNOWN_FILES = frozenset({LEADER_EPOCH_FILE, METADATA_FILE, CHECKSUMS_FILE, RECOVERY_MARK_FILE})
_NOTHING = FileRecord(0, 0)
NOT_WRITTEN = "it is not what was written into it"

CheckRecords = Callable[[RecordBatch], str | None]
"""Returns why a coordinator cannot load a batch of its log; None when it can."""


class Expectations(NamedTuple):
    """The statements of other files about a partition.

    recovery_point:   offset up to which it is known to be on the disk; None if the checkpoint cannot be read.
    log_start_offset: offset as checkpointed.
    is_clean:         whether the last stop was clean: then the log ends at its recovery point.
    topic_id:         id from the metadata; None for an unknown topic, or if they cannot be read.
    topics:           the names of all topics, by id.
    is_compacted:     whether offsets may have gaps.
    """

    recovery_point: int | None
    log_start_offset: int
    is_clean: bool
    topic_id: bytes | None
    is_compacted: bool
    topics: Mapping[bytes, str] = MappingProxyType({})


class _Segment:
    """A segment that was read. Of its batches: positions, last offsets, and the greatest timestamp up to each."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.positions = array("q")
        self.last_offsets = array("q")
        self.times_ms = array("q")
        self.aborted: list[TransactionIndexEntry] = []
        self.is_whole = True
        self.end_offset = base_offset

    def add(self, position: int, header: BatchHeader) -> None:
        self.positions.append(position)
        self.last_offsets.append(header.last_offset)
        before_ms = self.times_ms[-1] if self.times_ms else -1
        self.times_ms.append(max(before_ms, header.max_timestamp_ms))
        self.end_offset = header.last_offset + 1

    @property
    def offsets_count(self) -> int:
        return self.end_offset - self.base_offset

    def slot_of(self, last_offset: int) -> int | None:
        slot = bisect_left(self.last_offsets, last_offset)
        return slot if slot < len(self.last_offsets) and self.last_offsets[slot] == last_offset else None


class PartitionScan:
    """One partition's directory, read once.

    After `run`: `problems`, in the order of the log; `end_offset` of the log; `size_bytes`, `records_count` and
    `batches_count` of the readable part.
    """

    def __init__(
        self, files: PartitionFiles, expectations: Expectations, check_records: CheckRecords | None = None
    ) -> None:
        self.problems: list[DirectoryProblem] = []
        self.end_offset = 0
        self.start_offset = 0
        self.size_bytes = self.batches_count = self.records_count = 0
        self.base_offsets: list[int] = []
        self.file_sizes: dict[str, int] = {}
        self.max_epoch = -1
        self._files = files
        self._disk = files.disk
        self._known = expectations
        self._check_records = check_records
        self._checksums = files.checksums
        self._producers = ProducerState()
        self._is_replayed_wholly = True
        self._snapshots: list[int] = []
        self._epochs: list[EpochStart] = []
        self._has_readable_epochs = False
        self._has_no_epochs_file = True
        self._orphans: dict[int, list[str]] = {}
        self._written_epochs: list[EpochStart] = []
        self._epoch_judge = _EpochJudge()
        self._latest_time_ms = -1
        self._unreadable: set[str] = set()  # small files
        self._is_of_another = False

    def run(self) -> Iterator[int]:
        """Read everything; yields the numbers of bytes read."""
        if not self._disk.exists(self._files.directory):
            self._name_missing(self._files.directory, "its directory is missing")
            return
        numbered = self._files.numbered()
        self.base_offsets = numbered.get(".log", [])
        self._snapshots = numbered.get(".snapshot", [])
        self._look_at_small_files()
        if self._is_of_another:
            # All other problems concern the log of the other partition.
            self.problems[:] = [problem for problem in self.problems if problem.kind is Kind.FOREIGN]
            self.end_offset = max(self._known.recovery_point or 0, self._known.log_start_offset)
            return
        self._name_other_files()
        first = self.base_offsets[0] if self.base_offsets else self._known.log_start_offset
        noted = self._checksums.log_start_offset
        if noted > max(first, self._known.log_start_offset):
            path = f"{self._files.directory.rpartition('/')[0]}/{LOG_START_FILE}"
            name = self._files.directory.rpartition("/")[2]
            what = f"it has offset {self._known.log_start_offset} for {name}, and DeleteRecords has moved the start to "
            self._add(Kind.STALE, path, f"{what}{noted}, as {CHECKSUMS_FILE} says")
            self._known = self._known._replace(log_start_offset=noted)
        self.start_offset = max(first, self._known.log_start_offset)
        self.end_offset = first
        self._begin_replay(first)
        for slot, base_offset in enumerate(self.base_offsets):
            following = self.base_offsets[slot + 1] if slot + 1 < len(self.base_offsets) else None
            try:
                yield from self._read_segment(base_offset, following)
            except StorageError as error:
                path = self._path(base_offset, ".log")
                self._add(Kind.UNREADABLE, path, str(error), first_offset=self.end_offset, end_offset=following)
                self._is_replayed_wholly = False
                if following is not None:
                    self.end_offset = following
        if not self.base_offsets:
            self._name_missing(self._path(self.end_offset, ".log"), "there is no segment")
        self._look_at_orphans()
        self._compare_snapshot(self.end_offset)
        self._producers = ProducerState()
        reason = self._epochs_reason()
        if reason is not None:
            self._add(Kind.STALE, self._files.path(LEADER_EPOCH_FILE), reason)

    @property
    def side_paths(self) -> list[str]:
        """The paths of all files that were made from a log, its list of checksums included."""
        names = self._disk.list(self._files.directory)
        known = KNOWN_FILES - {METADATA_FILE}
        return [self._files.path(name) for name in names if name in known or name.endswith((".snapshot", "index"))]

    @property
    def log_start_offset(self) -> int:
        """The start that DeleteRecords has set, by the checkpoint or by the partition's own list."""
        return self._known.log_start_offset

    @property
    def recovery_point(self) -> int:
        """The offset up to which the log was on the disk, by the checkpoint or by the recovery mark."""
        return self._known.recovery_point or 0

    @property
    def log_paths(self) -> list[str]:
        """Return the paths of the log files, in order."""
        return [self._path(base_offset, ".log") for base_offset in self.base_offsets]

    def _name_missing(self, path: str, what: str) -> None:
        """Add the problem of a log without files, if it is known to have held records."""
        first, end = self._known.log_start_offset, self._known.recovery_point or 0
        if end > first:
            what += f"; the log had been on the disk up to offset {end}"
            self._add(Kind.MISSING, path, what, first_offset=first, end_offset=end)
            self.end_offset = end

    # The small files

    def _read_small(self, path: str) -> bytes | None:
        """Read a file that the log does not need; one that the disk cannot read is a problem, and counts as missing."""
        try:
            return read_small(self._disk, path)
        except CorruptCheckpointError as error:
            self._add(Kind.STALE, path, str(error))
            self._unreadable.add(path)
            return None

    def _look_at_small_files(self) -> None:
        self._look_at_checksums()
        self._look_at_mark()
        path = self._files.path(LEADER_EPOCH_FILE)
        content = self._read_small(path)
        self._has_no_epochs_file = content is None
        if content is not None:
            try:
                self._epochs = decode_epochs(content)
                self._has_readable_epochs = True
            except CorruptCheckpointError as error:
                self._add(Kind.STALE, path, f"it cannot be read: {error}")
        self._epoch_judge.known = self._epochs
        self._look_at_topic_id()

    def _look_at_mark(self) -> None:
        mark = read_mark(self._files)
        if isinstance(mark, str):
            self._add(Kind.STALE, self._files.path(RECOVERY_MARK_FILE), f"it is not used: {mark}")
        elif mark is not None:
            # It was written once the log was on the disk up to there; after a clean stop it is not above the end.
            point = self._known.recovery_point or 0
            if mark.offset > point:
                self._known = self._known._replace(recovery_point=mark.offset, is_clean=False)

    def _look_at_checksums(self) -> None:
        path = self._files.path(CHECKSUMS_FILE)
        content = self._read_small(path)
        if content:
            try:
                self._checksums.get("")
            except StorageError as error:
                self._add(Kind.UNREADABLE, path, str(error))
            else:
                if self._checksums.is_of_another_directory:
                    what = f"{self._files.directory} is the directory of another partition, according to this list"
                    first = self._known.log_start_offset
                    end_offset = max(self._known.recovery_point or 0, first)
                    self._add(Kind.FOREIGN, path, what, first_offset=first, end_offset=end_offset)
                    self._is_of_another = True
            if self._read_small(path) != content:  # a damaged list is begun anew
                self._add(Kind.STALE, path, "it does not begin or end as it should: its content is ignored")

    def _epochs_reason(self) -> str | None:
        """Return how the leader epochs' file differs from the batches; after a crash it may lack the latest."""
        unknown = (Kind.DAMAGE, Kind.MISSING, Kind.FOREIGN, Kind.UNREADABLE)
        if any(problem.kind in unknown for problem in self.problems):
            return None
        written = LeaderEpochs(self._written_epochs)
        if not self._has_readable_epochs:
            is_missed = self._known.is_clean and written.latest > 0 and self._has_no_epochs_file
            return "it is missing, and the log has epochs" if is_missed else None
        if self._epochs and self._epochs[-1].start_offset > self.end_offset:
            return (
                f"it has an epoch from offset {self._epochs[-1].start_offset} on, and the log ends at {self.end_offset}"
            )
        if self._known.is_compacted:
            return None
        for epoch, start_offset in self._epochs:
            if self.start_offset <= start_offset < self.end_offset and written.epoch_at(start_offset) != epoch:
                return f"the batch at offset {start_offset} is not of epoch {epoch}"
        recorded = LeaderEpochs(self._epochs)
        for epoch, start_offset in self._written_epochs if self._known.is_clean else ():
            if start_offset >= self.start_offset and recorded.epoch_at(start_offset) != epoch:
                return f"the batch at offset {start_offset} is of epoch {epoch}, which it does not list"
        return None

    def _look_at_topic_id(self) -> None:
        path = self._files.path(METADATA_FILE)
        content = self._read_small(path)
        if content is None:
            if path not in self._unreadable:
                self._add(Kind.STALE, path, "it is missing: the directory's name gives the topic")
            return
        try:
            topic_id = decode_partition_metadata(content)
        except CorruptCheckpointError as error:
            self._add(Kind.STALE, path, f"it cannot be read: {error}")
            return
        expected = self._known.topic_id
        if expected is not None and topic_id not in (expected, ZERO_TOPIC_ID):
            self._add(
                Kind.NOT_RECORDED,
                path,
                f"it names topic {self._topic_text(topic_id)}, and the directory's name belongs to "
                f"{self._topic_text(expected)}",
            )

    def _topic_text(self, topic_id: bytes) -> str:
        return f"{self._known.topics.get(topic_id, 'that is not known')} (id {topic_id.hex()})"

    def _name_other_files(self) -> None:
        bases = set(self.base_offsets)
        for name in self._disk.list(self._files.directory):
            path = self._files.path(name)
            stem, dot, suffix = name.partition(".")
            is_numbered = len(stem) == 20 and stem.isdecimal()
            if name in KNOWN_FILES or (is_numbered and dot and suffix in ("log", "snapshot")):
                continue
            if is_numbered and f".{suffix}" in INDEX_SUFFIXES:
                if int(stem) not in bases:
                    self._orphans.setdefault(int(stem), []).append(name)
            elif is_numbered and f".{suffix}".startswith(f".log{LOST_SUFFIX}"):
                size_bytes = self._disk.size_bytes(path)
                self._add(Kind.NOTE, path, f"{size_bytes:,} bytes that were cut off or given up, kept for you")
            elif not name.endswith((".cleaned", ".swap", ".deleted")):
                self._add(Kind.NOTE, path, "no file of a log: the broker leaves it alone")

    def _look_at_orphans(self) -> None:
        """Check indexes without a log: of a segment that was being deleted, or of a missing one."""
        missing = {problem.path for problem in self.problems if problem.kind is Kind.MISSING}
        for base_offset, names in self._orphans.items():
            path = self._path(base_offset, ".log")
            if path in missing:
                continue
            end_offset = self._indexed_end(base_offset)
            if base_offset >= self.end_offset and end_offset > base_offset and self.base_offsets:
                self._missing(
                    path, f"its index is there, and had entries up to offset {end_offset - 1}", base_offset, end_offset
                )
            else:
                what = f"no log belongs to {' and '.join(names)}: the next start removes what is left of a deletion"
                self._add(Kind.NOTE, self._files.path(names[0]), what)

    def _indexed_end(self, base_offset: int) -> int:
        content = self._read_small(self._path(base_offset, ".index")) or b""
        try:
            index = OffsetIndex.from_bytes(content, 2**31, 2**31)
        except CorruptIndexError:
            return base_offset
        return base_offset + index.last_offsets[-1] + 1 if index.last_offsets else base_offset

    # Segments

    def _read_segment(self, base_offset: int, following: int | None) -> Iterator[int]:
        path = self._path(base_offset, ".log")
        recovery_point = self._known.recovery_point
        known_end = recovery_point if self._known.is_clean and following is None else None
        file = self._disk.open(path)
        self.size_bytes += file.size_bytes
        self.file_sizes[path] = file.size_bytes
        segment = _Segment(base_offset)
        if has_other_start(file, self._checksums.get(file_name(base_offset, START_SUFFIX))):
            file.close()
            what = "it begins with another batch than was written there: it is another partition's file"
            recorded = self._checksums.get(file_name(base_offset, ".log"))
            known_end = max(self._known.recovery_point or 0, recorded.check if recorded is not None else 0)
            end_offset = max(known_end, base_offset) if following is None else following
            self._add(Kind.FOREIGN, path, what, first_offset=base_offset, end_offset=end_offset)
            self._is_replayed_wholly = False
            self.end_offset = max(self.end_offset, end_offset)
            yield file.size_bytes
            return
        reported = position = 0
        try:
            for found in scan_segment(file, base_offset, following, end_offset=known_end):
                for judged in self._epoch_judge.take(path, found):
                    self._take_in(segment, path, *judged)
                position = found.end_position if isinstance(found, Damaged) else found.position
                if position - reported >= 1 << 20:
                    yield position - reported
                    reported = position
            for judged in self._epoch_judge.finish(self._epoch_after(following)):
                self._take_in(segment, path, *judged)
        finally:
            file.close()
        yield max(file.size_bytes - reported, 0)
        self.end_offset = max(self.end_offset, segment.end_offset)
        problems_count = len(self.problems)
        self._look_for_missing(segment, file.size_bytes, following)
        segment.is_whole &= len(self.problems) == problems_count  # a damaged file is compared with nothing
        if segment.is_whole and not self._will_be_read_again(base_offset, following):
            self._compare_indexes(segment)

    def _epoch_after(self, following: int | None) -> int | None:
        """Return the leader epoch of the first batch of the next segment; for the last one, after a clean stop, the
        last known epoch. None if neither is known."""
        if following is None:
            return self._epochs[-1].leader_epoch if self._known.is_clean and self._epochs else None
        file = self._disk.open(self._path(following, ".log"))
        try:
            start = file.read(0, HEADER_BYTES)
        finally:
            file.close()
        if len(start) < HEADER_BYTES or (header := read_header(start)).base_offset < following:
            return None
        return header.partition_leader_epoch

    def _will_be_read_again(self, base_offset: int, following: int | None) -> bool:
        """Whether the next start rebuilds a segment's indexes in any case; the active one's are never complete."""
        if following is None:
            return True
        return not self._known.is_clean and following > (self._known.recovery_point or 0)

    def _take_in(self, segment: _Segment, path: str, found: Found, epoch_reason: str | None) -> None:
        if isinstance(found, Damaged):
            segment.is_whole = False
            self._is_replayed_wholly = False
            self._take_in_damage(segment, path, found)
            return
        header = found.batch.header
        reasons = [reason for reason in (found.reason if isinstance(found, Mended) else None, epoch_reason) if reason]
        if reasons:
            self._add(
                Kind.HEADER,
                path,
                f"the header of a batch is false: {'; '.join(reasons)}",
                span=(found.position, found.position + header.size_bytes),
                first_offset=header.base_offset,
                end_offset=header.last_offset + 1,
                replacement=_prefix(header),
            )
        self._compare_snapshot(header.base_offset)
        segment.add(found.position, header)
        self.batches_count += 1
        self.records_count += header.records_count
        if header.partition_leader_epoch > self.max_epoch:
            self.max_epoch = header.partition_leader_epoch
            self._written_epochs.append(EpochStart(self.max_epoch, header.base_offset))
        self._latest_time_ms = max(self._latest_time_ms, header.max_timestamp_ms)
        if self._check_records is not None and (reason := self._check_records(found.batch)) is not None:
            self._add(
                Kind.DAMAGE,
                path,
                reason,
                span=(found.position, found.position + header.size_bytes),
                first_offset=header.base_offset,
                end_offset=header.last_offset + 1,
                follows_valid=True,
            )
        if header.producer_id >= 0:
            batch = found.batch
            try:
                entry = replay_batch(self._producers, header, lambda: batch, now_ms=0)
            except DecodeError:
                self._is_replayed_wholly = False
                entry = None
            if entry is not None:
                segment.aborted.append(entry)

    def _take_in_damage(self, segment: _Segment, path: str, found: Damaged) -> None:
        first, end = found.first_offset, found.end_offset
        recovery_point = self._known.recovery_point or 0
        span = found.position, found.end_position
        if end is not None and end <= first:
            self._add(Kind.SUPERFLUOUS, path, f"no offset belongs to what stands here: {found.reason}", span=span)
        elif found.is_tail and end is None and first >= recovery_point and not self._known.is_clean:
            self._add(
                Kind.TAIL, path, f"the log ends with no whole batch: {found.reason}", first_offset=first, span=span
            )
        else:
            if end is None:
                end = recovery_point if recovery_point > first else None
            self._add(
                Kind.DAMAGE,
                path,
                found.reason,
                first_offset=first,
                end_offset=end,
                follows_valid=not found.is_tail or found.end_offset is not None,
                span=span,
            )
        if end is not None:
            segment.end_offset = max(segment.end_offset, end)

    def _look_for_missing(self, segment: _Segment, size_bytes: int, following: int | None) -> None:
        """Check for missing records between the end of a segment and its successor."""
        path = self._path(segment.base_offset, ".log")
        recorded = self._checksums.get(file_name(segment.base_offset, ".log"))
        is_last = following is None
        end_offset = self._known.recovery_point if following is None else following
        if end_offset is None:
            return
        if is_last and self._known.is_clean and segment.end_offset > end_offset:
            self._add(
                Kind.NOT_RECORDED,
                path,
                f"the log reaches offset {segment.end_offset}, and the clean stop has left it at offset {end_offset}: "
                "it is not the log that was written here",
            )
            return
        if recorded is not None and not is_last and recorded.check < end_offset:
            self._missing(
                self._path(recorded.check, ".log"),
                f"the segment that began at offset {recorded.check} is missing",
                max(recorded.check, segment.end_offset),
                end_offset,
            )
        elif is_last and segment.end_offset < end_offset and recorded == (size_bytes, segment.end_offset):
            self._missing(
                self._path(segment.end_offset, ".log"),
                f"the segment that began at offset {segment.end_offset} is missing",
                segment.end_offset,
                end_offset,
            )
        elif segment.end_offset < end_offset and (is_last or (recorded or _NOTHING).size_bytes > size_bytes):
            had = "" if recorded is None else f" and had {recorded.size_bytes:,} bytes"
            self._missing(
                path,
                f"the file ends at offset {segment.end_offset}; it reached offset {end_offset}{had}",
                segment.end_offset,
                end_offset,
                position=size_bytes,
            )
        elif recorded is not None and recorded != (size_bytes, end_offset) and segment.is_whole:
            if not is_last or self._known.is_clean:
                self._add(
                    Kind.NOT_RECORDED,
                    path,
                    f"it had {recorded.size_bytes:,} bytes up to offset {recorded.check}, and has {size_bytes:,}, "
                    f"followed by offset {end_offset}: it is not the file that was written here",
                )
        elif segment.end_offset < end_offset and not self._known.is_compacted and recorded is None and segment.is_whole:
            self._add(
                Kind.NOTE,
                path,
                f"offsets {segment.end_offset} to {end_offset - 1} are not there: compaction leaves such gaps, and so "
                "does a segment that was lost, or given up",
                first_offset=segment.end_offset,
                end_offset=end_offset,
            )

    def _missing(self, path: str, what: str, first: int, end: int, *, position: int | None = None) -> None:
        self._add(
            Kind.MISSING,
            path,
            what,
            span=None if position is None else (position, position),
            first_offset=first,
            end_offset=end,
        )
        self._is_replayed_wholly = False
        self.end_offset = max(self.end_offset, end)

    # Files derived from the log

    def _compare_indexes(self, segment: _Segment) -> None:
        base_offset = segment.base_offset
        for suffix, compare in ((".index", self._offset_index_reason), (".timeindex", self._time_index_reason)):
            path = self._path(base_offset, suffix)
            content = self._read_small(path)
            reason: str | None
            if content is None:
                reason = "the file is missing" if segment.positions and path not in self._unreadable else None
            elif not self._checksums.matches(file_name(base_offset, suffix), content):
                reason = NOT_WRITTEN
            else:
                try:
                    reason = compare(segment, content)
                except CorruptIndexError as error:
                    reason = str(error)
            if reason is not None:
                self._add(Kind.STALE, path, reason)
        self._compare_transaction_index(segment)

    def _offset_index_reason(self, segment: _Segment, content: bytes) -> str | None:
        index = OffsetIndex.from_bytes(
            content, self._disk.size_bytes(self._path(segment.base_offset, ".log")), segment.offsets_count
        )
        for relative, position in zip(index.last_offsets, index.positions, strict=True):
            offset = segment.base_offset + relative
            slot = segment.slot_of(offset)
            if slot is None or segment.positions[slot] != position:
                return f"no batch that ends at offset {offset} stands at position {position}"
        return None

    def _time_index_reason(self, segment: _Segment, content: bytes) -> str | None:
        index = TimeIndex.from_bytes(content, segment.offsets_count)
        for timestamp_ms, relative in zip(index.timestamps_ms, index.last_offsets, strict=True):
            offset = segment.base_offset + relative
            slot = segment.slot_of(offset)
            if slot is None or segment.times_ms[slot] != timestamp_ms:
                return f"up to offset {offset} the greatest time is not {timestamp_ms}"
        return None

    def _compare_transaction_index(self, segment: _Segment) -> None:
        path = self._path(segment.base_offset, ".txnindex")
        content = self._read_small(path)
        reason: str | None = None
        entries: list[TransactionIndexEntry] = []
        if not self._checksums.matches(file_name(segment.base_offset, ".txnindex"), content):
            reason = NOT_WRITTEN if content is not None else "the file is missing"
            if path in self._unreadable:
                return
        else:
            try:
                index = TransactionIndex.from_bytes(
                    content or b"", base_offset=segment.base_offset, end_offset=segment.end_offset
                )
                entries = [index[slot] for slot in range(len(index))]
            except CorruptIndexError as error:
                reason = str(error)
        if reason is None and self._is_replayed_wholly:
            reason = self._transaction_reason(segment, entries)
        if reason is not None:
            self._add(Kind.STALE, path, reason)

    def _transaction_reason(self, segment: _Segment, entries: Sequence[TransactionIndexEntry]) -> str | None:
        """Return how an index differs; for a compacted log, and transactions before its start, it may have more than
        the log."""
        listed = {(entry.producer_id, entry.last_offset) for entry in entries}
        replayed = {(entry.producer_id, entry.last_offset) for entry in segment.aborted}
        for producer_id, offset in sorted(replayed - listed):
            return f"the transaction of producer {producer_id} that was aborted at offset {offset} is not in it"
        if not self._known.is_compacted:
            first_offset = self.base_offsets[0]
            for entry in entries:
                if entry.first_offset >= first_offset and (entry.producer_id, entry.last_offset) not in replayed:
                    return f"no transaction of producer {entry.producer_id} was aborted at offset {entry.last_offset}"
        return None

    # Producers

    def _begin_replay(self, first_offset: int) -> None:
        if first_offset in self._snapshots:
            decoded = self._read_snapshot(first_offset)
            if isinstance(decoded, CorruptSnapshot):
                self._is_replayed_wholly = False
            else:
                self._producers.restore(decoded, now_ms=0, expiration_ms=NEVER_EXPIRE_MS)

    def _read_snapshot(self, offset: int) -> list[ProducerSnapshot] | CorruptSnapshot:
        name = file_name(offset, ".snapshot")
        try:
            content = read_small(self._disk, self._files.path(name))
        except CorruptCheckpointError as error:
            return CorruptSnapshot(str(error))
        if content is None:
            return CorruptSnapshot("the file is missing")
        if not self._checksums.matches(name, content):
            return CorruptSnapshot(NOT_WRITTEN)
        return decode_snapshot(content, offset)

    def _compare_snapshot(self, offset: int) -> None:
        """Compare the snapshots up to `offset`, before its batch is applied: they are of this offset, or of one in
        between."""
        while self._snapshots and self._snapshots[0] <= offset:
            at = self._snapshots.pop(0)
            if not self._known.is_clean and at > (self._known.recovery_point or 0):
                continue  # the next start rebuilds it
            path = self._files.snapshot_path(at)
            decoded = self._read_snapshot(at)
            if isinstance(decoded, CorruptSnapshot):
                self._add(Kind.STALE, path, decoded.reason)
            elif at == offset and self._is_replayed_wholly and not self._known.is_compacted:
                reason = _difference(decoded, self._producers.snapshot())
                if reason is not None:
                    self._add(Kind.STALE, path, reason)

    def _path(self, offset: int, suffix: str) -> str:
        return self._files.path(file_name(offset, suffix))

    def _add(
        self,
        kind: Kind,
        path: str,
        what: str,
        *,
        span: tuple[int, int] | None = None,
        first_offset: int | None = None,
        end_offset: int | None = None,
        replacement: bytes | None = None,
        follows_valid: bool = False,
    ) -> None:
        position, end_position = span if span is not None else (None, None)
        problem = DirectoryProblem(
            kind,
            path,
            what,
            position,
            end_position,
            first_offset,
            end_offset,
            replacement,
            follows_valid,
            max(self.max_epoch, 0),
            self._latest_time_ms,
        )
        self.problems.append(problem)


class _EpochJudge:
    """Decides which leader epochs are true: they never fall. Each batch waits for the next one of its file."""

    def __init__(self) -> None:
        self.known: Sequence[EpochStart] = ()
        self._latest = -1
        self._held: Whole | Mended | None = None

    def take(self, path: str, found: Found) -> Iterator[tuple[Found, str | None]]:
        if isinstance(found, Damaged):
            yield from self.finish()
            yield found, None
            return
        held, self._held = self._held, found
        if held is not None:
            yield self._judge(held, found.batch.header.partition_leader_epoch)

    def finish(self, following: int | None = None) -> Iterator[tuple[Found, str | None]]:
        """Decide the rest. following: the epoch of the next batch; None if unknown."""
        held, self._held = self._held, None
        if held is not None:
            yield self._judge(held, following)

    def _judge(self, held: Whole | Mended, following: int | None) -> tuple[Found, str | None]:
        header = held.batch.header
        epoch = header.partition_leader_epoch
        falls = epoch < self._latest
        is_above = following is not None and self._latest <= following < epoch
        if not falls and not is_above:
            self._latest = epoch
            return held, None
        true_epoch = self._latest
        if true_epoch < 0 and following is not None:
            true_epoch = following
        for start in self.known:
            is_between = self._latest <= start.leader_epoch and (following is None or start.leader_epoch <= following)
            if start.start_offset <= header.base_offset and is_between:
                true_epoch = start.leader_epoch
        self._latest = true_epoch
        judged = held._replace(batch=held.batch._replace(header=header._replace(partition_leader_epoch=true_epoch)))
        return judged, f"leader epoch {epoch} instead of {true_epoch}, as around it"


def _prefix(header: BatchHeader) -> bytes:
    """Return the bytes before the checksum."""
    return (
        header.base_offset.to_bytes(8, "big")
        + header.batch_length.to_bytes(4, "big")
        + header.partition_leader_epoch.to_bytes(4, "big", signed=True)
        + bytes([header.magic])
    )


def _difference(stored: Sequence[ProducerSnapshot], replayed: Sequence[ProducerSnapshot]) -> str | None:
    """Return how a snapshot differs from the log; producers in only one of the two may have expired."""
    by_id = {producer.producer_id: producer for producer in replayed}
    for one in stored:
        other = by_id.get(one.producer_id)
        if other is not None and _essence(one) != _essence(other):
            return f"its state of producer {one.producer_id} differs from the log"
    return None


def _essence(producer: ProducerSnapshot) -> tuple[int, int, int, int]:
    last = producer.recent_batches[-1] if producer.recent_batches else None
    return (
        producer.producer_epoch,
        producer.current_transaction_first_offset,
        last.last_sequence if last is not None else -1,
        last.last_offset if last is not None else -1,
    )
