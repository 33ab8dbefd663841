"""Coordinators of transactions, over the wire: end a transaction by its token, ask for its outcome, list what is open.

They need EndTxn, FindCoordinator, DescribeTransactions and ListTransactions: any Kafka has these from 3.0 on. TLS and
SASL are those of kafka-python, whose options every constructor takes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar

from fencepost.two_phase.admin_client import connected_admin, own_words
from fencepost.two_phase.tokens import (
    Fenced,
    HeuristicOutcome,
    InDoubt,
    Outcome,
    Refused,
    Superseded,
    Token,
    TwoPhaseError,
)

T = TypeVar("T")

TWO_PHASE_TIMEOUT_MS = 2_147_483_647
PAUSE_S = 0.1
GUARD_TIMEOUT_MS = 10_000
FIRST_WITH_PAIR, LAST_WITHOUT_TWO_PHASE = 3, 5  # versions of InitProducerId
ONE_TAG_GUARD = b"\x01\x90\x4e\x01\x01"  # tag 10,000, of one byte: true
CONNECT_TIMEOUT_MS = 5_000
AT_ONCE = 50
"""How many calls use a connection at once; others wait for one of them to end."""
MOST_IN_FLIGHT = 1_000
"""kafka-python refuses a request, instead of queueing it, while more are in flight on its connection."""
# Longer than a broker lets a client wait whose passwords were wrong before: 5 s in Fencepost.
REASON_TIMEOUT_MS = 8_000

# Kafka's error codes.
COORDINATOR_LOADING, COORDINATOR_AWAY, NOT_COORDINATOR = 14, 15, 16
INVALID_EPOCH, INVALID_STATE, UNKNOWN_PAIR, CONCURRENT, PRODUCER_FENCED = 47, 48, 49, 51, 90
NO_RIGHT_TO_ID = 53
AGAIN = frozenset({COORDINATOR_LOADING, COORDINATOR_AWAY, NOT_COORDINATOR, CONCURRENT})
HERE_AGAIN = frozenset({COORDINATOR_LOADING, CONCURRENT})
NOT_CURRENT = frozenset({INVALID_EPOCH, UNKNOWN_PAIR, PRODUCER_FENCED})

DECIDED = {
    "PrepareCommit": Outcome.COMMITTED,
    "CompleteCommit": Outcome.COMMITTED,
    "PrepareAbort": Outcome.ABORTED,
    "CompleteAbort": Outcome.ABORTED,
}


class Description(NamedTuple):
    """A transactional id: the pair of its last transaction, and Kafka's name of its state, such as `Ongoing`.

    start_ms: when that transaction began, by its coordinator's clock, since 1970; -1 if there was none.
    """

    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int


class _Connection:
    """An admin client, and how many calls use it. A retired one gets no further calls; the last one closes it."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin
        self.calls = 0
        self.is_retired = False


