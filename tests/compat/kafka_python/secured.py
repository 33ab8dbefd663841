"""kafka-python, release 2.3 or 3, at a secured broker."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

try:
    from kafka.net.sasl.oauth import AbstractTokenProvider
except ImportError:
    from kafka.sasl.oauth import AbstractTokenProvider

from tests.compat.kafka_python.kafka import COMMITTED, PACE, VERSION, produce
from tests.compat.python_checks import Check
from tests.compat.secured_checks import Clients, Login, Reader, TransactionalWriter, checks_of

LOGGER = logging.getLogger("kafka")
# The client tries once, and release 3 for no longer than this: brokers answer later and later to what fails too often.
ONCE = {
    "reconnect_backoff_ms": 5_000,
    "reconnect_backoff_max_ms": 5_000,
    **({"bootstrap_timeout_ms": 1_000} if VERSION >= 3 else {"api_version_auto_timeout_ms": 1_000}),
}


class TokenFromFile(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        super().__init__()
        self._login = login

    def token(self) -> str:
        return self._login.token_text


def settings_of(login: Login) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        **PACE,
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
    }
    if login.has_tls:
        chosen["ssl_cafile"] = login.authority_file
    if login.certificate:
        chosen["ssl_certfile"] = login.file(f"{login.certificate}.crt")
        chosen["ssl_keyfile"] = login.file(f"{login.certificate}.key")
    if login.mechanism == "OAUTHBEARER":
        chosen |= {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": TokenFromFile(login)}
    elif login.mechanism:
        chosen |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return chosen


class _Writer(TransactionalWriter):
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def write(self, topic: str, *values: str) -> None:
        produce(self._producer, topic, values)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()


class _Reader(Reader):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[str]:
        batches = self._consumer.poll(100).values()
        return [record.value.decode() for batch in batches for record in batch]

    def commit(self) -> None:
        self._consumer.commit()


class _Log(logging.Handler):
    """What the client writes to its log while a block runs: it tries again after every refusal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> Self:
        LOGGER.setLevel(logging.WARNING)
        LOGGER.addHandler(self)
        LOGGER.propagate = False
        return self

    def __exit__(self, *_exception: object) -> None:
        LOGGER.removeHandler(self)
        LOGGER.setLevel(logging.CRITICAL)


class KafkaPython(Clients):
    # With TLS, release 3 does not always read the reply before it sees that the connection is closed.
    wrong_password = "not authenticated"
    wrong_token = "not authenticated"
    wrong_certificate = "CERTIFICATE_VERIFY_FAILED"
    no_certificate = "ALERT"
    wrong_topic = "TopicAuthorizationFailedError"
    wrong_group = "GroupAuthorizationFailedError"
    shows_hidden_topics = False
    wrong_transactional_id = "TransactionalIdAuthorizationFailedError"

    @contextmanager
    def writer(self, check: Check, login: Login) -> Iterator[TransactionalWriter]:
        # An idempotent producer of release 3 does not recover from a refusal; any other does with its next metadata.
        pace = {"max_block_ms": 10_000, "metadata_max_age_ms": 500, "enable_idempotence": False}
        producer = KafkaProducer(**settings_of(login), **pace)
        try:
            yield _Writer(producer)
        finally:
            producer.close(timeout=1)

    @contextmanager
    def transactional_writer(self, check: Check, login: Login, transactional_id: str) -> Iterator[TransactionalWriter]:
        producer = KafkaProducer(**settings_of(login), transactional_id=transactional_id)
        try:
            producer.init_transactions()
            yield _Writer(producer)
        finally:
            producer.close(timeout=1)

    @contextmanager
    def reader(self, check: Check, login: Login, topic: str, group: str = "") -> Iterator[Reader]:
        usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": COMMITTED}
        consumer = KafkaConsumer(**settings_of(login), group_id=group or None, **usual)
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0)])
        try:
            yield _Reader(consumer)
        finally:
            consumer.close()

    def connection_error(self, check: Check, login: Login) -> str:
        with _Log() as log:
            try:
                KafkaAdminClient(**(settings_of(login) | ONCE)).close()
            except (KafkaError, ssl.SSLError) as raised:
                log.lines.append(f"{type(raised).__name__}: {raised}")
            else:
                return "none"
        whole = "\n".join(log.lines)
        if "SaslAuthenticationFailedError" in whole:
            return "not authenticated"
        for shown in ("CERTIFICATE_VERIFY_FAILED", "ALERT"):
            if shown in whole:
                return shown
        return "not authenticated" if "socket disconnected" in whole else whole

    def error_of(self, call: Callable[[], object]) -> str:
        try:
            call()
        except KafkaError as raised:
            return type(raised).__name__
        return "none"


CHECKS = checks_of(KafkaPython())
