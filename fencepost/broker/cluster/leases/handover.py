"""Planned moves of partitions from the node that leads them: stop serving, close the logs, store the moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_table import Move, Placed
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

RETRY_PAUSE_S: Final = 0.5

StoreMoves = Callable[[Mapping[Move, LastLeaderState]], Awaitable[list[Placed]]]
"""Stores moves of partitions whose logs are closed; returns those that were not out of date. Raises StorageError."""


async def hand_over(placement: LeasePlacement, topics: Topics, moves: Sequence[Move], store_moves: StoreMoves) -> None:
    """Move partitions to the nodes that should lead them. Raises StorageError, after which they are led here."""
    names = [move.topic_partition for move in moves]
    placement.begin_handing_over(names)
    try:
        last_state = await topics.hand_over(names)
        placed = await store_moves({move: last_state.get(move.topic_partition, LastLeaderState()) for move in moves})
        log.info("partitions_handed_over", partitions=[str(one.topic_partition) for one in placed])
    finally:
        await know_leaders(placement)
        placement.end_handing_over(names)


async def hand_over_due(placement: LeasePlacement, topics: Topics, store_moves: StoreMoves, *, within_s: float) -> None:
    """Carry out the moves that are due, and those that are due after them, for about `within_s`. Raises StorageError.

    Only the node that serves a partition moves it: a log that is being opened has open files that no task closes.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while moves := placement.due_moves(topics.serves):
        await hand_over(placement, topics, moves, store_moves)
        if loop.time() > deadline_s:
            return


async def know_leaders(placement: LeasePlacement) -> None:
    """Learn which moves are stored: without that nothing may be led again."""
    while True:
        try:
            await placement.refresh()
        except StorageError as error:
            log.error("leases_not_read", reason=str(error))  # noqa: TRY400  # the reason says it all
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return
