"""Validation of a run: batches of one producer that are appended with one write, without a closer check of each.

The checks of `batch_validation` are made on all of them together. A run ends before the first batch that may be
faulty, or not stored unchanged: that one is validated as a single batch, which finds the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.append.batch_validation import prepare_client_batch
from fencepost.broker.log.log_types import AppendResult
from fencepost.protocol.batch_run import BatchRun, BatchShape, shape_of_batch
from fencepost.protocol.compression import TooLargeForOneStepError
from fencepost.protocol.record_batch import BatchHeader
from fencepost.protocol.record_validation import NO_LIMIT_MS


class PreparedRun(NamedTuple):
    """Batches that may be written once they have their offsets."""

    run: BatchRun
    max_timestamps_ms: tuple[int, ...]


def form_for(
    run: BatchRun, header: BatchHeader, known: BatchShape | None, rules: AppendRules, now_ms: int
) -> BatchShape | None:
    """Return the shape of a run's first batch: the known one, or a computed one; None if it has none."""
    first = run.first_batch
    if known is not None and known.is_of(first):
        return known
    try:
        if isinstance(prepare_client_batch(first, header, rules, now_ms), AppendResult):
            return None
    except TooLargeForOneStepError:
        return None
    return shape_of_batch(first, header)


def prepare_run(run: BatchRun, form: BatchShape, rules: AppendRules, now_ms: int) -> PreparedRun | None:
    """Return the longest valid beginning of a run; None if it is empty."""
    record_rules = rules.record_rules
    if (
        form.size_bytes > rules.largest_batch_bytes
        or rules.codec
        or rules.uses_log_append_time
        or (form.misses_key and record_rules.requires_keys)
        or record_rules.timestamp_before_max_ms != NO_LIMIT_MS
    ):
        return None
    times_ms = form.read(run).max_timestamps_ms
    if not times_ms or max(times_ms) > now_ms + record_rules.timestamp_after_max_ms:
        return None
    return PreparedRun(run.shortened(len(times_ms)), times_ms)
