"""Connections to transaction coordinators for any number of threads, their requests, and refusals with the remedy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from fencepost.client.blocking import BlockingCluster
from fencepost.client.errors import (
    ClusterError,
    LogInNeededError,
    LogInRefusedError,
    NotServedError,
    RefusedError,
    TlsError,
    check,
)
from fencepost.client.options import addresses_of, check_options, options_of
from fencepost.client.plans import RETRIED, Address, Ask, Plan
from fencepost.client.view import CoordinatorKind, metadata_request, view_of
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from fencepost.two_phase.tokens import (
    NO_RIGHT_TO_ID,
    MisuseError,
    Refused,
    Token,
    TwoPhaseError,
    name_of,
    no_right,
)

T = TypeVar("T")

PAUSE_S = 0.1
GUARD_TIMEOUT_MS = 10_000
"""Until the client's own InitProducerId."""
ID_NOT_FOUND = 105
AT_ONCE = 16
"""How many calls run at once, each with connections of its own; others wait for one of them to end."""

# OpenSSL's names of a handshake that the other side will never accept, each with the remedy.
TLS_REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": "the broker's certificate is not trusted: check ssl_cafile",
    "ALERT_CERTIFICATE_REQUIRED": "the broker wants a certificate of this client: give ssl_certfile and ssl_keyfile",
    "ALERT_UNKNOWN_CA": "the broker does not trust this client's certificate: check ssl_certfile",
    "ALERT_BAD_CERTIFICATE": "the broker refuses this client's certificate, or wants one: check ssl_certfile",
}


