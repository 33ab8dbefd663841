"""How the cleaner puts a rewritten segment in the place of those it was made from, so that a crash leaves one or the
other.

The new log file is written as `<base>.log.cleaned` and synced; renaming it to `<base>.log.swap` decides that it counts.
Then the old segments are deleted and it gets its name. Its last batch ends where the last of the old segments ended,
so a
start that finds a swap file knows which segments it stands for.
Source: Kafka's LocalLog.replaceSegments and LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from broker.log.batch_scan import scan_batches
from broker.log.partition_files import INDEX_SUFFIXES, PartitionFiles
from broker.log.segment import file_name

log = structlog.get_logger(__name__)

CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"
DELETED_SUFFIX = ".log.deleted"


def finish_swaps(files: PartitionFiles, numbered: Mapping[str, Sequence[int]]) -> bool:
    """At a start: drop what was not decided, finish what was. Returns whether files have changed. Raises
    StorageError."""
    for suffix in (CLEANED_SUFFIX, DELETED_SUFFIX):
        for offset in numbered.get(suffix, ()):
            files.disk.delete(files.path(file_name(offset, suffix)))
    swaps = numbered.get(SWAP_SUFFIX, ())
    for base_offset in swaps:
        swap = files.disk.open(files.path(file_name(base_offset, SWAP_SUFFIX)))
        end_offset = base_offset
        for _, header in scan_batches(swap, 0, swap.size_bytes):
            end_offset = header.last_offset + 1
        swap.close()
        replaced = [offset for offset in numbered.get(".log", ()) if base_offset <= offset < end_offset]
        finish_swap(files, base_offset, replaced)
        log.info("segment_swap_finished", path=files.path(file_name(base_offset, ".log")), segments=len(replaced))
    return bool(swaps)


def finish_swap(files: PartitionFiles, base_offset: int, replaced: Sequence[int]) -> None:
    """Delete the segments that were replaced, and give the swap file their first one's name. Raises StorageError."""
    for offset in sorted({*replaced, base_offset}):
        for suffix in (".log", *INDEX_SUFFIXES):
            if not (offset == base_offset and suffix == ".log"):
                files.disk.delete(files.path(file_name(offset, suffix)))
    swap_path = files.path(file_name(base_offset, SWAP_SUFFIX))
    files.disk.rename(swap_path, files.path(file_name(base_offset, ".log")))
