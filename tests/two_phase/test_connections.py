"""The pool of a coordinator's connections, and refusals in words, with servers that answer oddly."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

import pytest

from fencepost.client.errors import ClusterError, LogInNeededError, LogInRefusedError, TlsError, UnreachableError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import Coordinator as Found
from fencepost.protocol.messages.coordinators import FindCoordinatorResponse
from fencepost.protocol.messages.transaction_admin import (
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)
from fencepost.protocol.messages.transactions import EndTxnResponse
from fencepost.two_phase import Coordinator, MisuseError, Outcome, Refused, Token, TwoPhaseError, connections
from fencepost.two_phase.connections import Client, Connections
from tests.support.odd_server import CLOSE, Asked, OddServer

SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "alice", "sasl_plain_password": "x"}
PLAIN = {**SASL, "sasl_mechanism": "PLAIN"}


def test_an_import_of_the_package_imports_no_client_and_no_sockets() -> None:
    heavy = ("fencepost.client", "fencepost.protocol", "kafka", "ssl", "socket", "asyncio")
    code = f"import sys, fencepost.two_phase; print([name for name in sys.modules if name.startswith({heavy!r})])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def soon() -> float:
    return time.monotonic() + 60


def test_a_call_takes_the_connections_of_one_that_has_ended_also_with_an_error() -> None:
    pool = Connections("h", {})
    with pool.borrowed(soon()) as first, pool.borrowed(soon()) as second:
        assert first is not second
    with pytest.raises(UnreachableError), pool.borrowed(soon()):
        raise UnreachableError("gone")
    with pool.borrowed(soon()) as again:
        assert again in (first, second)


def test_a_close_spares_a_call_that_runs_and_closes_its_connections_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Client] = []
    monkeypatch.setattr(Client, "close", lambda client: closed.append(client))
    pool = Connections("h", {})
    with pool.borrowed(soon()) as running:
        with pool.borrowed(soon()) as idle:
            pass
        pool.close()
        assert closed == [idle]
    assert closed == [idle, running]
    with pool.borrowed(soon()) as later:
        assert later not in closed


def test_a_call_beyond_the_limit_ends_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "AT_ONCE", 1)
    pool = Connections("h", {})
    with pool.borrowed(soon()), pytest.raises(TimeoutError), pool.borrowed(time.monotonic()):
        pass


REFUSALS: list[tuple[dict[str, Any], ClusterError, str]] = [
    (PLAIN, LogInRefusedError("no"), r"refuse the login of alice: check .*sasl_plain_password \(no\)"),
    (PLAIN, LogInNeededError(["SCRAM-SHA-512"]), "do not take sasl_mechanism PLAIN: they have SCRAM-SHA-512"),
    (
        {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": object()},
        LogInRefusedError("over"),
        r"refuse the token: check sasl_oauth_token_provider \(over\)",
    ),
    ({}, TlsError("TLS with h failed: TLSV1_ALERT_UNKNOWN_CA"), "does not trust this client's certificate"),
]


@pytest.mark.parametrize(("options", "error", "said"), REFUSALS)
def test_a_refusal_names_the_option_to_check(options: dict[str, Any], error: ClusterError, said: str) -> None:
    with pytest.raises(Refused, match=said), Connections("h", options).borrowed(soon()):
        raise error


def test_a_failure_that_may_pass_is_no_refusal() -> None:
    with pytest.raises(TlsError), Connections("h", {}).borrowed(soon()):
        raise TlsError("TLS with h failed: UNEXPECTED_EOF_WHILE_READING")


def test_files_of_tls_that_cannot_be_used_are_refused(tmp_path: Any) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for name, said in (("absent.pem", "No such file"), ("no.pem", "cannot be used: ")):
        tls = {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / name)}
        with pytest.raises(Refused, match=said), Connections("h", tls).borrowed(soon()):
            pass


def test_wrong_options_are_named_before_anything_is_asked() -> None:
    for options, said in (({"ssl_cafil": "x"}, "ssl_cafil: no such option"), ({"proxy_url": "x"}, "through a proxy")):
        with pytest.raises(MisuseError, match=said):
            Coordinator("h", **options)


SERVED = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
}
TOKEN = Token(7, 0, "till")
OPEN = DescribeTransactionsTransactionState(transactional_id="till", transaction_state="Ongoing", producer_id=7)


class Brokers:
    """Two brokers. The first names a coordinator, and `answer` answers the rest, at the n-th time."""

    def __init__(self, answer: Callable[[int, Asked], Iterable[bytes]], served: Any = SERVED) -> None:
        self.coordinator = 0
        self.asked: list[tuple[int, int]] = []
        self._answer = answer
        self._servers = [OddServer(self._answer_at(place), served) for place in range(2)]

    def _answer_at(self, place: int) -> Callable[[Asked], Iterable[bytes]]:
        def answer(asked: Asked) -> Iterable[bytes]:
            if asked.key == ApiKey.FIND_COORDINATOR:
                host, port = self._servers[self.coordinator].address
                found = [Found(key=key, host=host, port=port) for key in asked.message.coordinator_keys]
                return [asked.reply(FindCoordinatorResponse(coordinators=found))]
            self.asked.append((place, asked.key))
            return self._answer(len(self.asked), asked)

        return answer

    def __enter__(self) -> Self:
        for server in self._servers:
            server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.__exit__(None, None, None)

    def coordinator_client(self, **options: Any) -> Coordinator:
        return Coordinator(str(self._servers[0].address), **options)


def test_a_coordinator_that_moves_is_followed() -> None:
    def answer(number: int, asked: Asked) -> Iterable[bytes]:
        brokers.coordinator = 1
        return [asked.reply(EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR if number == 1 else 0))]

    with Brokers(answer) as brokers, brokers.coordinator_client() as coordinator:
        coordinator.complete(TOKEN, commit=True)
        assert brokers.asked == [(0, ApiKey.END_TXN), (1, ApiKey.END_TXN)]


def test_a_broker_that_dies_in_the_middle_of_a_frame_is_asked_again() -> None:
    def answer(number: int, asked: Asked) -> Iterable[bytes]:
        reply = asked.reply(DescribeTransactionsResponse(transaction_states=[OPEN]))
        return [reply[: len(reply) // 2], CLOSE] if number < 3 else [reply]

    with Brokers(answer) as brokers, brokers.coordinator_client() as coordinator:
        assert coordinator.outcome(TOKEN) is Outcome.PREPARED
        assert len(brokers.asked) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x7f\xff\xff\xff", "is not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "is not a Kafka broker"),
        (b"", "closed the connection"),
    ],
    ids=["a frame that claims 2 GB", "an alert of TLS", "the end"],
)
def test_who_answers_oddly_is_named_when_the_time_is_over(answer: bytes, said: str) -> None:
    with (
        Brokers(lambda *_: [answer or CLOSE]) as brokers,
        brokers.coordinator_client() as coordinator,
        pytest.raises(TimeoutError, match=rf"no coordinator answered within 1 s: .*127\.0\.0\.1:\d+ {said}"),
    ):
        coordinator.outcome(TOKEN, timeout_s=1)


def test_a_silent_coordinator_ends_a_call_in_the_time_of_the_call() -> None:
    with Brokers(lambda *_: []) as brokers, brokers.coordinator_client(request_timeout_ms=60_000) as coordinator:
        began_s = time.monotonic()
        with pytest.raises(TimeoutError, match="gave no answer in"):
            coordinator.outcome(TOKEN, timeout_s=0.3)
        assert time.monotonic() - began_s < 30


def test_a_cluster_that_is_too_old_ends_a_call_at_once() -> None:
    old = {key: versions for key, versions in SERVED.items() if key != ApiKey.DESCRIBE_TRANSACTIONS}
    with (
        Brokers(lambda *_: [], old) as brokers,
        brokers.coordinator_client() as coordinator,
        pytest.raises(TwoPhaseError, match=r"does not serve DescribeTransactions: it needs a Kafka of 3\.0"),
    ):
        coordinator.outcome(TOKEN)
