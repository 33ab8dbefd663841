"""Partitions that this node hands over: from the step in which it stops serving them until it knows their next leaders.

A client that is refused in between learns no leader. It retries, and each refusal doubles its pause (librdkafka: 0.1,
0.2, 0.4 s). So refusals wait for the end of a hand-over, which mostly takes some milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from fencepost.broker.kernel.topic_partition import TopicPartition

LONGEST_WAIT_S: Final = 0.5
"""Longest wait of an answer: others of its connection wait behind it. A hand-over may take longer while the store does
not answer."""


class MovesUnderWay:
    """The hand-overs under way, each with a future for those that wait for its end."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, asyncio.Future[None]] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._ends

    def begin(self, names: Iterable[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        for name in names:
            if name not in self._ends:
                self._ends[name] = loop.create_future()

    def end(self, topic_partition: TopicPartition) -> None:
        """The leader is known: another node, or this one again. Does nothing without a hand-over."""
        end = self._ends.pop(topic_partition, None)
        if end is not None and not end.done():
            end.set_result(None)

    async def ended(self, names: Iterable[TopicPartition], *, within_s: float) -> None:
        """Return when the hand-overs of partitions have ended, or after LONGEST_WAIT_S or `within_s`."""
        ends = [end for name in names if (end := self._ends.get(name)) is not None]
        if ends:
            await asyncio.wait(ends, timeout=max(0.0, min(within_s, LONGEST_WAIT_S)))
