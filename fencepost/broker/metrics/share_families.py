"""Families about the dead letters of share groups, which have samples once there were any."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fencepost.broker.kernel.sliced_work import largest
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, escaped
from fencepost.broker.metrics.scrape import Scrape

if TYPE_CHECKING:
    from fencepost.broker.share.dead_letter_copies import DeadLetterCounts


def _each(value: Callable[[DeadLetterCounts], int]) -> Callable[[Scrape], Samples]:
    """One sample for each group; the largest values if there are too many groups."""

    def collect(scrape: Scrape) -> Samples:
        counts = [(group_id, value(one)) for group_id, one in scrape.view.services.dead_letter_counts().items()]
        for group_id, count in (yield from largest(scrape.most_partitions, counts, lambda one: one[1])):
            yield Sample(f'consumergroup="{escaped(group_id)}"', count)

    return collect


def _waiting(scrape: Scrape) -> Samples:
    counts = list(scrape.view.services.waiting_copies().items())
    for group_id, count in (yield from largest(scrape.most_partitions, counts, lambda one: one[1])):
        yield Sample(f'consumergroup="{escaped(group_id)}"', count)


SHARE_FAMILIES: Final = (
    Family(
        "fencepost_share_group_dead_letters_total",
        Kind.COUNTER,
        "Records that this broker has copied into the dead-letter topic of a share group.",
        ("consumergroup",),
        _each(lambda one: one.copied),
    ),
    Family(
        "fencepost_share_group_dead_letter_failures_total",
        Kind.COUNTER,
        "Attempts to copy records into the dead-letter topic of a share group that failed, and are repeated.",
        ("consumergroup",),
        _each(lambda one: one.failed),
    ),
    Family(
        "fencepost_share_group_dead_letters_waiting",
        Kind.GAUGE,
        "Partitions with records of a share group that wait for its dead-letter topic, on the broker that keeps their "
        "state.",
        ("consumergroup",),
        _waiting,
    ),
)
