"""What a soak takes from the logs of its brokers."""

from __future__ import annotations

import pytest

from fencepost.soak.run import is_expected

NOT_ADMITTED = "2026-01-01T00:00:00 [error    ] partition_admission_failed partition=0 reason='{}' topic=events"


@pytest.mark.parametrize(
    "reason",
    [
        "an object of its sealed segments cannot be had now: cannot get s3://fencepost/log/0.log: SlowDown",
        "the end of a log cannot be read: cannot get a part of s3://fencepost/flush/1: connection refused",
        "cannot list s3://fencepost/log within its time limit",
    ],
)
def test_a_partition_that_waits_for_a_store_which_is_away_is_expected(reason: str) -> None:
    assert is_expected(NOT_ADMITTED.format(reason).encode())


@pytest.mark.parametrize(
    "line",
    [
        NOT_ADMITTED.format("records are lost: cannot get s3://fencepost/log/0.log: NoSuchKey, which a row names"),
        NOT_ADMITTED.format("cannot write 0.log: No space left on device"),
        "[error] background_work_failed reason='cannot get s3://fencepost/log/0.log: SlowDown'",
    ],
)
def test_lost_records_a_full_disk_and_other_errors_are_findings(line: str) -> None:
    assert not is_expected(line.encode())
