"""Families about the broker as a whole: requests, connections, topics and partitions in total, disk and process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from typing import Final

from fencepost.broker.kernel.version import build_version
from fencepost.broker.metrics.family import (
    Family,
    Kind,
    Sample,
    Samples,
    histogram_samples,
    label_text,
    summary_samples,
)
from fencepost.broker.metrics.histogram import QUANTILES, RecentHistogram
from fencepost.broker.metrics.request_metrics import RequestCounts
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.network.authentication_counts import AuthenticationCounts
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode

LATE_AFTER_TIMEOUT_MS: Final = 300_000
"""A transaction is late if it is older than the longest time-out by this. Source: Kafka's ProducerStateManager."""
RUNNING: Final = 3
"""Source: Kafka's BrokerState."""


def _value(value: Callable[[Scrape], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        yield Sample("", value(scrape))

    return collect


# Requests


def _requests(scrape: Scrape) -> Samples:
    counted = scrape.view.requests.by_version.items()
    for (api, api_version), counts in sorted(counted, key=lambda one: (one[0][0].name, one[0][1])):
        yield Sample(f'request="{api.name}",version="{api_version}"', counts.requests_count)


def _errors(scrape: Scrape) -> Samples:
    for api, counts in scrape.view.requests.by_api().items():
        errors = {**counts.errors, 0: counts.errors[0] + counts.usual_count}
        for code, count in sorted(errors.items()):
            if count:
                yield Sample(f'request="{api}",error="{_error_name(code)}"', count)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _durations(of: Callable[[RequestCounts], RecentHistogram]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        for api, counts in scrape.view.requests.by_api().items():
            yield from summary_samples(f'request="{api}"', of(counts), QUANTILES)

    return collect


# Connections


def _of_listeners(value: Callable[[Scrape, int], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        for index, server in enumerate(scrape.view.servers):
            yield Sample(label_text(("listener",), (server.bound.listener.name,)), value(scrape, index))

    return collect


def _authentications(name: str, help_text: str, count: Callable[[AuthenticationCounts], int]) -> Family:
    return Family(
        f"kafka_server_socketservermetrics_{name}_total",
        COUNTER,
        help_text,
        ("listener",),
        _of_listeners(lambda scrape, index: count(scrape.view.servers[index].authentication_counts)),
    )


# Partitions


def _offline_count(scrape: Scrape) -> Samples:
    count = 0
    for number, log in enumerate(scrape.logs, 1):
        count += log.is_offline
        if number % STEP == 0:
            yield None
    yield Sample("", count)


def _late_count(scrape: Scrape) -> Samples:
    latest_ms = scrape.now_ms - scrape.view.settings.transaction_max_timeout_ms - LATE_AFTER_TIMEOUT_MS
    count = 0
    for number, log in enumerate(scrape.logs, 1):
        if log.has_open_transaction:
            _, producer_id = log.producers.open_transactions()[0]
            producer = log.producer(producer_id)
            count += producer is not None and producer.last_timestamp_ms < latest_ms
        if number % STEP == 0:
            yield None
    yield Sample("", count)


def _brokers_count(scrape: Scrape) -> int:
    return 1 + len(scrape.view.services.topics.placement.other_nodes())


def _partitions_count(scrape: Scrape) -> int:
    return scrape.view.services.topics.metadata.partition_count


# Disk


def _disk(part: str) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        try:
            volume = scrape.view.services.topics.directory.volume()
        except StorageError:
            return
        yield Sample("", getattr(volume, part))

    return collect


def _build_info(_: Scrape) -> Samples:
    yield Sample(label_text(("version",), (build_version(),)), 1)


# Process


def _resident_bytes(_: Scrape) -> Samples:
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:  # not Linux
        return
    yield Sample("", pages * resource.getpagesize())


def _open_descriptors(_: Scrape) -> Samples:
    try:
        yield Sample("", len(os.listdir("/proc/self/fd")) - 1)
    except OSError:
        return


def _loop_delay(scrape: Scrape) -> Samples:
    delays = scrape.view.loop_delay.last_minute
    for quantile, value in (("0.5", delays.median_s), ("0.99", delays.p99_s), ("1", delays.longest_s)):
        yield Sample(f'quantile="{quantile}"', value)


def _constant(value: int) -> Callable[[Scrape], Samples]:
    return _value(lambda _: value)


COUNTER, GAUGE, SUMMARY, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.SUMMARY, Kind.HISTOGRAM

REQUEST_FAMILIES: Final = (
    Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "Requests that were answered.",
        ("request", "version"),
        _requests,
    ),
    Family(
        "kafka_network_requestmetrics_errors_total",
        COUNTER,
        "Error codes in answers, NONE included; an answer about several partitions has one for each.",
        ("request", "error"),
        _errors,
    ),
    Family(
        "kafka_network_requestmetrics_totaltimems",
        SUMMARY,
        "Time from the decoded request to its answer in milliseconds; quantiles of the last one to two minutes.",
        ("request", "quantile"),
        _durations(lambda counts: counts.total),
    ),
    Family(
        "kafka_network_requestmetrics_localtimems",
        SUMMARY,
        "As totaltimems, of the part in which the broker worked on the request without a pause.",
        ("request", "quantile"),
        _durations(lambda counts: counts.local),
    ),
    Family(
        "kafka_network_requestmetrics_remotetimems",
        SUMMARY,
        "As totaltimems, of the part in which the request waited: for the disk, for records, for other members.",
        ("request", "quantile"),
        _durations(lambda counts: counts.remote),
    ),
)

CONNECTION_FAMILIES: Final = (
    Family(
        "kafka_server_socketservermetrics_connection_count",
        GAUGE,
        "Open connections.",
        ("listener",),
        _of_listeners(lambda scrape, index: scrape.view.servers[index].connection_count),
    ),
    Family(
        "kafka_server_socketservermetrics_connection_creation_total",
        COUNTER,
        "Connections that were accepted, also those that were refused afterwards.",
        ("listener",),
        _of_listeners(lambda scrape, index: scrape.view.servers[index].accepted_count),
    ),
    Family(
        "kafka_server_socketservermetrics_connection_creation_rate",
        GAUGE,
        "Connections accepted a second, in the last whole minute.",
        ("listener",),
        _of_listeners(lambda scrape, index: scrape.view.creation_rates.per_s(index)),
    ),
    _authentications(
        "successful_authentication", "Clients that authenticated (SASL).", lambda counts: counts.succeeded
    ),
    _authentications(
        "failed_authentication",
        "Authentications that failed: wrong passwords and tokens, and clients that did not authenticate in time.",
        lambda counts: counts.failed,
    ),
    _authentications(
        "successful_reauthentication",
        "Clients that authenticated again before the end of their session.",
        lambda counts: counts.succeeded_again,
    ),
    _authentications(
        "failed_reauthentication", "Clients that failed to authenticate again.", lambda counts: counts.failed_again
    ),
    Family(
        "kafka_server_socketservermetrics_expired_connections_killed_count",
        GAUGE,
        "Connections that were closed because their client had not authenticated again in time.",
        ("listener",),
        _of_listeners(lambda scrape, index: scrape.view.servers[index].authentication_counts.expired),
    ),
    Family(
        "fencepost_receive_buffer_bytes",
        GAUGE,
        "Memory that is granted for requests above 128 KiB.",
        (),
        _value(lambda scrape: scrape.view.network_memory.request_bytes + scrape.view.network_memory.spare_bytes),
    ),
    Family(
        "fencepost_queued_response_bytes",
        GAUGE,
        "Bytes of replies that wait for clients to read them.",
        (),
        _value(lambda scrape: scrape.view.network_memory.reply_bytes),
    ),
)

CLUSTER_FAMILIES: Final = (
    Family(
        "kafka_brokers",
        GAUGE,
        "Brokers of the cluster.",
        (),
        _value(_brokers_count),
    ),
    Family(
        "kafka_server_replicamanager_partitioncount",
        GAUGE,
        "Partitions of this broker.",
        (),
        _value(lambda scrape: len(scrape.logs)),
    ),
    Family(
        "kafka_server_replicamanager_leadercount",
        GAUGE,
        "Partitions that this broker leads: all that it has.",
        (),
        _value(lambda scrape: len(scrape.logs)),
    ),
    Family(
        "kafka_server_replicamanager_underreplicatedpartitions",
        GAUGE,
        "0: a partition has one copy.",
        (),
        _constant(0),
    ),
    Family(
        "kafka_server_replicamanager_offlinereplicacount",
        GAUGE,
        "Partitions of this broker that are offline after a failed write or a failed recovery.",
        (),
        _offline_count,
    ),
    Family(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        "Partitions with an open transaction whose producer is silent for transaction.max.timeout.ms and 5 minutes.",
        (),
        _late_count,
    ),
    Family("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, "1.", (), _constant(1)),
    Family(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        GAUGE,
        "As kafka_server_replicamanager_offlinereplicacount: an offline partition has no other copy.",
        (),
        _offline_count,
    ),
    Family(
        "kafka_controller_kafkacontroller_globaltopiccount",
        GAUGE,
        "Topics of the cluster.",
        (),
        _value(lambda scrape: len(scrape.view.services.topics.metadata)),
    ),
    Family(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        GAUGE,
        "Partitions of the cluster.",
        (),
        _value(_partitions_count),
    ),
    Family("kafka_server_kafkaserver_brokerstate", GAUGE, "3: running.", (), _constant(RUNNING)),
    Family(
        "fencepost_partitions_offline",
        GAUGE,
        "Partitions of this broker that are offline.",
        (),
        _offline_count,
    ),
    Family(
        "fencepost_partitions_unopened",
        GAUGE,
        "Partitions whose log is not open yet after the start; clients retry.",
        (),
        _value(lambda scrape: len(scrape.view.services.topics.directory.unopened)),
    ),
)

MACHINE_FAMILIES: Final = (
    Family(
        "fencepost_flush_seconds",
        HISTOGRAM,
        "Duration of syncs; one sync makes durable what many partitions have appended.",
        ("le",),
        lambda scrape: histogram_samples("", scrape.view.syncs.durations),
    ),
    Family(
        "fencepost_flushed_bytes_total",
        COUNTER,
        "Bytes of record batches that syncs made durable.",
        (),
        _value(lambda scrape: scrape.view.syncs.synced_bytes),
    ),
    Family(
        "fencepost_flushes_failed_total",
        COUNTER,
        "Syncs that failed; their partitions are offline.",
        (),
        _value(lambda scrape: scrape.view.syncs.failed_count),
    ),
    Family(
        "fencepost_event_loop_delay_seconds",
        SUMMARY,
        "How late the event loop called a timer; median, 99th percentile and maximum of the last minute.",
        ("quantile",),
        _loop_delay,
    ),
    Family("fencepost_disk_bytes", GAUGE, "Size of the file system of the data directory.", (), _disk("total_bytes")),
    Family(
        "fencepost_disk_usable_bytes",
        GAUGE,
        "What the broker may still write to the file system of the data directory.",
        (),
        _disk("usable_bytes"),
    ),
    Family("fencepost_build_info", GAUGE, "1, with the version of the broker.", ("version",), _build_info),
    Family(
        "fencepost_start_time_seconds",
        GAUGE,
        "When the broker was ready, in seconds since 1970.",
        (),
        _value(lambda scrape: scrape.view.started_ms / 1000),
    ),
    Family(
        "process_cpu_seconds_total",
        COUNTER,
        "Processor time of the process, user and system.",
        (),
        _value(lambda _: time.process_time()),
    ),
    Family("process_resident_memory_bytes", GAUGE, "Resident memory of the process.", (), _resident_bytes),
    Family("process_open_fds", GAUGE, "Open file descriptors of the process.", (), _open_descriptors),
    Family(
        "process_max_fds",
        GAUGE,
        "The most file descriptors that the process may have open.",
        (),
        _value(lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ),
)
