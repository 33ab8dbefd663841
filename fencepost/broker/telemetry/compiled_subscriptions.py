"""Subscriptions of the configs in force, with their patterns compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.broker.config.client_metrics_settings import INTERVAL_MS, METRICS, client_metrics_value, match_patterns
from fencepost.broker.kernel.java_pattern import PatternError, compiled
from fencepost.broker.telemetry.subscriptions import Subscription


def compile_subscriptions(configs: Iterable[Mapping[str, str]], memory_bytes: int) -> list[Subscription]:
    """Compile checked configs. A subscription that this version cannot read matches no client."""
    found = []
    for each in configs:
        try:
            patterns = [
                (attribute, compiled(pattern, maximum_memory_bytes=memory_bytes)[1])
                # As in Kafka, the last pattern of an attribute counts.
                for attribute, pattern in dict(match_patterns(each)).items()
            ]
            metrics, interval_ms = client_metrics_value(METRICS, each), client_metrics_value(INTERVAL_MS, each)
        except (PatternError, ValueError):
            continue  # written by another version, whose checks differ
        found.append(Subscription(metrics, interval_ms, patterns))
    return found
