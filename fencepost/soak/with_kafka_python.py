"""Adapter of kafka-python 3 to the soak's roles: transactions of version 1.

Its transaction calls raise a plain KafkaError about "an error state" for any earlier error; the text has the cause.
Bugs of kafka-python 3.0.12 that the soak works around, each named at its workaround:
LOST REQUEST, STALE OFFSETS, NAMELESS MEMBER, EMPTY COMMIT, LOST ASSIGNMENT, RAISING POLL, OLD POSITION.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

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

FLUSH_TIMEOUT_S = 10
RECONNECTING = {"reconnect_backoff_max_ms": 1_000, "request_timeout_ms": 15_000, "bootstrap_timeout_ms": 40_000}
# LOST REQUEST: if the coordinator refuses a connection at the wrong moment, Sender._maybe_send_pending_request drops
# the request that it was about to send (await_ready raises, and target_node is not None any more), and the caller
# waits for ever. So calls time out after this many seconds, and the session ends with them.
CALL_TIMEOUT_S = 20
# LOST ASSIGNMENT: a poll that ends during a join loses the assignment, which is neither
# applied nor kept alive with heartbeats. So a member's polls are longer than it takes to do without one that is gone.
MEMBER_POLL_S = SESSION_TIMEOUT_MS / 1000 + 3
FENCED_WORDS = ("ProducerFencedError", "PRODUCER_FENCED", "InvalidProducerEpochError", "INVALID_PRODUCER_EPOCH")


class KafkaPython:
    """Makes producers and consumers for this broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return Producer(
            KafkaProducer(
                bootstrap_servers=self._bootstrap_servers,
                transactional_id=transactional_id,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                max_block_ms=20_000,
                delivery_timeout_ms=30_000,
                **RECONNECTING,
            )
        )

    def group_consumer(self, topic: str, group: str, assigned: Assigned) -> GroupConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            **RECONNECTING,
        )
        return Member(consumer, topic, assigned)

    def verifier(self) -> Verifier:
        return AssignedReader(
            KafkaConsumer(
                bootstrap_servers=self._bootstrap_servers,
                group_id=None,
                auto_offset_reset="none",
                enable_auto_commit=False,
                isolation_level="read_committed",
                **RECONNECTING,
            )
        )


class Producer:
    """STALE OFFSETS: after a failed `send_offsets` a new producer is made, because this one keeps the offsets of the
    aborted transaction among those it is about to send, and would commit them with its next transaction:
    TransactionManager._pending_txn_offset_commits is not cleared by an abort.

    NAMELESS MEMBER: a consumer that has lost its membership forgets its member id. Its metadata then is that of a
    consumer without a group, whose transactional offsets every broker accepts. So the outdated offsets of such a
    member are not sent.

    EMPTY COMMIT: when the broker refuses a batch for its epoch, because the transaction has timed out, the producer
    gets a new epoch by itself and forgets the transaction (TransactionManager.bump_producer_id_and_epoch); the next
    commit has nothing to commit and succeeds, even if records had been acknowledged. So a commit does not count if a
    record of the transaction has failed.
    """

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._has_stale_offsets = False
        self._has_failed_records = False

    def initialize(self) -> None:
        try:
            self._producer.init_transactions()
        except KafkaTimeoutError as error:
            raise RetryError(repr(error)) from error
        except KafkaError as error:
            raise _sorted(error) from error

    def begin(self) -> None:
        if self._has_stale_offsets:
            raise SessionLostError("this producer remembers the offsets of an aborted transaction")
        self._has_failed_records = False
        try:
            self._producer.begin_transaction()
        except KafkaError as error:
            raise _sorted(error, otherwise=SessionLostError) from error

    def send(self, partition: Partition, value: str, delivered: Delivered) -> None:
        try:
            future = self._producer.send(partition.topic, value=value.encode(), partition=partition.number)
        except KafkaError as error:
            raise _sorted(error) from error
        future.add_callback(lambda metadata: delivered(metadata.offset, None))
        future.add_errback(lambda error: self._failed(error, delivered))

    def _failed(self, error: BaseException, delivered: Delivered) -> None:
        self._has_failed_records = True
        delivered(None, repr(error))

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: GroupConsumer) -> None:
        assert isinstance(consumer, Member)
        positions = {_of(partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        metadata = consumer.group_metadata()
        if metadata.generation_id < 0:
            raise MustAbortError("the consumer has fallen out of its group")
        try:
            _within_time(lambda: self._producer.send_offsets_to_transaction(positions, metadata))
        except KafkaError as error:
            self._has_stale_offsets = True
            raise _sorted(error) from error

    def flush(self) -> None:
        try:
            self._producer.flush(FLUSH_TIMEOUT_S)
        except KafkaError as error:
            raise _sorted(error) from error

    def commit(self) -> None:
        try:
            _within_time(self._producer.commit_transaction)
        except KafkaError as error:
            raise _sorted(error) from error
        if self._has_failed_records:
            raise SessionLostError("a commit that succeeded although records of the transaction had failed")

    def abort(self) -> None:
        try:
            _within_time(self._producer.abort_transaction)
        except KafkaError as error:
            raise _sorted(error, otherwise=SessionLostError) from error

    def close(self) -> None:
        self._producer.close(timeout=5)


class Reader:
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float, records_limit: int) -> list[ReadRecord]:
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000), max_records=records_limit)
        except KafkaConnectionError:
            # RAISING POLL: a member that looks for its coordinator while the broker is down raises, and can go on.
            time.sleep(0.2)
            return []
        return [
            ReadRecord(Partition(partition.topic, partition.partition), record.offset, record.value.decode())
            for partition, records in polled.items()
            for record in records
        ]

    def close(self) -> None:
        self._consumer.close(timeout_ms=5_000)


