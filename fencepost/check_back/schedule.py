"""All transactions in doubt, and the due work on each. Pure: time is passed in, and nothing is sent.

Each method applies an event, and returns the records of it. They must be written before the work of `take_work` is
done: a decision counts only if it is recorded.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from fencepost.check_back.case import (
    Case,
    CaseKey,
    Decider,
    Event,
    State,
    decide,
    event_of,
    found,
    longest_wait_ms,
    still_open,
)
from fencepost.check_back.figures import Figures
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import (
    ASK_AGAIN,
    Command,
    Entry,
    Journal,
    asked_entry,
    case_entry,
    case_tombstone,
    command_tombstone,
    decided_entry,
    ended_entry,
    resolver_entry,
    resolver_tombstone,
)
from fencepost.check_back.settings import ResolverSettings

MOST_ENDING: Final = 16
MOST_LOOKS: Final = 16
"""Bounds on transactions that are being ended, and whose end is being looked up, at a time."""


@dataclass(slots=True)
class Source:
    """A resolver as it was seen. up: also before it is asked. since_ms: since when it answers, or does not."""

    settings: ResolverSettings
    is_asked: bool = False
    up: bool = True
    reason: str | None = None
    since_ms: int = 0


class Work(NamedTuple):
    """Due work: sources to ask, transactions to end as decided, and outcomes to look up."""

    to_ask: Sequence[Case]
    to_end: Sequence[Case]
    to_look_up: Sequence[Case]


class Doubt(NamedTuple):
    """Transactions in doubt of one resolver: their numbers, and the begin of the oldest, None without any."""

    in_doubt: int
    parked: int
    oldest_started_ms: int | None


class Schedule:
    """The transactions in doubt of one cluster, or of one broker's coordinators.

    resolvers: the first one with a glob that matches an id is asked about it.
    """

    def __init__(self, resolvers: Iterable[ResolverSettings], figures: Figures | None = None) -> None:
        self.sources = {settings.name: Source(settings) for settings in resolvers}
        self.cases: dict[CaseKey, Case] = {}
        self.figures = Figures(tuple(self.sources)) if figures is None else figures
        self._restored: dict[CaseKey, Case] = {}
        self._commands: list[Command] = []
        self._ended_by_administrator: set[CaseKey] = set()
        self._looked_up: set[CaseKey] = set()
        self._ended: set[CaseKey] = set()  # a listing that began before the end may still show them
        self._open_keys: set[CaseKey] = set()  # of the listing that is coming in
        self._is_listed = False

    def resolver_of(self, transactional_id: str) -> ResolverSettings | None:
        """The resolver that is asked about an id."""
        for source in self.sources.values():
            if any(fnmatchcase(transactional_id, glob) for glob in source.settings.ids):
                return source.settings
        return None

    def is_wanted(self, transactional_id: str) -> bool:
        return self.resolver_of(transactional_id) is not None

    # Events

    def started(self, journal: Journal, now_ms: int) -> list[Entry]:
        """Take over the records of an earlier run. Transactions of no resolver stay recorded, and are left alone."""
        for key, case in journal.cases.items():
            settings = self.resolver_of(key.token.transactional_id)
            if settings is not None:
                self._restored[key] = dataclasses.replace(case, resolver=settings.name)
        entries = [resolver_tombstone(name) for name in journal.resolvers if name not in self.sources]
        for source in self.sources.values():
            source.since_ms = now_ms
            entries.append(_entry_of(source))
        return entries + self.commanded(journal.commands, now_ms)

    def listed(self, questions: Iterable[Question], now_ms: int) -> list[Entry]:
        """Take note of all open transactions of the resolvers' ids. Listings come in the order in which they began."""
        self.listed_part(questions, now_ms)
        return self.listing_ended(now_ms)

    def listed_part(self, questions: Iterable[Question], _now_ms: int) -> list[Entry]:
        """Take note of some of the open transactions: `listing_ended` follows the last part."""
        for question in questions:
            key = CaseKey(question.token, question.started_ms)
            self._open_keys.add(key)
            if key in self._ended:
                continue
            case = self.cases.get(key) or self._restored.pop(key, None)
            if case is None:
                settings = self.resolver_of(question.token.transactional_id)
                if settings is not None:
                    self.cases[key] = found(question, settings)
            elif case.question == question:
                self.cases[key] = case
            else:  # partitions have been added
                self.cases[key] = dataclasses.replace(case, question=question)
        return []

    def listing_ended(self, now_ms: int) -> list[Entry]:
        """Record that all open transactions have been listed: missing ones have ended."""
        open_keys, self._open_keys = self._open_keys, set()
        # Recorded by an earlier run, and ended since.
        self.cases.update(self._restored)
        self._restored.clear()
        for key in [key for key in self.cases if key not in open_keys]:
            case = self.cases[key]
            is_known = case.is_recorded or case.last_asked_ms is not None
            self._apply(case, Event.GONE if is_known else Event.GONE_UNASKED, now_ms)
        self._ended &= open_keys
        self._is_listed = True
        waiting, self._commands = self._commands, []
        return self.commanded(waiting, now_ms)

    def gone(self, seen: Case, now_ms: int) -> list[Entry]:
        """Take that a transaction that is being asked about is not open any more: its answer comes too late."""
        case = self.cases.get(seen.key)
        if case is not None and case.state is State.ASKING:
            self._apply(case, Event.GONE, now_ms)
        return []

    def answered(
        self, asked: Case, answer: Answer | None, reason: str | None, *, latency_ms: int, now_ms: int
    ) -> list[Entry]:
        """Take an answer. asked: the case when it was asked. answer: None if the source could not be asked."""
        source = self.sources[asked.resolver]
        figures = self.figures
        figures.checks[asked.resolver, "unreachable" if answer is None else answer.value] += 1
        figures.latencies[asked.resolver].add(latency_ms / 1000)
        entries = self._source_answered(source, answer is not None, reason, now_ms)
        case = self.cases.get(asked.key)
        is_late = case is None or case.state is not State.ASKING
        if case is None or is_late:
            note = asked_entry(asked, answer, reason, latency_ms=latency_ms, now_ms=now_ms, late=True)
            return [*entries, note]
        event = Event.UNREACHABLE if answer is None else event_of(case, answer, source.settings)
        after = self._apply(case, event, now_ms)
        assert after is not None
        entries.append(asked_entry(after, answer, reason, latency_ms=latency_ms, now_ms=now_ms))
        entries.append(case_entry(after))
        if after.state is State.PARKED:
            figures.decisions["park", Decider.EXHAUSTED.value] += 1
            entries.append(decided_entry(after, "park", Decider.EXHAUSTED, now_ms))
        elif after.decision is not None:
            outcome, by = after.decision
            figures.decisions[outcome.value, by.value] += 1
            entries.append(decided_entry(after, outcome.value, by, now_ms))
        return entries

    def ended(self, case: Case, outcome: str | None, now_ms: int) -> list[Entry]:
        """Record the result of an attempt to end a transaction.

        outcome: `commit` or `abort`, as its coordinator has it; `unknown` if it has forgotten it; None if no
        coordinator could be asked.
        """
        current = self.cases.get(case.key)
        if current is None or current.state is not State.ENDING or current.decision is None:
            return []
        if outcome is None:
            self._apply(current, Event.NOT_ENDED, now_ms)
            return []
        is_as_decided = outcome == current.decision.outcome.value
        self._apply(current, Event.ENDED if is_as_decided else Event.ENDED_OTHERWISE, now_ms)
        by = current.decision.by if is_as_decided else self._other_decider(current.key, Decider.CLIENT)
        return self._forgotten(current, outcome, by, now_ms)

    def looked_up(self, case: Case, outcome: str | None, by: Decider, now_ms: int) -> list[Entry]:
        """Record the outcome of a transaction that was not ended here.

        outcome: the one of `ended`, or `open` if it has not ended. by: who ended it, if no administrator did.
        """
        self._looked_up.discard(case.key)
        current = self.cases.get(case.key)
        if current is None or current.state is not State.LEAVING:
            return []
        if outcome is None:
            self._apply(current, Event.NOT_SEEN, now_ms)
            return []
        if outcome == "open":
            self._apply(current, still_open(current), now_ms)
            return []
        self._apply(current, Event.SEEN, now_ms)
        decision = current.decision
        if decision is not None and decision.outcome.value == outcome:
            by = decision.by  # ended before a crash, which came before the record of it
        else:
            by = self._other_decider(current.key, by)
        return self._forgotten(current, outcome, by, now_ms)

    def commanded(self, commands: Iterable[Command], now_ms: int) -> list[Entry]:
        """Apply administrators' commands. They wait until the transactions are listed for the first time."""
        if not self._is_listed:
            self._commands += commands
            return []
        entries = []
        for command in commands:
            case = self._case_of(command)
            if case is not None and command.command == ASK_AGAIN:
                after = self._apply(case, Event.ASK_AGAIN, now_ms)
                assert after is not None
                if after is not case:
                    entries += [
                        case_entry(after),
                        decided_entry(after, ASK_AGAIN, Decider.ADMINISTRATOR, now_ms),
                    ]
            elif case is not None:
                self._ended_by_administrator.add(case.key)
            entries.append(command_tombstone(command.transactional_id))
        return entries

    # Due work

    def take_work(self, now_ms: int) -> Work:
        """Take the due work, within the bounds of each source: one that is down gets one question at a time."""
        self._bound_waits(now_ms)
        asking = Counter(case.resolver for case in self.cases.values() if case.state is State.ASKING)
        ending = sum(case.state is State.ENDING for case in self.cases.values())
        due = [case for case in self.cases.values() if case.next_ms <= now_ms]
        due.sort(key=lambda case: case.next_ms)
        to_ask: list[Case] = []
        to_end: list[Case] = []
        to_look_up: list[Case] = []
        for case in due:
            if case.state is State.WAITING:
                source = self.sources[case.resolver]
                if asking[case.resolver] < (source.settings.concurrency if source.up else 1):
                    asking[case.resolver] += 1
                    to_ask.append(self._taken(case, now_ms))
            elif case.state is State.DECIDED and ending + len(to_end) < MOST_ENDING:
                to_end.append(self._taken(case, now_ms))
            elif case.state is State.LEAVING and case.key not in self._looked_up and len(self._looked_up) < MOST_LOOKS:
                self._looked_up.add(case.key)
                to_look_up.append(case)
        return Work(to_ask, to_end, to_look_up)

    def _bound_waits(self, now_ms: int) -> None:
        """Bound each transaction's wait by its pause: the clock may have been set back since `next_ms` was recorded."""
        for key, case in self.cases.items():
            if case.next_ms > now_ms:
                latest_ms = now_ms + longest_wait_ms(case, self.sources[case.resolver].settings)
                if case.next_ms > latest_ms:
                    self.cases[key] = dataclasses.replace(case, next_ms=latest_ms)

    def next_due_ms(self) -> int | None:
        """The time of the next piece of work; None if there is none, or all of it is under way."""
        return min(
            (
                case.next_ms
                for case in self.cases.values()
                if case.state in (State.WAITING, State.DECIDED)
                or (case.state is State.LEAVING and case.key not in self._looked_up)
            ),
            default=None,
        )

    def doubts(self) -> dict[str, Doubt]:
        """The open transactions of the ids of each resolver."""
        found = dict.fromkeys(self.sources, Doubt(0, 0, None))
        for case in self.cases.values():
            if case.state is not State.LEAVING:
                in_doubt, parked, oldest_ms = found[case.resolver]
                started_ms = case.question.started_ms
                found[case.resolver] = Doubt(
                    in_doubt + 1,
                    parked + (case.state is State.PARKED),
                    started_ms if oldest_ms is None else min(oldest_ms, started_ms),
                )
        return found

    # Steps

    def _apply(self, case: Case, event: Event, now_ms: int) -> Case | None:
        after = decide(case, event, self.sources[case.resolver].settings, now_ms)
        if after is None:
            del self.cases[case.key]
            self._ended.add(case.key)
        elif after is not case:
            self.cases[case.key] = after
        return after

    def _taken(self, case: Case, now_ms: int) -> Case:
        after = self._apply(case, Event.DUE, now_ms)
        assert after is not None
        return after

    def _source_answered(self, source: Source, up: bool, reason: str | None, now_ms: int) -> list[Entry]:
        source.is_asked = True
        if source.up == up:
            source.reason = reason
            return []
        source.up, source.reason, source.since_ms = up, reason, now_ms
        if up:
            # Transactions that wait only because the source was down are asked about now.
            for key, case in self.cases.items():
                if case.resolver == source.settings.name and case.state is State.WAITING and case.failures:
                    self.cases[key] = dataclasses.replace(case, next_ms=now_ms)
        return [_entry_of(source)]

    def _case_of(self, command: Command) -> Case | None:
        for case in self.cases.values():
            token = case.question.token
            is_meant = token.transactional_id == command.transactional_id and command.token in (None, str(token))
            if is_meant and case.state is not State.LEAVING:
                return case
        return None

    def _other_decider(self, key: CaseKey, by: Decider) -> Decider:
        return Decider.ADMINISTRATOR if key in self._ended_by_administrator else by

    def _forgotten(self, case: Case, outcome: str, by: Decider, now_ms: int) -> list[Entry]:
        if by is Decider.ADMINISTRATOR:
            self.figures.decisions[outcome, by.value] += 1
        self._ended_by_administrator.discard(case.key)
        return [ended_entry(case, outcome, by, now_ms), case_tombstone(case.key)]


def figures_of(schedule: Schedule, now_ms: int) -> dict[str, Any]:
    """All figures, for one log line."""
    found = schedule.doubts()
    starts = [one.oldest_started_ms for one in found.values() if one.oldest_started_ms is not None]
    return {
        "in_doubt": {name: one.in_doubt for name, one in found.items()},
        "oldest_in_doubt_s": max(0, now_ms - min(starts)) // 1000 if starts else 0,
        "parked": sum(one.parked for one in found.values()),
        "checks": {f"{resolver} {answer}": count for (resolver, answer), count in schedule.figures.checks.items()},
        "decisions": {f"{outcome} {by}": count for (outcome, by), count in schedule.figures.decisions.items()},
        "resolvers_down": [name for name, source in schedule.sources.items() if not source.up],
    }


def _entry_of(source: Source) -> Entry:
    return resolver_entry(
        source.settings, asked=source.is_asked, up=source.up, reason=source.reason, since_ms=source.since_ms
    )
