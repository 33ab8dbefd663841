"""One transaction in doubt: its states, the table of events, and the transition of each event. Pure.

A decision is made once. It needs an answer, or the operator's word for exhausted transactions; only the answer
`unknown` counts as a check. Times are passed in, in ms since 1970.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fencepost.check_back.question import Answer, Question
from fencepost.check_back.settings import Exhausted, ResolverSettings
from fencepost.two_phase.tokens import Token


class State(Enum):
    """State of a transaction in doubt."""

    WAITING = "waiting"  # for the time of the next question
    ASKING = "asking"  # a question is in flight
    PARKED = "parked"  # an administrator has to decide; no source is asked
    DECIDED = "decided"  # and recorded; it is to be ended at `next_ms`
    ENDING = "ending"  # its coordinator is being asked to end it
    LEAVING = "leaving"  # not open any more: its outcome has to be read


class Event(Enum):
    """Event of a transaction in doubt."""

    DUE = "due"
    SAID_COMMIT = "the source says commit"
    SAID_ABORT = "the source says abort"
    SAID_UNKNOWN = "the source says unknown, and is asked again"
    PARK = "the source says unknown for the last time; park"
    GIVE_UP = "the source says unknown for the last time; decide as configured"
    UNREACHABLE = "the source could not be asked"
    ENDED = "ended as decided"
    ENDED_OTHERWISE = "somebody had ended it the other way"
    NOT_ENDED = "no coordinator could be asked to end it"
    GONE = "not open any more"
    GONE_UNASKED = "not open any more, and nothing of it is recorded"
    SEEN = "it is known how it ended"
    NOT_SEEN = "no coordinator could be asked how it ended"
    STILL_OPEN = "it is open after all; it waits"
    STILL_PARKED = "it is open after all; it is parked"
    STILL_DECIDED = "it is open after all; it is decided"
    ASK_AGAIN = "an administrator wants the source asked at once"


class Outcome(Enum):
    """Outcome of a decision."""

    COMMIT = "commit"
    ABORT = "abort"


class Decider(Enum):
    """Source of a decision, or of the end of a transaction."""

    RESOLVER = "resolver"
    EXHAUSTED = "exhausted"  # `exhausted=abort` or `commit` of the resolver's settings
    ADMINISTRATOR = "administrator"
    CLIENT = "client"
    TIME_OUT = "time-out"


class Decision(NamedTuple):
    """Decision about a transaction: its outcome and its source."""

    outcome: Outcome
    by: Decider


class CaseKey(NamedTuple):
    """A transaction. The start belongs to it: a client of transaction version 1 keeps its pair over many."""

    token: Token
    started_ms: int


@dataclass(frozen=True, slots=True)
class Case:
    """A transaction in doubt.

    next_ms: due time of the next question, or of the next attempt to end it. checks: number of answers `unknown`.
    failures: number of questions without an answer since the last answer, or of attempts to end it. is_parked: also
    while it is LEAVING.
    is_recorded: whether the journal has it.
    """

    question: Question
    resolver: str
    state: State
    next_ms: int
    checks: int = 0
    failures: int = 0
    last_answer: Answer | None = None
    last_asked_ms: int | None = None
    decision: Decision | None = None
    is_parked: bool = False
    is_recorded: bool = False

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.question.token, self.question.started_ms)


class _Act(Enum):
    IGNORE = "ignore"  # it comes too late, or is not for this state
    FORGET = "forget"


WAITING, ASKING, PARKED = State.WAITING, State.ASKING, State.PARKED
DECIDED, ENDING, LEAVING = State.DECIDED, State.ENDING, State.LEAVING
IGNORE, FORGET = _Act.IGNORE, _Act.FORGET
Cell = State | _Act

# While ENDING, the attempt itself returns the transaction's outcome: GONE adds nothing.
# fmt: off
TABLE: Final[Mapping[Event, tuple[Cell, Cell, Cell, Cell, Cell, Cell]]] = {
    #                        WAITING  ASKING   PARKED   DECIDED  ENDING   LEAVING
    Event.DUE:              (ASKING,  IGNORE,  IGNORE,  ENDING,  IGNORE,  IGNORE),
    Event.SAID_COMMIT:      (IGNORE,  DECIDED, IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.SAID_ABORT:       (IGNORE,  DECIDED, IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.SAID_UNKNOWN:     (IGNORE,  WAITING, IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.PARK:             (IGNORE,  PARKED,  IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.GIVE_UP:          (IGNORE,  DECIDED, IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.UNREACHABLE:      (IGNORE,  WAITING, IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.ENDED:            (IGNORE,  IGNORE,  IGNORE,  IGNORE,  FORGET,  IGNORE),
    Event.ENDED_OTHERWISE:  (IGNORE,  IGNORE,  IGNORE,  IGNORE,  FORGET,  IGNORE),
    Event.NOT_ENDED:        (IGNORE,  IGNORE,  IGNORE,  IGNORE,  DECIDED, IGNORE),
    Event.GONE:             (LEAVING, LEAVING, LEAVING, LEAVING, IGNORE,  IGNORE),
    Event.GONE_UNASKED:     (FORGET,  FORGET,  IGNORE,  IGNORE,  IGNORE,  IGNORE),
    Event.SEEN:             (IGNORE,  IGNORE,  IGNORE,  IGNORE,  IGNORE,  FORGET),
    Event.NOT_SEEN:         (IGNORE,  IGNORE,  IGNORE,  IGNORE,  IGNORE,  LEAVING),
    Event.STILL_OPEN:       (IGNORE,  IGNORE,  IGNORE,  IGNORE,  IGNORE,  WAITING),
    Event.STILL_PARKED:     (IGNORE,  IGNORE,  IGNORE,  IGNORE,  IGNORE,  PARKED),
    Event.STILL_DECIDED:    (IGNORE,  IGNORE,  IGNORE,  IGNORE,  IGNORE,  DECIDED),
    Event.ASK_AGAIN:        (WAITING, IGNORE,  WAITING, IGNORE,  IGNORE,  IGNORE),
}
# fmt: on
_COLUMNS: Final = {state: column for column, state in enumerate(State)}

RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 60_000
"""Pauses between attempts to end a transaction that is decided: doubled each time."""


def found(question: Question, settings: ResolverSettings) -> Case:
    """A transaction that is seen open for the first time."""
    return Case(question, settings.name, WAITING, question.started_ms + settings.first_ms)


def still_open(case: Case) -> Event:
    """Return the event for a transaction that we believed ended but that is still open."""
    if case.decision is not None:
        return Event.STILL_DECIDED
    return Event.STILL_PARKED if case.is_parked else Event.STILL_OPEN


def event_of(case: Case, answer: Answer, settings: ResolverSettings) -> Event:
    """Return the event of an answer about a transaction."""
    if answer is Answer.COMMIT:
        return Event.SAID_COMMIT
    if answer is Answer.ABORT:
        return Event.SAID_ABORT
    if case.checks + 1 < settings.checks_max:
        return Event.SAID_UNKNOWN
    return Event.PARK if settings.exhausted is Exhausted.PARK else Event.GIVE_UP


def decide(case: Case, event: Event, settings: ResolverSettings, now_ms: int) -> Case | None:
    """Apply an event to a transaction: return the same object if nothing changes, None if it is to be forgotten."""
    cell = TABLE[event][_COLUMNS[case.state]]
    if cell is IGNORE:
        return case
    if cell is FORGET:
        return None
    assert isinstance(cell, State)
    return _CHANGES[event](dataclasses.replace(case, state=cell), settings, now_ms)


def _due(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    return dataclasses.replace(case, last_asked_ms=now_ms) if case.state is ASKING else case


def _said_commit(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    return _decided(case, Answer.COMMIT, Decision(Outcome.COMMIT, Decider.RESOLVER), now_ms)


def _said_abort(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    return _decided(case, Answer.ABORT, Decision(Outcome.ABORT, Decider.RESOLVER), now_ms)


def _gave_up(case: Case, settings: ResolverSettings, now_ms: int) -> Case:
    outcome = Outcome.COMMIT if settings.exhausted is Exhausted.COMMIT else Outcome.ABORT
    case = dataclasses.replace(case, checks=case.checks + 1)
    return _decided(case, Answer.UNKNOWN, Decision(outcome, Decider.EXHAUSTED), now_ms)


def _decided(case: Case, answer: Answer, decision: Decision, now_ms: int) -> Case:
    return dataclasses.replace(
        case, last_answer=answer, decision=decision, failures=0, next_ms=now_ms, is_recorded=True
    )


def _said_unknown(case: Case, settings: ResolverSettings, now_ms: int) -> Case:
    checks = case.checks + 1
    return dataclasses.replace(
        case,
        checks=checks,
        failures=0,
        last_answer=Answer.UNKNOWN,
        next_ms=now_ms + pause_ms(settings, checks),
        is_recorded=True,
    )


def _parked(case: Case, settings: ResolverSettings, now_ms: int) -> Case:
    return dataclasses.replace(_said_unknown(case, settings, now_ms), is_parked=True)


def _unreachable(case: Case, settings: ResolverSettings, now_ms: int) -> Case:
    failures = case.failures + 1
    return dataclasses.replace(case, failures=failures, next_ms=now_ms + pause_ms(settings, failures), is_recorded=True)


def _try_later(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    failures = case.failures + 1
    return dataclasses.replace(case, failures=failures, next_ms=now_ms + _retry_ms(failures))


def _at_once(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    return dataclasses.replace(case, failures=0, next_ms=now_ms)


def _ask_again(case: Case, _settings: ResolverSettings, now_ms: int) -> Case:
    return dataclasses.replace(case, checks=0, failures=0, next_ms=now_ms, is_parked=False, is_recorded=True)


_CHANGES: Final = {
    Event.DUE: _due,
    Event.SAID_COMMIT: _said_commit,
    Event.SAID_ABORT: _said_abort,
    Event.SAID_UNKNOWN: _said_unknown,
    Event.PARK: _parked,
    Event.GIVE_UP: _gave_up,
    Event.UNREACHABLE: _unreachable,
    Event.NOT_ENDED: _try_later,
    Event.GONE: _at_once,
    Event.NOT_SEEN: _try_later,
    Event.STILL_OPEN: _at_once,
    Event.STILL_PARKED: _at_once,
    Event.STILL_DECIDED: _at_once,
    Event.ASK_AGAIN: _ask_again,
}


def pause_ms(settings: ResolverSettings, count: int) -> int:
    """The pause after a number of answers `unknown`, or of failures, in a row."""
    interval, longest, backoff = settings.interval_ms, settings.interval_max_ms, settings.backoff
    if interval >= longest or backoff <= 1:
        return min(interval, longest)
    # Not by `count` multiplications: it may come from a record that others wrote, and be huge.
    if count - 1 >= math.log(longest / max(interval, 1)) / math.log(backoff):
        return longest
    return min(round(interval * backoff ** (count - 1)), longest)


def longest_wait_ms(case: Case, settings: ResolverSettings) -> int:
    """Return the longest time until a transaction is due; bounds a `next_ms` of a clock that was ahead of this one."""
    if case.state in (State.DECIDED, State.LEAVING):
        return _retry_ms(case.failures)
    count = case.failures or case.checks
    return pause_ms(settings, count) if count else settings.first_ms


def _retry_ms(failures: int) -> int:
    return min(RETRY_MS << min(max(failures - 1, 0), 16), LONGEST_RETRY_MS)
