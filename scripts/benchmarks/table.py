"""The table of all figures, by name."""

from __future__ import annotations

from scripts.benchmarks import (
    coordinator_load,
    footprint,
    groups,
    growth,
    idempotence,
    latency,
    loop_delay,
    open_transactions,
    partitions,
    produce_limit,
    producer_ids,
    quotas,
    recovery,
    spark_reading,
    spark_writing,
    throughput,
    transactions,
    with_java,
)
from scripts.benchmarks.figures import Figure

FAMILIES = (
    # Side by side with Apache Kafka:
    throughput,
    idempotence,
    quotas,
    latency,
    transactions,
    with_java,
    spark_reading,
    footprint,
    growth,
    recovery,
    # This broker alone:
    spark_writing,
    produce_limit,
    coordinator_load,
    producer_ids,
    open_transactions,
    partitions,
    groups,
    loop_delay,
)
FIGURES: dict[str, Figure] = {figure.name: figure for family in FAMILIES for figure in family.FIGURES}
