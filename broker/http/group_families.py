"""Families about groups and their lag, under the names of kafka_exporter where it has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from fencepost.broker.coordination.runtime import LoadTimes
from fencepost.broker.http.family import Family, Kind, Sample, Samples, escaped
from fencepost.broker.http.scrape import STEP, CommittedOffset, Scrape
from fencepost.broker.http.transaction_families import average_s, load_time, longest_s
from fencepost.broker.log.batch_scan import DamagedLogError
from fencepost.broker.storage.disk import StorageError

GAUGE: Final = Kind.GAUGE
MOST_READ: Final = 1_000
"""Lags in seconds in one scrape: each reads the header of a batch."""
STATES: Final = {
    "numgroupsstable": ("Stable",),
    "numgroupspreparingrebalance": ("PreparingRebalance", "Assigning"),
    "numgroupscompletingrebalance": ("CompletingRebalance", "Reconciling"),
    "numgroupsempty": ("Empty",),
    "numgroupsdead": ("Dead",),
}
"""Kafka's names of the metrics, with the states of classic groups and of others that they count."""


def lag(one: CommittedOffset) -> int:
    """Offsets from the committed one to the high watermark, as all tools show it."""
    return max(0, one.log.high_watermark - one.offset)


def deliverable(one: CommittedOffset) -> int:
    """Offsets from the committed one to the last stable offset: what a read_committed consumer can get now."""
    return max(0, one.log.last_stable_offset - one.offset)


def blocked(one: CommittedOffset) -> int:
    """Offsets that a read_committed consumer cannot get before open transactions end."""
    return max(0, one.log.high_watermark - max(one.offset, one.log.last_stable_offset))


def seconds_behind(one: CommittedOffset, now_ms: int) -> float | None:
    """The age of the first record that is not consumed, by the time of its batch; 0 without lag, None if unknown."""
    if not lag(one):
        return 0.0
    try:
        header = one.log.header_at(max(one.offset, one.log.log_start_offset))
    except (StorageError, DamagedLogError):
        return None
    if header is None or header.max_timestamp_ms < 0:
        return None
    return max(0, now_ms - header.max_timestamp_ms) / 1000


def _labels(one: CommittedOffset) -> str:
    topic, partition = one.topic_partition
    return f'consumergroup="{escaped(one.group_id)}",topic="{topic}",partition="{partition}"'


def _committed(value: Callable[[CommittedOffset], int]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        for count, one in enumerate((yield from scrape.committed()), 1):
            yield Sample(_labels(one), value(one))
            if count % STEP == 0:
                yield None

    return collect


def _seconds(scrape: Scrape) -> Samples:
    read_count = 0
    for count, one in enumerate((yield from scrape.committed()), 1):
        read_count += lag(one) > 0
        if read_count > MOST_READ:
            scrape.notes.append(f"left out: fencepost_consumergroup_lag_seconds of more than {MOST_READ} partitions")
            return
        seconds = seconds_behind(one, scrape.now_ms)
        if seconds is not None:
            yield Sample(_labels(one), seconds)
        if lag(one) or count % STEP == 0:
            yield None


def _sums(value: Callable[[CommittedOffset], int]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        sums: Counter[tuple[str, str]] = Counter()
        for count, one in enumerate((yield from scrape.committed()), 1):
            sums[one.group_id, one.topic_partition.topic] += value(one)
            if count % STEP == 0:
                yield None
        for (group_id, topic), total in sums.items():
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
        _committed(lambda one: one.offset),
    ),
    Family(
        "kafka_consumergroup_current_offset_sum",
        GAUGE,
        "Sum of the offsets that a group has committed of a topic.",
        ("consumergroup", "topic"),
        _sums(lambda one: one.offset),
    ),
    Family("kafka_consumergroup_lag", GAUGE, "High watermark less the committed offset.", _OFFSET, _committed(lag)),
    Family(
        "kafka_consumergroup_lag_sum",
        GAUGE,
        "Sum of the lags of a group in a topic.",
        ("consumergroup", "topic"),
        _sums(lag),
    ),
    Family(
        "fencepost_consumergroup_lag_read_committed",
        GAUGE,
        "Last stable offset less the committed offset: what a read_committed consumer can get now.",
        _OFFSET,
        _committed(deliverable),
    ),
    Family(
        "fencepost_consumergroup_lag_blocked",
        GAUGE,
        "Offsets of the lag that a read_committed consumer cannot get before open transactions end.",
        _OFFSET,
        _committed(blocked),
    ),
    Family(
        "fencepost_consumergroup_lag_seconds",
        GAUGE,
        "Age of the first record that the group has not consumed, by the time of its batch; 0 without lag.",
        _OFFSET,
        _seconds,
    ),
)
