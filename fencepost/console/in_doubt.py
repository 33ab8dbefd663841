"""Transactions in doubt: open, and without a time-out or with a source that is asked about them. Pure.

What the check-back knows of each comes from its journal; without one, a transaction waits for its own client.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.check_back.case import Case, CaseKey, State
from fencepost.check_back.records import ASK_AGAIN, Journal, ResolverNote, resolver_of
from fencepost.diagnosis.stuck import ONGOING, CoordinatorView
from fencepost.diagnosis.words import counted, duration
from fencepost.protocol.checked_json import LATEST_MS, Fields, JsonError, parse_object
from fencepost.two_phase.tokens import Token


@dataclass(frozen=True)
class Doubt:
    """A transaction in doubt.

    resolver: its name; None if no source is asked about it. resolver_error: why that does not answer at present.
    checks: answers `unknown`. checks_max: after which it is parked, or decided. next_words: what happens next.
    """

    transactional_id: str
    token: str
    started_ms: int
    age_ms: int
    partitions: tuple[tuple[str, int], ...]
    is_two_phase: bool
    resolver: str | None
    resolver_error: str | None
    checks: int
    checks_max: int | None
    last_answer: str | None
    next_words: str
    is_parked: bool
    can_be_asked: bool


@dataclass(frozen=True)
class HistoryLine:
    """A record of the audit topic. what: a sentence; kind: `question`, `decision` or `end`."""

    time_ms: int
    kind: str
    what: str
    after_ms: int | None = None


def doubts(views: Iterable[CoordinatorView], journal: Journal, now_ms: int) -> list[Doubt]:
    """Those of some transactions that are in doubt, oldest first."""
    found = [_doubt(view, journal, now_ms) for view in views if _is_in_doubt(view, journal)]
    return sorted(found, key=lambda one: (one.started_ms, one.transactional_id))


def token_of(view: CoordinatorView) -> Token:
    return Token(view.producer_id, view.producer_epoch, view.transactional_id)


def _is_in_doubt(view: CoordinatorView, journal: Journal) -> bool:
    if view.state != ONGOING or view.started_ms < 0:
        return False
    has_no_end = view.is_two_phase
    return has_no_end or _case(view, journal) is not None or resolver_of(journal, view.transactional_id) is not None


def _case(view: CoordinatorView, journal: Journal) -> Case | None:
    return journal.cases.get(CaseKey(token_of(view), view.started_ms))


def _doubt(view: CoordinatorView, journal: Journal, now_ms: int) -> Doubt:
    case = _case(view, journal)
    name = case.resolver if case is not None else resolver_of(journal, view.transactional_id)
    resolver = journal.resolvers.get(name or "")
    is_wanted = any(
        one.command == ASK_AGAIN and one.transactional_id == view.transactional_id for one in journal.commands
    )
    return Doubt(
        view.transactional_id,
        str(token_of(view)),
        view.started_ms,
        max(0, now_ms - view.started_ms),
        tuple(view.partitions),
        view.is_two_phase,
        name,
        None if resolver is None or resolver.up else resolver.reason or "no reason given",
        0 if case is None else case.checks,
        None if resolver is None else resolver.checks_max,
        None if case is None or case.last_answer is None else case.last_answer.value,
        "the source is asked at once" if is_wanted else _next(view, case, resolver, now_ms),
        case is not None and case.is_parked,
        name is not None and (case is None or case.decision is None),
    )


def _next(view: CoordinatorView, case: Case | None, resolver: ResolverNote | None, now_ms: int) -> str:
    if case is None:
        if resolver is None:
            return "no source is asked: its client decides, or an administrator"
        return _due(view.started_ms + resolver.first_ms, now_ms)
    if case.decision is not None:
        return f"decided by the {case.decision.by.value}: {case.decision.outcome.value}; it is being ended"
    if case.is_parked:
        return "parked: an administrator decides"
    if case.state is State.WAITING:
        return _due(case.next_ms, now_ms)
    return "a question is on its way"


def _due(due_ms: int, now_ms: int) -> str:
    return f"the next question in {duration(due_ms - now_ms)}" if due_ms > now_ms else "the next question is due"


def history_line(value: bytes) -> HistoryLine | None:
    """A record of the audit topic as a sentence; None for one that cannot be read."""
    try:
        fields = parse_object(value)
        time_ms, kind = fields.time_ms("time_ms"), fields.text("event")
        if kind == "question":
            what = _question(fields)
        elif kind == "decision":
            decision = fields.text("decision")
            decided = {"park": "parked", ASK_AGAIN: "asked for another question"}.get(decision, f"decided {decision}")
            what = f"the {_decider(fields)} {decided}"
        elif kind == "end":
            outcome = fields.text_or_none("outcome")
            ended = {"commit": "committed", "abort": "aborted"}.get(str(outcome), "ended, nobody can say how")
            what = f"{ended}, by the {_decider(fields)}"
            decided_before = fields.text_or_none("decision")
            if decided_before not in (None, outcome):
                what += f", though {decided_before} was decided"
        else:
            return None
    except JsonError:
        return None
    return HistoryLine(time_ms, kind, what)


def _question(fields: Fields) -> str:
    answer, name = fields.text("answer"), fields.text("resolver")
    said = f"{name} could not be asked: {fields.text_or_none('reason')}"
    if answer != "unreachable":
        said = f"{name} said {answer}"
    latency_ms = fields.whole_or_none("latency_ms", 0, LATEST_MS)
    if latency_ms is not None:
        said += f", after {duration(max(1, latency_ms))}"
    checks = fields.whole_or_none("checks")
    if answer == "unknown" and checks is not None:
        said += f", {counted(checks, 'check')}"
    return said + (", too late to count" if "late" in fields and fields.flag("late") else "")


def _decider(fields: Fields) -> str:
    who = fields.text("who")
    return {"exhausted": "setting for exhausted transactions"}.get(who, who)
