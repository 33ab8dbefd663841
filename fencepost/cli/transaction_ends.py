"""Ends the open transaction of a transactional id in its producer's place: EndTxn, for the pair that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from fencepost.cli.connection import admin_client, coordinator_options, kafka_errors, no_such
from fencepost.cli.output import Done
from fencepost.cli.questions import HELP, YES, answer_to, ask
from fencepost.cli.sending import brokers
from fencepost.cli.transaction_doubts import record_decision

if TYPE_CHECKING:
    from fencepost.two_phase import Coordinator, Outcome, Token

TIMEOUT_S = 30.0
Command: TypeAlias = Callable[..., Any]


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


def ends(question: str) -> Callable[[Command], Command]:
    """Options of a command that decides a transaction in its producer's place: its confirmation, and its reason."""

    def confirm(context: click.Context, _parameter: click.Parameter, is_confirmed: bool) -> None:
        if not is_confirmed and not context.resilient_parsing:
            ask(question)
            if context.params.get("reason") is None:
                context.params["reason"] = answer_to("Reason, for the audit log")

    def decorate(command: Command) -> Command:
        yes = click.option(*YES, is_flag=True, expose_value=False, callback=confirm, help=HELP)
        reason = click.option("--reason", is_eager=True, help="Why, for the broker's audit log.")
        return reason(yes(command))

    return decorate


def end_transaction(
    bootstrap: str, transactional_id: str, pair: tuple[int, int] | None, reason: str | None, *, commit: bool
) -> Done:
    """Commit or abort; return the result. pair: the producer that is meant, None for the described one.

    Raises ClickException: there is no such transaction, another pair has taken its place, or a later session keeps it.
    """
    with _coordinator(bootstrap) as coordinator:
        return _end(bootstrap, coordinator, transactional_id, pair, reason or "", commit=commit)


def fence(bootstrap: str, transactional_id: str, timeout_ms: int, pair: tuple[int, int], reason: str | None) -> None:
    """Abort the open transaction of an id, and fence its producer, also if it is guarded or kept.

    By its pair first: other brokers than Fencepost, and earlier ones, know no forced session.
    """
    from fencepost.two_phase import HeuristicOutcome, Superseded, Token

    with _coordinator(bootstrap) as coordinator:
        with suppress(HeuristicOutcome, Superseded, TimeoutError):
            token = Token(*pair, transactional_id)
            coordinator.complete(token, commit=False, timeout_s=TIMEOUT_S, reason=reason or "")
        coordinator.fence(transactional_id, timeout_ms, reason or "", timeout_s=TIMEOUT_S)


def abort_on_partition(bootstrap: str, topic: str, partition: int, producer: Any, reason: str | None) -> None:
    """Write an abort marker for a producer, an entry of DescribeProducers, at the partition's leader."""
    from fencepost.client.errors import ClusterError, check
    from fencepost.client.plans import Address
    from fencepost.client.view import metadata_request, view_of
    from fencepost.protocol.messages.markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        # A producer whose partition has no marker yet has coordinator epoch -1; every coordinator's is 0 or more.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    with brokers(bootstrap) as cluster:
        view = view_of(cluster.send(metadata_request([topic])))
        leader = view.nodes.get(view.topics[topic].partitions[partition].leader)
        if leader is None:
            raise ClusterError(f"{topic}-{partition} has no leader now")
        request = WriteTxnMarkersRequest([marker], reason or "")
        reply = cluster.send(request, Address(leader.host, leader.port))
        codes = [one.error_code for result in reply.markers for found in result.topics for one in found.partitions]
        if not codes:
            raise ClusterError("the broker's answer says nothing of the marker")
        check(codes[0])


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
    reason: str,
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
        coordinator.complete(token, commit=commit, timeout_s=TIMEOUT_S, reason=reason)
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
