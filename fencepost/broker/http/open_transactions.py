"""Open transactions of partitions, their coordinators' views and their clients, as JSON."""

from __future__ import annotations

from typing import Any

from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.open_transactions import OpenHere, coordinator_view
from fencepost.broker.transaction.metadata import TransactionMetadata


def described_open(view: NodeView, one: OpenHere, now_ms: int) -> dict[str, Any]:
    producer = one.producer
    return {
        "first_offset": one.opened.first_offset,
        "cause": one.cause.value,
        "began_ms": one.began_ms,
        "age_ms": None if one.began_ms is None else max(0, now_ms - one.began_ms),
        "producer_id": one.opened.producer_id,
        "producer_epoch": None if producer is None else producer.producer_epoch,
        "coordinator_epoch": None if producer is None else producer.coordinator_epoch,
        "last_write_ms": None if producer is None else producer.last_timestamp_ms,
        "transaction": None if one.transaction is None else described_transaction(one.transaction, now_ms),
        "client": described_client(view, one.opened.producer_id),
    }


def described_transaction(one: TransactionMetadata, now_ms: int) -> dict[str, Any]:
    is_undecided = one.state.is_open or one.state.is_prepared
    seen = coordinator_view(one)
    return {
        "transactional_id": one.transactional_id,
        "state": one.state.display_name,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "is_two_phase": seen.is_two_phase,
        "start_ms": one.start_ms if one.start_ms >= 0 else None,
        "age_ms": max(0, now_ms - one.start_ms) if is_undecided and one.start_ms >= 0 else None,
        "deadline_ms": seen.deadline_ms,
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
