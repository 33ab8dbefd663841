"""The ends of a decided batch: a commit, or no end at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fencepost.check_back.decided import batch_of
from fencepost.check_back.finishing import end_all
from fencepost.spark.decisions import Batch, Decision
from fencepost.two_phase import Coordinator, HeuristicOutcome, Outcome, Refused, Superseded, Token

TOKENS = tuple(Token(number, 0, f"squares-3f9a1c02-{number}-{number}") for number in range(6))
DECISION = Decision("d1", Batch("q", 7), TOKENS, 60)
BATCH = batch_of("squares", DECISION.value())
TOPIC = "fencepost-sink-squares"


class Coordinators(Coordinator):
    """Coordinators that know the outcomes of tokens, and fail for some. asked: the ends that were wanted."""

    def __init__(self, known: dict[Token, Outcome], failures: dict[Token, Exception] | None = None) -> None:
        self.known = known
        self.failures = failures or {}
        self.asked: list[tuple[Token, bool]] = []

    def outcomes(self, tokens: Iterable[Token], *, timeout_s: float = 60) -> dict[Token, Outcome]:
        return {token: self.known.get(token, Outcome.UNKNOWN) for token in tokens}

    def complete(self, token: Token, *, commit: bool, timeout_s: float = 60, reason: str | None = None) -> None:
        self.asked.append((token, commit))
        if token in self.failures:
            raise self.failures[token]


def test_open_transactions_are_committed_and_each_outcome_is_counted() -> None:
    committed, aborted, unknown, *left = TOKENS
    known = {committed: Outcome.COMMITTED, aborted: Outcome.ABORTED, **dict.fromkeys(left, Outcome.PREPARED)}
    raced, replaced, fine = left
    coordinators = Coordinators(known, {raced: HeuristicOutcome("late"), replaced: Superseded("gone")})
    done = end_all(TOPIC, BATCH, coordinators)
    assert (done.committed, done.already, done.error) == (1, 1, None)
    assert done.lost == (str(aborted), str(raced))
    assert done.unknown == (str(unknown), str(replaced))
    assert sorted(coordinators.asked) == [(token, True) for token in left]
    assert fine in left


@pytest.mark.parametrize("error", [Refused("no right"), TimeoutError("no answer"), OSError("unreachable")])
def test_a_transaction_that_cannot_be_committed_now_stays_open_and_is_named(error: Exception) -> None:
    coordinators = Coordinators(dict.fromkeys(TOKENS, Outcome.PREPARED), {TOKENS[0]: error})
    done = end_all(TOPIC, BATCH, coordinators)
    assert (done.committed, done.lost) == (5, ())
    assert done.error == f"1 of its transactions are still open: {error}"


def test_a_cluster_that_does_not_answer_is_an_error_and_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinators = Coordinators({})

    def away(*_: Any, **__: Any) -> dict[Token, Outcome]:
        raise TimeoutError("no coordinator answers")

    monkeypatch.setattr(coordinators, "outcomes", away)
    assert end_all(TOPIC, BATCH, coordinators).error == "no coordinator answers"
    assert coordinators.asked == []
