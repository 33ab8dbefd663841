"""Families about metrics that clients push (KIP-714)."""

from __future__ import annotations

from typing import Final

from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, label_text
from fencepost.broker.metrics.scrape import Scrape
from fencepost.broker.telemetry.client_metrics import instance_text

_LABELS: Final = ("client_id", "client_instance_id", "metric", "attributes")


def _series(scrape: Scrape) -> Samples:
    client_metrics = scrape.view.services.client_metrics
    for one in client_metrics.series():
        if one is None:
            yield None
            continue
        instance, metric, attributes, value = one
        yield Sample(
            label_text(_LABELS, (instance.client_id, instance_text(instance.client_instance_id), metric, attributes)),
            value,
        )
    left_out = client_metrics.left_out
    if left_out:
        most = scrape.view.settings.fencepost_client_metrics_max_series
        scrape.leave_out(
            "client_series",
            left_out,
            f"{left_out} series of clients' metrics; fencepost.client.metrics.max.series is {most}",
        )


def _instance_count(scrape: Scrape) -> Samples:
    yield Sample("", len(scrape.view.services.client_metrics))


CLIENT_METRICS_FAMILIES: Final = (
    Family(
        "fencepost_client_metrics_instances",
        Kind.GAUGE,
        "Clients that have asked which metrics to push, and are not gone.",
        (),
        _instance_count,
    ),
    Family(
        "fencepost_client_metric",
        Kind.GAUGE,
        "A metric that a client has pushed, by the client's own name for it: the newest value, or of a counter the sum "
        "since the client's first push to this broker. `attributes` are those of the client, as `name=value,…`.",
        _LABELS,
        _series,
    ),
)
