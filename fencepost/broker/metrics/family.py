"""A metric family: its declaration, and the samples that a scrape asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from fencepost.broker.metrics.histogram import Histogram, RecentHistogram
    from fencepost.broker.metrics.scrape import Scrape


class Kind(Enum):
    """Types of families, as both formats name them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One value. labels: as in the text, without braces. suffix: end of the name, `_count` or `_bucket`."""

    labels: str
    value: float
    suffix: str = ""


Samples = Iterator[Sample | None]
"""The samples of a family; None is a moment at which others may run."""
Collect = Callable[["Scrape"], Samples]


@dataclass(frozen=True, slots=True)
class Family:
    """One family.

    name:   its name in the text format 0.0.4: that of a counter ends in `_total`.
    labels: their names, in order. collect: yields the samples.
    is_per_partition: left out of a scrape with more partitions than `fencepost.metrics.max.partitions`.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    collect: Collect
    is_per_partition: bool = False

    @property
    def openmetrics_name(self) -> str:
        """The name of the family in OpenMetrics, in which only a counter's samples end in `_total`."""
        return self.name.removesuffix("_total") if self.kind is Kind.COUNTER else self.name


_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label_text(names: Sequence[str], values: Sequence[str | int]) -> str:
    """Labels as in the text, without braces; the values are escaped."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)])


def escaped(value: str | int) -> str:
    """A label's value as in the text. Characters that no UTF-8 has are replaced."""
    if isinstance(value, int):
        return str(value)
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.translate(_ESCAPES)


def histogram_samples(labels: str, histogram: Histogram) -> Samples:
    """Buckets, sum and count of a histogram."""
    comma = "," if labels else ""
    cumulative = histogram.cumulative()
    for bound_s, count in zip(histogram.upper_bounds_s, cumulative, strict=False):
        yield Sample(f'{labels}{comma}le="{bound_s!r}"', count, "_bucket")
    yield Sample(f'{labels}{comma}le="+Inf"', cumulative[-1], "_bucket")
    yield Sample(labels, histogram.total_s, "_sum")
    yield Sample(labels, cumulative[-1], "_count")


def summary_samples(labels: str, recent: RecentHistogram, quantiles: Sequence[float]) -> Samples:
    """Quantiles of the last minutes, and sum and count since the start, in milliseconds."""
    comma = "," if labels else ""
    values_s = recent.quantiles_s()
    if values_s is not None:
        for quantile, value_s in zip(quantiles, values_s, strict=True):
            yield Sample(f'{labels}{comma}quantile="{quantile}"', value_s * 1000)
    yield Sample(labels, recent.total_us / 1000, "_sum")
    yield Sample(labels, recent.count, "_count")
