"""Routes of the JSON API that only read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.config.setting import SettingType
from fencepost.broker.config.settings import SETTINGS
from fencepost.broker.coordination.runtime import CoordinatorRefusal, partition_for_key
from fencepost.broker.http.exchange import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    json_response,
    natural_number,
    sliced_json_response,
)
from fencepost.broker.http.open_transactions import described_client, described_open, described_transaction
from fencepost.broker.http.transaction_history import history_steps
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.kernel.version import build_version
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.unreadable_log import is_unreadable
from fencepost.broker.metrics.group_lags import CommittedOffset, offsets_of
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.open_transactions import OpenHere, holder_here, open_transactions, stuck_facts
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.state_machine import DISPLAY_NAMES
from fencepost.diagnosis.stuck import explain
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.network.connection import Connection

MOST_SHOWN: Final = 1_000
"""Connections, transactions, open transactions of a partition, segments, partitions: more are counted and not shown."""
LOADING: Final = "the coordinator is loading; try again"


def _limit(request: HttpRequest) -> int:
    limit = request.number("limit")
    return MOST_SHOWN if limit is None else min(limit, 10 * MOST_SHOWN)


# Node


async def node(view: NodeView, _: HttpRequest) -> HttpResponse:
    services = view.services
    now_ms = services.clock.now_ms()
    try:
        disk: dict[str, int] | None = services.topics.directory.volume()._asdict()
    except StorageError:
        disk = None
    return json_response(
        {
            "version": build_version(),
            "node_id": services.node_id,
            "cluster_id": services.cluster_id,
            "started_ms": view.started_ms,
            "uptime_ms": now_ms - view.started_ms,
            "data_directory": view.data_directory,
            "disk": disk,
            "topics_count": len(services.topics.metadata),
            "partitions_count": services.topics.metadata.partition_count,
            "listeners": [_listener(view, index) for index in range(len(view.servers))],
            "settings": {name: _setting(view, name) for name in SETTINGS},
        }
    )


def _listener(view: NodeView, index: int) -> dict[str, Any]:
    server = view.servers[index]
    bound = server.bound
    return {
        "name": bound.listener.name,
        "protocol": bound.listener.protocol.name,
        "host": bound.address.host,
        "port": bound.address.port,
        "advertised_host": bound.advertised.host,
        "advertised_port": bound.advertised.port,
        "connections_count": server.connection_count,
    }


def _setting(view: NodeView, name: str) -> dict[str, Any]:
    """A secret is shown without its value."""
    is_secret = SETTINGS[name].type is SettingType.PASSWORD
    return {
        "value": None if is_secret else view.settings.text(name),
        "is_default": view.settings.is_default(name),
        "is_secret": is_secret,
    }


async def connections(view: NodeView, request: HttpRequest) -> HttpResponse:
    """Open connections of all listeners, those that were opened first come first."""
    limit = min(_limit(request), MOST_SHOWN)
    now_ms, loop_s = view.services.clock.now_ms(), asyncio.get_running_loop().time()
    shown = islice(((server, one) for server in view.servers for one in server.connections), limit)
    return json_response(
        {
            "connections_count": sum(server.connection_count for server in view.servers),
            "connections": [
                _connection(view, server.bound.listener.name, one, now_ms, loop_s) for server, one in shown
            ],
        }
    )


def _connection(view: NodeView, listener: str, connection: Connection, now_ms: int, loop_s: float) -> dict[str, Any]:
    """loop_s: the event loop's time of now_ms; a connection has its times from it."""
    client = view.clients.of_connection(connection)
    return {
        "listener": listener,
        "address": connection.client_host,
        "port": connection.client_port,
        "principal": connection.principal,
        "client_id": None if client is None else client.client_id,
        "software_name": None if client is None else client.software[0],
        "software_version": None if client is None else client.software[1],
        "opened_ms": now_ms - round((loop_s - connection.accepted_s) * 1000),
        "last_activity_ms": now_ms - round((loop_s - connection.last_activity_s) * 1000),
        "in_flight": connection.in_flight_count,
        "client_metrics_count": view.services.client_metrics.series_count(connection),
    }


# Partitions


def find_open_log(view: NodeView, topic: str, partition_text: str) -> PartitionLog:
    """The log of a partition that is led here. Raises BadRequestError."""
    partition = natural_number("the partition", partition_text)
    metadata = view.services.topics.metadata.get(topic)
    if metadata is None or partition >= metadata.partition_count:
        raise BadRequestError(f"there is no partition {topic[:300]}-{partition}", 404)
    log = view.services.topics.log(TopicPartition(topic, partition))
    if log is None:
        raise BadRequestError(f"{topic}-{partition} is led by another node, or its log is not open yet", 503)
    return log


