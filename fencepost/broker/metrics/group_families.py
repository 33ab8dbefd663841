"""Families about groups and their lag, under the names of kafka_exporter if it has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Final

from fencepost.broker.coordination.runtime import LoadTimes
from fencepost.broker.kernel.sliced_work import largest
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, escaped
from fencepost.broker.metrics.group_lags import CommittedOffset, GroupLag
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.metrics.transaction_families import average_s, load_time, longest_s

GAUGE: Final = Kind.GAUGE
STATES: Final = {
    "numgroupsstable": ("Stable",),
    "numgroupspreparingrebalance": ("PreparingRebalance", "Assigning"),
    "numgroupscompletingrebalance": ("CompletingRebalance", "Reconciling"),
    "numgroupsempty": ("Empty",),
    "numgroupsdead": ("Dead",),
}
"""Kafka's names of the metrics, with the states of classic groups and of others that they count."""


def _labels(one: CommittedOffset) -> str:
    topic, partition = one.topic_partition
    return f'consumergroup="{escaped(one.group_id)}",topic="{topic}",partition="{partition}"'


def _each(value: Callable[[GroupLag], float | None]) -> Callable[[Scrape], Samples]:
    """One sample for each lag that is shown; none for those without a value."""

    def collect(scrape: Scrape) -> Samples:
        for count, one in enumerate((yield from scrape.lags()), 1):
            found = value(one)
            if found is not None:
                yield Sample(_labels(one.committed), found)
            if count % STEP == 0:
                yield None

    return collect


def _sums(value: Callable[[CommittedOffset], int]) -> Callable[[Scrape], Samples]:
    """The sums over all offsets, also those whose lags are not shown; the largest sums if there are too many."""

    def collect(scrape: Scrape) -> Samples:
        sums: Counter[tuple[str, str]] = Counter()
        for count, one in enumerate((yield from scrape.committed()), 1):
            sums[one.group_id, one.topic_partition.topic] += value(one)
            if count % STEP == 0:
                yield None
        for (group_id, topic), total in (yield from largest(scrape.most_partitions, list(sums.items()), itemgetter(1))):
            yield Sample(f'consumergroup="{escaped(group_id)}",topic="{topic}"', total)

    return collect


def _members(scrape: Scrape) -> Samples:
    for count, group in enumerate((yield from scrape.groups()), 1):
        yield Sample(f'consumergroup="{escaped(group.group_id)}"', group.members_count)
        if count % STEP == 0:
            yield None


def _groups_count(scrape: Scrape) -> Samples:
    yield Sample("", len((yield from scrape.groups())))


def _offsets_count(scrape: Scrape) -> Samples:
    yield Sample("", sum(len(group.committed) for group in (yield from scrape.groups())))


def _in_state(states: tuple[str, ...]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        yield Sample("", sum(group.state in states for group in (yield from scrape.groups())))

    return collect


def _loads(scrape: Scrape) -> LoadTimes:
    return scrape.view.services.groups.load_times


_OFFSET: Final = ("consumergroup", "topic", "partition")
_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"

GROUP_FAMILIES: Final = (
    Family(f"{_MANAGER}_numgroups", GAUGE, "Groups of all kinds.", (), _groups_count),
    *(
        Family(f"{_MANAGER}_{name}", GAUGE, f"Groups in the state {' or '.join(states)}.", (), _in_state(states))
        for name, states in STATES.items()
    ),
    Family(f"{_MANAGER}_numoffsets", GAUGE, "Committed offsets of all groups.", (), _offsets_count),
    Family(
        "kafka_server_group_coordinator_metrics_partition_load_time_avg",
        GAUGE,
        "Mean time of loading a partition of __consumer_offsets, in milliseconds.",
        (),
        load_time(average_s, _loads),
    ),
    Family(
        "kafka_server_group_coordinator_metrics_partition_load_time_max",
        GAUGE,
        "Longest time of loading a partition of __consumer_offsets, in milliseconds.",
        (),
        load_time(longest_s, _loads),
    ),
    Family("kafka_consumergroup_members", GAUGE, "Members of a group.", ("consumergroup",), _members),
    Family(
        "kafka_consumergroup_current_offset",
        GAUGE,
        "Offset that a group has committed.",
        _OFFSET,
        _each(lambda one: one.committed.offset),
    ),
    Family(
        "kafka_consumergroup_current_offset_sum",
        GAUGE,
        "Sum of the offsets that a group has committed of a topic.",
        ("consumergroup", "topic"),
        _sums(lambda one: one.offset),
    ),
    Family(
        "kafka_consumergroup_lag",
        GAUGE,
        "High watermark less the committed offset.",
        _OFFSET,
        _each(lambda one: one.lag.end),
    ),
    Family(
        "kafka_consumergroup_lag_sum",
        GAUGE,
        "Sum of the lags of a group in a topic.",
        ("consumergroup", "topic"),
        _sums(lambda one: one.end_lag),
    ),
    Family(
        "fencepost_consumergroup_lag_read_committed",
        GAUGE,
        "Records that a read_committed consumer can get now: no markers, no aborted or deleted records. "
        "Offsets, for what has not been counted yet.",
        _OFFSET,
        _each(lambda one: one.lag.deliverable),
    ),
    Family(
        "fencepost_consumergroup_lag_blocked",
        GAUGE,
        "Offsets of the lag that a read_committed consumer cannot get before open transactions end.",
        _OFFSET,
        _each(lambda one: one.lag.blocked),
    ),
    Family(
        "fencepost_consumergroup_lag_seconds",
        GAUGE,
        "Age of the first record that the group has not consumed, by the time of its batch; 0 without one.",
        _OFFSET,
        _each(lambda one: one.seconds),
    ),
)
