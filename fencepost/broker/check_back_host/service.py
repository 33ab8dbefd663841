"""The check-back of one broker: its parts, made of the settings, and its one supervised task."""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost.broker.check_back_host.log_lookup import Logs
from fencepost.broker.check_back_host.own_topics import OwnJournal, OwnRecords
from fencepost.broker.check_back_host.own_transactions import OwnTransactions
from fencepost.broker.config import Settings
from fencepost.broker.hosting.peers import Peers
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.transaction.service import TransactionService
from fencepost.check_back.log_lines import Level, line_of
from fencepost.check_back.question import Resolver
from fencepost.check_back.records import Entry
from fencepost.check_back.resolvers import resolver_for
from fencepost.check_back.service import CheckBack

CHECK_BACK = Place("check-back of transactions in doubt", Policy.RETRY)
RESTART = Place("restart of the check-back", Policy.RETRY)
PAUSE_AFTER_CHANGES_S: Final = 0.5
POLL_S: Final = 1.0
"""Between looks at the open transactions."""

log = get_logger(__name__)


class LogObserver:
    """Writes log lines. See `fencepost.check_back.ports.Observer`."""

    def recorded(self, entry: Entry) -> None:
        line = line_of(entry)
        if line is None:
            return
        write = {Level.DEBUG: log.debug, Level.INFO: log.info, Level.WARNING: log.warning, Level.ERROR: log.error}
        write[line.level](line.event, **line.fields)

    def unavailable(self, what: str, reason: str) -> None:
        log.warning("check_back_waits", what=what, reason=reason)

    def left_out(self, what: str) -> None:
        log.warning("check_back_records_left_out", what=what)


class BrokerCheckBack:
    """Asks about the transactions of this node's coordinators. `core` has the figures for metrics.

    Of several nodes each asks about the ids that it coordinates, so that of each transaction one node asks. When it
    gets or loses some, it reads the journal again: the node before it may have written there.
    peers: the channel to the other nodes; None for a node that is alone.

    Making one raises ModuleNotFoundError if a resolver needs a library that is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        transactions: TransactionService,
        clock: Clock,
        *,
        peers: Peers | None = None,
    ) -> None:
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._restart: asyncio.TimerHandle | None = None
        logs = Logs(topics, clock, peers)
        records = OwnRecords(logs)
        self._resolvers: dict[str, Resolver] = {one.name: resolver_for(one, records) for one in settings.check_back}
        self._is_alone = peers is None
        self._journal = OwnJournal(logs, (lambda _: True) if self._is_alone else transactions.is_coordinator_of)
        self._task: asyncio.Task[None] | None = None
        self._stopped: set[asyncio.Task[None]] = set()
        self.core = CheckBack(
            settings.check_back,
            self._resolvers,
            OwnTransactions(transactions),
            self._journal,
            LogObserver(),
            now_ms=clock.now_ms,
            poll_s=POLL_S,
        )

    def start(self) -> None:
        if not self._is_alone:
            self._topics.on_led.append(self._led)
            self._topics.on_resigned.append(self._resigned)
        self._begin()

    def _begin(self) -> None:
        self._task = CHECK_BACK.start_retrying(self._run)

    async def _run(self) -> None:
        self._journal.begin()
        await self.core.run()

    def _led(self, log: PartitionLog) -> None:
        self._leads_others(log.topic_partition)

    def _resigned(self, topic_partition: TopicPartition) -> None:
        self._leads_others(topic_partition)

    def _leads_others(self, topic_partition: TopicPartition) -> None:
        """Stop at once, as another node may ask from now on; restart after the last of the changes."""
        if topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        if self._task is not None:
            self._stopped.add(self._task)
            self._task.cancel()
            self._task.add_done_callback(self._stopped.discard)
            self._task = None
        self._begin_later()

    def _begin_later(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
        self._restart = self._loop.call_later(PAUSE_AFTER_CHANGES_S, RESTART.callback(self._begin_again))

    def _begin_again(self) -> None:
        self._begin_later()  # first, in case that this fails, or the stopped task has not ended yet
        if not self._stopped and self._restart is not None:
            self._begin()
            self._restart.cancel()

    async def close(self) -> None:
        """Stop asking. The next start repeats questions whose answers were not recorded."""
        if self._led in self._topics.on_led:
            self._topics.on_led.remove(self._led)
            self._topics.on_resigned.remove(self._resigned)
        if self._restart is not None:
            self._restart.cancel()
        ending = [*self._stopped, *([] if self._task is None else [self._task])]
        await end_tasks(*ending)
        for resolver in self._resolvers.values():
            await resolver.close()
