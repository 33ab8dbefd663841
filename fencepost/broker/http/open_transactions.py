"""Why a last stable offset does not move: the open transaction that holds it, its coordinator's view, its client."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from fencepost.broker.log.log_types import ActiveProducer
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.topic_families import began
from fencepost.broker.transaction.metadata import TWO_PHASE_COMMIT_TIMEOUT_MS, TransactionMetadata


class Cause(Enum):
    """What holds a last stable offset."""

    OPEN = "open"
    LATE = "late"
    TWO_PHASE = "two_phase"
    COMPLETING = "completing"
    HANGING = "hanging"
    COORDINATOR_UNKNOWN = "coordinator_unknown"
    NOT_DURABLE = "not_durable"


class OpenTransaction(NamedTuple):
    """One open transaction of a partition. transaction: as its coordinator knows it; None if none here does."""

    first_offset: int
    producer_id: int
    producer: ActiveProducer | None
    transaction: TransactionMetadata | None
    cause: Cause
    began_ms: int | None


def open_transactions(
    view: NodeView, log: PartitionLog, undecided: Mapping[int, TransactionMetadata], now_ms: int
) -> list[OpenTransaction]:
    """The open transactions of a partition, the earliest first. undecided: those of the coordinator, by producer id."""
    found = []
    for first_offset, producer_id in log.producers.open_transactions():
        known = undecided.get(producer_id)
        if known is not None and log.topic_partition not in known.partitions:
            known = None
        found.append(
            OpenTransaction(
                first_offset,
                producer_id,
                log.producer(producer_id),
                known,
                _cause(view, known, now_ms),
                began(log, first_offset, known),
            )
        )
    return found


def _cause(view: NodeView, known: TransactionMetadata | None, now_ms: int) -> Cause:
    transactions = view.services.transactions
    if known is None:
        is_all_known = not (
            transactions.is_loading or transactions.offline_partitions or view.services.topics.placement.other_nodes()
        )
        return Cause.HANGING if is_all_known else Cause.COORDINATOR_UNKNOWN
    if known.state.is_prepared:
        return Cause.COMPLETING
    if known.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return Cause.TWO_PHASE
    return Cause.LATE if now_ms > known.start_ms + known.timeout_ms else Cause.OPEN


def explained(log: PartitionLog, held_by: OpenTransaction | None, now_ms: int) -> str:
    """One sentence for people: where read_committed readers stop, and until when."""
    where = f"{log.topic_partition}: read_committed readers stop at offset {log.last_stable_offset}"
    waiting = f"{log.high_watermark - log.last_stable_offset} offsets wait behind it"
    if held_by is None:
        return f"{where}; {waiting} until a flush makes the end of a transaction durable."
    producer = f"producer {held_by.producer_id}"
    known = held_by.transaction
    if known is None:
        if held_by.cause is Cause.HANGING:
            return f"{where}; {waiting}, and no coordinator knows the transaction of {producer}: it hangs."
        return f"{where}; {waiting}, and the coordinator of {producer} is not known here: it loads, or is elsewhere."
    name = f"the transaction of {known.transactional_id!r} ({producer})"
    if held_by.cause is Cause.COMPLETING:
        return f"{where}; {waiting} until the marker of {name}, which is decided, is written."
    if held_by.cause is Cause.TWO_PHASE:
        return f"{where}; {waiting} until somebody decides {name}, which has no time-out."
    left_ms = known.start_ms + known.timeout_ms - now_ms
    if held_by.cause is Cause.LATE:
        return f"{where}; {waiting}, and {name} is over its time-out by {-left_ms} ms: it is about to be aborted."
    return f"{where}; {waiting} until {name} ends, at the latest in {left_ms} ms."


# As JSON


def described_open(view: NodeView, one: OpenTransaction, now_ms: int) -> dict[str, Any]:
    producer = one.producer
    return {
        "first_offset": one.first_offset,
        "cause": one.cause.value,
        "began_ms": one.began_ms,
        "age_ms": None if one.began_ms is None else max(0, now_ms - one.began_ms),
        "producer_id": one.producer_id,
        "producer_epoch": None if producer is None else producer.producer_epoch,
        "coordinator_epoch": None if producer is None else producer.coordinator_epoch,
        "last_write_ms": None if producer is None else producer.last_timestamp_ms,
        "transaction": None if one.transaction is None else described_transaction(one.transaction, now_ms),
        "client": described_client(view, one.producer_id),
    }


def described_transaction(one: TransactionMetadata, now_ms: int) -> dict[str, Any]:
    is_undecided = one.state.is_open or one.state.is_prepared
    is_two_phase = one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
    has_deadline = one.state.is_open and not is_two_phase
    return {
        "transactional_id": one.transactional_id,
        "state": one.state.display_name,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "is_two_phase": is_two_phase,
        "start_ms": one.start_ms if one.start_ms >= 0 else None,
        "age_ms": max(0, now_ms - one.start_ms) if is_undecided and one.start_ms >= 0 else None,
        "deadline_ms": one.start_ms + one.timeout_ms if has_deadline else None,
        "last_update_ms": one.last_update_ms,
        "partitions_count": len(one.partitions),
    }


def described_client(view: NodeView, producer_id: int) -> dict[str, Any] | None:
    """The client behind a producer id; None if it was not seen since the start of the broker."""
    producer = view.clients.get(producer_id)
    if producer is None:
        return None
    client = producer.client
    name, version = client.software
    return {
        "address": client.host,
        "port": client.port,
        "client_id": producer.client_id,
        "software_name": name or None,
        "software_version": version or None,
        "principal": producer.principal,
        "is_connected": client.connection is not None,
        "first_seen_ms": producer.first_seen_ms,
        "last_seen_ms": view.clients.last_seen_ms(producer),
    }
