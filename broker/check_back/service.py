"""The check-back of one broker: its parts, made of the settings, and its one supervised task."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from fencepost.broker.check_back.own_topics import OwnJournal, OwnRecords
from fencepost.broker.check_back.own_transactions import OwnTransactions
from fencepost.broker.config import Settings
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.transaction.service import TransactionService
from fencepost.check_back.log_lines import Level, line_of
from fencepost.check_back.question import Resolver
from fencepost.check_back.records import Entry
from fencepost.check_back.resolvers import resolver_for
from fencepost.check_back.service import CheckBack

CHECK_BACK = Place("check-back of transactions in doubt", Policy.RETRY)
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


class BrokerCheckBack:
    """Asks about the transactions of this broker's coordinators. `core` has what metrics show.

    Making one raises ModuleNotFoundError if a resolver needs a library that is not installed.
    """

    def __init__(self, settings: Settings, topics: Topics, transactions: TransactionService, clock: Clock) -> None:
        records = OwnRecords(topics)
        self._resolvers: dict[str, Resolver] = {one.name: resolver_for(one, records) for one in settings.check_back}
        self._journal = OwnJournal(topics, clock)
        self._task: asyncio.Task[None] | None = None
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
        self._task = CHECK_BACK.start_retrying(self._run)

    async def _run(self) -> None:
        self._journal.begin()
        await self.core.run()

    async def close(self) -> None:
        """Stop asking. What was answered and not recorded is asked again after the next start."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for resolver in self._resolvers.values():
            await resolver.close()