class Coordinator:
    """The transaction coordinators of a cluster. Any number of threads may share it; it connects at the first use.

    options: of kafka-python's clients, such as `security_protocol`, `sasl_mechanism`, `ssl_cafile`.
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self._options = {
            "bootstrap_servers": bootstrap_servers.split(","),
            "client_id": "fencepost-two-phase",
            "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
            "max_in_flight_requests_per_connection": MOST_IN_FLIGHT,
            **options,
        }
        self._connecting = threading.Lock()
        self._lock = threading.Lock()  # of the connection and its count; never held while anything waits
        self._connection: _Connection | None = None
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, once no call of another thread uses them. A later use connects again."""
        self._retire(self._connection)

    def complete(self, token: Token, *, commit: bool, timeout_s: float = 60) -> None:
        """End the transaction of a token, and return when its outcome is certain. May be repeated.

        Raises HeuristicOutcome if it was ended the other way, Superseded if nobody can tell, Refused if the brokers do
        not let this client do it, TimeoutError if no coordinator answers in time: repeat it then, with the same
        outcome.
        """
        error = INVALID_STATE
        # In transaction version 2 an abort of a complete transaction is a new one, of nothing: ask before.
        if commit or self.outcome(token, timeout_s=timeout_s) in (Outcome.PREPARED, Outcome.UNKNOWN):
            error = self._until(timeout_s, lambda admin: _end(admin, token, commit=commit))
        if error == 0:
            return
        if error != INVALID_STATE and error not in NOT_CURRENT:
            if error == NO_RIGHT_TO_ID:
                raise _no_right(f"end {token}", token)
            raise TwoPhaseError(f"the coordinator refused to end {token}: {_name_of(error)}", token)
        wanted = Outcome.COMMITTED if commit else Outcome.ABORTED
        described = self._described(token.transactional_id, timeout_s)
        outcome = _outcome(described, token)
        if outcome is wanted or _had_no_records(described, token):
            return
        if outcome is Outcome.PREPARED:
            raise Superseded(
                f"{token} is open, and a newer session of its id has kept it, which alone can end it "
                f"({_name_of(error)}): end it there, or abort it with `fencepost transactions terminate "
                f"{token.transactional_id}`",
                token,
            )
        if outcome is Outcome.UNKNOWN and error != INVALID_STATE:
            if described is None:
                raise Superseded(
                    f"no transaction of {token} is known to these brokers ({_name_of(error)}): it is of another "
                    "cluster, or was forgotten; check the bootstrap servers, then compare both sides",
                    token,
                )
            raise Superseded(
                f"{token} is not the current transaction of its id ({_name_of(error)}), and its outcome is not known "
                "any more: compare both sides",
                token,
            )
        raise HeuristicOutcome(
            f"{token} should be {wanted.value}, but its coordinator has ended it the other way: compare both sides, "
            "and mend one",
            token,
        )

    def outcome(self, token: Token, *, timeout_s: float = 60) -> Outcome:
        """Ask what became of a token's transaction. Changes nothing. Raises TimeoutError.

        A producer that keeps its epoch over many transactions (version 1) has the same token for each: this is about
        the last one.
        """
        return _outcome(self._described(token.transactional_id, timeout_s), token)

    def describe(self, transactional_id: str, *, timeout_s: float = 60) -> Description | None:
        """What the coordinator says of an id; None if it does not know it. Raises TimeoutError."""
        found = self._described(transactional_id, timeout_s)
        if found is None:
            return None
        return Description(
            found.producer_id,
            found.producer_epoch,
            found.state.value,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
        )

    def guard(self, transactional_id: str, described: Description | None, *, timeout_s: float = 60) -> None:
        """Begin a session of an id that has no open transaction, under its current pair, which fences those before.

        From then on, a Fencepost lets no InitProducerId without the current pair abort an open transaction of the id.
        Other brokers do not know that part of the request. Apache Kafka compares the producer id alone while a
        transaction is open, and aborts it.
        described: what `describe` has returned.
        Raises Fenced if another session has begun since, Refused, TimeoutError.
        """
        pair = (described.producer_id, described.producer_epoch) if described else (-1, -1)
        error = self._until(timeout_s, lambda admin: _init_and_guard(admin, transactional_id, pair))
        if error in NOT_CURRENT:
            raise Fenced(f"another session of {transactional_id} has begun meanwhile: end this one")
        if error == NO_RIGHT_TO_ID:
            raise no_right_to_init(transactional_id)
        if error:
            raise TwoPhaseError(f"the coordinator refused to begin a session of {transactional_id}: {_name_of(error)}")

    def in_doubt(self, pattern: str = ".*", *, including: Iterable[str] = (), timeout_s: float = 60) -> list[InDoubt]:
        """List the open transactions whose id matches a regular expression, oldest first. Raises TimeoutError.

        Brokers are asked one after the other. If a coordinator moves from one to another meanwhile, its transactions
        may be missing.
        including: transactional ids whose open transactions are never missing.
        """
        matches = re.compile(pattern).fullmatch
        found = self._until(timeout_s, lambda admin: admin.list_transactions(state_filters=["Ongoing"]))
        listed = (listing.transactional_id for listings in found.values() for listing in listings)
        names = sorted({*filter(matches, listed), *including})
        now_ms = time.time() * 1000
        in_doubt = [
            _in_doubt(name, described, now_ms)
            for name, described in self._all_described(names, timeout_s).items()
            if described is not None and described.state.value == "Ongoing"
        ]
        return sorted(in_doubt, key=lambda found: -found.age_ms)

    def _all_described(self, names: list[str], timeout_s: float) -> dict[str, Any]:
        """Describe transactional ids, with one request for each coordinator; None for those that it does not know."""

        def describe(admin: Any) -> Any:
            from kafka.errors import TransactionalIdNotFoundError

            try:
                return admin.describe_transactions(names) if names else {}
            except TransactionalIdNotFoundError:  # it does not say which
                return None

        found = self._until(timeout_s, describe)
        return {name: self._described(name, timeout_s) for name in names} if found is None else dict(found)

    def _described(self, transactional_id: str, timeout_s: float) -> Any:
        """Describe a transactional id; None if the coordinator does not know it."""

        def describe(admin: Any) -> Any:
            from kafka.errors import TransactionalIdNotFoundError

            try:
                return admin.describe_transactions([transactional_id])[transactional_id]
            except TransactionalIdNotFoundError:
                return None

        return self._until(timeout_s, describe)

    def _until(self, timeout_s: float, ask: Callable[[Any], T]) -> T:
        """Ask until a coordinator answers. Raises TimeoutError."""
        from kafka.errors import BrokerResponseError, KafkaError

        give_up_at_s = time.monotonic() + timeout_s
        reason = "all connections are in use"
        while True:
            errno: int | None = None
            connection = None
            try:
                with self._turn(give_up_at_s), self._connected(give_up_at_s) as connection:
                    answer = ask(connection.admin)
                if not isinstance(answer, int) or answer not in AGAIN:
                    return answer
                errno, reason = answer, _name_of(answer)
            except _NoTurnError:
                raise TimeoutError(f"no coordinator answered within {timeout_s:g} s: {reason}") from None
            except BrokerResponseError as error:
                if error.errno == NO_RIGHT_TO_ID:
                    raise _no_right("see that transactional id", None) from error
                if error.errno not in AGAIN:
                    raise
                errno, reason = error.errno, _name_of(error.errno)
            except KafkaError as error:  # no connection
                reason = own_words(error) or type(error).__name__
            if errno not in HERE_AGAIN:
                # Connected anew: the coordinator may have moved, and the client keeps where it was.
                self._retire(connection)
            if time.monotonic() + PAUSE_S > give_up_at_s:
                raise TimeoutError(f"no coordinator answered within {timeout_s:g} s: {reason}")
            time.sleep(PAUSE_S)

    @contextmanager
    def _turn(self, give_up_at_s: float) -> Iterator[None]:
        """One of the calls that run at once. Raises _NoTurnError."""
        if not self._turns.acquire(timeout=max(0, give_up_at_s - time.monotonic())):
            raise _NoTurnError
        try:
            yield
        finally:
            self._turns.release()

    @contextmanager
    def _connected(self, give_up_at_s: float) -> Iterator[_Connection]:
        """The connection, which is open until the block ends. Raises Refused, KafkaError, _NoTurnError."""
        connection = self._borrow()
        if connection is None:
            if not self._connecting.acquire(timeout=max(0, give_up_at_s - time.monotonic())):
                raise _NoTurnError
            try:
                connection = self._borrow() or self._connect(give_up_at_s)
            finally:
                self._connecting.release()
        try:
            yield connection
        finally:
            with self._lock:
                connection.calls -= 1
                is_last = connection.is_retired and not connection.calls
            if is_last:
                connection.admin.close()

    def _borrow(self) -> _Connection | None:
        with self._lock:
            if self._connection is not None:
                self._connection.calls += 1
            return self._connection

    def _connect(self, give_up_at_s: float) -> _Connection:
        left_ms = max(1, round((give_up_at_s - time.monotonic()) * 1000))
        limit_ms = min(left_ms, self._options["bootstrap_timeout_ms"])
        options = {**self._options, "bootstrap_timeout_ms": limit_ms}
        connection = _Connection(connected_admin(options, min(left_ms, REASON_TIMEOUT_MS)))
        connection.calls = 1
        with self._lock:
            self._connection = connection
        return connection

    def _retire(self, connection: _Connection | None) -> None:
        """Let no further call use a connection: calls that use it end first, for a close would fail them."""
        if connection is None:
            return
        with self._lock:
            if connection.is_retired:
                return
            connection.is_retired = True
            if self._connection is connection:
                self._connection = None
            is_unused = not connection.calls
        if is_unused:
            connection.admin.close()


