"""All families that a scrape shows, in order."""

from __future__ import annotations

from typing import Final

from fencepost.broker.metrics.broker_families import (
    CLUSTER_FAMILIES,
    CONNECTION_FAMILIES,
    MACHINE_FAMILIES,
    REQUEST_FAMILIES,
)
from fencepost.broker.metrics.check_back_families import CHECK_BACK_FAMILIES
from fencepost.broker.metrics.client_metrics_families import CLIENT_METRICS_FAMILIES
from fencepost.broker.metrics.engine_families import ENGINE_FAMILIES
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples
from fencepost.broker.metrics.group_families import GROUP_FAMILIES
from fencepost.broker.metrics.scrape import KINDS_LEFT_OUT, Scrape
from fencepost.broker.metrics.security_families import QUOTA_FAMILIES, SECURITY_FAMILIES
from fencepost.broker.metrics.share_families import SHARE_FAMILIES
from fencepost.broker.metrics.sink_families import SINK_FAMILIES
from fencepost.broker.metrics.topic_families import PARTITION_FAMILIES, TRAFFIC_FAMILIES
from fencepost.broker.metrics.transaction_families import TRANSACTION_FAMILIES
from fencepost.broker.metrics.two_phase_families import TWO_PHASE_FAMILIES


def _left_out(scrape: Scrape) -> Samples:
    for kind in KINDS_LEFT_OUT:
        yield Sample(f'kind="{kind}"', scrape.left_out.get(kind, 0))


# The last family of a scrape: it counts the samples that the others leave out.
SCRAPE_FAMILIES: Final = (
    Family(
        "fencepost_metrics_left_out",
        Kind.GAUGE,
        "Partitions, lags of groups, clients with quotas and series of clients that this scrape leaves out, as there "
        "are too many; the largest lags are shown.",
        ("kind",),
        _left_out,
    ),
)

SECTIONS: Final = {
    "Requests": REQUEST_FAMILIES,
    "Topics": TRAFFIC_FAMILIES,
    "Partitions": PARTITION_FAMILIES,
    "Transactions": TRANSACTION_FAMILIES,
    "Two-phase commits": TWO_PHASE_FAMILIES,
    "Check-back": CHECK_BACK_FAMILIES,
    "Decided batches of Spark's sinks": SINK_FAMILIES,
    "Groups": GROUP_FAMILIES,
    "Dead letters of share groups": SHARE_FAMILIES,
    "Connections": CONNECTION_FAMILIES,
    "Metrics of clients": CLIENT_METRICS_FAMILIES,
    "Certificates and rights": SECURITY_FAMILIES,
    "Quotas": QUOTA_FAMILIES,
    "Cluster": CLUSTER_FAMILIES,
    "Engine of several machines": ENGINE_FAMILIES,
    "Disk, event loop and process": MACHINE_FAMILIES,
    "The scrape itself": SCRAPE_FAMILIES,
}
"""By title, for the page about them."""
FAMILIES: Final[tuple[Family, ...]] = tuple(family for section in SECTIONS.values() for family in section)
