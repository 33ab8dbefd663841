"""Offset checkpoint: a file with an offset for each partition of a log directory, and its content in memory.

Source: Kafka's OffsetCheckpointFile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_offsets, encode_offsets_in_steps
from fencepost.broker.log.files.durable_file import replace_durably
from fencepost.broker.log.files.room_reserve import RoomReserve
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.storage.disk import Disk, NoRoomError

log = get_logger(__name__)

LOG_START_FILE = "log-start-offset-checkpoint"


class OffsetCheckpoint:
    """offsets: the content of the file, and later facts. An entry leaves it by `write` alone: as long as the
             file has a line of a partition, it must be known that a new one of that name would be judged by it.

    changing: held during a write, as writes run one after another: every line of the file is in `offsets` when it is
              free.
    """

    __slots__ = ("_disk", "_path", "_reserve", "changing", "offsets")

    def __init__(self, disk: Disk, path: str, *, reserve: RoomReserve | None = None) -> None:
        """reserve: released for a durable write that finds no room."""
        self._reserve = reserve
        self._disk = disk
        self._path = path
        self.changing = asyncio.Lock()
        self.offsets: dict[TopicPartition, int] = {}

    def read(self) -> bool:
        """Read the file, empty if there is none; return False if it cannot be read. Raises StorageError."""
        self.offsets = {}
        try:
            content = read_small(self._disk, self._path)
            if content is not None:
                self.offsets = decode_offsets(content)
        except CorruptCheckpointError as error:
            log.error("checkpoint_corrupt", path=self._path, reason=str(error))  # noqa: TRY400  # says all
            return False
        return True

    async def write(
        self, collect: Callable[[], SlicedWork[dict[TopicPartition, int]]], *, durable: bool, only_changes: bool = True
    ) -> None:
        """Replace the file by the offsets that `collect` collects, in time slices.

        durable:      on the disk when this returns. only_changes: write only if the content differs.
        Raises StorageError.
        """
        async with self.changing:
            offsets = await run_in_slices(collect(), SLICE_S)
            if only_changes and offsets == self.offsets:
                return
            content = await run_in_slices(encode_offsets_in_steps(offsets), SLICE_S)
            if durable:
                await self._replace_durably(content)
            else:
                self._disk.write_file(self._path, content, durable=False)
            self.offsets = offsets

    async def _replace_durably(self, content: bytes) -> None:
        """Raises StorageError."""
        try:
            await replace_durably(self._disk, self._path, content)
        except NoRoomError:
            if self._reserve is None or not self._reserve.release():
                raise
            await replace_durably(self._disk, self._path, content)
