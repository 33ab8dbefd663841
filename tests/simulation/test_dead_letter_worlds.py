"""Each record of a share group ends in exactly one place: acknowledged, in the dead-letter topic, or still deliverable;
in worlds of one process, of processes and of machines that are killed at any change of their disks.
"""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.share import dead_letter_copies
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs
from fencepost.broker.share.share_partitions import ServedSharePartition
from fencepost.protocol.errors import ErrorCode
from tests.simulation.dead_letter_worlds import Kind, run_world

SEEDS = range(1, 4)
PLANTED_WORLDS = 30


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_in_one_place(seed: int, kind: Kind) -> None:
    ends = run_world(seed, kind)
    assert ends.violations() == []
    assert ends.crash_count
    assert ends.dead
    assert ends.deliverable


def a_copy_is_decided_anew_each_time(patch: pytest.MonkeyPatch) -> None:
    async def of_copy(*_: object) -> None:
        return None

    patch.setattr(DeadLetterLogs, "of_copy", of_copy)
    patch.setattr(dead_letter_copies, "can_follow", lambda *_: False)


def a_batch_does_not_wait_for_its_decision(patch: pytest.MonkeyPatch) -> None:
    async def copy_durable(_: object) -> ErrorCode:
        return ErrorCode.NONE

    patch.setattr(ServedSharePartition, "copy_durable", copy_durable)


@pytest.mark.parametrize(
    ("bug", "kind", "first_seed"),
    [
        (a_copy_is_decided_anew_each_time, Kind.ONE, 1),
        (a_batch_does_not_wait_for_its_decision, Kind.PROCESSES, 35),
    ],
)
def test_the_worlds_find_a_planted_bug(bug: Any, kind: Kind, first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert any(run_world(seed, kind).violations() for seed in range(first_seed, first_seed + PLANTED_WORLDS))
