"""Families about transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.broker.coordination.runtime import LoadTimes
from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, histogram_samples
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.transaction.state_machine import TransactionState

COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


def _by_state(scrape: Scrape) -> Samples:
    counts = dict.fromkeys((state.display_name for state in TransactionState), 0)
    for count, one in enumerate((yield from scrape.transactions()), 1):
        counts[one.state.display_name] += 1
        if count % STEP == 0:
            yield None
    for name, number in counts.items():
        yield Sample(f'state="{name}"', number)


def _ended(scrape: Scrape) -> Samples:
    for outcome, count in scrape.view.transactions.ended.items():
        yield Sample(f'outcome="{outcome}"', count)


def load_time(value: Callable[[LoadTimes], float], of: Callable[[Scrape], LoadTimes]) -> Callable[[Scrape], Samples]:
    """The time of loads of a coordinator's partitions, in milliseconds."""

    def collect(scrape: Scrape) -> Samples:
        yield Sample("", value(of(scrape)) * 1000)

    return collect


def average_s(times: LoadTimes) -> float:
    return times.total_s / times.count if times.count else 0.0


def longest_s(times: LoadTimes) -> float:
    return times.longest_s


def _loads(scrape: Scrape) -> LoadTimes:
    return scrape.view.services.transactions.load_times


TRANSACTION_FAMILIES: Final = (
    Family(
        "fencepost_transactions",
        GAUGE,
        "Transactional ids of this coordinator, by the state of their transaction.",
        ("state",),
        _by_state,
    ),
    Family(
        "fencepost_transactions_ended_total",
        COUNTER,
        "Transactions with at least one partition whose markers are all written. aborted: by their client; timed_out, "
        "fenced: by the coordinator.",
        ("outcome",),
        _ended,
    ),
    Family(
        "fencepost_transaction_duration_seconds",
        HISTOGRAM,
        "Time from the beginning of a transaction to the decision about it.",
        ("le",),
        lambda scrape: histogram_samples("", scrape.view.transactions.durations),
    ),
    Family(
        "fencepost_transaction_completion_seconds",
        HISTOGRAM,
        "Time from the decision about a transaction until all its markers are written.",
        ("le",),
        lambda scrape: histogram_samples("", scrape.view.transactions.completions),
    ),
    Family(
        "kafka_server_transaction_coordinator_metrics_partition_load_time_avg",
        GAUGE,
        "Mean time of loading a partition of __transaction_state, in milliseconds.",
        (),
        load_time(average_s, _loads),
    ),
    Family(
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
        GAUGE,
        "Longest time of loading a partition of __transaction_state, in milliseconds.",
        (),
        load_time(longest_s, _loads),
    ),
    Family(
        "fencepost_producer_clients",
        GAUGE,
        "Producer ids whose client is known; at most 100,000.",
        (),
        lambda scrape: iter((Sample("", len(scrape.view.clients)),)),
    ),
)
