"""Transactions in doubt: open, and without a time-out or with a source that is asked about them. Pure.

What the check-back knows of each comes from its journal; without one, a transaction waits for its own client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.check_back.case import Case, CaseKey, State
from fencepost.check_back.records import ASK_AGAIN, Journal, resolver_of
from fencepost.console.stuck import UNLIMITED_TIMEOUT_MS, CoordinatorView
from fencepost.console.words import counted, duration
from fencepost.two_phase.tokens import Token

STILL_OPEN: Final = "Ongoing"
"""The state in which nothing is decided yet."""


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
    if view.state != STILL_OPEN or view.started_ms < 0:
        return False
    has_no_end = view.timeout_ms >= UNLIMITED_TIMEOUT_MS
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
        view.partitions,
        view.timeout_ms >= UNLIMITED_TIMEOUT_MS,
        name,
        None
        if resolver is None or resolver.get("up") is not False
        else str(resolver.get("reason") or "no reason given"),
        0 if case is None else case.checks,
        None if resolver is None else _whole(resolver.get("checks_max")),
        None if case is None or case.last_answer is None else case.last_answer.value,
        "the source is asked at once" if is_wanted else _next(view, case, resolver, now_ms),
        case is not None and case.is_parked,
        name is not None and (case is None or case.decision is None),
    )


def _next(view: CoordinatorView, case: Case | None, resolver: Mapping[str, Any] | None, now_ms: int) -> str:
    if case is None:
        if resolver is None:
            return "no source is asked: its client decides, or an administrator"
        first_ms = _whole(resolver.get("first_ms"))
        return "the first question is due" if first_ms is None else _due(view.started_ms + first_ms, now_ms)
    if case.decision is not None:
        return f"decided by the {case.decision.by.value}: {case.decision.outcome.value}; it is being ended"
    if case.is_parked:
        return "parked: an administrator decides"
    if case.state is State.WAITING:
        return _due(case.next_ms, now_ms)
    return "a question is on its way"


def _due(due_ms: int, now_ms: int) -> str:
    return f"the next question in {duration(due_ms - now_ms)}" if due_ms > now_ms else "the next question is due"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def history_line(fields: Mapping[str, Any]) -> HistoryLine | None:
    """A record of the audit topic as a sentence; None for one that cannot be read."""
    time_ms, kind = fields.get("time_ms"), fields.get("event")
    if not isinstance(time_ms, int) or kind not in ("question", "decision", "end"):
        return None
    if kind == "question":
        what = _question(fields)
    elif kind == "decision":
        decided = {"park": "parked", ASK_AGAIN: "asked for another question"}.get(
            str(fields.get("decision")), f"decided {fields.get('decision')}"
        )
        what = f"the {_decider(fields)} {decided}"
    else:
        outcome = {"commit": "committed", "abort": "aborted"}.get(
            str(fields.get("outcome")), "ended, nobody can say how"
        )
        what = f"{outcome}, by the {_decider(fields)}"
        decision = fields.get("decision")
        if decision is not None and decision != fields.get("outcome"):
            what += f", though {decision} was decided"
    return HistoryLine(time_ms, str(kind), what)


def _question(fields: Mapping[str, Any]) -> str:
    answer, name = fields.get("answer"), fields.get("resolver")
    said = f"{name} could not be asked: {fields.get('reason')}" if answer == "unreachable" else f"{name} said {answer}"
    latency_ms, checks = fields.get("latency_ms"), fields.get("checks")
    if isinstance(latency_ms, int):
        said += f", after {duration(max(1, latency_ms))}"
    if answer == "unknown" and isinstance(checks, int):
        said += f", {counted(checks, 'check')}"
    return said + (", too late to count" if fields.get("late") is True else "")


def _decider(fields: Mapping[str, Any]) -> str:
    words = {"exhausted": "setting for exhausted transactions"}
    return words.get(str(fields.get("who")), str(fields.get("who")))
