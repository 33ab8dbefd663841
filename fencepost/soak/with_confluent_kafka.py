"""Adapter of confluent-kafka (librdkafka) to the soak's roles: transactions of version 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as RdKafkaProducer

from fencepost.soak.plan import SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, Partition
from fencepost.soak.roles import (
    Assigned,
    Delivered,
    FencedError,
    GroupConsumer,
    MustAbortError,
    ReadRecord,
    RetryError,
    SessionLostError,
    TransactionalProducer,
    Verifier,
)

CALL_TIMEOUT_S = 10.0
QUERY_TIMEOUT_S = 5.0
FENCED_CODES = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001
PURGED_CODES = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001


class ConfluentKafka:
    """Makes producers and consumers for this broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._configuration: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.max.ms": 1_000,
            "socket.timeout.ms": TRANSACTION_TIMEOUT_MS,
            # With the default, rebootstrap, send_offsets_to_transaction can wait for ever for a coordinator that it
            # forgot while the broker was away (librdkafka issue 5511).
            "metadata.recovery.strategy": "none",
        }

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return Producer(
            RdKafkaProducer(
                {
                    **self._configuration,
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 1,
                }
            )
        )

    def group_consumer(self, topic: str, group: str, assigned: Assigned) -> GroupConsumer:
        consumer = Consumer(
            {
                **self._configuration,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1_000,
            }
        )
        return Member(consumer, topic, assigned)

    def verifier(self) -> Verifier:
        return AssignedReader(
            Consumer(
                {
                    **self._configuration,
                    "group.id": "verifier",  # needed, never used
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "isolation.level": "read_committed",
                    "check.crcs": True,
                }
            )
        )


class Producer:
    """Producer that is replaced by a new one after an abort that dropped records.

    A record whose acknowledgement was lost with the connection counts as unsent while it waits for its retry. If it is
    dropped then, another record of the same epoch gets its sequence number. The broker takes that record for the
    first one, and acknowledges it with the first one's offset (librdkafka 2.16).
    """

    def __init__(self, producer: RdKafkaProducer) -> None:
        self._producer = producer
        self._has_purged_records = False

    def initialize(self) -> None:
        _call(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))

    def begin(self) -> None:
        if self._has_purged_records:
            raise SessionLostError("this producer may use sequence numbers again")
        _call(self._producer.begin_transaction, otherwise=SessionLostError)

    def send(self, partition: Partition, value: str, delivered: Delivered) -> None:
        def reported(error: KafkaError | None, message: Any) -> None:
            if error is None:
                delivered(message.offset(), None)
            else:
                self._has_purged_records |= error.code() in PURGED_CODES
                delivered(None, str(error))

        _call(
            lambda: self._producer.produce(
                partition.topic, value=value.encode(), partition=partition.number, on_delivery=reported
            )
        )
        self._producer.poll(0)

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: GroupConsumer) -> None:
        assert isinstance(consumer, Member)
        positions = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        _call(lambda: self._producer.send_offsets_to_transaction(positions, consumer.group_metadata(), CALL_TIMEOUT_S))

    def flush(self) -> None:
        try:
            self._producer.flush(CALL_TIMEOUT_S)
        except SystemError:
            # Raised by confluent-kafka 2.16.1 if the producer gets a fatal error meanwhile, such as fencing.
            # The next call reports the error.
            return

    def commit(self) -> None:
        _call(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))

    def abort(self) -> None:
        _call(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S), otherwise=SessionLostError)

    def close(self) -> None:
        self._producer.flush(5)


class Reader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float, records_limit: int) -> list[ReadRecord]:
        records = []
        for message in self._consumer.consume(num_messages=records_limit, timeout=timeout_s):
            error = message.error()
            if error is None:
                partition = Partition(message.topic(), message.partition())
                records.append(ReadRecord(partition, message.offset(), message.value().decode()))
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                raise KafkaException(error)
            # Other errors come from a broker that is down, as a soak intends: the client fetches again.
        return records

    def close(self) -> None:
        self._consumer.close()


class Member(Reader):
    """A member of a group; `assigned` is called after every rebalance."""

    def __init__(self, consumer: Consumer, topic: str, assigned: Assigned) -> None:
        super().__init__(consumer)

        def on_assign(_: Consumer, given: list[TopicPartition]) -> None:
            assigned([(Partition(one.topic, one.partition), None) for one in given])

        consumer.subscribe([topic], on_assign=on_assign)

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def rewind(self, positions: Mapping[Partition, int]) -> list[tuple[Partition, int]]:
        assignment = {(one.topic, one.partition) for one in self._consumer.assignment()}
        rewound = [(partition, offset) for partition, offset in positions.items() if tuple(partition) in assignment]
        for partition, offset in rewound:
            self._consumer.seek(TopicPartition(*partition, offset))
        return rewound


class AssignedReader(Reader):
    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        try:
            return {
                partition: self._consumer.get_watermark_offsets(TopicPartition(*partition), QUERY_TIMEOUT_S)[1]
                for partition in partitions
            }
        except KafkaException as error:
            raise RetryError(str(error)) from error

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in positions.items()])


def _call(call: Callable[[], None], *, otherwise: type[Exception] = MustAbortError) -> None:
    """Make a call and map its exceptions to the roles' errors."""
    try:
        call()
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() in FENCED_CODES:
            raise FencedError(str(error)) from raised
        if error.fatal():
            raise SessionLostError(str(error)) from raised
        if error.txn_requires_abort():
            raise MustAbortError(str(error)) from raised
        if error.retriable():
            raise RetryError(str(error)) from raised
        raise otherwise(str(error)) from raised
