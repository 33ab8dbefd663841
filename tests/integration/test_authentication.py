"""A broker with SASL as users meet it: users that were added before its first start, and signed tokens."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_port
from tests.broker.metrics.test_broker_families import values_of
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

KEY = rsa.generate_private_key(65_537, 2048)
TIMEOUT_S = 60
LONGEST_S = 120.0
LIFETIME_S = 30.0
"""Clients get another token at about 80 % of it; the rest has to be longer than a second, as in Kafka."""


def token(name: str = "carol", key: rsa.RSAPrivateKey = KEY, lifetime_s: float = LIFETIME_S) -> str:
    now_s = time.time()
    claims = {"sub": name, "iat": now_s, "exp": now_s + lifetime_s, "aud": "kafka"}
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("authenticated")
    arguments = ["users", "set", "alice", "--data-dir", str(directory / "data")]
    added = CliRunner().invoke(fencepost, arguments, input="alice-secret\n")
    assert added.exit_code == 0, added.output
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [{**json.loads(RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "one"}]}))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "connections.max.reauth.ms": "3000",
        "fencepost.http.listener": f"127.0.0.1:{free_port()}",
        "connection.failed.authentication.delay.ms": "1",
    }
    with BrokerProcess(directory / "data", settings=settings) as process:
        yield process


def confluent_options(secured: BrokerProcess, errors: list[str], **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "error_cb": lambda error: errors.append(error.str()),
        "log_level": 0,
        **options,
    }


class Sessions(NamedTuple):
    """Of all clients so far: how often one authenticated again in time, and how often one came too late."""

    went_on: float
    killed: float


def sessions(secured: BrokerProcess) -> Sessions:
    with urllib.request.urlopen(f"http://{secured.settings['fencepost.http.listener']}/metrics", timeout=60) as answer:
        values = values_of(answer.read().decode())
    prefix = "kafka_server_socketservermetrics_"
    went_on, killed = (
        sum(value for name, value in values.items() if name.startswith(prefix + metric))
        for metric in ("successful_reauthentication_total", "expired_connections_killed_count")
    )
    return Sessions(went_on, killed)


def produce_over_several_sessions(secured: BrokerProcess, send: Callable[[int], None]) -> int:
    """Send a record every tenth of a second, until the client has gone on with two sessions; return how many."""
    count, wanted, end_s = 0, sessions(secured).went_on + 2, time.monotonic() + LONGEST_S
    while sessions(secured).went_on < wanted:
        assert time.monotonic() < end_s
        send(count)
        count += 1
        time.sleep(0.1)
    return count


def confluent_round_trip(secured: BrokerProcess, topic: str, options: dict[str, Any]) -> None:
    producer, failed = Producer({**options, "enable.idempotence": True}), list[str]()

    def send(number: int) -> None:
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(str(error)) if error else None)
        producer.poll(0)

    count = produce_over_several_sessions(secured, send)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, end_s = list[str](), time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < end_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(str(message.value(), "utf-8"))
    consumer.close()
    assert found == [str(number) for number in range(count)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_added_before_the_first_start_produces_over_several_sessions(
    secured: BrokerProcess, mechanism: str
) -> None:
    errors: list[str] = []
    killed = sessions(secured).killed
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "alice-secret"}
    confluent_round_trip(secured, f"by-{mechanism}", confluent_options(secured, errors, **login))
    assert errors == [] or sessions(secured).killed > killed  # on a busy machine, a client may come too late


def test_librdkafka_produces_with_tokens_over_several_sessions(secured: BrokerProcess) -> None:
    errors: list[str] = []
    killed = sessions(secured).killed
    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token(), time.time() + LIFETIME_S)}
    confluent_round_trip(secured, "by-token", confluent_options(secured, errors, **login))
    assert errors == [] or sessions(secured).killed > killed  # on a busy machine, a client may come too late


@pytest.mark.parametrize(
    "login",
    [
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "wrong"},
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "nobody", "sasl.password": "alice-secret"},
        {
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(key=rsa.generate_private_key(65_537, 2048)), time.time() + 60),
        },
    ],
    ids=["wrong password", "unknown user", "token of another key"],
)
def test_librdkafka_is_refused_without_the_right_secret(secured: BrokerProcess, login: dict[str, Any]) -> None:
    errors: list[str] = []
    producer = Producer(confluent_options(secured, errors, **login))
    producer.produce("refused", "x")
    end_s = time.monotonic() + TIMEOUT_S
    while not any("authentication" in error.lower() for error in errors):
        assert time.monotonic() < end_s, errors
        producer.poll(0.1)
    producer.purge()


class PythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def token(self) -> str:
        return token()


def test_kafka_python_produces_with_tokens_over_several_sessions(secured: BrokerProcess) -> None:
    producer = KafkaProducer(
        bootstrap_servers=secured.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=PythonTokens(),
    )
    count = produce_over_several_sessions(
        secured, lambda number: producer.send("by-python", str(number).encode()).get(TIMEOUT_S)
    )
    assert producer.send("by-python", b"last").get(TIMEOUT_S).offset == count
    producer.close()


class AioTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    async def token(self) -> str:
        return token(lifetime_s=60)


async def test_aiokafka_produces_with_a_token(secured: BrokerProcess) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=secured.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AioTokens(),
    )
    await producer.start()
    try:
        assert (await producer.send_and_wait("by-aiokafka", b"x")).offset == 0
    finally:
        await producer.stop()


def test_the_log_has_no_secret(secured: BrokerProcess) -> None:
    assert "alice-secret" not in secured.output
