"""Recovery of a partition's directory: after a clean stop from the files that it wrote, else by reading the log again.

The recovery point, up to which the log was known to be on the disk, decides about the remains of an unclean stop:
- From there on, recovery keeps everything up to the first batch that is not whole and valid, or not the next one. It
  cuts the rest, as Apache Kafka does: that was never acknowledged, or only by the page cache. Whole batches at or
  behind the bad place are kept in a file beside the log (`….log.lost-<position>`), and an error is logged.
- A bad batch before it is damage to acknowledged records. Cutting there would lose all that follow, and skipping it
  would hide the gap. Recovery refuses such a partition: it is offline, with every byte unchanged, until an operator
  restores the file or gives the records up.
A bad place is before the recovery point when its own offset is, or that of any valid batch behind it: a batch's
checksum does not cover its offset, so a false one must not move the bounds that offsets set.
In both cases the indexes of every segment that was read again are rebuilt, and the producers' state is replayed.
Source: Kafka's LogRecovery, LogSegment.recover and ProducerStateManager.truncateAndReload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.files.checkpoints import GREATEST_NUMBER
from fencepost.broker.log.files.file_names import INDEX_SUFFIXES, file_name, lost_path
from fencepost.broker.log.files.leader_epochs import UNKNOWN_EPOCH, LeaderEpochs
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, RECOVERY_MARK_FILE, PartitionFiles
from fencepost.broker.log.files.producer_snapshot import PRODUCERS_PER_SLICE, ProducerSnapshot, encoding_steps
from fencepost.broker.log.files.remedies import remedy_offline_partition
from fencepost.broker.log.files.segment_checksums import CHECKSUMS_FILE
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.producers.producer_replay import replay, replay_batch, usable_transaction_index
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.recovery.loaded_log import LoadedLog, RecoveryRefusal
from fencepost.broker.log.recovery.recovery_mark import MarkedPlace, RecoveryMark, find_mark, read_mark
from fencepost.broker.log.segment.batch_scan import DamagedLogError, damaged
from fencepost.broker.log.segment.header_plausibility import MAX_RELATIVE_OFFSET, HeaderFault, HeaderPlausibility
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment, new_segment
from fencepost.broker.log.segment.segment_files import forget_segments
from fencepost.broker.log.segment.swap import finish_swaps
from fencepost.broker.log.segment.tail_scan import (
    BatchesAfterDamage,
    batches_after_damage,
    checked_batches,
    valid_batch_at,
)
from fencepost.broker.log.segment.transaction_index import TransactionIndex
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.protocol.record_batch import RecordBatch

log = get_logger(__name__)

STEP_BYTES = 1024 * 1024
STEP_BATCHES = 64


class LogRecovery:
    """Recovers one partition.

    log_start_offset: offset as checkpointed; 0 if it never moved.
    recovery_point:   offset as checkpointed; after a clean stop also the log end offset.
    durable_end:      end of the records known to be durable, if that is above the recovery point.
    leader_epoch:     epoch of the partition, from sources outside its log.
    remote_segments:  those below the segments in the directory: all of the log below the recovery point. They are
                      sealed, and recovery does not read them.
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
        leader_epoch: int = 0,
        remote_segments: Sequence[Segment] = (),
        durable_end: int = 0,
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._config = config
        self._is_clean = is_clean
        self._recovery_point = recovery_point
        self._durable_end = max(recovery_point, durable_end)
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._leader_epoch = leader_epoch
        self._remote_segments = remote_segments
        self._producers = ProducerState()
        self._epochs = LeaderEpochs()
        self._known_epochs = self._epochs  # from the checkpoint, while `_epochs` follows the read batches
        self._read_epoch = UNKNOWN_EPOCH  # of the last batch read
        self._unsynced: list[LogFile] = []
        self._side_files: list[LogFile] = []
        self._orphans: list[str] = []  # index files without a segment
        self._was_cut = False
        self._was_recovered = False
        self._refusal: RecoveryRefusal | None = None

    def load(self) -> SlicedWork[LoadedLog]:
        """Load the log, in steps of a millisecond or less. Raises StorageError."""
        numbered = yield from self._finish_swaps()
        segments = self._open_segments(numbered)
        if self._refusal is None:
            self._refuse_if_one_is_missing(segments)
        if self._refusal is None:
            self._refuse_what_is_of_another(segments)
        self._find_log_start((*self._remote_segments, *segments)[0].base_offset)
        self._epochs = self._files.read_epochs()
        self._known_epochs = LeaderEpochs(self._epochs.starts)
        for segment in (*self._remote_segments, *segments):
            segment.batches.known_epochs = self._epochs
        try:
            is_resumed = self._refusal is not None
            if self._is_clean and not is_resumed:
                is_resumed = yield from self._resume(segments)
            if not is_resumed:
                self._was_recovered = True
                segments = yield from self._recover(segments)
        except DamagedLogError as error:
            self._refuse(self._of_directory(str(error), segments))
        except StorageError:
            raise
        except Exception as error:
            # Unexpected, so the state it leaves is unknown. It concerns this partition; others must be served.
            log.exception("log_unreadable", path=self._files.directory)
            self._refuse(self._of_directory(f"{self._files.directory} cannot be read: {error!r}", segments))
        if self._refusal is None and segments[-1].next_offset < self._log_start_offset:
            segments = yield from self._start_after(segments)
        if self._refusal is None:
            for path in self._orphans:
                self._disk.delete(path)
        self._begin_epoch(segments[-1].next_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        if self._was_recovered and self._refusal is None and self._epochs.changed:
            # The next recovery judges the epochs that it finds by the checkpoint.
            self._side_files.append(self._files.write_epochs_anew(self._epochs))
        return LoadedLog(
            LogSegments([*self._remote_segments, *segments]),
            self._producers,
            self._epochs,
            self._log_start_offset,
            self._unsynced,
            self._side_files,
            self._recovery_point if self._refusal is not None else segments[-1].next_offset,
            self._refusal,
        )

    def _find_log_start(self, first_offset: int) -> None:
        """Take the greater of the checkpointed log start and the one in the list of checksums: a start never falls."""
        noted = self._files.checksums.log_start_offset
        known = max(self._log_start_offset, first_offset)
        if noted > known:
            directory, _, _ = self._files.directory.rpartition("/")
            log.error(
                "log_start_went_back",
                path=f"{directory}/{LOG_START_FILE}",
                log=self._files.directory,
                checkpointed_offset=self._log_start_offset,
                offset=noted,
                reason=f"DeleteRecords has moved the log's start to offset {noted}, as {CHECKSUMS_FILE} says, and the "
                "checkpoint is missing, older or damaged. The log begins there, and the checkpoint is written anew",
            )
        self._log_start_offset = max(known, noted)

    def _start_after(self, segments: list[Segment]) -> SlicedWork[list[Segment]]:
        """Start a log at its checkpointed start, which is after its end; DeleteRecords never moves a start so far.

        Either that checkpoint is false, or the disk has lost unsynced records; only a log whose records are
        acknowledged before they are on the disk can lose those. It then continues at the offset that readers know.
        """
        if not self._was_recovered or self._config.is_durable:
            directory, _, name = self._files.directory.rpartition("/")
            path = f"{directory}/{LOG_START_FILE}"
            what = f"{path} says that {name} starts at offset {self._log_start_offset}, and its log ends at offset "
            what += f"{segments[-1].next_offset}"
            self._refuse(self._of_directory(what, segments)._replace(path=path))
            return segments
        for segment in segments:
            if segment.size_bytes:
                yield from self._set_aside(segment, 0)
                log.error(
                    "log_cut_before_valid_batches",
                    path=segment.files.path(".log"),
                    offset=segment.base_offset,
                    position=0,
                    lost_bytes=segment.size_bytes,
                    kept_as=self._lost_path(segment, 0),
                    reason=f"readers have seen the log start at offset {self._log_start_offset}, and it ends "
                    f"before; what it held is kept beside it",
                )
        self._side_files.append(forget_segments(self._files.checksums, [one.base_offset for one in segments]))
        for segment in segments:
            segment.delete()
        return [new_segment(self._files, self._log_start_offset, self._config.index_interval_bytes)]

    def _begin_epoch(self, end_offset: int) -> None:
        """Remove the epochs of cut records; if any were cut, the next records get a new epoch above all.

        An epoch that begins at the end of the log stays: it was begun for the next records.
        """
        latest = self._epochs.latest
        self._epochs.truncate_from_end(end_offset + 1)
        if self._was_cut:
            self._epochs.assign(max(latest, 0) + 1, end_offset)

    def _finish_swaps(self) -> SlicedWork[dict[str, list[int]]]:
        """Finish the cleaner's swaps. Returns the files that exist afterwards."""
        numbered = self._files.numbered()
        try:
            have_changed = yield from finish_swaps(self._files, numbered)
            return self._files.numbered() if have_changed else numbered
        except DamagedLogError as error:
            self._refuse(self._of_directory(str(error), ()))
            return self._files.numbered()

    def _open_segments(self, numbered: Mapping[str, Sequence[int]]) -> list[Segment]:
        base_offsets = self._possible(numbered.get(".log", []))
        known = {*base_offsets, *(segment.base_offset for segment in self._remote_segments)}
        self._orphans = [
            self._files.path(file_name(offset, suffix))
            for suffix in INDEX_SUFFIXES
            for offset in numbered.get(suffix, [])
            if offset not in known
        ]
        self._files.snapshot_offsets = list(numbered.get(".snapshot", []))
        if not base_offsets:
            base_offset = self._remote_segments[-1].next_offset if self._remote_segments else self._log_start_offset
            return [new_segment(self._files, base_offset, self._config.index_interval_bytes)]
        with_aborted = set(numbered.get(".txnindex", []))
        for base_offset in base_offsets:
            recorded = self._files.checksums.get(file_name(base_offset, ".txnindex"))
            if recorded is not None and recorded.size_bytes:
                with_aborted.add(base_offset)
        is_cleaned = self._config.is_compacted or not self._files.checksums.knows_files
        segments = [
            Segment(
                self._disk,
                self._files.directory,
                base_offset,
                next_offset=next_base_offset,
                index_interval_bytes=self._config.index_interval_bytes,
                has_transaction_index=base_offset in with_aborted,
                # The cleaner never cleans the active segment; Kafka's may have left gaps in a copied log.
                may_skip=is_cleaned or base_offset != base_offsets[-1],
                checksums=self._files.checksums,
            )
            for base_offset, next_base_offset in zip(base_offsets, [*base_offsets[1:], base_offsets[-1]], strict=True)
        ]
        # Every sealed segment with records has an .index. Where it was removed, a .txnindex may have been, too; without
        # that, aborted records would count as committed.
        indexed = set(numbered.get(".index", []))
        for segment in segments:
            if segment.base_offset not in indexed and segment.size_bytes and not segment.transactions.exists:
                segment.transactions.mark_missing()
        return segments

    def _possible(self, base_offsets: Sequence[int]) -> Sequence[int]:
        """Return the offsets in names of log files; refuse the log if one cannot be an offset."""
        possible = [offset for offset in base_offsets if offset <= GREATEST_NUMBER]
        if len(possible) < len(base_offsets) and self._refusal is None:
            path = self._files.path(file_name(base_offsets[-1], ".log"))
            what = (
                f"{path} is named after an offset above 2^63, which none has; move it away if it does not belong here"
            )
            self._refuse(self._of_directory(what, ())._replace(path=path))
        return possible

    # Files that are missing

    def _refuse_if_one_is_missing(self, segments: Sequence[Segment]) -> None:
        """Refuse the log if a segment is missing that this broker has not deleted.

        Segments below the log's start are not needed. In the middle, and behind the last existing segment, a line
        counts if it joins its neighbours: earlier versions left lines of segments that a recovery cut.
        """
        checksums = self._files.checksums
        present = {segment.base_offset: segment for segment in segments}
        base_offsets = [*present]
        for base_offset, record in checksums.segments():
            if base_offset in present or record.check <= self._log_start_offset:
                continue
            slot = bisect_left(base_offsets, base_offset)
            if slot == 0:
                is_missing = checksums.knows_deletions
            else:
                before = checksums.get(file_name(base_offsets[slot - 1], ".log"))
                is_missing = before is not None and before.check == base_offset
                is_missing |= slot < len(base_offsets) and record.check == base_offsets[slot]
            if is_missing:
                self._refuse_missing(base_offset, record.check, record.size_bytes)
                return
        for base_offset, start in checksums.starts():
            segment = present.get(base_offset)
            is_gone = base_offset > base_offsets[-1] if segment is None else segment.size_bytes < start.size_bytes
            if is_gone and base_offset >= self._log_start_offset:
                self._durable_end = max(self._durable_end, self._marked_end())
                self._refuse_missing(base_offset, max(self._durable_end, base_offset + 1), start.size_bytes)
                return

    def _marked_end(self) -> int:
        """The offset up to which the log was on the disk, by its mark alone; 0 without one."""
        mark = read_mark(self._files)
        return mark.offset if isinstance(mark, RecoveryMark) else 0

    def _refuse_what_is_of_another(self, segments: Sequence[Segment]) -> None:
        """Refuse valid files that belong to another partition, or to another time of this one."""
        directory = self._files.directory
        if self._files.checksums.is_of_another_directory:
            what = f"{directory} is the directory of another partition, as {self._files.path(CHECKSUMS_FILE)} says"
            self._refuse(self._of_directory(what, segments))
            return
        for slot, segment in enumerate(segments):
            if segment.files.is_of_another_log(segment.batches.log):
                path = segment.files.path(".log")
                what = f"{path} begins with another batch than was written there: it is another partition's file"
                lost_bytes = _bytes_from(segment, 0, segments[slot + 1 :])
                end_offset = max(self._durable_end, segment.base_offset)
                self._refuse(
                    RecoveryRefusal(
                        path, what, 0, segment.base_offset, None, end_offset, lost_bytes, is_of_another=True
                    )
                )
                return

    def _refuse_missing(self, base_offset: int, end_offset: int, size_bytes: int) -> None:
        path = self._files.path(file_name(base_offset, ".log"))
        what = f"{path} is missing; it held the offsets from {base_offset} to before {end_offset}"
        self._refuse(RecoveryRefusal(path, what, None, base_offset, None, end_offset, size_bytes, is_missing=True))

    # After a clean stop

    def _resume(self, segments: Sequence[Segment]) -> SlicedWork[bool]:
        """Whether the log ends as the clean stop left it; then everything else is unchanged, too."""
        active = segments[-1]
        order = active.resume()
        fault = order.fault
        if fault is not None or active.next_offset != self._recovery_point:
            reason = f"the log ends at offset {active.next_offset} instead of {self._recovery_point}"
            if fault is not None:
                reason = str(active.batches.damaged(fault))
            log.warning("clean_stop_contradicted", path=active.files.path(".log"), reason=reason)
            return False
        marked_end = self._marked_end()
        if marked_end > active.next_offset:
            reason = f"the log ends at offset {active.next_offset}, and its {RECOVERY_MARK_FILE} is at {marked_end}"
            log.warning("clean_stop_contradicted", path=active.files.path(".log"), reason=reason)
            return False
        if active.size_bytes and order.leader_epoch > self._epochs.latest:
            reason = f"it ends before epoch {order.leader_epoch}, in which the log was written last"
            log.warning("leader_epochs_corrupt", path=self._files.path(LEADER_EPOCH_FILE), reason=reason)
            return False
        if not self._are_as_recorded(segments, active.next_offset):
            return True
        if active.size_bytes:
            self._correct_epochs(order.leader_epoch, active.next_offset)
        yield from self._load_producers(segments, active.next_offset)
        if active.transactions.exists:
            usable_transaction_index(self._files, segments, active)  # before markers are added to it
        return True

    def _correct_epochs(self, leader_epoch: int, end_offset: int) -> None:
        """Correct the checkpoint by a batch of the log, if the checkpoint puts a higher epoch before its end."""
        if self._epochs.forget_above(leader_epoch, end_offset):
            path = self._files.path(LEADER_EPOCH_FILE)
            reason = f"it has epochs above {leader_epoch}, in which the log was written before offset {end_offset}"
            log.warning("leader_epochs_corrupt", path=path, reason=reason)

    def _are_as_recorded(self, segments: Sequence[Segment], end_offset: int) -> bool:
        """Whether the log files have their recorded sizes, and none is missing between them."""
        following_offsets = [*(segment.base_offset for segment in segments[1:]), end_offset]
        for slot, (segment, following_offset) in enumerate(zip(segments, following_offsets, strict=False)):
            recorded = self._files.checksums.get(file_name(segment.base_offset, ".log"))
            if recorded is None or recorded == (segment.size_bytes, following_offset):
                continue
            path = segment.files.path(".log")
            if segment.size_bytes == recorded.size_bytes:
                self._refuse_missing(recorded.check, following_offset, 0)
                return False
            what = f"{path} had {recorded.size_bytes} bytes up to offset {recorded.check}, and has "
            what += f"{segment.size_bytes}, followed by offset {following_offset}"
            position = min(segment.size_bytes, recorded.size_bytes)
            self._refuse(
                RecoveryRefusal(
                    path,
                    what,
                    position,
                    segment.base_offset,
                    None,
                    max(self._recovery_point, recorded.check),
                    _bytes_from(segment, position, segments[slot + 1 :]),
                )
            )
            return False
        return True

    def _load_producers(self, segments: Sequence[Segment], end_offset: int) -> SlicedWork[None]:
        """Load the producers' state before `end_offset`: from the newest snapshot, and the log after it."""
        snapshot = yield from self._files.latest_snapshot_in_steps(end_offset)
        start_offset = self._log_start_offset
        if snapshot is not None:
            yield from self._restore(snapshot.producers)
            start_offset = max(start_offset, snapshot.offset)
        for _ in replay(segments, self._producers, start_offset, end_offset, now_ms=self._now_ms):
            yield  # aborted transactions of these segments are in their indexes already

    def _restore(self, producers: Sequence[ProducerSnapshot]) -> SlicedWork[None]:
        yield from self._producers.restoring_steps(
            producers, now_ms=self._now_ms, expiration_ms=self._config.producer_id_expiration_ms
        )

    def _write_snapshot(self, offset: int) -> SlicedWork[None]:
        if len(self._producers) <= PRODUCERS_PER_SLICE:
            self._side_files.append(self._files.write_snapshot(offset, self._producers.snapshot()))
            return
        capture = self._producers.capture()
        content = yield from encoding_steps(capture.producers(), len(capture))
        self._producers.release(capture)
        self._side_files.append(self._files.write_encoded_snapshot(offset, content))

    # After an unclean stop

    def _recover(self, segments: Sequence[Segment]) -> SlicedWork[list[Segment]]:
        """Read every segment from the recovery point on again, the first from its mark on. Returns the remaining ones.

        The mark of a partition is also a recovery point: it was written after the log was on the disk up to there.
        """
        found = find_mark(self._files, self._epochs, {segment.base_offset: segment for segment in segments})
        place = None
        if found is not None:
            place = found.place
            self._recovery_point = max(self._recovery_point, found.mark.offset)
            self._durable_end = max(self._durable_end, found.mark.offset)
        first = max(
            (slot for slot, segment in enumerate(segments) if segment.base_offset <= self._recovery_point), default=0
        )
        if place is not None and place.mark.base_offset != segments[first].base_offset:
            place = None
        if not self._are_as_recorded(segments[:first], segments[first].base_offset):
            return list(segments)
        yield from self._restore_before(segments, first, place)
        recovered = list(segments[:first])
        for slot in range(first, len(segments)):
            place_in_segment = place if slot == first else None
            if slot > first:
                yield from self._write_snapshot(segments[slot].base_offset)
            is_last = yield from self._recover_segment(segments, slot, recovered, place_in_segment)
            if self._refusal is not None:
                return list(segments)
            recovered.append(segments[slot])
            if is_last:
                break
        last = recovered[-1]
        for start in self._known_epochs.starts:
            if start.start_offset >= last.next_offset:  # begun for the next records, or for lost ones
                self._epochs.assign(start.leader_epoch, start.start_offset)
        if last.next_offset < self._durable_end:
            # Nothing is damaged, but whole batches that had been on the disk are missing.
            self._refuse_damage(
                last, HeaderFault(last.size_bytes, last.next_offset, None, "the file ends there"), (), 0
            )
        elif found is not None and not found.is_of_the_log and found.mark.base_offset == last.base_offset:
            self._refuse_another_log(last, found.mark)
        return recovered

    def _restore_before(self, segments: Sequence[Segment], first: int, place: MarkedPlace | None) -> SlicedWork[None]:
        """Restore producers and epochs before the part to read again: the first segment, or its end behind the mark."""
        base_offset = segments[first].base_offset
        for offset in [offset for offset in self._files.snapshot_offsets if offset > base_offset]:
            self._files.delete_snapshot(offset)
        if place is None:
            yield from self._load_producers(segments[:first], base_offset)
            self._epochs.truncate_from_end(base_offset)
        else:
            yield from self._restore(place.producers)
            self._epochs.truncate_from_end(place.mark.offset)
            self._read_epoch = place.mark.leader_epoch

    def _recover_segment(
        self, segments: Sequence[Segment], slot: int, before: Sequence[Segment], place: MarkedPlace | None
    ) -> SlicedWork[bool]:
        """Read a segment again, and cut the log in it if it is torn there; or refuse the log.

        before: the segments before it. place: of its mark, from which on it is read.
        Returns whether it is the log's last segment now.
        """
        segment, later = segments[slot], segments[slot + 1 :]
        order = self._order_of(segment, later, before, place)
        yield from self._read_again(segment, order, place)
        fault = order.fault or self._hole_behind(segment, later)
        if self._refusal is not None:
            return True
        file = segment.batches.log
        if fault is not None:
            behind = yield from batches_after_damage(file, fault.position, segment.base_offset, self._greatest_epoch)
            if self._is_known_to_be_lost(fault, behind, later) or _is_whole_with_a_false_header(file, fault):
                self._refuse_damage(segment, fault, later, behind.end_offset)
                return True
            yield from self._cut(segment, fault, behind, later)
        is_last = fault is not None or not later
        segment.indexes.write_anew()
        if not is_last:
            self._side_files += segment.index_files()
        if place is None:
            segment.accept_headers()
        self._unsynced.append(file)
        list_file = segment.files.forget_records() if is_last else segment.record_files(later[0].base_offset)
        self._side_files.append(list_file)
        return is_last

    def _refuse_another_log(self, segment: Segment, mark: RecoveryMark) -> None:
        """Refuse a log that is whole, and not the one that had been on the disk when its mark was written."""
        path = segment.files.path(".log")
        what = (
            f"{path} does not have the batch that ended before offset {mark.offset} at position "
            f"{mark.last_batch_position}, as {self._files.path(RECOVERY_MARK_FILE)} says: it is another log's file"
        )
        end_offset = max(self._durable_end, segment.base_offset)
        self._refuse(
            RecoveryRefusal(
                path, what, 0, segment.base_offset, None, end_offset, segment.size_bytes, is_of_another=True
            )
        )

    @property
    def _greatest_epoch(self) -> int:
        return max(self._epochs.latest, self._known_epochs.latest, self._leader_epoch, 0)

    def _order_of(
        self, segment: Segment, later: Sequence[Segment], before: Sequence[Segment], place: MarkedPlace | None
    ) -> HeaderPlausibility:
        """Return the expectations of a segment's batches that are read again, those behind a mark if there is one."""
        end_offset = segment.base_offset + MAX_RELATIVE_OFFSET + 1
        if later:
            end_offset = min(end_offset, later[0].base_offset)
        return HeaderPlausibility(
            max(segment.base_offset, before[-1].next_offset if before else 0) if place is None else place.mark.offset,
            end_offset,
            may_skip=segment.batches.may_skip,
            is_open=not later,
            leader_epoch=self._read_epoch,
            known_epochs=self._known_epochs,
            greatest_epoch=self._leader_epoch,
        )

    def _hole_behind(self, segment: Segment, later: Sequence[Segment]) -> HeaderFault | None:
        """Return the fault at the end of a whole segment, if records are missing before the next one."""
        if not later or segment.next_offset == later[0].base_offset:
            return None
        following_offset = later[0].base_offset
        recorded = self._files.checksums.get(file_name(segment.base_offset, ".log"))
        if recorded is None:
            return None  # compaction, also by Kafka, leaves gaps there, too
        if segment.size_bytes == recorded.size_bytes and recorded.check < following_offset:
            self._refuse_missing(recorded.check, following_offset, 0)
            return None
        if segment.size_bytes >= recorded.size_bytes and recorded.check >= following_offset:
            return None
        reason = f"the segment ends at offset {segment.next_offset}, and the next one begins at {following_offset}"
        return HeaderFault(segment.size_bytes, segment.next_offset, None, reason)

    def _is_known_to_be_lost(self, fault: HeaderFault, behind: BatchesAfterDamage, later: Sequence[Segment]) -> bool:
        """Whether a bad place is before the recovery point: by its own offset, or by that of later batches."""
        return (
            fault.expected_offset < self._durable_end
            or (behind.batches_count > 0 and behind.least_offset < self._durable_end)
            or any(segment.base_offset < self._durable_end for segment in later)
        )

    def _read_again(self, segment: Segment, order: HeaderPlausibility, place: MarkedPlace | None) -> SlicedWork[None]:
        """Load a segment's log file, from a mark on if there is one, up to its last valid batch."""
        if place is None:
            segment.forget_content()
            aborted, start = TransactionIndex(), 0
        else:
            mark, aborted = place.mark, place.transaction_index
            start = mark.position
            segment.resume_at(
                mark.offset, place.offset_index, place.time_index, mark.max_timestamp_ms, mark.offset_of_max
            )
        step_end = start
        producers, epochs, now_ms = self._producers, self._epochs, self._now_ms
        for count, (position, batch) in enumerate(checked_batches(segment.batches.log, order, start), 1):
            header = batch.header
            segment.add_scanned(position, header.last_offset, header.max_timestamp_ms)
            epoch = header.partition_leader_epoch
            if epoch != epochs.latest:
                self._correct_epochs(epoch, header.last_offset + 1)
                epochs.assign(epoch, header.base_offset)
            if header.producer_id >= 0:
                entry = replay_batch(producers, header, partial(_itself, batch), now_ms=now_ms)
                if entry is not None:
                    aborted.append(entry)
            end_position = position + header.size_bytes
            if count % STEP_BATCHES == 0 or end_position >= step_end:
                step_end = end_position + STEP_BYTES
                yield
        self._read_epoch = order.leader_epoch
        segment.transactions.replace(aborted)

    def _refuse_damage(self, segment: Segment, fault: HeaderFault, later: Sequence[Segment], found_end: int) -> None:
        """Refuse the log. found_end: the end offset of the valid batches behind the bad place; 0 if there are
        none."""
        path = segment.files.path(".log")
        end_offset = max(self._durable_end, found_end)
        self._refuse(
            RecoveryRefusal(
                path,
                f"{damaged(path, fault)}. Records had been on the disk up to offset {end_offset}",
                fault.position,
                fault.expected_offset,
                fault.found_offset,
                end_offset,
                _bytes_from(segment, fault.position, later),
            )
        )

    def _of_directory(self, what: str, segments: Sequence[Segment]) -> RecoveryRefusal:
        size_bytes = sum(segment.size_bytes for segment in segments)
        start_offset = segments[0].base_offset if segments else self._log_start_offset
        return RecoveryRefusal(self._files.directory, what, None, start_offset, None, self._recovery_point, size_bytes)

    def _refuse(self, refusal: RecoveryRefusal) -> None:
        self._refusal = refusal
        log.error(
            "log_damaged",
            path=refusal.path,
            position=refusal.position,
            offset=refusal.expected_offset,
            found_offset=refusal.found_offset,
            recovery_point=self._recovery_point,
            reason=f"{refusal.what}. Acknowledged records cannot be read; giving them up costs {refusal.cost}. "
            f"{remedy_offline_partition(self._files.directory)}",
        )

    def _cut(
        self, segment: Segment, fault: HeaderFault, behind: BatchesAfterDamage, later: Sequence[Segment]
    ) -> SlicedWork[None]:
        """Cut a log at a bad place; keep the cut bytes if they contain a valid batch."""
        position = fault.position
        end_offset = behind.end_offset if behind.batches_count else fault.expected_offset
        holds_batches = behind.batches_count > 0 or valid_batch_at(segment.batches.log, position) is not None
        for dropped in later:
            inside = yield from batches_after_damage(dropped.batches.log, -1, dropped.base_offset, self._greatest_epoch)
            if inside.batches_count:
                holds_batches, end_offset = True, max(end_offset, inside.end_offset)
        facts: dict[str, object] = {
            "path": segment.files.path(".log"),
            "offset": fault.expected_offset,
            "position": position,
            "lost_bytes": _bytes_from(segment, position, later),
        }
        if holds_batches:
            yield from self._set_aside(segment, position)
            for dropped in later:
                yield from self._set_aside(dropped, 0)
            log.error(
                "log_cut_before_valid_batches",
                **facts,
                end_offset=end_offset,
                kept_as=self._lost_path(segment, position),
                reason=f"{fault.reason}. Batches up to offset {end_offset} stand there, none of which was known to be "
                "on the disk; they are kept beside the log and not served",
            )
        else:
            log.warning("torn_tail_cut", **facts, reason=fault.reason)
        if later:
            self._side_files.append(forget_segments(self._files.checksums, [one.base_offset for one in later]))
        for dropped in later:
            dropped.delete()
        segment.batches.truncate(position)
        self._was_cut = True

    def _set_aside(self, segment: Segment, position: int) -> SlicedWork[None]:
        self._disk.delete(self._lost_path(segment, position))
        aside = self._disk.open(self._lost_path(segment, position))
        while position < segment.size_bytes:
            piece = segment.batches.log.read(position, STEP_BYTES)
            aside.append(piece)
            position += len(piece)
            yield
        self._side_files.append(aside)

    def _lost_path(self, segment: Segment, position: int) -> str:
        return lost_path(segment.files.path(".log"), position)


def _bytes_from(segment: Segment, position: int, later: Sequence[Segment]) -> int:
    return segment.size_bytes - position + sum(dropped.size_bytes for dropped in later)


def _is_whole_with_a_false_header(file: LogFile, fault: HeaderFault) -> bool:
    """Whether a valid batch is at a bad place, and the log continues after it as it would after the right one.

    No torn write looks like that: a field outside the checksum has changed later. Nothing is cut for it, wherever the
    recovery point is, as the right value is known.
    """
    batch = valid_batch_at(file, fault.position)
    if batch is None:
        return False
    header = batch.header
    following = valid_batch_at(file, fault.position + header.size_bytes)
    following_offset = fault.expected_offset + header.last_offset_delta + 1
    return following is not None and following.header.base_offset == following_offset


def _itself(batch: RecordBatch) -> RecordBatch:
    return batch
