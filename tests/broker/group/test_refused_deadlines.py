"""Deadlines of groups whose records the log refuses, and how large a decision about them may be."""

from __future__ import annotations

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.kernel.deadlines import REFUSED_PAUSE_MS
from tests.support.group_shard import ShardHarness

MOST_BYTES = 20_000


def bytes_of(decision: Decision[None]) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in decision.records)


@pytest.mark.parametrize("member_count", [1, 2])
def test_members_that_time_out_together_do_so_in_bounded_batches_and_again_after_a_refusal(member_count: int) -> None:
    shard = ShardHarness()
    names = [f"{number:03}" + "g" * 597 for number in range(40)]
    for name in names:
        shard.stable_group(member_count, group_id=name)
    shard.now_ms += 100_000
    decision = shard.shard.decide_deadline(shard.now_ms)
    shard.is_log_refusing = True
    for _ in range(5):
        shard.run(decision)
        decision = shard.shard.decide_deadline(shard.now_ms)
    shard.is_log_refusing = False
    while (deadline_ms := shard.shard.next_deadline_ms()) is not None and deadline_ms <= shard.now_ms:
        decision = shard.shard.decide_deadline(shard.now_ms)
        assert bytes_of(decision) < MOST_BYTES
        shard.run(decision)
    shard.advance(200_000 + REFUSED_PAUSE_MS)
    assert {shard.state(name).value for name in names if shard.state(name)} == {"Empty"}  # type: ignore[union-attr]
    assert not any(shard.group(name).members for name in names)
