"""The table of all figures, by name."""

from __future__ import annotations

from scripts.benchmarks import recovery
from scripts.benchmarks.figures import Figure

FAMILIES = (recovery,)
FIGURES: dict[str, Figure] = {figure.name: figure for family in FAMILIES for figure in family.FIGURES}
