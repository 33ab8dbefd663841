"""A broker with SASL as users meet it: users that were added before its first start, and signed tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

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

from fencepost.broker.cli.commands import fencepost
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

KEY = rsa.generate_private_key(65_537, 2048)
TIMEOUT_S = 60
LIFETIME_S = 10.0
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
        "connections.max.reauth.ms": "2000",
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


def produce_for(seconds: float, send: Callable[[int], None]) -> int:
    """Send a record every tenth of a second, over several sessions of the client; return how many."""
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        send(count)
        count += 1
        time.sleep(0.1)
    return count


def confluent_round_trip(secured: BrokerProcess, topic: str, options: dict[str, Any]) -> None:
    producer, failed = Producer(options), list[str]()

    def send(number: int) -> None:
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(str(error)) if error else None)
        producer.poll(0)

    count = produce_for(5, send)
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
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "alice-secret"}
    confluent_round_trip(secured, f"by-{mechanism}", confluent_options(secured, errors, **login))
    assert errors == []


def test_librdkafka_produces_with_tokens_over_several_sessions(secured: BrokerProcess) -> None:
    errors: list[str] = []
    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token(), time.time() + LIFETIME_S)}
    confluent_round_trip(secured, "by-token", confluent_options(secured, errors, **login))
    assert errors == []


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
    count = produce_for(5, lambda number: producer.send("by-python", str(number).encode()).get(TIMEOUT_S))
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