class _NoTurnError(Exception):
    """Other threads' calls took all the time of this one."""


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

    async def complete(self, token: Token, *, commit: bool, timeout_s: float = 60) -> None:
        await _on_a_thread(self._coordinator.complete, token, commit=commit, timeout_s=timeout_s)

    async def outcome(self, token: Token, *, timeout_s: float = 60) -> Outcome:
        return await _on_a_thread(self._coordinator.outcome, token, timeout_s=timeout_s)

    async def describe(self, transactional_id: str, *, timeout_s: float = 60) -> Description | None:
        return await _on_a_thread(self._coordinator.describe, transactional_id, timeout_s=timeout_s)

    async def guard(self, transactional_id: str, described: Description | None, *, timeout_s: float = 60) -> None:
        await _on_a_thread(self._coordinator.guard, transactional_id, described, timeout_s=timeout_s)

    async def in_doubt(
        self, pattern: str = ".*", *, including: Iterable[str] = (), timeout_s: float = 60
    ) -> list[InDoubt]:
        return await _on_a_thread(self._coordinator.in_doubt, pattern, including=including, timeout_s=timeout_s)


async def _on_a_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    import asyncio  # who does not use it, does not import it

    return await asyncio.to_thread(function, *arguments, **options)


def _no_right(what: str, token: Token | None) -> Refused:
    return Refused(
        f"the brokers do not let this client {what}: allow it DESCRIBE and WRITE on the transactional id "
        f"({_name_of(NO_RIGHT_TO_ID)})",
        token,
    )