class Client(BlockingCluster):
    """Requests to transaction coordinators. Each is sent once, and raises RefusedError even if the error passes."""

    def end(self, token: Token, *, commit: bool, reason: str | None = None) -> int:
        """Send EndTxn to the coordinator of a token; returns the error code. reason: for a Fencepost's audit log."""
        request = EndTxnRequest(token.transactional_id, token.producer_id, token.producer_epoch, commit, reason)
        return self._error_of(token.transactional_id, request)

    def init_and_guard(self, transactional_id: str, pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        """Send InitProducerId with the pair that the id has, and Fencepost's field `guard`; returns the error code, and
        the pair that the id has now."""
        request = InitProducerIdRequest(transactional_id, GUARD_TIMEOUT_MS, *pair, guard=True)
        reply = self._reply_to(transactional_id, request)
        return int(reply.error_code), (reply.producer_id, reply.producer_epoch)

    def fence(self, transactional_id: str, timeout_ms: int, reason: str) -> int:
        """Send InitProducerId as an administrator, whom no guard stops; returns the error code."""
        request = InitProducerIdRequest(transactional_id, timeout_ms, forced=True, reason=reason)
        return self._error_of(transactional_id, request)

    def described(self, names: Collection[str]) -> dict[str, Any]:
        """Describe transactional ids, with a request for each coordinator; without those that it does not know."""
        described: dict[str, Any] = self.run(self._describing(names), 0)
        return described

    def open_ids(self) -> set[str]:
        """The ids of open transactions, of all brokers."""
        found = set()
        for node in view_of(self.send(metadata_request(()))).nodes.values():
            reply = self.send(ListTransactionsRequest(["Ongoing"]), Address(node.host, node.port))
            check(reply.error_code)
            found |= {one.transactional_id for one in reply.transaction_states}
        return found

    def _error_of(self, transactional_id: str, request: Any) -> int:
        return int(self._reply_to(transactional_id, request).error_code)

    def _reply_to(self, transactional_id: str, request: Any) -> Any:
        kind = CoordinatorKind.TRANSACTION
        plan = self.routes.to_coordinator(kind, transactional_id, request, lambda reply: int(reply.error_code))
        return self.run(plan, 0)

    def _describing(self, names: Collection[str]) -> Plan:
        coordinators = yield from self.routes.coordinators(CoordinatorKind.TRANSACTION, names)
        found = {}
        for address in dict.fromkeys(coordinators.values()):
            ids = [name for name, its_address in coordinators.items() if its_address == address]
            reply = yield Ask(DescribeTransactionsRequest(ids), address)
            for one in reply.transaction_states:
                if one.error_code == ID_NOT_FOUND:
                    continue
                if one.error_code:
                    self.routes.forget(address)
                    check(one.error_code)
                found[one.transactional_id] = one
        return found


class Connections:
    """Clients of one cluster, each for one call at a time. options: by kafka-python's names. Raises MisuseError."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, Any]) -> None:
        try:
            check_options(options)
            self._bootstrap = addresses_of(bootstrap_servers)
        except ValueError as error:
            raise MisuseError(str(error)) from None
        self._options = options
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()  # never held while anything waits
        self._idle: list[Client] = []
        self._closes = 0

    def close(self) -> None:
        """Close the connections, those of other threads' calls once these end. A later use connects again."""
        with self._lock:
            self._closes += 1
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()

    def until(self, timeout_s: float, ask: Callable[[Client], T]) -> T:
        """Ask until a coordinator answers. Raises TimeoutError, Refused, TwoPhaseError."""
        give_up_at_s = time.monotonic() + timeout_s
        reason = "all connections are in use"
        while True:
            try:
                with self.borrowed(give_up_at_s) as client:
                    return ask(client)
            except TimeoutError:
                pass  # others' calls took the time of this one
            except RefusedError as error:
                if error.code == NO_RIGHT_TO_ID:
                    raise no_right("see that transactional id", None) from error
                reason = name_of(error.code)
                if error.code not in RETRIED:
                    raise TwoPhaseError(f"a coordinator refused: {reason}") from error
            except NotServedError as error:
                raise TwoPhaseError(f"{error}: it needs a Kafka of 3.0 or newer") from error
            except ClusterError as error:
                reason = str(error)
            if time.monotonic() + PAUSE_S > give_up_at_s:
                raise TimeoutError(f"no coordinator answered within {timeout_s:.3g} s: {reason}")
            time.sleep(PAUSE_S)

    @contextmanager
    def borrowed(self, give_up_at_s: float) -> Iterator[Client]:
        """A client for one call. Raises TimeoutError without one, Refused for the brokers' refusals, ClusterError."""
        if not self._turns.acquire(timeout=max(0, give_up_at_s - time.monotonic())):
            raise TimeoutError
        try:
            with self._lock:
                closes = self._closes
                client = self._idle.pop() if self._idle else None
            client = client or self._made()
            client.give_up_at_s = give_up_at_s
            try:
                yield client
            finally:
                with self._lock:
                    if closes == self._closes:
                        self._idle.append(client)
                if closes != self._closes:
                    client.close()
        except ClusterError as error:
            self._raise_if_refused(error)
            raise
        finally:
            self._turns.release()

    def _made(self) -> Client:
        try:
            return Client(self._bootstrap, options_of(self._options))
        except OSError as error:
            raise Refused(
                f"a file that the options ssl_cafile, ssl_certfile or ssl_keyfile name cannot be used: {error}"
            ) from None

    def _raise_if_refused(self, error: ClusterError) -> None:
        """Raise Refused for an error that does not pass by itself."""
        match error:
            case LogInRefusedError() if self._options["sasl_mechanism"] == "OAUTHBEARER":
                raise Refused(f"the brokers refuse the token: check sasl_oauth_token_provider ({error})") from error
            case LogInRefusedError():
                raise Refused(
                    f"the brokers refuse the login of {self._options['sasl_plain_username']}: check sasl_mechanism, "
                    f"sasl_plain_username and sasl_plain_password ({error})"
                ) from error
            case LogInNeededError():
                raise Refused(
                    f"the brokers do not take sasl_mechanism {self._options['sasl_mechanism']}: they have "
                    f"{', '.join(error.mechanisms) or 'none'}"
                ) from error
            case TlsError():
                for name, remedy in TLS_REFUSALS.items():
                    if name in str(error):
                        raise Refused(f"{remedy} ({error})") from error