async def partition(view: NodeView, request: HttpRequest) -> HttpResponse:
    log = find_open_log(view, request.path[2], request.path[3])
    scrape = Scrape(view)

    def steps() -> SlicedWork[dict[str, Any]]:
        undecided = yield from scrape.undecided()
        held_by = open_transactions(view, log, undecided, scrape.now_ms)
        segments = [] if is_unreadable(log.segments.first) else list(log.segments)
        return {
            **_offsets(log),
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "leader_epoch": log.leader_epoch,
            "size_bytes": None if not segments else log.size_bytes,
            "offline_reason": log.offline_reason,
            "segments_count": len(segments),
            "segments": [
                {"base_offset": segment.base_offset, "size_bytes": segment.size_bytes}
                for segment in segments[-MOST_SHOWN:]
            ],
            "open_transactions_count": len(held_by),
            "open_transactions": [described_open(view, one, scrape.now_ms) for one in held_by[:MOST_SHOWN]],
            "explanation": _explanation(view, log, held_by, scrape.now_ms),
        }

    return sliced_json_response(steps())


def _offsets(log: PartitionLog) -> dict[str, Any]:
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset_lag": log.high_watermark - log.last_stable_offset,
    }


def _explanation(view: NodeView, log: PartitionLog, held_by: Sequence[OpenHere], now_ms: int) -> str | None:
    if log.high_watermark == log.last_stable_offset and not log.is_offline:
        return None
    return explain(stuck_facts(view, log, held_by, now_ms)).sentence


async def stuck(view: NodeView, request: HttpRequest) -> HttpResponse:
    """All partitions whose last stable offset is below the high watermark, the oldest first."""
    scrape, limit = Scrape(view), _limit(request)

    def steps() -> SlicedWork[dict[str, Any]]:
        undecided = yield from scrape.undecided()
        found: list[tuple[int, PartitionLog, list[OpenHere]]] = []
        for count, log in enumerate(scrape.logs, 1):
            if log.last_stable_offset < log.high_watermark:
                first = open_transactions(view, log, undecided, scrape.now_ms)[:1]
                holder = holder_here(log, first)
                began_ms = scrape.now_ms if holder is None or holder.began_ms is None else holder.began_ms
                found.append((began_ms, log, first))
                yield
            elif count % STEP == 0:
                yield
        found.sort(key=lambda one: (one[0], one[1].topic_partition))
        shown = found[:limit]
        waiting = yield from _waiting_groups(scrape, {log.topic_partition for _, log, _ in shown})
        partitions = []
        for _, log, first in shown:
            holder, explanation = holder_here(log, first), explain(stuck_facts(view, log, first, scrape.now_ms))
            partitions.append(
                {
                    **_offsets(log),
                    "cause": explanation.cause.value,
                    "explanation": explanation.sentence,
                    "advice": [sentence for _, sentence in explanation.advice],
                    "held_by": None if holder is None else described_open(view, holder, scrape.now_ms),
                    "waiting_groups": waiting.get(log.topic_partition, []),
                }
            )
            yield
        return {"now_ms": scrape.now_ms, "stuck_count": len(found), "stuck": partitions}

    return sliced_json_response(steps())


def _waiting_groups(
    scrape: Scrape, wanted: set[TopicPartition]
) -> SlicedWork[Mapping[TopicPartition, list[dict[str, Any]]]]:
    """The groups that have committed an offset of these partitions, with the lag of each."""
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    if wanted:
        committed = [one for one in (yield from scrape.committed()) if one.topic_partition in wanted]
        for lag in (yield from scrape.view.group_lags.read_some(committed, scrape.now_ms)):
            one = lag.committed
            found.setdefault(one.topic_partition, []).append(
                {
                    "group_id": one.group_id,
                    "committed": one.offset,
                    "deliverable": lag.lag.deliverable,
                    "blocked": lag.lag.blocked,
                }
            )
    return found


# Producers


async def producer(view: NodeView, request: HttpRequest) -> HttpResponse:
    producer_id = natural_number("the producer id", request.path[2])
    scrape = Scrape(view)

    def steps() -> SlicedWork[dict[str, Any]]:
        found: TransactionMetadata | None = None
        for count, one in enumerate((yield from scrape.transactions()), 1):
            if producer_id in (one.producer_id, one.client.producer_id):
                found = one
            if count % STEP == 0:
                yield
        client = described_client(view, producer_id)
        return {
            "producer_id": producer_id,
            "transaction": None if found is None else described_transaction(found, scrape.now_ms),
            "client": client,
            "clients_known_since_ms": view.started_ms,
        }

    return sliced_json_response(steps())


# Transactions


async def transactions(view: NodeView, request: HttpRequest) -> HttpResponse:
    """The transactions in the given states, and older than a number of seconds; the oldest first."""
    names = request.query.get("state", ())
    unknown = [name for name in names if name not in DISPLAY_NAMES]
    if unknown:
        raise BadRequestError(
            f"there is no state {unknown[0][:100]!r}; the states are {', '.join(sorted(DISPLAY_NAMES))}"
        )
    older_than_s, limit = request.number("older_than"), _limit(request)
    scrape = Scrape(view)

    def steps() -> SlicedWork[dict[str, Any]]:
        found = []
        for count, one in enumerate((yield from scrape.transactions()), 1):
            is_old = older_than_s is None or (
                (one.state.is_open or one.state.is_prepared) and scrape.now_ms - one.start_ms > older_than_s * 1000
            )
            if is_old and (not names or one.state.display_name in names):
                found.append(one)
            if count % STEP == 0:
                yield
        found.sort(key=_oldest_first)
        shown = []
        for one in found[:limit]:
            shown.append(described_transaction(one, scrape.now_ms))
            if len(shown) % STEP == 0:
                yield
        return {
            "now_ms": scrape.now_ms,
            "is_loading": view.services.transactions.is_loading,
            "offline_partitions": view.services.transactions.offline_partitions,
            "transactions_count": len(found),
            "transactions": shown,
        }

    return sliced_json_response(steps())


