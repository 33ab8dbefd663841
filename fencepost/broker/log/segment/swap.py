"""Swap of a rewritten segment for those it was made from, by the cleaner: a crash leaves one or the others.

The new log file is written as `<base>.log.cleaned`, the rest of the transaction indexes as `.txnindex.cleaned`.
When both are on the disk, renaming the first to `<base>.log.swap` decides that they count. Then the old segments are
deleted and the new files get their names, the log first. The last batch of the new log ends where the last of the old
segments ended, so a start that finds a swap file knows which segments it stands for.
The file system must keep the order of renames and deletions in one directory, as journaling ones do.
Source: Kafka's LocalLog.replaceSegments and LogRecovery.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.files.file_names import INDEX_SUFFIXES, file_name
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.segment.batch_scan import DamagedLogError, damaged
from fencepost.broker.log.segment.header_plausibility import MAX_RELATIVE_OFFSET, HeaderPlausibility
from fencepost.broker.log.segment.tail_scan import checked_batches

log = get_logger(__name__)

CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"
TRANSACTIONS_CLEANED_SUFFIX = ".txnindex.cleaned"
DELETED_SUFFIX = ".log.deleted"
STEP_BATCHES = 16


def finish_swaps(files: PartitionFiles, numbered: Mapping[str, Sequence[int]]) -> SlicedWork[bool]:
    """At a start: remove undecided swaps, finish decided ones. Returns whether files have changed.

    Raises StorageError, and DamagedLogError for a swap file that is not credible: then nothing that it may replace is
    deleted.
    """
    undecided = numbered.get(CLEANED_SUFFIX, ())
    transaction_indexes = numbered.get(TRANSACTIONS_CLEANED_SUFFIX, ())
    for offset in undecided:
        for suffix in (TRANSACTIONS_CLEANED_SUFFIX, CLEANED_SUFFIX):
            files.disk.delete(files.path(file_name(offset, suffix)))
    for offset in numbered.get(DELETED_SUFFIX, ()):
        files.disk.delete(files.path(file_name(offset, DELETED_SUFFIX)))
    swaps = numbered.get(SWAP_SUFFIX, ())
    for base_offset in swaps:
        swap = files.disk.open(files.path(file_name(base_offset, SWAP_SUFFIX)))
        # The segments to delete depend on it, so its checksums are checked.
        order = HeaderPlausibility(base_offset, base_offset + MAX_RELATIVE_OFFSET + 1, may_skip=True)
        for count, _ in enumerate(checked_batches(swap, order)):
            if count % STEP_BATCHES == 0:
                yield
        swap.close()
        if order.fault is not None:
            raise damaged(swap.path, order.fault)
        end_offset = order.next_offset
        replaced = [offset for offset in numbered.get(".log", ()) if base_offset <= offset < end_offset]
        _require_forgotten(files, numbered, base_offset, replaced)
        finish_swap(files, base_offset, replaced)
        log.info("segment_swap_finished", path=files.path(file_name(base_offset, ".log")), segments=len(replaced))
    for offset in transaction_indexes:
        if offset not in undecided and offset not in swaps:
            _finish_transaction_index(files, offset)
    return bool(swaps or transaction_indexes)


def _require_forgotten(
    files: PartitionFiles, numbered: Mapping[str, Sequence[int]], base_offset: int, replaced: Sequence[int]
) -> None:
    """The cleaner had the list of checksums forget the segments that it replaced, durably, and leaves the last alone.

    Raises DamagedLogError if the swap file claims to stand for others.
    """
    last = max(numbered.get(".log", ()), default=base_offset)
    for offset in replaced:
        name = file_name(offset, ".log")
        if offset != base_offset and (offset == last or files.checksums.get(name) is not None):
            swap_path = files.path(file_name(base_offset, SWAP_SUFFIX))
            raise DamagedLogError(f"{swap_path} ends behind the start of {files.path(name)}, which it does not replace")


def finish_swap(files: PartitionFiles, base_offset: int, replaced: Sequence[int]) -> None:
    """Delete the replaced segments, and rename the swap file to the first of them. Raises StorageError."""
    for offset in sorted({*replaced, base_offset}):
        for suffix in (".log", *INDEX_SUFFIXES):
            if not (offset == base_offset and suffix == ".log"):
                files.disk.delete(files.path(file_name(offset, suffix)))
    swap_path = files.path(file_name(base_offset, SWAP_SUFFIX))
    files.disk.rename(swap_path, files.path(file_name(base_offset, ".log")))
    _finish_transaction_index(files, base_offset)


def _finish_transaction_index(files: PartitionFiles, base_offset: int) -> None:
    cleaned_path = files.path(file_name(base_offset, TRANSACTIONS_CLEANED_SUFFIX))
    if files.disk.exists(cleaned_path):
        files.disk.rename(cleaned_path, files.path(file_name(base_offset, ".txnindex")))
