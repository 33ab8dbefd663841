"""Families about topics and partitions."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final

from fencepost.broker.kernel.sliced_work import largest
from fencepost.broker.log.log_types import LogTraffic
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.unreadable_log import is_unreadable
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, escaped
from fencepost.broker.metrics.group_lags import LogOffsets
from fencepost.broker.metrics.open_transactions import first_began_ms
from fencepost.broker.metrics.scrape import STEP, Scrape

COUNTER, GAUGE = Kind.COUNTER, Kind.GAUGE


def _traffic(value: Callable[[LogTraffic], int]) -> Callable[[Scrape], Samples]:
    """One sample for each topic, and one without a label for all, deleted ones included."""

    def collect(scrape: Scrape) -> Samples:
        by_topic = yield from scrape.traffic()
        total = value(scrape.view.departed.total)
        for count, (topic, traffic) in enumerate(by_topic.items(), 1):
            one = value(traffic)
            total += one
            yield Sample(f'topic="{escaped(topic)}"', one)
            if count % STEP == 0:
                yield None
        yield Sample("", total)

    return collect


def _produce_requests(scrape: Scrape) -> Samples:
    total = 0
    metadata = scrape.view.services.topics.metadata
    by_topic: dict[str, int] = {}
    for name, count in scrape.view.requests.produced.items():
        total += count
        topic = metadata.get(name) if isinstance(name, str) else metadata.get_by_id(name)
        if topic is not None:
            by_topic[topic.name] = by_topic.get(topic.name, 0) + count
    for topic_name, count in by_topic.items():
        yield Sample(f'topic="{escaped(topic_name)}"', count)
    yield Sample("", total + scrape.view.requests.produced_before)


def _of_logs(value: Callable[[PartitionLog], float | None]) -> Callable[[Scrape], Samples]:
    """One sample for each partition; none for those without a value."""

    def collect(scrape: Scrape) -> Samples:
        for count, log in enumerate(scrape.logs, 1):
            one = value(log)
            if one is not None:
                yield Sample(partition_labels(log), one)
            if count % STEP == 0:
                yield None

    return collect


def _of_offsets(value: Callable[[LogOffsets], int]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        for count, (log, offsets) in enumerate((yield from scrape.offsets()).items(), 1):
            yield Sample(partition_labels(log), value(offsets))
            if count % STEP == 0:
                yield None

    return collect


def _last_stable_offset_lags(scrape: Scrape) -> Samples:
    lags = []
    for count, (log, offsets) in enumerate((yield from scrape.offsets()).items(), 1):
        lag = offsets.high_watermark - offsets.last_stable_offset
        if lag or not scrape.has_too_many_partitions:
            lags.append((log, lag))
        if count % STEP == 0:
            yield None
    for count, (log, lag) in enumerate((yield from largest(scrape.most_partitions, lags, itemgetter(1))), 1):
        yield Sample(partition_labels(log), lag)
        if count % STEP == 0:
            yield None


def partition_labels(log: PartitionLog) -> str:
    topic, partition = log.topic_partition
    return f'topic="{topic}",partition="{partition}"'


def _size(log: PartitionLog) -> int | None:
    return None if is_unreadable(log.segments.first) else log.size_bytes


def _partition_counts(scrape: Scrape) -> Samples:
    for count, topic in enumerate(scrape.view.services.topics.metadata.all(), 1):
        yield Sample(f'topic="{escaped(topic.name)}"', topic.partition_count)
        if count % STEP == 0:
            yield None


def _oldest_open_ages(scrape: Scrape) -> Samples:
    undecided = yield from scrape.undecided()
    for count, log in enumerate(scrape.logs, 1):
        began_ms = first_began_ms(log, undecided)
        if began_ms is not None:
            yield Sample(partition_labels(log), max(0, scrape.now_ms - began_ms) / 1000)
        if count % STEP == 0:
            yield None


TRAFFIC_FAMILIES: Final = (
    Family(
        "kafka_server_brokertopicmetrics_messagesin_total",
        COUNTER,
        "Records and markers that were appended.",
        ("topic",),
        _traffic(lambda traffic: traffic.appended_count),
    ),
    Family(
        "kafka_server_brokertopicmetrics_bytesin_total",
        COUNTER,
        "Bytes of record batches that were appended, as they lie on disk.",
        ("topic",),
        _traffic(lambda traffic: traffic.appended_bytes),
    ),
    Family(
        "kafka_server_brokertopicmetrics_bytesout_total",
        COUNTER,
        "Bytes of record batches that were sent to consumers.",
        ("topic",),
        _traffic(lambda traffic: traffic.fetched_bytes),
    ),
    Family(
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        COUNTER,
        "Produce requests; one counts for each partition that it names.",
        ("topic",),
        _produce_requests,
    ),
    Family(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        COUNTER,
        "Answered Fetch requests; one counts for each partition of its session.",
        ("topic",),
        _traffic(lambda traffic: traffic.fetches_count),
    ),
    Family(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        COUNTER,
        "Batches that were refused.",
        ("topic",),
        _traffic(lambda traffic: traffic.refused_count),
    ),
    Family(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        COUNTER,
        "Fetches of a partition that were refused: for an offset out of range, or a partition that is offline.",
        ("topic",),
        _traffic(lambda traffic: traffic.failed_fetches_count),
    ),
    Family(
        "kafka_server_brokertopicmetrics_bytesrejected_total",
        COUNTER,
        "Bytes of batches that were refused because they are too large.",
        ("topic",),
        _traffic(lambda traffic: traffic.rejected_bytes),
    ),
    Family(
        "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total",
        COUNTER,
        "Batches that were refused as corrupt, a wrong checksum among the reasons.",
        ("topic",),
        _traffic(lambda traffic: traffic.corrupt_batches_count),
    ),
    Family("kafka_topic_partitions", GAUGE, "Partitions of a topic.", ("topic",), _partition_counts),
)

PARTITION = ("topic", "partition")
PARTITION_FAMILIES: Final = (
    Family("kafka_log_log_size", GAUGE, "Bytes of the partition's segments.", PARTITION, _of_logs(_size), True),
    Family(
        "kafka_log_log_logstartoffset",
        GAUGE,
        "Offset of the first record that may be read.",
        PARTITION,
        _of_offsets(lambda offsets: offsets.log_start_offset),
        True,
    ),
    Family(
        "kafka_log_log_logendoffset",
        GAUGE,
        "Offset that the next record will get.",
        PARTITION,
        _of_offsets(lambda offsets: offsets.log_end_offset),
        True,
    ),
    Family(
        "kafka_log_log_numlogsegments", GAUGE, "Segments.", PARTITION, _of_logs(lambda log: len(log.segments)), True
    ),
    Family(
        "kafka_topic_partition_current_offset",
        GAUGE,
        "High watermark: the offset up to which consumers may read.",
        PARTITION,
        _of_offsets(lambda offsets: offsets.high_watermark),
        True,
    ),
    Family(
        "kafka_topic_partition_oldest_offset",
        GAUGE,
        "As kafka_log_log_logstartoffset.",
        PARTITION,
        _of_offsets(lambda offsets: offsets.log_start_offset),
        True,
    ),
    Family(
        "kafka_cluster_partition_underminisr",
        GAUGE,
        "0: a partition has one copy.",
        PARTITION,
        _of_logs(lambda _: 0),
        True,
    ),
    Family(
        "fencepost_last_stable_offset",
        GAUGE,
        "Offset up to which every transaction is decided: read_committed consumers stop there.",
        PARTITION,
        _of_offsets(lambda offsets: offsets.last_stable_offset),
        True,
    ),
    Family(
        "fencepost_last_stable_offset_lag",
        GAUGE,
        "High watermark less last stable offset: offsets that wait behind an open transaction. "
        "With too many partitions, only those above 0, the largest.",
        PARTITION,
        _last_stable_offset_lags,
    ),
    Family(
        "fencepost_oldest_open_transaction_age_seconds",
        GAUGE,
        "Age of the transaction that holds the last stable offset; only where one is open.",
        PARTITION,
        _oldest_open_ages,
    ),
)
