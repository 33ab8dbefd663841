"""One of the files that say an offset for each partition of a log directory, and what it said last.

Source: Kafka's OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from broker.disk import Disk
from broker.log.checkpoints import CorruptCheckpointError, decode_offsets, encode_offsets
from broker.topic_partition import TopicPartition

log = structlog.get_logger(__name__)


class OffsetCheckpoint:
    """offsets: what the file says."""

    __slots__ = ("_disk", "_path", "offsets")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.offsets: dict[TopicPartition, int] = {}

    def read(self) -> bool:
        """Take over what the file says, nothing if there is none; False if it cannot be read. Raises StorageError."""
        self.offsets = {}
        content = self._disk.read_file(self._path)
        if content is None:
            return True
        try:
            self.offsets = decode_offsets(content)
        except CorruptCheckpointError as error:
            log.error("checkpoint_corrupt", path=self._path, reason=str(error))  # noqa: TRY400  # says all
            return False
        return True

    def write(self, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        """Replace the file. Raises StorageError."""
        self._disk.write_file(self._path, encode_offsets(offsets), durable=durable)
        self.offsets = dict(offsets)
