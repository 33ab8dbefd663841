"""The facts about transactions in doubt, from a check-back's journal, and its audit in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fencepost.check_back.case import CaseKey, State
from fencepost.check_back.records import ASK_AGAIN, Journal, resolver_of
from fencepost.diagnosis.in_doubt import Check, Doubt, doubt_of
from fencepost.diagnosis.stuck import CoordinatorView
from fencepost.diagnosis.words import counted, duration
from fencepost.protocol.checked_json import LATEST_MS, Fields, JsonError, parse_object
from fencepost.two_phase.tokens import Token


@dataclass(frozen=True)
class HistoryLine:
    """A record of the audit topic. what: a sentence; kind: `question`, `decision` or `end`."""

    time_ms: int
    kind: str
    what: str
    after_ms: int | None = None


def doubts(views: Iterable[CoordinatorView], journal: Journal, now_ms: int) -> list[Doubt]:
    """Those of some transactions that are in doubt, oldest first."""
    found = (doubt_of(view, _check(view, journal), now_ms) for view in views)
    return sorted((one for one in found if one is not None), key=lambda one: (one.started_ms, one.transactional_id))


def token_of(view: CoordinatorView) -> Token:
    return Token(view.producer_id, view.producer_epoch, view.transactional_id)


def _check(view: CoordinatorView, journal: Journal) -> Check | None:
    case = journal.cases.get(CaseKey(token_of(view), view.started_ms))
    name = case.resolver if case is not None else resolver_of(journal, view.transactional_id)
    if name is None:
        return None
    note = journal.resolvers.get(name)
    check = Check(
        name,
        None if note is None or note.up else note.reason or "no reason given",
        checks_max=None if note is None else note.checks_max,
        is_wanted=any(
            one.command == ASK_AGAIN and one.transactional_id == view.transactional_id for one in journal.commands
        ),
    )
    if case is None:
        return check if note is None else replace(check, next_ms=view.started_ms + note.first_ms)
    decision = case.decision
    is_waiting = case.state is State.WAITING and not case.is_parked and decision is None
    return replace(
        check,
        next_ms=case.next_ms if is_waiting else None,
        checks=case.checks,
        last_answer=None if case.last_answer is None else case.last_answer.value,
        decided=None if decision is None else f"{decision.by.value}: {decision.outcome.value}",
        is_parked=case.is_parked,
    )


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