def _end(admin: Any, token: Token, *, commit: bool) -> int:
    """Send EndTxn to the coordinator of a token; returns the error code."""
    return int(admin._manager.run(_end_on_the_loop, admin, token, commit))  # noqa: SLF001  # it has no public way


async def _end_on_the_loop(admin: Any, token: Token, commit: bool) -> int:
    from kafka.protocol.metadata import CoordinatorType
    from kafka.protocol.producer.transaction import EndTxnRequest

    node_id = await admin._find_coordinator_id(  # noqa: SLF001
        token.transactional_id, key_type=CoordinatorType.TRANSACTION
    )
    request = EndTxnRequest(
        transactional_id=token.transactional_id,
        producer_id=token.producer_id,
        producer_epoch=token.producer_epoch,
        committed=commit,
    )
    response = await admin._manager.send(request, node_id=node_id)  # noqa: SLF001
    return int(response.error_code)


def _init_and_guard(admin: Any, transactional_id: str, pair: tuple[int, int]) -> int:
    """Send InitProducerId with the pair that the id has, and Fencepost's field `guard`; returns the error code."""
    return int(admin._manager.run(_init_on_the_loop, admin, transactional_id, pair))  # noqa: SLF001  # as above


async def _init_on_the_loop(admin: Any, transactional_id: str, pair: tuple[int, int]) -> int:
    from kafka.protocol.metadata import CoordinatorType

    node_id = await admin._find_coordinator_id(  # noqa: SLF001
        transactional_id, key_type=CoordinatorType.TRANSACTION
    )
    request = _guarding_request()(
        transactional_id=transactional_id,
        transaction_timeout_ms=GUARD_TIMEOUT_MS,  # until the client's own InitProducerId
        producer_id=pair[0],
        producer_epoch=pair[1],
        min_version=FIRST_WITH_PAIR,
        max_version=LAST_WITHOUT_TWO_PHASE,
    )
    response = await admin._manager.send(request, node_id=node_id)  # noqa: SLF001
    return int(response.error_code)


@cache
def _guarding_request() -> Any:
    """kafka-python's InitProducerIdRequest with the field `guard`: it has no way to send a tagged field of others."""
    from kafka.protocol.producer.transaction import InitProducerIdRequest

    def encode(self: Any, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        plain = bytes(InitProducerIdRequest.encode(self, version, header=header))
        guarded = plain.removesuffix(b"\0") + ONE_TAG_GUARD
        return len(guarded).to_bytes(4) + guarded if framed else guarded

    return type(InitProducerIdRequest)("InitProducerIdRequest", (InitProducerIdRequest,), {"encode": encode})


def no_right_to_init(transactional_id: str) -> Refused:
    return Refused(
        f"the brokers do not let this client write as {transactional_id}: allow it WRITE on the transactional id, and "
        "TWO_PHASE_COMMIT where the id is two-phase"
    )


def _outcome(described: Any, token: Token) -> Outcome:
    """What a description says of a token: it must name the token's pair, or the pair after it, of version 2."""
    if described is None or described.producer_id != token.producer_id:
        return Outcome.UNKNOWN
    state = described.state.value
    if described.producer_epoch == token.producer_epoch and state == "Ongoing":
        return Outcome.PREPARED
    if described.producer_epoch in (token.producer_epoch, token.producer_epoch + 1):
        return DECIDED.get(state, Outcome.UNKNOWN)
    return Outcome.UNKNOWN


def _had_no_records(described: Any, token: Token) -> bool:
    """Whether the token's session has written nothing at all: then there is nothing to commit or abort."""
    return (
        described is not None
        and described.state.value == "Empty"
        and (described.producer_id, described.producer_epoch) == token[:2]
    )


def _in_doubt(transactional_id: str, described: Any, now_ms: float) -> InDoubt:
    return InDoubt(
        Token(described.producer_id, described.producer_epoch, transactional_id),
        tuple(f"{partition.topic}-{partition.partition}" for partition in sorted(described.topic_partitions)),
        max(0, round(now_ms - described.transaction_start_time_ms)),
        described.transaction_timeout_ms == TWO_PHASE_TIMEOUT_MS,
        described.transaction_start_time_ms,
    )


def _name_of(error: int) -> str:
    from kafka.errors import for_code

    return f"{for_code(error).message} ({error})"
