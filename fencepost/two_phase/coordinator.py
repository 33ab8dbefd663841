"""Coordinators of transactions, over the wire: end a transaction by its token, ask for its outcome, list open ones.

They need EndTxn, FindCoordinator, DescribeTransactions and ListTransactions: any Kafka has these from 3.0 on. Every
constructor takes the options of kafka-python's clients for TLS and SASL. Our own client is imported by the constructor.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self, TypeVar

from fencepost.two_phase.tokens import (
    NO_RIGHT_TO_ID,
    Fenced,
    HeuristicOutcome,
    InDoubt,
    Outcome,
    Superseded,
    Token,
    TwoPhaseError,
    name_of,
    no_right,
    no_right_to_init,
)

T = TypeVar("T")

TWO_PHASE_TIMEOUT_MS = 2_147_483_647
ANSWER_TIMEOUT_MS = 30_000

# Kafka's error codes.
INVALID_EPOCH, INVALID_STATE, UNKNOWN_PAIR, PRODUCER_FENCED = 47, 48, 49, 90
NOT_CURRENT = frozenset({INVALID_EPOCH, UNKNOWN_PAIR, PRODUCER_FENCED})

DECIDED = {
    "PrepareCommit": Outcome.COMMITTED,
    "CompleteCommit": Outcome.COMMITTED,
    "PrepareAbort": Outcome.ABORTED,
    "CompleteAbort": Outcome.ABORTED,
}


class Description(NamedTuple):
    """A transactional id: the pair of its last transaction, and Kafka's name of its state, such as `Ongoing`.

    start_ms: start of that transaction, by its coordinator's clock, since 1970; -1 if there was none.
    """

    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int


class Coordinator:
    """The transaction coordinators of a cluster. Any number of threads may share it; it connects at the first use.

    options: settings of kafka-python's clients, such as `security_protocol`, `sasl_mechanism`, `ssl_cafile`. Raises
             MisuseError.
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        from fencepost.two_phase.connections import Connections

        own = {"client_id": "fencepost-two-phase", "request_timeout_ms": ANSWER_TIMEOUT_MS}
        self._connections = Connections(bootstrap_servers, {**own, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, once no call of another thread uses them. A later use connects again."""
        self._connections.close()

    def complete(self, token: Token, *, commit: bool, timeout_s: float = 60, reason: str | None = None) -> None:
        """End the transaction of a token, and return when its outcome is certain. May be repeated.

        reason: text of a person who decides it, for the audit log of a Fencepost.
        Raises HeuristicOutcome if it was ended the other way, Superseded if nobody can tell, Refused if the brokers do
        not let this client do it, TimeoutError if no coordinator answers in time: repeat it then, with the same
        outcome.
        """
        error = INVALID_STATE
        give_up_at_s = time.monotonic() + timeout_s
        # In transaction version 2 an abort of a complete transaction is a new one, of nothing: ask before.
        if commit or self.outcome(token, timeout_s=timeout_s) in (Outcome.PREPARED, Outcome.UNKNOWN):
            left_s = give_up_at_s - time.monotonic()
            error = self._connections.until(left_s, lambda client: client.end(token, commit=commit, reason=reason))
        if error == 0:
            return
        if error != INVALID_STATE and error not in NOT_CURRENT:
            if error == NO_RIGHT_TO_ID:
                raise no_right(f"end {token}", token)
            raise TwoPhaseError(f"the coordinator refused to end {token}: {name_of(error)}", token)
        wanted = Outcome.COMMITTED if commit else Outcome.ABORTED
        described = self._described(token.transactional_id, give_up_at_s - time.monotonic())
        outcome = _outcome(described, token)
        if outcome is wanted or _had_no_records(described, token):
            return
        if outcome is Outcome.PREPARED:
            raise Superseded(
                f"{token} is open, and a newer session of its id has kept it, which alone can end it "
                f"({name_of(error)}): end it there, or abort it with `fencepost transactions terminate "
                f"{token.transactional_id}`",
                token,
            )
        if outcome is Outcome.UNKNOWN and error != INVALID_STATE:
            if described is None:
                raise Superseded(
                    f"no transaction of {token} is known to these brokers ({name_of(error)}): it is of another "
                    "cluster, or was forgotten; check the bootstrap servers, then compare both sides",
                    token,
                )
            raise Superseded(
                f"{token} is not the current transaction of its id ({name_of(error)}), and its outcome is not known "
                "any more: compare both sides",
                token,
            )
        raise HeuristicOutcome(
            f"{token} should be {wanted.value}, but its coordinator has ended it the other way: compare both sides, "
            "and mend one",
            token,
        )

    def outcome(self, token: Token, *, timeout_s: float = 60) -> Outcome:
        """Ask for the outcome of a token's transaction. Changes nothing. Raises TimeoutError.

        A producer that keeps its epoch over many transactions (version 1) has the same token for each: this is about
        the last one.
        """
        return _outcome(self._described(token.transactional_id, timeout_s), token)

    def outcomes(self, tokens: Iterable[Token], *, timeout_s: float = 60) -> dict[Token, Outcome]:
        """Ask for the outcomes of many tokens, as `outcome` does for one. Raises TimeoutError."""
        asked = tuple(tokens)
        names = {token.transactional_id for token in asked}
        found = self._connections.until(timeout_s, lambda client: client.described(names)) if names else {}
        return {token: _outcome(found.get(token.transactional_id), token) for token in asked}

    def describe(self, transactional_id: str, *, timeout_s: float = 60) -> Description | None:
        """Describe a transactional id; None if the coordinator does not know it. Raises TimeoutError."""
        found = self._described(transactional_id, timeout_s)
        if found is None:
            return None
        return Description(
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
        )

    def guard(self, transactional_id: str, described: Description | None, *, timeout_s: float = 60) -> tuple[int, int]:
        """Begin a session of an id that has no open transaction, under its current pair, which fences those before.

        From then on, a Fencepost lets no InitProducerId without the current pair abort an open transaction of the id.
        Other brokers do not know that part of the request. Apache Kafka compares the producer id alone while a
        transaction is open, and aborts it.
        described: the result of `describe`.
        Returns the pair of that session. Raises Fenced if another one has begun since, Refused, TimeoutError.
        """
        pair = (described.producer_id, described.producer_epoch) if described else (-1, -1)
        error, begun = self._connections.until(timeout_s, lambda client: client.init_and_guard(transactional_id, pair))
        if error in NOT_CURRENT:
            raise Fenced(f"another session of {transactional_id} has begun meanwhile: end this one")
        if error == NO_RIGHT_TO_ID:
            raise no_right_to_init(transactional_id)
        if error:
            raise TwoPhaseError(f"the coordinator refused to begin a session of {transactional_id}: {name_of(error)}")
        return begun

    def fence(self, transactional_id: str, timeout_ms: int, reason: str, *, timeout_s: float = 60) -> None:
        """Abort the open transaction of an id, guarded or kept, and fence its producer, as an administrator.

        Raises Refused, TimeoutError, TwoPhaseError.
        """
        error = self._connections.until(timeout_s, lambda client: client.fence(transactional_id, timeout_ms, reason))
        if error == NO_RIGHT_TO_ID:
            raise no_right_to_init(transactional_id)
        if error:
            raise TwoPhaseError(f"the coordinator refused to fence {transactional_id}: {name_of(error)}")

    def in_doubt(self, pattern: str = ".*", *, including: Iterable[str] = (), timeout_s: float = 60) -> list[InDoubt]:
        """List the open transactions whose id matches a regular expression, oldest first. Raises TimeoutError.

        Brokers are asked one after the other. If a coordinator moves from one to another meanwhile, its transactions
        may be missing.
        including: transactional ids whose open transactions are never missing.
        """
        matches = re.compile(pattern).fullmatch
        listed = self._connections.until(timeout_s, lambda client: client.open_ids())
        names = sorted({*filter(matches, listed), *including})
        now_ms = time.time() * 1000
        found = self._connections.until(timeout_s, lambda client: client.described(names))
        in_doubt = [_in_doubt(one, now_ms) for one in found.values() if one.transaction_state == "Ongoing"]
        return sorted(in_doubt, key=lambda found: -found.age_ms)

    def _described(self, transactional_id: str, timeout_s: float) -> Any:
        """Describe a transactional id; None if the coordinator does not know it."""
        found = self._connections.until(timeout_s, lambda client: client.described([transactional_id]))
        return found.get(transactional_id)


class AsyncCoordinator:
    """As `Coordinator`, for asyncio: its calls wait on a thread."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self._coordinator = Coordinator(bootstrap_servers, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await _on_a_thread(self._coordinator.close)

    async def complete(self, token: Token, *, commit: bool, timeout_s: float = 60, reason: str | None = None) -> None:
        await _on_a_thread(self._coordinator.complete, token, commit=commit, timeout_s=timeout_s, reason=reason)

    async def outcome(self, token: Token, *, timeout_s: float = 60) -> Outcome:
        return await _on_a_thread(self._coordinator.outcome, token, timeout_s=timeout_s)

    async def describe(self, transactional_id: str, *, timeout_s: float = 60) -> Description | None:
        return await _on_a_thread(self._coordinator.describe, transactional_id, timeout_s=timeout_s)

    async def guard(
        self, transactional_id: str, described: Description | None, *, timeout_s: float = 60
    ) -> tuple[int, int]:
        return await _on_a_thread(self._coordinator.guard, transactional_id, described, timeout_s=timeout_s)

    async def in_doubt(
        self, pattern: str = ".*", *, including: Iterable[str] = (), timeout_s: float = 60
    ) -> list[InDoubt]:
        return await _on_a_thread(self._coordinator.in_doubt, pattern, including=including, timeout_s=timeout_s)


async def _on_a_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    import asyncio  # who does not use it, does not import it

    return await asyncio.to_thread(function, *arguments, **options)


def _outcome(described: Any, token: Token) -> Outcome:
    """The outcome of a token by a description: it must name the token's pair, or the pair after it, of version 2."""
    if described is None or described.producer_id != token.producer_id:
        return Outcome.UNKNOWN
    state = described.transaction_state
    if described.producer_epoch == token.producer_epoch and state == "Ongoing":
        return Outcome.PREPARED
    if described.producer_epoch in (token.producer_epoch, token.producer_epoch + 1):
        return DECIDED.get(state, Outcome.UNKNOWN)
    return Outcome.UNKNOWN


def _had_no_records(described: Any, token: Token) -> bool:
    """Whether the token's session has written nothing at all: then there is nothing to commit or abort."""
    return (
        described is not None
        and described.transaction_state == "Empty"
        and (described.producer_id, described.producer_epoch) == token[:2]
    )


def _in_doubt(described: Any, now_ms: float) -> InDoubt:
    partitions = sorted((one.topic, partition) for one in described.topics for partition in one.partitions)
    return InDoubt(
        Token(described.producer_id, described.producer_epoch, described.transactional_id),
        tuple(f"{topic}-{partition}" for topic, partition in partitions),
        max(0, round(now_ms - described.transaction_start_time_ms)),
        described.transaction_timeout_ms == TWO_PHASE_TIMEOUT_MS,
        described.transaction_start_time_ms,
        described.transaction_timeout_ms,
    )
