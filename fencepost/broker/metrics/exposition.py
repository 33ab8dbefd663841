"""Text of a scrape, in Prometheus' format 0.0.4 or in OpenMetrics, made piece by piece.

Our own, because the usual library writes all samples in one step: see docs/decisions/0014-metrics-and-http.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from fencepost.broker.metrics.family import Family
from fencepost.broker.metrics.scrape import Scrape

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SAMPLES_PER_PIECE: Final = 100


def is_openmetrics_wanted(accept: str) -> bool:
    """Whether an Accept header ranks OpenMetrics above the text format."""
    qualities = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        media_type, *parameters = [text.strip().lower() for text in part.split(";")]
        quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        if media_type in qualities:
            try:
                qualities[media_type] = max(qualities[media_type], float(quality))
            except ValueError:
                continue
    openmetrics, text = qualities.values()
    return openmetrics > 0 and openmetrics >= text


def exposition(families: Iterable[Family], scrape: Scrape, *, is_openmetrics: bool) -> Iterator[str]:
    """Write the families. A family that has no sample is left out."""
    for family in families:
        if family.is_per_partition and scrape.has_too_many_partitions:
            continue
        yield from _family(family, scrape, is_openmetrics=is_openmetrics)
    yield "".join(f"# {note}\n" for note in scrape.notes)
    if is_openmetrics:
        yield "# EOF\n"


def _family(family: Family, scrape: Scrape, *, is_openmetrics: bool) -> Iterator[str]:
    name = family.name
    shown = family.openmetrics_name if is_openmetrics else name
    lines = [f"# HELP {shown} {_help(family.help)}\n", f"# TYPE {shown} {family.kind.value}\n"]
    is_empty = True
    for sample in family.collect(scrape):
        if sample is None:
            if not is_empty:
                yield "".join(lines)
                lines.clear()
            else:
                yield ""
            continue
        is_empty = False
        labels, value, suffix = sample
        text = str(value) if isinstance(value, int) else _number(value)
        lines.append(f"{name}{suffix}{{{labels}}} {text}\n" if labels else f"{name}{suffix} {text}\n")
        if len(lines) >= SAMPLES_PER_PIECE:
            yield "".join(lines)
            lines.clear()
    if not is_empty:
        yield "".join(lines)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", " ")
