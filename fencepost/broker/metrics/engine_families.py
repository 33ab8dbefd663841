"""Families about the engine of a cluster of several machines; without a sample if a broker's files are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, label_text
from fencepost.broker.metrics.scrape import Scrape

if TYPE_CHECKING:
    from fencepost.broker.cluster.machines.engine_figures import EngineFigures

COUNTER, GAUGE = Kind.COUNTER, Kind.GAUGE


def _value(value: Callable[[EngineFigures], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        figures = scrape.view.engine_figures
        if figures is not None:
            yield Sample("", value(figures()))

    return collect


def _by_kind(values: Callable[[EngineFigures], Mapping[str, int]]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        figures = scrape.view.engine_figures
        if figures is not None:
            for kind, count in values(figures()).items():
                yield Sample(label_text(("kind",), (kind,)), count)

    return collect


def _object_requests(scrape: Scrape) -> Samples:
    figures = scrape.view.engine_figures
    if figures is not None:
        for labels, count in sorted(figures().object_requests.items()):
            yield Sample(label_text(("operation", "outcome"), labels), count)


ENGINE_FAMILIES: Final = (
    Family(
        "fencepost_engine_flushes_total",
        COUNTER,
        "Flushes that were committed. kind: `rows` with the bytes in them, or `objects` that rows point into.",
        ("kind",),
        _by_kind(lambda figures: figures.flushes),
    ),
    Family(
        "fencepost_engine_flushed_bytes_total",
        COUNTER,
        "Bytes of record batches in them.",
        ("kind",),
        _by_kind(lambda figures: figures.flushed_bytes),
    ),
    Family(
        "fencepost_engine_flushed_rows_total",
        COUNTER,
        "Rows that flushes have added to the tails, until segments are sealed in their place.",
        (),
        _value(lambda figures: figures.flushed_rows),
    ),
    Family(
        "fencepost_engine_unflushed_bytes",
        GAUGE,
        "Bytes of requests that clients have sent and that wait to be committed; from 64 MB on connections wait.",
        (),
        _value(lambda figures: figures.unflushed_bytes),
    ),
    Family(
        "fencepost_engine_flush_waiting",
        GAUGE,
        "Whether a flush is being tried again, as PostgreSQL does not answer.",
        (),
        _value(lambda figures: int(figures.is_waiting)),
    ),
    Family(
        "fencepost_engine_lease_left_seconds",
        GAUGE,
        "How long this broker may still answer as a leader if its lease is not renewed; 0 when it may not.",
        (),
        _value(lambda figures: figures.lease_left_s),
    ),
    Family(
        "fencepost_engine_tail_bytes",
        GAUGE,
        "Bytes of this broker's logs that are not sealed yet: what another one reads to take over.",
        (),
        _value(lambda figures: figures.tail_bytes),
    ),
    Family(
        "fencepost_engine_tail_budget_bytes",
        GAUGE,
        "`fencepost.cluster.tail.max.bytes`: beyond it, segments are sealed.",
        (),
        _value(lambda figures: figures.tail_budget_bytes),
    ),
    Family(
        "fencepost_engine_sealed_segments_total",
        COUNTER,
        "Segments that were stored as objects in place of rows.",
        (),
        _value(lambda figures: figures.sealed_segments),
    ),
    Family(
        "fencepost_engine_sealed_bytes_total",
        COUNTER,
        "Bytes of their record batches.",
        (),
        _value(lambda figures: figures.sealed_bytes),
    ),
    Family(
        "fencepost_engine_brought_segments_total",
        COUNTER,
        "Sealed segments that were brought to this broker's disk, as clients asked for their records.",
        (),
        _value(lambda figures: figures.fetched_segments),
    ),
    Family(
        "fencepost_engine_brought_bytes_total",
        COUNTER,
        "Bytes of their record batches.",
        (),
        _value(lambda figures: figures.fetched_bytes),
    ),
    Family(
        "fencepost_engine_brought_blocks_total",
        COUNTER,
        "Blocks of sealed segments, of 4 MB, that were downloaded for consumers of old records.",
        (),
        _value(lambda figures: figures.fetched_blocks),
    ),
    Family(
        "fencepost_engine_block_reads_total",
        COUNTER,
        "Reads of old records that blocks on this broker's disk answered.",
        (),
        _value(lambda figures: figures.block_reads),
    ),
    Family(
        "fencepost_engine_block_read_bytes_total",
        COUNTER,
        "Bytes of record batches in these answers: above the bytes that were brought, as consumers shared blocks.",
        (),
        _value(lambda figures: figures.block_read_bytes),
    ),
    Family(
        "fencepost_engine_read_replicas",
        GAUGE,
        "Partitions that other brokers lead, and whose sealed segments this broker serves to consumers in its rack.",
        (),
        _value(lambda figures: figures.read_replicas),
    ),
    Family(
        "fencepost_engine_replica_read_bytes_total",
        COUNTER,
        "Bytes of record batches that consumers got from them.",
        (),
        _value(lambda figures: figures.replica_read_bytes),
    ),
    Family(
        "fencepost_engine_merged_segments_total",
        COUNTER,
        "Small sealed segments that were merged into larger ones.",
        (),
        _value(lambda figures: figures.merged_segments),
    ),
    Family(
        "fencepost_engine_removed_leftovers_total",
        COUNTER,
        "Partitions that other brokers lead by now, and whose files were removed from this broker's disk.",
        (),
        _value(lambda figures: figures.removed_leftovers),
    ),
    Family(
        "fencepost_engine_removed_objects_total",
        COUNTER,
        "Objects that this broker has removed, `fencepost.cluster.garbage.ms` after no row named them any more. One "
        "broker at a time does that.",
        (),
        _value(lambda figures: figures.removed_objects),
    ),
    Family(
        "fencepost_engine_refused_removals",
        GAUGE,
        "Objects that the store refuses to remove, some 10,000 at most. They are tried again each hour, and others are "
        "removed.",
        (),
        _value(lambda figures: figures.refused_removals),
    ),
    Family(
        "fencepost_engine_object_requests_total",
        COUNTER,
        "Requests to the object store: put, get, list or delete. outcome: done, missing or failed.",
        ("operation", "outcome"),
        _object_requests,
    ),
    Family(
        "fencepost_engine_take_overs_total",
        COUNTER,
        "Brokers that were lost, and whose partitions this one has given to those that are there.",
        (),
        _value(lambda figures: figures.take_overs),
    ),
    Family(
        "fencepost_engine_resignations_total",
        COUNTER,
        "How often this broker found that it was deposed, and began again as another.",
        (),
        _value(lambda figures: figures.resignations),
    ),
    Family(
        "fencepost_engine_asynchronous_standbys",
        GAUGE,
        "Standbys of PostgreSQL that no commit waits for: a fail-over to one of them loses acknowledged records.",
        (),
        _value(lambda figures: figures.asynchronous_standbys),
    ),
)
