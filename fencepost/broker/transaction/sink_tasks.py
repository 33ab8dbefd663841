"""Open transactions of tasks of Spark's sinks, and their time-outs: none that a sink has decided is ended by time.

The coordinator's shards tell each open transaction whose id has the form of a task's. A watch, which is imported and
runs only while there are any, reads the sinks' decisions, commits the listed transactions, and marks the others whose
time-out is due: only with that mark a time-out ends them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.transaction.metadata import TransactionMetadata

# Every id is looked at: the module that knows sinks is imported once there is one like it.
_LIKE_A_TASK: Final = re.compile(r"-[0-9a-f]{8}-[0-9]+-[0-9]+\Z").search

WATCH: Final = Place("watch over decided batches of sinks", Policy.RETRY)
MARK_S: Final = 30.0
"""How long a mark counts: no sink decides about a transaction whose time-out is due."""


class UnfinishedBatch(NamedTuple):
    """The transactions of a decided batch that are still open. decided_ms: time of its decision, by the topic."""

    transactions: int
    decided_ms: int


class SinkTasks:
    """The transactions of tasks that this node's coordinators have, or had, open.

    watch: runs until `open` is empty.
    open: transactional ids by sink. due: id and start of the transactions of each sink that wait for a mark.
    unfinished: the decided batch of each sink that has open transactions.
    held: number of transactions of each sink whose time-out waits, as its decision cannot be read.
    finished: number of transactions that the watch has committed.
    """

    def __init__(self, watch: Callable[[SinkTasks], Coroutine[Any, Any, None]]) -> None:
        self.open: dict[str, dict[str, None]] = {}
        self.due: dict[str, set[tuple[str, int]]] = {}
        self.asked = asyncio.Event()
        self.unfinished: dict[str, UnfinishedBatch] = {}
        self.held: dict[str, int] = {}
        self.finished = 0
        self._watch = watch
        self._marks: dict[tuple[str, int], float] = {}
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    # Of the shards

    def opened(self, metadata: TransactionMetadata) -> None:
        """Take note of an open transaction, of any id. Called for each of its records."""
        sink = _sink_of(metadata.transactional_id)
        if sink is not None:
            self._note(sink, metadata)

    def may_time_out(self, metadata: TransactionMetadata) -> bool:
        """Whether time may end an open transaction: of a task only after its sink's decision was read."""
        if _sink_of(metadata.transactional_id) is None:
            return True
        marked_s = self._marks.get((metadata.transactional_id, metadata.start_ms))
        return marked_s is not None and self._loop.time() - marked_s < MARK_S

    def ask(self, metadata: TransactionMetadata) -> None:
        """Have the watch read whether a transaction is decided whose time-out is due."""
        sink = _sink_of(metadata.transactional_id)
        assert sink is not None
        self.due.setdefault(sink, set()).add((metadata.transactional_id, metadata.start_ms))
        self.asked.set()
        self._note(sink, metadata)

    def _note(self, sink: str, metadata: TransactionMetadata) -> None:
        self.open.setdefault(sink, {})[metadata.transactional_id] = None
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = WATCH.start_retrying(lambda: self._watch(self))

    # Of the watch

    def mark(self, transactional_id: str, start_ms: int) -> None:
        """Note that a transaction was not decided when its time-out was due."""
        self._marks[transactional_id, start_ms] = self._loop.time()

    def ended(self, sink: str, transactional_ids: list[str]) -> None:
        """Forget ids without an open transaction."""
        ids = self.open.get(sink, {})
        gone = set(transactional_ids)
        for transactional_id in gone:
            ids.pop(transactional_id, None)
        for mark in [mark for mark in self._marks if mark[0] in gone]:
            del self._marks[mark]
        if not ids:
            self.open.pop(sink, None)
            self.unfinished.pop(sink, None)
            self.held.pop(sink, None)
            self.due.pop(sink, None)

    async def close(self) -> None:
        self._is_closed = True
        await end_tasks(self._task)


def _sink_of(transactional_id: str) -> str | None:
    """The sink of a task's transactional id; None for other ids."""
    if not transactional_id[-1:].isdecimal() or _LIKE_A_TASK(transactional_id) is None:
        return None
    from fencepost.check_back.decided import sink_of

    return sink_of(transactional_id)
