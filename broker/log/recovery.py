"""Opening a partition's directory: after a clean stop by what was written then, else by reading the log again.

What an unclean stop leaves behind is judged by the recovery point, up to which the log was known to be on the disk:
- From there on, everything up to the first batch that is not whole and valid is kept and the rest is cut, as Apache
  Kafka does: it was never acknowledged, or only by the page cache. If whole batches stand behind the bad place, they
  are
  not thrown away but kept in a file beside the log (`….log.lost-<position>`), and that is an error in the log.
- A bad batch before it is damage to records that had been acknowledged. Cutting there would lose all that follow, and
  going over it would hide the hole. Such a partition is refused: it is offline until somebody restores the file, or
  gives the records up by taking the partition out of `recovery-point-offset-checkpoint`.
Either way the indexes of every segment that was read again are rebuilt, and the producers' state is replayed.
Source: Kafka's LogLoader, LogSegment.recover and ProducerStateManager.truncateAndReload.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import structlog

from broker.disk import LogFile
from broker.log.batch_scan import DamagedLogError
from broker.log.leader_epochs import LeaderEpochs
from broker.log.log_config import LogConfig
from broker.log.log_segments import LogSegments
from broker.log.partition_files import INDEX_SUFFIXES, PartitionFiles
from broker.log.producer_replay import replay, replay_batch, usable_transaction_index
from broker.log.producer_state import ProducerState
from broker.log.segment import Segment
from broker.log.segment_files import file_name
from broker.log.steps import Steps
from broker.log.swap import finish_swaps
from broker.log.tail_check import checked_batches, find_valid_batch
from broker.log.transaction_index import TransactionIndex
from protocol.record_batch import RecordBatch

log = structlog.get_logger(__name__)

STEP_BYTES = 1024 * 1024
STEP_BATCHES = 64
GIVING_UP = (
    "The partition is offline. Stop the broker and restore the file, or give the records up by removing the "
    "partition's line from recovery-point-offset-checkpoint (and correcting the count in its second line)"
)


class LoadedLog(NamedTuple):
    """What was found in a partition's directory.

    unsynced:   files of segments that were read again: to be synced before anything in them counts as durable.
    side_files: other files that were written; to be synced as well, and closed.
    was_cut:   records were lost; the next ones belong to a new leader epoch.
    recovery_point: up to which the log will be on the disk when these have been synced.
    offline_reason: why the log is refused; None when it may be used.
    """

    segments: LogSegments
    producers: ProducerState
    epochs: LeaderEpochs
    log_start_offset: int
    unsynced: Sequence[LogFile]
    side_files: Sequence[LogFile]
    was_cut: bool
    recovery_point: int
    offline_reason: str | None


class LogLoader:
    """Loads one partition.

    log_start_offset: as checkpointed; 0 when it never moved.
    recovery_point:   as checkpointed; after a clean stop also the log end offset.
    """

    def __init__(
        self,
        files: PartitionFiles,
        config: LogConfig,
        *,
        is_clean: bool,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._config = config
        self._is_clean = is_clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._producers = ProducerState()
        self._epochs = LeaderEpochs()
        self._unsynced: list[LogFile] = []
        self._side_files: list[LogFile] = []
        self._was_cut = False
        self._offline_reason: str | None = None

    def load(self) -> Steps[LoadedLog]:
        """In steps of a millisecond or less, whatever there is to be read. Raises StorageError."""
        segments = self._open_segments()
        self._log_start_offset = max(self._log_start_offset, segments[0].base_offset)
        self._epochs = self._files.read_epochs()
        try:
            if not (self._is_clean and self._resume(segments)):
                segments = yield from self._recover(segments)
        except DamagedLogError as error:
            self._refuse(str(error), path=self._files.directory)
        if self._offline_reason is None and segments[-1].next_offset < self._log_start_offset:
            # All that DeleteRecords had left is lost: go on at the offset that readers were told.
            for segment in segments:
                segment.delete()
            segments = [self._files.new_segment(self._log_start_offset, self._config.index_interval_bytes)]
        self._epochs.truncate_from_end(segments[-1].next_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        return LoadedLog(
            LogSegments(segments),
            self._producers,
            self._epochs,
            self._log_start_offset,
            self._unsynced,
            self._side_files,
            self._was_cut,
            self._recovery_point if self._offline_reason is not None else segments[-1].next_offset,
            self._offline_reason,
        )

    def _open_segments(self) -> list[Segment]:
        numbered = self._files.numbered()
        if finish_swaps(self._files, numbered):
            numbered = self._files.numbered()
        base_offsets = numbered.get(".log", [])
        known = set(base_offsets)
        for suffix in INDEX_SUFFIXES:
            for offset in numbered.get(suffix, []):
                if offset not in known:
                    self._disk.delete(self._files.path(file_name(offset, suffix)))
        self._files.snapshot_offsets = numbered.get(".snapshot", [])
        if not base_offsets:
            return [self._files.new_segment(self._log_start_offset, self._config.index_interval_bytes)]
        with_aborted = set(numbered.get(".txnindex", []))
        # Every closed segment has an .index. Where that was removed, a .txnindex may have been, too; without that
        # aborted records would be taken for committed ones. So it counts as missing until it has been made anew.
        with_aborted |= known.difference(numbered.get(".index", []))
        for base_offset in base_offsets:
            recorded = self._files.checksums.get(file_name(base_offset, ".txnindex"))
            if recorded is not None and recorded.size_bytes:
                with_aborted.add(base_offset)
        return [
            Segment(
                self._disk,
                self._files.directory,
                base_offset,
                next_offset=next_base_offset,
                index_interval_bytes=self._config.index_interval_bytes,
                has_transaction_index=base_offset in with_aborted,
                checksums=self._files.checksums,
            )
            for base_offset, next_base_offset in zip(base_offsets, [*base_offsets[1:], base_offsets[-1]], strict=True)
        ]

    # After a clean stop

    def _resume(self, segments: Sequence[Segment]) -> bool:
        """Whether the log ends as the clean stop left it; then everything else is as it was left, too."""
        active = segments[-1]
        if not active.resume() or active.next_offset != self._recovery_point:
            log.warning(
                "clean_stop_not_believed",
                path=active.path(".log"),
                reason=f"the log ends at offset {active.next_offset} instead of {self._recovery_point}",
            )
            return False
        if not self._are_as_recorded(segments, active.next_offset):
            return True
        self._load_producers(segments, active.next_offset)
        if active.has_transaction_index:
            usable_transaction_index(self._files, segments, active)  # before markers are to be added to it
        return True

    def _are_as_recorded(self, segments: Sequence[Segment], end_offset: int) -> bool:
        """Whether the log files are as long as they were when they were left, and none is missing between them."""
        following_offsets = [*(segment.base_offset for segment in segments[1:]), end_offset]
        for segment, following_offset in zip(segments, following_offsets, strict=False):
            recorded = self._files.checksums.get(file_name(segment.base_offset, ".log"))
            if recorded is None or recorded == (segment.size_bytes, following_offset):
                continue
            path = segment.path(".log")
            reason = f"{path} had {recorded.size_bytes} bytes up to offset {recorded.check}, and has "
            reason += f"{segment.size_bytes}, followed by offset {following_offset}"
            self._refuse(reason, path=path, size_bytes=segment.size_bytes, recorded_size_bytes=recorded.size_bytes)
            return False
        return True

    def _load_producers(self, segments: Sequence[Segment], end_offset: int) -> None:
        """The producers' state before `end_offset`: from the newest snapshot, and what the log holds after it."""
        snapshot = self._files.latest_snapshot(end_offset)
        start_offset = self._log_start_offset
        if snapshot is not None:
            self._producers.restore(
                snapshot.producers, now_ms=self._now_ms, expiration_ms=self._config.producer_id_expiration_ms
            )
            start_offset = max(start_offset, snapshot.offset)
        for _ in replay(segments, self._producers, start_offset, end_offset, now_ms=self._now_ms):
            pass  # aborted transactions of these segments stand in their indexes already

    # After an unclean stop

    def _recover(self, segments: Sequence[Segment]) -> Steps[list[Segment]]:
        """Read every segment from the recovery point on again. Returns the segments that are left."""
        first = max(
            (slot for slot, segment in enumerate(segments) if segment.base_offset <= self._recovery_point), default=0
        )
        recovered = list(segments[:first])
        if not self._are_as_recorded(recovered, segments[first].base_offset):
            return list(segments)
        for offset in [offset for offset in self._files.snapshot_offsets if offset > segments[first].base_offset]:
            self._files.delete_snapshot(offset)
        self._load_producers(segments[:first], segments[first].base_offset)
        for slot in range(first, len(segments)):
            segment = segments[slot]
            if slot > first:
                self._side_files.append(self._files.write_snapshot(segment.base_offset, self._producers.snapshot()))
            start_offset = max(segment.base_offset, recovered[-1].next_offset if recovered else 0)
            end_position = yield from self._read_again(segment, start_offset)
            recovered.append(segment)
            is_whole = end_position == segment.size_bytes
            if not is_whole and segment.next_offset < self._recovery_point:
                self._refuse_damage(segment, end_position)
                return list(segments)
            if not is_whole:
                yield from self._cut(segment, end_position, segments[slot + 1 :])
            is_last = slot == len(segments) - 1 or not is_whole
            segment.write_indexes_anew(durable=not is_last)
            self._unsynced.append(segment.log)
            self._side_files.append(
                segment.forget_records() if is_last else segment.record_files(segments[slot + 1].base_offset)
            )
            if not is_whole:
                break
        end_offset = recovered[-1].next_offset
        if end_offset < self._recovery_point:
            # Nothing is damaged, but whole batches that had been on the disk are not there any more.
            self._refuse_damage(recovered[-1], recovered[-1].size_bytes)
        return recovered

    def _read_again(self, segment: Segment, start_offset: int) -> Steps[int]:
        """Take in what a segment's log file holds; returns the position after its last valid batch."""
        segment.reset_indexes()
        aborted = TransactionIndex()
        end_position = step_end = 0
        producers, epochs, now_ms = self._producers, self._epochs, self._now_ms
        for count, (position, batch) in enumerate(checked_batches(segment.log, start_offset), 1):
            header = batch.header
            segment.index_scanned(position, header.last_offset, header.max_timestamp_ms)
            epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                entry = replay_batch(producers, header, partial(_itself, batch), now_ms=now_ms)
                if entry is not None:
                    aborted.append(entry)
            end_position = position + header.size_bytes
            if count % STEP_BATCHES == 0 or end_position >= step_end:
                step_end = end_position + STEP_BYTES
                yield
        segment.replace_transaction_index(aborted)
        return end_position

    def _refuse_damage(self, segment: Segment, position: int) -> None:
        path = segment.path(".log")
        reason = (
            f"{path} is damaged at position {position}: offset {segment.next_offset} and what follows had been on the "
            f"disk up to offset {self._recovery_point}"
        )
        self._refuse(reason, path=path, position=position, offset=segment.next_offset)

    def _refuse(self, reason: str, *, path: str, **figures: int) -> None:
        self._offline_reason = reason
        log.error(
            "log_damaged",
            path=path,
            **figures,
            recovery_point=self._recovery_point,
            reason=f"{reason}. Acknowledged records cannot be read. {GIVING_UP}",
        )

    def _cut(self, segment: Segment, position: int, later: Sequence[Segment]) -> Steps[None]:
        """Drop what stands at `position` and after it; keep it aside if there is a valid batch in it."""
        lost_bytes = segment.size_bytes - position + sum(dropped.size_bytes for dropped in later)
        following = yield from find_valid_batch(segment.log, position, segment.next_offset, max(self._epochs.latest, 0))
        holds_batches = following is not None or any(
            next(iter(checked_batches(dropped.log, dropped.base_offset)), None) is not None for dropped in later
        )
        if holds_batches:
            yield from self._set_aside(segment, position)
            for dropped in later:
                yield from self._set_aside(dropped, 0)
            log.error(
                "log_cut_before_valid_batches",
                path=segment.path(".log"),
                offset=segment.next_offset,
                position=position,
                lost_bytes=lost_bytes,
                kept_as=self._lost_path(segment, position),
                reason="batches that had not been synced reached the disk only in part",
            )
        else:
            log.warning(
                "torn_tail_cut",
                path=segment.path(".log"),
                offset=segment.next_offset,
                position=position,
                lost_bytes=lost_bytes,
            )
        for dropped in later:
            dropped.delete()
        segment.truncate(position)
        self._was_cut = True

    def _set_aside(self, segment: Segment, position: int) -> Steps[None]:
        self._disk.delete(self._lost_path(segment, position))
        aside = self._disk.open(self._lost_path(segment, position))
        while position < segment.size_bytes:
            piece = segment.log.read(position, STEP_BYTES)
            aside.append(piece)
            position += len(piece)
            yield
        self._side_files.append(aside)

    def _lost_path(self, segment: Segment, position: int) -> str:
        return segment.path(f".log.lost-{position}")


def _itself(batch: RecordBatch) -> RecordBatch:
    return batch
