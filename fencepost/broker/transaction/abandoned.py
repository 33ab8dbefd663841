"""Ends two-phase transactions that their pool of ids has left behind: neither time nor a later session does.

A client that takes its ids from a pool, such as Flink's sink with POOLING, may leave one of them with an open
transaction and never use that id again (FLINK-40626). The operator gives each pool a bound by the glob of its ids. A
transaction that began a bound later, in another id of the pool, and is committed proves that the pool has gone on
without the abandoned one. A service that is away altogether proves nothing: nothing of it is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.hosting.peers import Peers, PeerUnreachable
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.transaction.metadata import TWO_PHASE_COMMIT_TIMEOUT_MS, Producer, TransactionMetadata
from fencepost.broker.transaction.names import is_matched
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import COMPLETE_COMMIT
from fencepost.protocol.errors import NO_ERROR
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest

log = get_logger(__name__)

ABANDONED = Place("ends of abandoned transactions", Policy.RETRY)

STEP: Final = 2_000
"""Transactional ids that one step of the event loop examines."""
ASKED_TOGETHER: Final = 500
SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
PAUSES_PER_BOUND: Final = 4
REQUEST_TIMEOUT_S: Final = 10.0


class Success(NamedTuple):
    """A committed transaction of a pool: its id, and when it began, in ms since 1970."""

    transactional_id: str
    start_ms: int


class Abandoned:
    """Looks for abandoned transactions of this node's coordinators.

    bounds: globs of ids with the bound of each in ms; the first that matches an id counts.
    peers: the other nodes, whose coordinators may have the pool's later transactions; None without any.
    """

    def __init__(
        self,
        bounds: Sequence[tuple[str, int]],
        transactions: TransactionService,
        topics: Topics,
        peers: Peers | None,
    ) -> None:
        self._bounds = bounds
        self._transactions = transactions
        self._topics = topics
        self._peers = peers
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = ABANDONED.start_retrying(self._watch)

    async def close(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _watch(self) -> None:
        shortest_s = min(bound_ms for _, bound_ms in self._bounds) / 1000 / PAUSES_PER_BOUND
        while True:
            await asyncio.sleep(min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, shortest_s)))
            await self.end_all()

    async def end_all(self) -> int:
        """Abort each abandoned transaction; returns their number."""
        try:
            known = self._transactions.transactions()
        except CoordinatorRefusal:  # a partition is loading: later
            return 0
        doubtful: dict[str, list[TransactionMetadata]] = {}
        latest: dict[str, Success] = {}
        for count, one in enumerate(known, 1):
            glob = self._glob_of(one.transactional_id)
            if glob is not None:
                if one.state.is_open and one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
                    doubtful.setdefault(glob, []).append(one)
                elif one.state is COMPLETE_COMMIT:
                    _take_later(latest, glob, Success(one.transactional_id, one.start_ms))
            if count % STEP == 0:
                await asyncio.sleep(0)
        bounds, ended = dict(reversed(self._bounds)), 0
        for glob, open_ones in doubtful.items():
            oldest_ms = min(one.start_ms for one in open_ones) + bounds[glob]
            if glob not in latest or latest[glob].start_ms < oldest_ms:
                async for success in self._successes_elsewhere(glob):
                    _take_later(latest, glob, success)
                    if success.start_ms >= oldest_ms:
                        break
            for one in open_ones:
                if glob in latest and latest[glob].start_ms >= one.start_ms + bounds[glob]:
                    ended += await self._end(one, latest[glob])
        return ended

    def _glob_of(self, transactional_id: str) -> str | None:
        return next((glob for glob, _ in self._bounds if is_matched((glob,), transactional_id)), None)

    async def _successes_elsewhere(self, glob: str) -> AsyncIterator[Success]:
        """Committed transactions of a pool at the coordinators of the other nodes, without nodes that do not answer."""
        if self._peers is None:
            return
        for node in self._topics.placement.other_nodes():
            try:
                listed = await self._ask(node.node_id, ListTransactionsRequest([COMPLETE_COMMIT.display_name]))
                ids = [one.transactional_id for one in listed.transaction_states]
                found = [name for name in ids if self._glob_of(name) == glob]
                for start in range(0, len(found), ASKED_TOGETHER):
                    asked = DescribeTransactionsRequest(found[start : start + ASKED_TOGETHER])
                    for one in (await self._ask(node.node_id, asked)).transaction_states:
                        if one.error_code == NO_ERROR and one.transaction_state == COMPLETE_COMMIT.display_name:
                            yield Success(one.transactional_id, one.transaction_start_time_ms)
            except PeerUnreachable:
                continue

    async def _ask(self, node_id: int, request: ListTransactionsRequest | DescribeTransactionsRequest) -> Any:
        assert self._peers is not None
        return await self._peers.request(node_id, request, 0, REQUEST_TIMEOUT_S)

    async def _end(self, one: TransactionMetadata, later: Success) -> bool:
        error = await self._transactions.end_by_check_back(
            one.transactional_id, Producer(one.producer_id, one.producer_epoch), one.start_ms, committed=False
        )
        if error is NO_ERROR:
            log.warning(
                "transaction_abandoned",
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                start_ms=one.start_ms,
                later_id=later.transactional_id,
                later_start_ms=later.start_ms,
                reason="its pool of ids has committed transactions that began a bound later: it is aborted",
            )
        return error is NO_ERROR


def _take_later(latest: dict[str, Success], glob: str, success: Success) -> None:
    if glob not in latest or latest[glob].start_ms < success.start_ms:
        latest[glob] = success
