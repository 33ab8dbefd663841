"""The running check-back: lists open transactions, asks, records, ends. `schedule` decides on each step and its time.

One task changes the schedule. It writes the schedule's records to the journal before it acts on them: before a
question, or the end of a transaction. So a crash at any point loses no decision, and makes none twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fencepost.check_back.case import Case, Decider, Outcome
from fencepost.check_back.figures import Figures
from fencepost.check_back.ports import JournalLog, Observer, Transactions, Unavailable
from fencepost.check_back.question import Answer, Resolver, ResolverUnreachable
from fencepost.check_back.records import Entry, Journal, left_out_words, read_journal
from fencepost.check_back.schedule import Schedule
from fencepost.check_back.settings import ResolverSettings

T = TypeVar("T")
Happened = Callable[[int], list[Entry]]
"""An event, as a function that applies it to the schedule at a time, in ms, and returns the records."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
"""Pauses while the cluster cannot be asked: doubled each time."""
LISTED_AT_ONCE = 1_000
"""Number of listed transactions that one step of the event loop adds to the schedule."""


class CheckBack:
    """One check-back. `run` may be called again after a failure: it begins with the state in the journal.

    resolvers: resolvers by their names in the settings. now_ms: the time in ms since 1970. poll_s: the pause between
    listings.
    """

    def __init__(
        self,
        settings: Sequence[ResolverSettings],
        resolvers: Mapping[str, Resolver],
        transactions: Transactions,
        journal: JournalLog,
        observer: Observer,
        *,
        now_ms: Callable[[], int],
        poll_s: float,
    ) -> None:
        self.figures = Figures(tuple(one.name for one in settings))
        self.schedule = Schedule(settings, self.figures)
        self._settings = settings
        self._resolvers = resolvers
        self._transactions = transactions
        self._journal = journal
        self._observer = observer
        self._now_ms = now_ms
        self._poll_s = poll_s
        self._happened: asyncio.Queue[Happened] = asyncio.Queue()

    async def run(self) -> None:
        """Check back until cancelled. An unexpected exception ends all of it, and is raised."""
        self.schedule = Schedule(self._settings, self.figures)
        self._happened = asyncio.Queue()
        records = await self._patiently("read the journal", self._journal.read_state)
        journal = self._read(records)
        await self._record(self.schedule.started(journal, self._now_ms()))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._list_regularly())
                while True:
                    await self._step(tasks)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _read(self, records: Mapping[str, bytes | None]) -> Journal:
        journal = read_journal(records)
        words = left_out_words(journal)
        if words is not None:
            self._observer.left_out(words)
        return journal

    async def _step(self, tasks: asyncio.TaskGroup) -> None:
        """Wait for an event or a due time; record its consequences, and begin the work."""
        happened = await self._next()
        now_ms = self._now_ms()
        entries: list[Entry] = []
        for one in happened:
            entries += one(now_ms)
            await asyncio.sleep(0)
        await self._record(entries)
        work = self.schedule.take_work(self._now_ms())
        for case in work.to_ask:
            tasks.create_task(self._ask(case))
        for case in work.to_end:
            tasks.create_task(self._end(case))
        for case in work.to_look_up:
            tasks.create_task(self._look_up(case))

    async def _next(self) -> list[Happened]:
        due_ms = self.schedule.next_due_ms()
        wait_s = self._poll_s if due_ms is None else (due_ms - self._now_ms()) / 1000
        happened = []
        try:
            # Due work without room begins after the next event, or at the next listing.
            async with asyncio.timeout(wait_s if wait_s > 0 else self._poll_s):
                happened.append(await self._happened.get())
        except TimeoutError:
            return []
        while not self._happened.empty():
            happened.append(self._happened.get_nowait())
        return happened

    async def _record(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        await self._patiently("write the journal", partial(self._journal.write, entries))
        for entry in entries:
            self._observer.recorded(entry)

    async def _patiently(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do something with the cluster until it succeeds."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except Unavailable as missing:
                self._observer.unavailable(what, missing.reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _list_regularly(self) -> None:
        while True:
            # Commands first: the listing has their transactions then.
            written = await self._patiently("read the journal", self._journal.read_state)
            commands = self._read(written).commands
            if commands:
                self._happened.put_nowait(partial(self.schedule.commanded, commands))
            list_open = partial(self._transactions.all_open, self.schedule.is_wanted)
            questions = await self._patiently("list the open transactions", list_open)
            for first in range(0, len(questions), LISTED_AT_ONCE):
                part = questions[first : first + LISTED_AT_ONCE]
                self._happened.put_nowait(partial(self.schedule.listed_part, part))
            self._happened.put_nowait(self.schedule.listing_ended)
            await asyncio.sleep(self._poll_s)

    async def _ask(self, case: Case) -> None:
        timeout_ms = self.schedule.sources[case.resolver].settings.timeout_ms
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        answer: Answer | None = None
        reason: str | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._resolvers[case.resolver].ask(case.question)
        except ResolverUnreachable as missing:
            reason = missing.reason
        except TimeoutError:
            reason = f"no answer within {timeout_ms} ms"
        except Exception as error:  # noqa: BLE001  # audited as no answer; its text may hold a secret
            reason = f"the resolver failed unexpectedly: {type(error).__name__}"
        latency_ms = round((loop.time() - begun_s) * 1000)
        if answer in (Answer.COMMIT, Answer.ABORT) and not await self._is_open(case):
            self._happened.put_nowait(partial(self.schedule.gone, case))
        self._happened.put_nowait(
            lambda now_ms: self.schedule.answered(case, answer, reason, latency_ms=latency_ms, now_ms=now_ms)
        )

    async def _is_open(self, case: Case) -> bool:
        """Ask the coordinator whether a transaction is still open; if it cannot be asked, assume that it is.

        A service that was only slow may have ended it meanwhile. The source's answer then does not count: a
        claim, for one, answers abort because it finds no transaction that waits for a commit.
        """
        try:
            outcome, _ = await self._transactions.outcome(case.question)
        except Unavailable:
            return True  # the answer counts; the attempt to end it finds out
        return outcome == "open"

    async def _end(self, case: Case) -> None:
        assert case.decision is not None
        try:
            outcome = await self._transactions.end(case.question, commit=case.decision.outcome is Outcome.COMMIT)
        except Unavailable as missing:
            self._observer.unavailable(f"end the transaction {case.question.token}", missing.reason)
            outcome = None
        self._happened.put_nowait(partial(self.schedule.ended, case, outcome))

    async def _look_up(self, case: Case) -> None:
        outcome: str | None = None
        by = Decider.CLIENT
        try:
            outcome, by = await self._transactions.outcome(case.question)
        except Unavailable as missing:
            self._observer.unavailable(f"look up the end of {case.question.token}", missing.reason)
        self._happened.put_nowait(partial(self.schedule.looked_up, case, outcome, by))
