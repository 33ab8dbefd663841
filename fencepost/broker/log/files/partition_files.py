"""Directory of one partition: its files besides the segments, and the names of all files.

Source: Kafka's LogFileUtils, ProducerStateManager (which snapshots are kept) and LeaderEpochFileCache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.log.files.checkpoints import (
    ZERO_TOPIC_ID,
    CorruptCheckpointError,
    decode_epochs,
    decode_partition_metadata,
    encode_epochs,
    encode_partition_metadata,
)
from fencepost.broker.log.files.file_names import NOTED_SUFFIXES, file_name
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.producer_snapshot import (
    CorruptSnapshot,
    ProducerSnapshot,
    decoding_steps,
    encode_snapshot,
)
from fencepost.broker.log.files.segment_checksums import SegmentChecksums, content_record
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.storage.disk import Disk, LogFile

log = get_logger(__name__)

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
METADATA_FILE = "partition.metadata"
RECOVERY_MARK_FILE = "recovery-mark"
_NUMBERED = re.compile(r"(\d{20})(\..+)")


class SnapshotAt(NamedTuple):
    """The producers' state after all records below `offset`."""

    offset: int
    producers: list[ProducerSnapshot]


class PartitionFiles:
    """One partition's directory. `snapshot_offsets` are those of its snapshot files, rising."""

    __slots__ = ("checksums", "directory", "disk", "snapshot_offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.snapshot_offsets: list[int] = []
        self.checksums = SegmentChecksums(disk, directory)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def numbered(self) -> dict[str, list[int]]:
        """Return the offsets in file names, by suffix (`.log`), rising."""
        offsets: dict[str, list[int]] = {}
        for name in self.disk.list(self.directory):
            match = _NUMBERED.fullmatch(name)
            if match is not None:
                offsets.setdefault(match[2], []).append(int(match[1]))
        return offsets

    def segments_bytes(self) -> int:
        """Return the size of all segments on the disk, without their indexes. Raises StorageError."""
        return sum(
            self.disk.size_bytes(self.path(file_name(offset, ".log"))) for offset in self.numbered().get(".log", ())
        )

    # Producer snapshots

    def snapshot_path(self, offset: int) -> str:
        return self.path(file_name(offset, ".snapshot"))

    def write_snapshot(self, offset: int, producers: Sequence[ProducerSnapshot]) -> LogFile:
        """Write the state after all records below `offset`; the caller syncs and closes the returned file."""
        return self.write_encoded_snapshot(offset, encode_snapshot(producers))

    def write_encoded_snapshot(self, offset: int, content: bytes) -> LogFile:
        """Write a snapshot as `write_snapshot` does, from its encoded content."""
        path = self.snapshot_path(offset)
        self.disk.write_file(path, content, durable=False)
        self.checksums.add({file_name(offset, ".snapshot"): content_record(content)}).close()
        self.note_snapshot(offset)
        return self.disk.open(path)

    def note_snapshot(self, offset: int) -> None:
        """Note that the snapshot of an offset exists."""
        if offset not in self.snapshot_offsets:
            self.snapshot_offsets.append(offset)
            self.snapshot_offsets.sort()

    def latest_snapshot(self, at_most: int) -> SnapshotAt | None:
        """Return the newest readable snapshot of `at_most` or less. Deletes one that cannot be read, with a warning."""
        return run_to_end(self.latest_snapshot_in_steps(at_most))

    def latest_snapshot_in_steps(self, at_most: int) -> SlicedWork[SnapshotAt | None]:
        """Find the snapshot as `latest_snapshot` does, in steps."""
        for offset in reversed(self.snapshot_offsets):
            if offset > at_most:
                continue
            decoded: list[ProducerSnapshot] | CorruptSnapshot = CorruptSnapshot("the file is missing")
            content = None
            try:
                content = read_small(self.disk, self.snapshot_path(offset))
            except CorruptCheckpointError as error:
                decoded = CorruptSnapshot(str(error))
            if content is None:
                pass
            elif not self.checksums.matches(file_name(offset, ".snapshot"), content):
                decoded = CorruptSnapshot("it is not what was written into it")
            else:
                yield
                decoded = yield from decoding_steps(content, offset)
            if not isinstance(decoded, CorruptSnapshot):
                return SnapshotAt(offset, decoded)
            log.warning("producer_snapshot_corrupt", path=self.snapshot_path(offset), reason=decoded.reason)
            self.delete_snapshot(offset)
        return None

    def delete_snapshot(self, offset: int) -> None:
        self.disk.delete(self.snapshot_path(offset))
        self.snapshot_offsets.remove(offset)

    def keep_snapshots(self, base_offsets: Sequence[int]) -> None:
        """Delete all snapshots except those at the base of a segment and the newest."""
        bases = set(base_offsets)
        for offset in self.snapshot_offsets[:-1]:
            if offset not in bases:
                self.delete_snapshot(offset)

    def tidy_checksums(self, base_offsets: Sequence[int]) -> None:
        """Limit the list of checksums to the files that exist. Raises StorageError."""
        names = {file_name(offset, suffix) for offset in base_offsets for suffix in NOTED_SUFFIXES}
        names |= {file_name(offset, ".snapshot") for offset in self.snapshot_offsets}
        self.checksums.tidy(names)

    # Recovery mark, leader epochs, partition metadata

    def write_recovery_mark(self, content: bytes) -> None:
        """Replace the mark, without a sync; see `recovery_mark`. Raises StorageError."""
        self.disk.write_file(self.path(RECOVERY_MARK_FILE), content, durable=False)

    def read_epochs(self) -> LeaderEpochs:
        try:
            content = read_small(self.disk, self.path(LEADER_EPOCH_FILE))
            return LeaderEpochs() if content is None else LeaderEpochs(decode_epochs(content))
        except CorruptCheckpointError as error:
            log.warning("leader_epochs_corrupt", path=self.path(LEADER_EPOCH_FILE), reason=str(error))
            return LeaderEpochs()

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        if epochs.changed:
            self.disk.write_file(self.path(LEADER_EPOCH_FILE), encode_epochs(epochs.starts), durable=False)
            epochs.changed = False

    def write_epochs_anew(self, epochs: LeaderEpochs) -> LogFile:
        """Write the epochs; the caller syncs and closes the returned file."""
        epochs.changed = True
        self.write_epochs(epochs)
        return self.disk.open(self.path(LEADER_EPOCH_FILE))

    def read_topic_id(self) -> bytes:
        """Return the topic id of the directory; all zeros when it cannot be read."""
        try:
            content = read_small(self.disk, self.path(METADATA_FILE))
            return ZERO_TOPIC_ID if content is None else decode_partition_metadata(content)
        except CorruptCheckpointError as error:
            log.warning("partition_metadata_corrupt", path=self.path(METADATA_FILE), reason=str(error))
            return ZERO_TOPIC_ID

    def write_topic_id(self, topic_id: bytes) -> LogFile:
        """Write the topic id; the caller syncs and closes the returned file."""
        path = self.path(METADATA_FILE)
        self.disk.write_file(path, encode_partition_metadata(topic_id), durable=False)
        return self.disk.open(path)
