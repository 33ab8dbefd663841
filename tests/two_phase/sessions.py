"""Sessions of a service that writes orders to a database and to a topic, with each of the client libraries."""

from __future__ import annotations

import asyncio
import gc
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fencepost.two_phase import (
    AsyncCoordinator,
    Coordinator,
    Token,
    confluent_producer,
    prepare,
    prepare_async,
    start_session,
    start_session_async,
    transaction,
    transaction_async,
)
from tests.support.closed_loop import close_with_connections
from tests.testing.clients import QUIET
from tests.two_phase.databases import Database

Security = dict[str, Any]
"""Options of kafka-python for TLS and SASL; each session gives its client what they mean there."""


class Session(ABC):
    """One session, from `start` to `close`."""

    def __init__(
        self, servers: str, database: Database, topic: str, transactional_id: str, security: Security | None = None
    ) -> None:
        self.servers = servers
        self.database = database
        self.topic = topic
        self.transactional_id = transactional_id
        self.security = security or {}
        self.connection = database.connect()

    producer: Any
    generation: int
    timeout_s = 20.0
    transaction_timeout_ms = 60_000

    @property
    def log(self) -> Any:
        return self.database.log

    def coordinator(self) -> Coordinator:
        return Coordinator(self.servers, **self.security)

    def start(self) -> None:
        self.producer = self.make_producer()
        with self.coordinator() as coordinator:
            self.generation = start_session(self.producer, coordinator, self.log, self.connection, timeout_s=30)

    @abstractmethod
    def make_producer(self) -> Any:
        """A producer of the client, before its first request."""

    @abstractmethod
    def send(self, value: str) -> None:
        """Produce a record in the transaction."""

    def begin(self) -> None:
        self.producer.begin_transaction()

    def prepare(self) -> Token:
        return prepare(self.producer, timeout_s=10)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with (
            self.coordinator() as coordinator,
            transaction(
                self.producer,
                coordinator,
                self.log,
                self.connection,
                generation=self.generation,
                timeout_s=self.timeout_s,
            ),
        ):
            yield

    def write(self, name: str) -> None:
        with self.transaction():
            self.database.insert(self.connection, name)
            self.send(name)

    def close(self) -> None:
        self.connection.close()


class ConfluentSession(Session):
    def make_producer(self) -> Any:
        made = confluent_producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self.transaction_timeout_ms,
                **QUIET,
                **confluent_security(self.security),
            }
        )
        if not self.security:
            made.list_topics(timeout=10)  # else librdkafka waits for half a second
        return made

    def send(self, value: str) -> None:
        self.producer.produce(self.topic, value.encode())

    def close(self) -> None:
        super().close()
        self.__dict__.pop("producer", None)  # its threads end with the last reference; `close` would abort what is open


class KafkaPythonSession(Session):
    def make_producer(self) -> Any:
        from kafka import KafkaProducer

        return KafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            **self.security,
        )

    def send(self, value: str) -> None:
        self.producer.send(self.topic, value.encode())

    def close(self) -> None:
        super().close()
        if hasattr(self, "producer"):
            self.producer.close(timeout=1)


class AiokafkaSession(Session):
    """On an event loop of its own, which runs while one of its methods does."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.loop = asyncio.new_event_loop()

    def start(self) -> None:
        async def start() -> None:
            self.producer = self.make_producer()
            async with AsyncCoordinator(self.servers, **self.security) as coordinator:
                self.generation = await start_session_async(self.producer, coordinator, self.log, self.connection)

        self.loop.run_until_complete(start())

    def make_producer(self) -> Any:
        import aiokafka

        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            **aiokafka_security(self.security),
        )

    def begin(self) -> None:
        self.loop.run_until_complete(self.producer.begin_transaction())

    def send(self, value: str) -> None:
        self.loop.run_until_complete(self.producer.send(self.topic, value.encode()))

    def prepare(self) -> Token:
        return self.loop.run_until_complete(prepare_async(self.producer, timeout_s=10))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        coordinator = AsyncCoordinator(self.servers, **self.security)
        run = self.loop.run_until_complete
        entered = transaction_async(
            self.producer,
            coordinator,
            self.log,
            self.connection,
            generation=self.generation,
            timeout_s=self.timeout_s,
        )
        try:
            run(entered.__aenter__())
            try:
                yield
            except BaseException as error:
                run(entered.__aexit__(type(error), error, error.__traceback__))
                raise
            else:
                run(entered.__aexit__(None, None, None))
        finally:
            run(coordinator.close())

    def close(self) -> None:
        from aiokafka.errors import KafkaError

        super().close()
        # An open transaction is left as it is: its client has crashed.
        if not self.loop.is_closed():
            if hasattr(self, "producer"):
                # It goes on with a commit that it has begun, for which a later session may have fenced it.
                with suppress(KafkaError):
                    self.loop.run_until_complete(self.producer.stop())
                del self.producer
            # What aiokafka leaves to the collector wants its event loop. Sockets that other clients have left are
            # found here, too, and are no fault of this test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            close_with_connections(self.loop)


SESSIONS: dict[str, type[Session]] = {
    "confluent-kafka": ConfluentSession,
    "kafka-python": KafkaPythonSession,
    "aiokafka": AiokafkaSession,
}


def confluent_security(security: Security) -> dict[str, Any]:
    """The same as librdkafka's options."""
    names = {
        "security_protocol": "security.protocol",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
        "ssl_cafile": "ssl.ca.location",
        "ssl_certfile": "ssl.certificate.location",
        "ssl_keyfile": "ssl.key.location",
    }
    return {names[name]: value for name, value in security.items() if name in names}


def aiokafka_security(security: Security) -> dict[str, Any]:
    """The same as aiokafka's options, which takes a context of ssl."""
    import ssl

    files = {name: value for name, value in security.items() if name.startswith("ssl_")}
    options = {name: value for name, value in security.items() if name not in files}
    if files:
        context = ssl.create_default_context(cafile=files["ssl_cafile"])
        if "ssl_certfile" in files:
            context.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
        options["ssl_context"] = context
    return options
