"""Results of a log that compute something themselves."""

from __future__ import annotations

from fencepost.broker.log.log_types import AppendedRun, AppendResult
from fencepost.protocol.errors import ErrorCode


def test_the_batches_of_a_run_follow_each_other() -> None:
    run = AppendedRun(batches_count=3, base_offset=10, records_count=5)
    assert list(run.base_offsets) == [10, 15, 20]
    assert run.end_offset == 25


def test_a_refused_append_has_no_offsets() -> None:
    refused = AppendResult(ErrorCode.INVALID_RECORD)
    assert (refused.base_offset, refused.last_offset, refused.log_append_time_ms) == (-1, -1, -1)
    assert not refused.is_duplicate