def _oldest_first(one: TransactionMetadata) -> tuple[bool, int, str]:
    """Undecided ones by their start; behind them the others, the one that changed last first."""
    is_undecided = one.state.is_open or one.state.is_prepared
    return not is_undecided, one.start_ms if is_undecided else -one.last_update_ms, one.transactional_id


def find_transaction(view: NodeView, transactional_id: str) -> TransactionMetadata:
    """A transaction by its id. Raises BadRequestError."""
    found = view.services.transactions.find(transactional_id)
    if not isinstance(found, ErrorCode):
        return found
    if found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        raise BadRequestError(LOADING, 503)
    if found is ErrorCode.NOT_COORDINATOR and view.services.transactions.is_available:
        raise BadRequestError("the coordinator of this id is offline, or another node", 503)
    raise BadRequestError(f"there is no transactional id {transactional_id[:300]!r}", 404)


async def transaction(view: NodeView, request: HttpRequest) -> HttpResponse:
    found = find_transaction(view, request.path[2])
    now_ms = view.services.clock.now_ms()
    directory = view.services.topics.directory
    partitions = []
    for topic_partition in sorted(found.partitions)[:MOST_SHOWN]:
        log = directory.get(topic_partition)
        first_offset = None
        if log is not None:
            state = log.producer(found.producer_id)
            if state is not None and state.current_transaction_first_offset >= 0:
                first_offset = state.current_transaction_first_offset
        partitions.append(
            {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "first_offset": first_offset,
                "is_open_here": first_offset is not None,
                "offsets_behind": None if log is None or first_offset is None else log.high_watermark - first_offset,
            }
        )
    return json_response(
        {
            **described_transaction(found, now_ms),
            "partitions": partitions,
            "client": described_client(view, found.client.producer_id) or described_client(view, found.producer_id),
        }
    )


async def history(view: NodeView, request: HttpRequest) -> HttpResponse:
    """The records of a transactional id that are left in `__transaction_state`, the earliest first."""
    transactional_id = request.path[2]
    metadata = view.services.topics.metadata.get(TRANSACTION_STATE_TOPIC)
    if metadata is None:
        raise BadRequestError(f"there is no transactional id {transactional_id[:300]!r}", 404)
    index = partition_for_key(transactional_id, metadata.partition_count)
    log = find_open_log(view, TRANSACTION_STATE_TOPIC, str(index))
    return sliced_json_response(history_steps(log, transactional_id))


# Groups


async def group_lag(view: NodeView, request: HttpRequest) -> HttpResponse:
    group_id = request.path[2]
    try:
        group = view.services.groups.summary(group_id)
    except CoordinatorRefusal as refusal:
        is_loading = refusal.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if is_loading or view.services.groups.is_available:
            raise BadRequestError(LOADING if is_loading else "the group's coordinator is not here", 503) from None
        group = None
    if group is None:
        raise BadRequestError(f"there is no group {group_id[:300]!r}", 404)
    scrape = Scrape(view)

    def steps() -> SlicedWork[dict[str, Any]]:
        undecided = yield from scrape.undecided()
        committed = []
        for topic_partition, value in sorted(group.committed.items()):
            log = view.services.topics.directory.get(topic_partition)
            if log is not None and not log.is_offline:
                committed.append(CommittedOffset(group_id, topic_partition, value.offset, log, offsets_of(log)))
        partitions = []
        for found in (yield from view.group_lags.read_some(committed, scrape.now_ms)):
            one, lag, log = found.committed, found.lag, found.committed.log
            held_by = open_transactions(view, log, undecided, scrape.now_ms)[:1] if lag.blocked else []
            holder = holder_here(log, held_by)
            partitions.append(
                {
                    "topic": one.topic_partition.topic,
                    "partition": one.topic_partition.partition,
                    "committed": one.offset,
                    "last_stable_offset": one.offsets.last_stable_offset,
                    "high_watermark": one.offsets.high_watermark,
                    "lag": lag.end,
                    "lag_read_committed": lag.deliverable,
                    "blocked": lag.blocked,
                    "lag_seconds": found.seconds,
                    "blocked_by": None if holder is None else described_open(view, holder, scrape.now_ms),
                }
            )
            yield
        return {
            "group_id": group_id,
            "kind": group.kind,
            "state": group.state,
            "members_count": group.members_count,
            "partitions": partitions,
        }

    return sliced_json_response(steps())
