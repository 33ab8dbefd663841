"""The table of all figures, by name."""

from __future__ import annotations

from scripts.benchmarks import (
    coordinator_load,
    groups,
    open_transactions,
    partitions,
    produce_limit,
    producer_ids,
    recovery,
)
from scripts.benchmarks.figures import Figure

FAMILIES = (recovery, coordinator_load, producer_ids, open_transactions, partitions, produce_limit, groups)
FIGURES: dict[str, Figure] = {figure.name: figure for family in FAMILIES for figure in family.FIGURES}
