"""The blocking client, with a broker and with servers that answer oddly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost import Broker
from fencepost.client.blocking import BlockingCluster, BlockingConnection
from fencepost.client.errors import ClusterError, LogInRefusedError, NoAnswerError, RefusedError, UnreachableError
from fencepost.client.log_in import Credentials
from fencepost.client.plans import Address, Pause, Plan
from fencepost.client.session import LARGEST_FRAME_BYTES, ClientOptions
from fencepost.client.view import CoordinatorKind, metadata_request, view_of
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from tests.support.certificates import Authority
from tests.support.odd_server import CLOSE, Answer, Asked, OddServer

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OPTIONS = ClientOptions(connect_timeout_s=60, answer_timeout_s=60)
IMPATIENT = ClientOptions(connect_timeout_s=60, answer_timeout_s=0.05)
REPLY = MetadataResponse(cluster_id="c")


def ask(answer: Answer, options: ClientOptions = OPTIONS) -> str | None:
    with OddServer(answer) as server:
        connection = BlockingConnection(server.address, options)
        try:
            cluster_id: str | None = connection.send(MetadataRequest()).cluster_id
        finally:
            connection.close()
        return cluster_id


def test_an_answer_may_come_in_pieces() -> None:
    assert ask(lambda asked: (bytes([byte]) for byte in asked.reply(REPLY))) == "c"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda asked: CLOSE, "closed the connection"),
        (lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a Kafka broker"),
        (lambda asked: (LARGEST_FRAME_BYTES + 1).to_bytes(4, "big"), "is not a Kafka broker"),
        (lambda asked: asked._replace(number=asked.number + 1).reply(REPLY), "an answer to another request"),
        (lambda asked: b"\0\0\0\x08" + asked.number.to_bytes(4, "big") + b"\xff" * 4, "cannot be read"),
    ],
)
def test_what_is_no_answer_names_the_broker_and_what_is_wrong(answer: Callable[[Asked], bytes], said: str) -> None:
    with pytest.raises(ClusterError, match=rf"127\.0\.0\.1:\d+ .*{said}"):
        ask(lambda asked: [answer(asked)])


def test_a_connection_that_ends_in_the_middle_of_an_answer_is_said_to_be_closed() -> None:
    with pytest.raises(UnreachableError, match="closed the connection"):
        ask(lambda asked: [asked.reply(REPLY)[:9], CLOSE])


def test_an_answer_that_does_not_end_in_time_is_not_waited_for() -> None:
    with pytest.raises(NoAnswerError, match=r"gave no answer in 0\.05 s"):
        ask(lambda asked: [asked.reply(REPLY)[:9]], IMPATIENT)


def test_a_close_from_another_thread_ends_a_request() -> None:
    arrived = threading.Event()

    def silent(asked: Asked) -> list[bytes]:
        arrived.set()
        return [b"\0"]

    def close_when_arrived(connection: BlockingConnection) -> None:
        arrived.wait(60)
        connection.close()

    with OddServer(silent) as server:
        connection = BlockingConnection(server.address, OPTIONS)
        closing = threading.Thread(target=close_when_arrived, args=(connection,))
        closing.start()
        with pytest.raises(UnreachableError, match="closed the connection"):
            connection.send(MetadataRequest())
        closing.join()


def test_a_connection_that_the_broker_has_closed_meanwhile_is_made_anew() -> None:
    answers = iter([True, False, True])

    def answer(asked: Asked) -> list[bytes]:
        return [asked.reply(REPLY) if next(answers) else CLOSE]

    with OddServer(answer) as server:
        cluster = BlockingCluster([server.address], OPTIONS)
        assert [cluster.send(MetadataRequest()).cluster_id for _ in range(2)] == ["c", "c"]
        assert [asked.key for asked in server.asked].count(ApiKey.API_VERSIONS) == 2
        cluster.close()


def test_a_connection_with_an_odd_answer_is_not_used_again() -> None:
    numbers = iter([1, 0])
    with OddServer(lambda asked: [asked._replace(number=asked.number + next(numbers)).reply(REPLY)]) as server:
        cluster = BlockingCluster([server.address], OPTIONS)
        with pytest.raises(ClusterError, match="an answer to another request"):
            cluster.send(MetadataRequest())
        assert cluster.send(MetadataRequest()).cluster_id == "c"
        cluster.close()


def test_the_next_address_is_tried_if_nobody_is_at_the_first() -> None:
    with OddServer(lambda asked: [asked.reply(REPLY)]) as server:
        cluster = BlockingCluster([Address("127.0.0.1", 1), server.address], OPTIONS)
        assert cluster.send(MetadataRequest()).cluster_id == "c"
        cluster.close()
    nobody = BlockingCluster([Address("127.0.0.1", 1)], OPTIONS)
    with pytest.raises(UnreachableError, match=r"no broker answers at 127\.0\.0\.1:1: "):
        nobody.send(MetadataRequest())


def test_an_older_broker_is_asked_in_its_version() -> None:
    served = {ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (0, 4)}
    with OddServer(lambda asked: [asked.reply(REPLY)], served) as server:
        connection = BlockingConnection(server.address, OPTIONS)
        connection.send(MetadataRequest())
        assert server.asked[-1].version == 4
        connection.close()


def test_a_plan_that_takes_too_long_ends_with_the_error_that_did_not_pass() -> None:
    def endless() -> Plan:
        while True:
            yield Pause(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "'g'")

    with pytest.raises(RefusedError, match=r"COORDINATOR_LOAD_IN_PROGRESS \('g', for 0 s\)"):
        BlockingCluster([], OPTIONS).run(endless(), 0)


def test_a_broker_answers_and_so_does_its_coordinator() -> None:
    with Broker() as broker:
        cluster = BlockingCluster([Address(broker.host, broker.port)], OPTIONS)
        assert view_of(cluster.send(metadata_request(None))).nodes
        plan = cluster.routes.to_coordinator(
            CoordinatorKind.TRANSACTION,
            "till-1",
            DescribeTransactionsRequest(transactional_ids=["till-1"]),
            lambda reply: reply.transaction_states[0].error_code,
        )
        (found,) = cluster.run(plan, 60).transaction_states
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        cluster.close()


def test_a_user_logs_in_over_tls_and_a_wrong_password_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().both),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required user_admin="admin-secret";',
    }
    with Broker(settings=settings) as broker:
        address = Address(broker.host, broker.port)
        right = ClientOptions(authority.context(), Credentials("PLAIN", "admin", "admin-secret"))
        connection = BlockingConnection(address, right)
        assert connection.send(MetadataRequest()).brokers
        connection.close()
        with pytest.raises(LogInRefusedError):
            BlockingConnection(address, ClientOptions(authority.context(), Credentials("PLAIN", "admin", "wrong")))
        with pytest.raises(UnreachableError, match=f"TLS with {address} failed"):
            BlockingConnection(address, ClientOptions(Authority(tmp_path / "foreign").context()))
