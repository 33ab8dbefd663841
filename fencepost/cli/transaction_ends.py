"""Ends the open transaction of a transactional id in its producer's place: EndTxn, for the pair that wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from fencepost.cli.connection import admin_client, coordinator_options, kafka_errors, no_such
from fencepost.cli.output import Done
from fencepost.cli.transaction_doubts import record_decision

if TYPE_CHECKING:
    from fencepost.two_phase import Coordinator, Outcome, Token

TIMEOUT_S = 30.0


class PairType(click.ParamType):
    """`7:0`: a producer id and its epoch."""

    name = "PID:EPOCH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        producer_id, _, epoch = str(value).partition(":")
        if not (producer_id.isascii() and producer_id.isdecimal() and epoch.isascii() and epoch.isdecimal()):
            self.fail(f"{value!r} is not PID:EPOCH, such as 7:0, as `transactions describe` shows them", param, ctx)
        return int(producer_id), int(epoch)


def end_transaction(bootstrap: str, transactional_id: str, pair: tuple[int, int] | None, *, commit: bool) -> Done:
    """Commit or abort; return the result. pair: the producer that is meant, None for the described one.

    Raises ClickException: there is no such transaction, another pair has taken its place, or a later session keeps it.
    """
    with _coordinator(bootstrap) as coordinator:
        return _end(bootstrap, coordinator, transactional_id, pair, commit=commit)


def abort_if_open(bootstrap: str, transactional_id: str, pair: tuple[int, int]) -> None:
    """Abort the open transaction of a pair: a new session does not, if the id is guarded. One that is kept stays."""
    from fencepost.two_phase import HeuristicOutcome, Superseded, Token

    with _coordinator(bootstrap) as coordinator, suppress(HeuristicOutcome, Superseded, TimeoutError):
        coordinator.complete(Token(*pair, transactional_id), commit=False, timeout_s=TIMEOUT_S)


@contextmanager
def _coordinator(bootstrap: str) -> Iterator[Coordinator]:
    """Raises ClickException: no broker answers, or the brokers refuse."""
    with kafka_errors(bootstrap):
        from fencepost.two_phase import Coordinator, TwoPhaseError

        try:
            with Coordinator(bootstrap, **coordinator_options(bootstrap)) as coordinator:
                yield coordinator
        except TimeoutError as error:
            raise click.ClickException(f"{error}; repeat the command: it does the same once") from None
        except TwoPhaseError as error:
            raise click.ClickException(str(error)) from None


def _end(
    bootstrap: str,
    coordinator: Coordinator,
    transactional_id: str,
    pair: tuple[int, int] | None,
    *,
    commit: bool,
) -> Done:
    from fencepost.two_phase import Outcome, Token, TwoPhaseError

    described = coordinator.describe(transactional_id, timeout_s=TIMEOUT_S)
    if described is None:
        no_such("transactional id", transactional_id, "transactions")
    current = described.producer_id, described.producer_epoch
    token = Token(*(pair or current), transactional_id)
    wanted = Outcome.COMMITTED if commit else Outcome.ABORTED
    found = coordinator.outcome(token, timeout_s=TIMEOUT_S)
    if found is Outcome.UNKNOWN and current != token[:2]:
        raise click.ClickException(
            f"the pair of {transactional_id} is {current[0]}:{current[1]} now, not {token.producer_id}:"
            f"{token.producer_epoch}: a later session or transaction has taken its place. Nothing was ended"
        )
    if found is not Outcome.PREPARED:
        if pair is not None and found is wanted:
            return _done(f"the transaction of {token} was {wanted.value} before; nothing was left to do", token, wanted)
        raise click.ClickException(
            f"{transactional_id} has no open transaction; the last state of its coordinator is {described.state}"
        )
    with admin_client(bootstrap) as admin:
        record_decision(bootstrap, admin, token, described.start_ms, commit=commit)
    try:
        coordinator.complete(token, commit=commit, timeout_s=TIMEOUT_S)
    except TwoPhaseError as error:
        raise click.ClickException(_why_not(coordinator, token, error)) from None
    words = f"{wanted.value} the transaction of {transactional_id}, which {current[0]}:{current[1]} wrote"
    return _done(words, token, wanted)


def _done(words: str, token: Token, outcome: Outcome) -> Done:
    return Done(words, {**token._asdict(), "outcome": outcome.value})


def _why_not(coordinator: Coordinator, token: Token, error: Exception) -> str:
    from fencepost.two_phase import Outcome

    if coordinator.outcome(token, timeout_s=TIMEOUT_S) is Outcome.PREPARED:
        return (
            f"a later session of {token.transactional_id} keeps the transaction, and alone may end it. "
            f"Let it decide, or abort it with `fencepost transactions terminate {token.transactional_id}`"
        )
    return str(error)
