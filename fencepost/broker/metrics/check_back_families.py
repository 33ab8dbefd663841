"""Families about the check-back; without a sample if no resolver is configured."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, label_text
from fencepost.broker.metrics.scrape import Scrape

if TYPE_CHECKING:
    from fencepost.check_back.schedule import Doubt, Source

COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


def _of_each(value: Callable[[Doubt, int], float]) -> Callable[[Scrape], Samples]:
    """One sample for the transactions in doubt at each resolver. value: gets the time, in ms."""

    def collect(scrape: Scrape) -> Samples:
        check_back = scrape.view.check_back
        if check_back is not None:
            now_ms = scrape.view.services.clock.now_ms()
            for name, doubt in check_back.schedule.doubts().items():
                yield Sample(label_text(("resolver",), (name,)), value(doubt, now_ms))

    return collect


def _age_s(doubt: Doubt, now_ms: int) -> float:
    return 0.0 if doubt.oldest_started_ms is None else max(0, now_ms - doubt.oldest_started_ms) / 1000


def _checks(scrape: Scrape) -> Samples:
    check_back = scrape.view.check_back
    if check_back is not None:
        for name in check_back.schedule.sources:
            for answer in ("commit", "abort", "unknown", "unreachable"):
                count = check_back.figures.checks[name, answer]
                yield Sample(label_text(("resolver", "answer"), (name, answer)), count)


def _decisions(scrape: Scrape) -> Samples:
    check_back = scrape.view.check_back
    if check_back is not None:
        counts = check_back.figures.decisions
        for outcome in ("commit", "abort"):
            for by in ("resolver", "exhausted", "administrator"):
                yield Sample(label_text(("outcome", "by"), (outcome, by)), counts[outcome, by])
        yield Sample(label_text(("outcome", "by"), ("park", "exhausted")), counts["park", "exhausted"])


def _latencies(scrape: Scrape) -> Samples:
    check_back = scrape.view.check_back
    if check_back is not None:
        for name, latencies in check_back.figures.latencies.items():
            labels = label_text(("resolver",), (name,))
            *within, count = accumulate(latencies.counts)
            for bound_s, so_far in zip(latencies.bounds_s, within, strict=True):
                yield Sample(f'{labels},le="{bound_s!r}"', so_far, "_bucket")
            yield Sample(f'{labels},le="+Inf"', count, "_bucket")
            yield Sample(labels, latencies.total_s, "_sum")
            yield Sample(labels, count, "_count")


def _of_sources(value: Callable[[Source], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        check_back = scrape.view.check_back
        if check_back is not None:
            for name, source in check_back.schedule.sources.items():
                yield Sample(label_text(("resolver",), (name,)), value(source))

    return collect


CHECK_BACK_FAMILIES: Final = (
    Family(
        "fencepost_check_back_in_doubt",
        GAUGE,
        "Open transactions of the ids of a resolver.",
        ("resolver",),
        _of_each(lambda doubt, _: doubt.in_doubt),
    ),
    Family(
        "fencepost_check_back_oldest_in_doubt_seconds",
        GAUGE,
        "Age of the oldest of them; 0 without any.",
        ("resolver",),
        _of_each(_age_s),
    ),
    Family(
        "fencepost_check_back_parked",
        GAUGE,
        "Those whose source has not known the outcome at all checks: an administrator has to decide.",
        ("resolver",),
        _of_each(lambda doubt, _: doubt.parked),
    ),
    Family(
        "fencepost_check_back_checks_total",
        COUNTER,
        "Questions to a source by their answer. unreachable: it could not be asked, which counts as no check.",
        ("resolver", "answer"),
        _checks,
    ),
    Family(
        "fencepost_check_back_decisions_total",
        COUNTER,
        "Decisions by outcome. by: a resolver's answer, `exhausted` as configured, or an administrator's command.",
        ("outcome", "by"),
        _decisions,
    ),
    Family(
        "fencepost_check_back_latency_seconds",
        HISTOGRAM,
        "Time from a question to a source until its answer, or until it was given up.",
        ("resolver", "le"),
        _latencies,
    ),
    Family(
        "fencepost_check_back_resolver_up",
        GAUGE,
        "Whether the last question to a source had an answer; 1 before the first.",
        ("resolver",),
        _of_sources(lambda source: int(source.up)),
    ),
)