class Member(Reader):
    """A member of a group; `assigned` is called after every rebalance.

    OLD POSITION: a member that joins without knowing that its session has timed out keeps its position in each
    partition that it gets again (SubscriptionState._apply_assignment), though others have committed beyond it since.
    So it gives up its positions before each rebalance, as Kafka's Java client does; the next ones are the committed.
    """

    def __init__(self, consumer: KafkaConsumer, topic: str, assigned: Assigned) -> None:
        super().__init__(consumer)

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library comes without types
            def on_partitions_revoked(self, revoked: Any) -> None:
                consumer._subscription.assign_from_subscribed([])  # noqa: SLF001

            def on_partitions_assigned(self, given: Any) -> None:
                assigned([(Partition(one.topic, one.partition), None) for one in given])

        consumer.subscribe([topic], listener=Listener())

    def poll(self, timeout_s: float, records_limit: int) -> list[ReadRecord]:
        return super().poll(MEMBER_POLL_S, records_limit)

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def rewind(self, positions: Mapping[Partition, int]) -> list[tuple[Partition, int]]:
        assignment = self._consumer.assignment()
        rewound = [(partition, offset) for partition, offset in positions.items() if _of(partition) in assignment]
        for partition, offset in rewound:
            self._consumer.seek(_of(partition), offset)
        return rewound


class AssignedReader(Reader):
    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        try:
            offsets = self._consumer.end_offsets([_of(partition) for partition in partitions])
        except KafkaError as error:
            raise RetryError(repr(error)) from error
        return {partition: offsets[_of(partition)] for partition in partitions}

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._consumer.assign([_of(partition) for partition in positions])
        for partition, offset in positions.items():
            self._consumer.seek(_of(partition), offset)


def _of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)


def _within_time(call: Callable[[], None]) -> None:
    """Make a call that may never return. Raises its error, or SessionLostError."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # passed to the waiting thread
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # Second by second: time while this process is frozen must not count.
    for _ in range(CALL_TIMEOUT_S):
        thread.join(1)
        if outcome:
            break
    else:
        raise SessionLostError(f"no result in {CALL_TIMEOUT_S} s: the request is lost")
    (error,) = outcome
    if error is not None:
        raise error


def _sorted(error: KafkaError, *, otherwise: type[Exception] = MustAbortError) -> Exception:
    """Map an exception to the roles' errors; `abort` finds out whether the producer is still usable."""
    text = repr(error)
    if any(word in text for word in FENCED_WORDS):
        return FencedError(text)
    return otherwise(text)
