"""librdkafka at a secured broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck

from tests.compat.confluent_kafka.kafka import TIMEOUT_S, error_of, produce, settings
from tests.compat.python_checks import Check
from tests.compat.secured_checks import Clients, Login, Reader, TransactionalWriter, checks_of


def settings_of(check: Check, login: Login, **more: object) -> dict[str, Any]:
    chosen = settings(check, **more)
    chosen |= {"bootstrap.servers": login.bootstrap, "security.protocol": login.protocol}
    if login.has_tls:
        chosen["ssl.ca.location"] = login.authority_file
    if login.certificate:
        chosen["ssl.certificate.location"] = login.file(f"{login.certificate}.crt")
        chosen["ssl.key.location"] = login.file(f"{login.certificate}.key")
    if login.mechanism == "OAUTHBEARER":
        chosen["sasl.mechanism"] = login.mechanism
        # The client does not look into the token: it is to be valid for an hour, even if it is not.
        chosen["oauth_cb"] = lambda _config: (login.token_text, time.time() + 3_600, login.user, {})
    elif login.mechanism:
        chosen |= {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
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
        self._producer.commit_transaction(TIMEOUT_S)


class _Reader(Reader):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[str]:
        message = self._consumer.poll(0.1)
        if message is None:
            return []
        if message.error():
            raise ck.KafkaException(message.error())
        return [message.value().decode()]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)


class ConfluentKafka(Clients):
    wrong_password = "_AUTHENTICATION"
    wrong_token = "_AUTHENTICATION"
    wrong_certificate = "certificate verify failed"
    no_certificate = "_TRANSPORT"  # the handshake of TLS 1.3 is over when the broker looks for a certificate
    wrong_topic = "TOPIC_AUTHORIZATION_FAILED"
    wrong_group = "GROUP_AUTHORIZATION_FAILED"
    wrong_transactional_id = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

    @contextmanager
    def writer(self, check: Check, login: Login) -> Iterator[TransactionalWriter]:
        yield _Writer(ck.Producer(settings_of(check, login)))

    @contextmanager
    def transactional_writer(self, check: Check, login: Login, transactional_id: str) -> Iterator[TransactionalWriter]:
        producer = ck.Producer(settings_of(check, login, transactional_id=transactional_id))
        producer.init_transactions(TIMEOUT_S)
        yield _Writer(producer)

    @contextmanager
    def reader(self, check: Check, login: Login, topic: str, group: str = "") -> Iterator[Reader]:
        usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        consumer = ck.Consumer(settings_of(check, login, group_id=group or check.name("unused"), **usual))
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign([ck.TopicPartition(topic, 0, 0)])
        try:
            yield _Reader(consumer)
        finally:
            consumer.close()

    def connection_error(self, check: Check, login: Login) -> str:
        errors: list[Any] = []
        producer = ck.Producer(settings_of(check, login) | {"error_cb": errors.append})
        for _ in check.turns("the client shows why it does not connect"):
            producer.poll(0.05)
            named = [error for error in errors if error.code() != ck.KafkaError._ALL_BROKERS_DOWN]
            if named:
                # Its code is _TRANSPORT if the certificate is there when the handshake begins; the text is the same.
                return self.wrong_certificate if "certificate verify failed" in named[0].str() else str(named[0].name())
        return "none"

    def error_of(self, call: Callable[[], object]) -> str:
        return error_of(call)


CHECKS = checks_of(ConfluentKafka())
