"""Transactions in doubt: open, without a time-out or with a source that is asked; and the next step of each."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.diagnosis.stuck import ONGOING, CoordinatorView
from fencepost.diagnosis.words import duration


@dataclass(frozen=True)
class Check:
    """The state of a transaction in a check-back. Times in ms since 1970.

    resolver: the name of the source that is asked. resolver_error: its present error.
    next_ms: time of the next question; None while one is in flight, and if none will be asked.
    checks: answers `unknown`. checks_max: their number at which it is parked, or decided; None if that is unknown.
    decided: the decision and its author, in words. is_wanted: an administrator wants the source asked at once.
    """

    resolver: str
    resolver_error: str | None = None
    next_ms: int | None = None
    checks: int = 0
    checks_max: int | None = None
    last_answer: str | None = None
    decided: str | None = None
    is_parked: bool = False
    is_wanted: bool = False


@dataclass(frozen=True)
class Doubt:
    """A transaction in doubt; resolver and the like are those of its Check, if it has one. next_words: the next
    step.
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
    next_ms: int | None
    is_parked: bool
    can_be_asked: bool


def doubt_of(view: CoordinatorView, check: Check | None, now_ms: int) -> Doubt | None:
    """Return the doubt about a transaction; None if there is none: it is decided, or its time-out ends it."""
    if view.state != ONGOING or view.started_ms < 0 or not (view.is_two_phase or check is not None):
        return None
    return Doubt(
        view.transactional_id,
        f"{view.producer_id}:{view.producer_epoch}:{view.transactional_id}",
        view.started_ms,
        max(0, now_ms - view.started_ms),
        tuple(view.partitions),
        view.is_two_phase,
        None if check is None else check.resolver,
        None if check is None else check.resolver_error,
        0 if check is None else check.checks,
        None if check is None else check.checks_max,
        None if check is None else check.last_answer,
        _next(check, now_ms),
        None if check is None else check.next_ms,
        check is not None and check.is_parked,
        check is not None and check.decided is None,
    )


def _next(check: Check | None, now_ms: int) -> str:
    if check is None:
        return "no source is asked: its client decides, or an administrator"
    if check.is_wanted:
        return "the source is asked at once"
    if check.decided is not None:
        return f"decided by the {check.decided}; it is being ended"
    if check.is_parked:
        return "parked: an administrator decides"
    if check.next_ms is None:
        return "a question is on its way"
    if check.next_ms > now_ms:
        return f"the next question in {duration(check.next_ms - now_ms)}"
    return "the next question is due"
