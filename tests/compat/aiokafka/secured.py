"""aiokafka at a secured broker. Its event loop runs in a thread of its own, as long as the program."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from tests.compat.aiokafka.kafka import COMMITTED, produce
from tests.compat.python_checks import LIMIT_S, Check
from tests.compat.secured_checks import Clients, Login, Reader, TransactionalWriter, checks_of

Value = TypeVar("Value")


class TokenFromFile(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return self._login.token_text


def settings_of(login: Login) -> dict[str, Any]:
    chosen: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": login.protocol}
    if login.has_tls:
        context = ssl.create_default_context(cafile=login.authority_file)
        if login.certificate:
            context.load_cert_chain(login.file(f"{login.certificate}.crt"), login.file(f"{login.certificate}.key"))
        chosen["ssl_context"] = context
    if login.mechanism == "OAUTHBEARER":
        chosen |= {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": TokenFromFile(login)}
    elif login.mechanism:
        chosen |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return chosen


class _Loop:
    """Runs coroutines, one after the other, and what clients do beside them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)


class _Writer(TransactionalWriter):
    def __init__(self, loop: _Loop, producer: Any) -> None:
        self._loop = loop
        self._producer = producer

    def write(self, topic: str, *values: str) -> None:
        self._loop.run(produce(self._producer, topic, values))

    def broker_count(self) -> int:
        """How many brokers it knows of."""
        return len(self._producer.client.cluster.brokers())

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())


class _Reader(Reader):
    def __init__(self, loop: _Loop, consumer: Any) -> None:
        self._loop = loop
        self._consumer = consumer

    def poll(self) -> list[str]:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=100)).values()
        return [record.value.decode() for batch in batches for record in batch]

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())


class Aiokafka(Clients):
    # Its log says why it cannot connect.
    wrong_password = "KafkaConnectionError"
    # It goes on when a token is refused, and gets answers without content.
    wrong_token = "no brokers"
    wrong_certificate = "KafkaConnectionError"
    no_certificate = "KafkaConnectionError"
    wrong_topic = "TopicAuthorizationFailedError"
    wrong_group = "GroupAuthorizationFailedError"
    wrong_transactional_id = "TransactionalIdAuthorizationFailed"

    def __init__(self) -> None:
        self._loop = _Loop()

    @contextmanager
    def writer(self, check: Check, login: Login, **more: object) -> Iterator[_Writer]:
        async def started() -> Any:
            producer = AIOKafkaProducer(**settings_of(login), **more)
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        producer = self._loop.run(started())
        try:
            yield _Writer(self._loop, producer)
        finally:
            self._loop.run(producer.stop())

    @contextmanager
    def transactional_writer(self, check: Check, login: Login, transactional_id: str) -> Iterator[TransactionalWriter]:
        with self.writer(check, login, transactional_id=transactional_id) as writer:
            yield writer

    @contextmanager
    def reader(self, check: Check, login: Login, topic: str, group: str = "") -> Iterator[Reader]:
        async def started() -> Any:
            usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": COMMITTED}
            topics = [topic] if group else []
            consumer = AIOKafkaConsumer(*topics, **settings_of(login), group_id=group or None, **usual)
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            if not group:
                consumer.assign([TopicPartition(topic, 0)])
            return consumer

        consumer = self._loop.run(started())
        try:
            yield _Reader(self._loop, consumer)
        finally:
            self._loop.run(consumer.stop())

    def connection_error(self, check: Check, login: Login) -> str:
        def connect() -> None:
            with self.writer(check, login) as writer:
                brokers.append(writer.broker_count())

        brokers: list[int] = []
        error = self.error_of(connect)
        return "no brokers" if brokers == [0] else error

    def error_of(self, call: Callable[[], object]) -> str:
        try:
            call()
        except KafkaError as raised:
            return type(raised).__name__
        return "none"


CHECKS = checks_of(Aiokafka())
