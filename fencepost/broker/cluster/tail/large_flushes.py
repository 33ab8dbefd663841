"""Large flushes: how the bytes of one flush are divided into objects, which are stored side by side.

Rows and objects end where batches end. An object holds bytes of one log or of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from fencepost.broker.cluster.tail.tail_store import PartitionKey, TailRow
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES

OBJECT_BYTES: Final = 4 * 1024 * 1024
"""Of most objects of a flush that is larger. Smaller ones take more requests for the same bytes, and larger ones take
longer, while nothing else of the node is committed."""
BATCHES_PER_STEP: Final = 4_000
_START: Final = Struct(">qi")
"""Of a batch: its base offset, and its length behind this."""


class FlushPart(NamedTuple):
    """The bytes of one object, and the rows that point into it, without its id."""

    rows: Sequence[TailRow]
    contents: Sequence[memoryview]

    @property
    def size_bytes(self) -> int:
        return sum(len(content) for content in self.contents)


def row_of(appended: AppendedBytes, content: memoryview) -> TailRow:
    """The row of appended bytes, with the bytes in it."""
    return TailRow(
        PartitionKey(appended.topic_id, appended.topic_partition.partition),
        appended.segment_base,
        appended.position,
        appended.length_bytes,
        appended.base_offset,
        appended.end_offset,
        appended.leader_epoch,
        content,
    )


def divide(
    appended: Sequence[AppendedBytes], contents: Sequence[memoryview], object_bytes: int = OBJECT_BYTES
) -> SlicedWork[list[FlushPart]]:
    """Divide a flush into objects of about `object_bytes`, in steps; one that is larger holds a single batch."""
    parts: list[FlushPart] = []
    rows: list[TailRow] = []
    pieces: list[memoryview] = []
    filled_bytes = 0
    for one, content in zip(appended, contents, strict=True):
        ends = (yield from _ends(content, object_bytes)) if len(content) > object_bytes else []
        start, base_offset = 0, one.base_offset
        for end, end_offset in [*ends, (len(content), one.end_offset)]:
            if rows and filled_bytes + end - start > object_bytes:
                parts.append(FlushPart(rows, pieces))
                rows, pieces, filled_bytes = [], [], 0
            rows.append(
                row_of(one, content)._replace(
                    position=one.position + start,
                    length_bytes=end - start,
                    base_offset=base_offset,
                    end_offset=end_offset,
                    content=None,
                    object_position=filled_bytes,
                )
            )
            pieces.append(content[start:end])
            filled_bytes += end - start
            start, base_offset = end, end_offset
    parts.append(FlushPart(rows, pieces))
    return parts


def _ends(content: memoryview, object_bytes: int) -> SlicedWork[list[tuple[int, int]]]:
    """Where batches are divided: the position and the offset at which the next object begins."""
    ends: list[tuple[int, int]] = []
    start = position = count = 0
    while position < len(content):
        base_offset, length = _START.unpack_from(content, position)
        next_position = position + LENGTH_OVERHEAD_BYTES + length
        if next_position - start > object_bytes and position > start:
            ends.append((position, base_offset))
            start = position
        position = next_position
        count += 1
        if count % BATCHES_PER_STEP == 0:
            yield
    return ends
