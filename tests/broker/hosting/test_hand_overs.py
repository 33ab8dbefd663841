"""Hand-overs that refusals wait for."""

from __future__ import annotations

import asyncio

from fencepost.broker.hosting.hand_overs import HandOvers
from fencepost.broker.kernel.topic_partition import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_who_waits_goes_on_when_the_hand_over_has_ended() -> None:
    hand_overs = HandOvers()
    hand_overs.begin([FIRST])
    waiting = asyncio.ensure_future(hand_overs.ended([FIRST], within_s=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert FIRST in hand_overs
    hand_overs.end(FIRST)
    await waiting
    assert FIRST not in hand_overs


async def test_nobody_waits_for_partitions_that_are_not_handed_over_or_longer_than_it_may() -> None:
    hand_overs = HandOvers()
    hand_overs.begin([FIRST])
    hand_overs.end(SECOND)
    await hand_overs.ended([SECOND], within_s=60)
    await hand_overs.ended([FIRST], within_s=0)
    assert FIRST in hand_overs
