"""The facts about open transactions of the partitions that are led here: as the logs and this coordinator have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.broker.log.log_types import ActiveProducer
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.diagnosis.stuck import Cause, CoordinatorView, Facts, OpenTransaction, began_ms, cause_of, holder_of


class OpenHere(NamedTuple):
    """One open transaction of a partition. transaction: as its coordinator knows it; None if none here does."""

    opened: OpenTransaction
    producer: ActiveProducer | None
    transaction: TransactionMetadata | None
    cause: Cause
    began_ms: int | None


def open_transactions(
    view: NodeView, log: PartitionLog, undecided: Mapping[int, TransactionMetadata], now_ms: int
) -> list[OpenHere]:
    """The open transactions of a partition, the earliest first. undecided: those of the coordinator, by producer id."""
    error = coordinator_error(view)
    found = []
    for first_offset, producer_id in log.producers.open_transactions():
        known = _known(log, producer_id, undecided)
        coordinator = None if known is None else coordinator_view(known)
        producer, opened = _opened(log, first_offset, producer_id, coordinator)
        cause = cause_of(opened, log.topic_partition, coordinator, error, now_ms)
        found.append(OpenHere(opened, producer, known, cause, began_ms(opened, log.topic_partition, coordinator)))
    return found


def first_began_ms(log: PartitionLog, undecided: Mapping[int, TransactionMetadata]) -> int | None:
    """The time when the earliest open transaction of a partition began; None without one, or if it is unknown."""
    if not log.has_open_transaction:
        return None
    first_offset, producer_id = log.producers.open_transactions()[0]
    known = _known(log, producer_id, undecided)
    coordinator = None if known is None else coordinator_view(known)
    _, opened = _opened(log, first_offset, producer_id, coordinator)
    return began_ms(opened, log.topic_partition, coordinator)


def stuck_facts(view: NodeView, log: PartitionLog, found: Sequence[OpenHere], now_ms: int) -> Facts:
    """Facts for the diagnosis of a stuck partition. found: its open transactions, of which the earliest is enough."""
    topic, partition = log.topic_partition
    holder = found[0].transaction if found else None
    return Facts(
        topic,
        partition,
        now_ms,
        log.log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        partition_error=log.offline_reason,
        open=[one.opened for one in found],
        coordinator=None if holder is None else coordinator_view(holder),
        coordinator_error=coordinator_error(view),
    )


def holder_here(log: PartitionLog, found: Sequence[OpenHere]) -> OpenHere | None:
    """The transaction that holds the last stable offset; None if only the end of one is not durable yet."""
    is_held = holder_of([one.opened for one in found[:1]], log.last_stable_offset) is not None
    return found[0] if is_held else None


def coordinator_view(one: TransactionMetadata) -> CoordinatorView:
    return CoordinatorView(
        one.transactional_id,
        one.state.display_name,
        one.producer_id,
        one.producer_epoch,
        one.timeout_ms,
        one.start_ms,
        one.partitions,
    )


def coordinator_error(view: NodeView) -> str | None:
    """The reason why another node or a later load may know a transaction that is unknown here; None if none may."""
    transactions = view.services.transactions
    if transactions.is_loading:
        return "it loads"
    if transactions.offline_partitions:
        return "partitions of __transaction_state are offline"
    return "it may be on another node" if view.services.topics.placement.other_nodes() else None


def _known(
    log: PartitionLog, producer_id: int, undecided: Mapping[int, TransactionMetadata]
) -> TransactionMetadata | None:
    known = undecided.get(producer_id)
    return known if known is not None and log.topic_partition in known.partitions else None


def _opened(
    log: PartitionLog, first_offset: int, producer_id: int, coordinator: CoordinatorView | None
) -> tuple[ActiveProducer | None, OpenTransaction]:
    producer = log.producer(producer_id)
    # Reads the disk, so only if the coordinator does not have the time in memory.
    first_ms = _time_at(log, first_offset) if coordinator is None or coordinator.started_ms < 0 else -1
    if producer is None:
        return None, OpenTransaction(producer_id, -1, first_offset, -1, -1, first_ms)
    epoch, last_ms = producer.producer_epoch, producer.last_timestamp_ms
    return producer, OpenTransaction(producer_id, epoch, first_offset, last_ms, producer.coordinator_epoch, first_ms)


def _time_at(log: PartitionLog, offset: int) -> int:
    try:
        header = log.header_at(offset)
    except (StorageError, DamagedLogError):
        return -1
    return -1 if header is None else header.max_timestamp_ms
