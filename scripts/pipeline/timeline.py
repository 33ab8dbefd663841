"""What happened while the demonstration ran: samples taken from the broker by a thread, marks set by the run, and the
picture of both."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.consumer import IsolationLevel, OffsetSpec

from scripts.pipeline.flights import ARRIVALS_TOPIC, DEPARTURES_TOPIC, PARTITION_COUNTS

INTERVAL_S = 0.2
GAP_S = 5 * INTERVAL_S
REQUEST_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The output topics at one moment, offsets summed over all their partitions.

    at_s:               seconds since the run began.
    log_end_offset:     records written, markers included.
    last_stable_offset: how far a read_committed consumer sees.
    open_transactions:  transactional ids whose transaction is not complete.
    """

    at_s: float
    log_end_offset: float
    last_stable_offset: float
    open_transactions: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that the run did or that befell it."""

    at_s: float
    label: str
    is_failure: bool


class Timeline:
    """Collects marks, and samples while the thread runs; the broker may come and go meanwhile."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.samples: list[Sample] = []
        self.marks: list[Mark] = []
        self._bootstrap_servers = bootstrap_servers
        self._began_at_s = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline", daemon=True)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_at_s

    def mark(self, label: str, *, is_failure: bool = False) -> None:
        self.marks.append(Mark(self.now_s, label, is_failure))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        partitions = [
            TopicPartition(topic, partition)
            for topic in (DEPARTURES_TOPIC, ARRIVALS_TOPIC)
            for partition in range(PARTITION_COUNTS[topic])
        ]
        while not self._stopping.is_set():
            # While the broker is away every call fails; a new client finds it as soon as it is back.
            with contextlib.suppress(KafkaError, OSError), connected(self._bootstrap_servers) as administration:
                while not self._stopping.wait(INTERVAL_S):
                    self.samples.append(self._sample(administration, partitions))
            self._stopping.wait(INTERVAL_S)

    def _sample(self, administration: Any, partitions: Sequence[Any]) -> Sample:
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        stable = administration.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        end = administration.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        listed = administration.list_transactions(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
        return Sample(
            at_s=self.now_s,
            log_end_offset=sum(entry.offset for entry in end.values()),
            last_stable_offset=sum(entry.offset for entry in stable.values()),
            open_transactions=sum(len(listings) for listings in listed.values()),
        )


@contextlib.contextmanager
def connected(bootstrap_servers: str) -> Iterator[Any]:
    """An administration client that gives up soon. Raises KafkaError when no broker answers."""
    administration = KafkaAdminClient(
        bootstrap_servers=bootstrap_servers,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        bootstrap_timeout_ms=REQUEST_TIMEOUT_MS,
        reconnect_backoff_max_ms=200,
    )
    try:
        yield administration
    finally:
        administration.close()


def with_gaps(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with one that holds no number wherever the broker did not answer, so that no line is drawn across."""
    broken = list(samples[:1])
    for sooner, later in itertools.pairwise(samples):
        if later.at_s - sooner.at_s > GAP_S:
            broken.append(Sample(sooner.at_s + INTERVAL_S, math.nan, math.nan, math.nan))
        broken.append(later)
    return broken


def draw(timeline: Timeline, path: Path) -> None:
    """The run as one PNG: events per second, how far committed readers lag behind the log's end, and open transactions,
    over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    samples = with_gaps(timeline.samples)
    times = [sample.at_s for sample in samples]
    figure, (offsets, rate, undecided, transactions) = plt.subplots(
        4, 1, figsize=(11, 9.5), sharex=True, height_ratios=(3, 2, 2, 1), layout="constrained"
    )
    offsets.plot(
        times,
        [sample.log_end_offset for sample in samples],
        color="#c44e52",
        linewidth=4,
        alpha=0.4,
        label="log end offset",
    )
    offsets.plot(times, [sample.last_stable_offset for sample in samples], color="#4c72b0", label="last stable offset")
    offsets.set_ylabel("records, all partitions")
    offsets.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    offsets.legend(loc="lower right", frameon=False)

    spans = list(itertools.pairwise(samples))
    rates = [(later.log_end_offset - sooner.log_end_offset) / (later.at_s - sooner.at_s) for sooner, later in spans]
    rate.fill_between([later.at_s for _, later in spans], rates, step="pre", color="#55a868", alpha=0.6)
    rate.set_ylabel("records per second")
    rate.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")

    gap = [sample.log_end_offset - sample.last_stable_offset for sample in samples]
    undecided.fill_between(times, gap, step="post", color="#c44e52", alpha=0.6)
    undecided.set_ylabel("records beyond the\nlast stable offset")

    transactions.step(times, [sample.open_transactions for sample in samples], where="post", color="#8172b3")
    transactions.set_ylabel("open\ntransactions")
    transactions.yaxis.get_major_locator().set_params(integer=True)
    transactions.set_xlabel("seconds")

    for axis in (offsets, rate, undecided, transactions):
        axis.margins(x=0)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        for mark in timeline.marks:
            color = "#c44e52" if mark.is_failure else "#888888"
            axis.axvline(mark.at_s, color=color, linewidth=0.9, linestyle="-" if mark.is_failure else ":")
    for mark in timeline.marks:
        offsets.annotate(
            mark.label,
            (mark.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            rotation=38,
            fontsize=8,
            color="#c44e52" if mark.is_failure else "#444444",
        )
    figure.savefig(path, dpi=110)
    plt.close(figure)
