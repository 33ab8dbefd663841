"""Model of a cluster of machines: how many brokers a load takes, what becomes narrow first, and what it costs a month.

    .venv/bin/python -m scripts.cluster_model         the table for docs/cluster-appendix.md, and where a cluster breaks
    .venv/bin/python -m scripts.cluster_model --json  the same for programs

Three budgets bound a cluster: the processor of each broker, the one PostgreSQL that commits all flushes, and the
network and the object store behind each broker. The model computes what a load takes of each for a number of brokers,
and looks for the smallest number with which all stay below `BUSY_AT_MOST`. A flush takes what was appended during the
one before. So where many brokers commit, each flush waits for PostgreSQL, and flushes become fewer and larger: the
model looks for the shortest such wait. It knows no other queues. What it is built on is in `MEASURED`, with its
source; what you pay is in `PRICES`, which are list prices of a large provider and change: put yours there.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

MB: Final = 1_000_000
MONTH_S: Final = 30 * 24 * 3600
BUSY_AT_MOST: Final = 0.6
"""Of each budget. Above it, queues make latencies a multiple of what the model says."""
FEWEST_BROKERS: Final = 3
MOST_BROKERS: Final = 4096


@dataclass(frozen=True)
class Measured:
    """What one thing takes, measured on two cores that others used, too, with PostgreSQL 18 and the disk beside them.

    produce_cpu_s_per_gb, fetch_cpu_s_per_gb: of a broker's core, for large batches (performance.md: 525 MB/s of 16 KB
        batches take 0.55 of a core; a fetch hands files to the system).
    request_cpu_s:     of a small Produce or Fetch beside its bytes.
    transaction_cpu_s: of a transaction of three partitions, with all of its requests, markers and records.
    flush_cpu_s:       of a flush: reading what was appended, the statement, its answer.
    flushes_per_transaction: one after another, from the first record to the answer of EndTxn.
    commits_per_s:     of PostgreSQL, guarded, of 10 connections that commit flushes of three rows side by side.
    commit_s:          one flush of small rows. inline_bytes_per_s: with its bytes in the rows.
    object_put_s, object_bytes_per_s: one PUT of S3, and the rate of one connection.
    """

    produce_cpu_s_per_gb: float = 1.04
    fetch_cpu_s_per_gb: float = 0.25
    request_cpu_s: float = 60e-6
    transaction_cpu_s: float = 386e-6
    flush_cpu_s: float = 150e-6
    flushes_per_transaction: float = 4.3
    commits_per_s: float = 1_332
    commit_s: float = 0.0012
    inline_bytes_per_s: float = 45 * MB
    object_put_s: float = 0.06
    object_bytes_per_s: float = 90 * MB


@dataclass(frozen=True)
class Setup:
    """How a cluster is set up. wait_s: of each flush, for its turn in PostgreSQL.

    uploads_at_once: of one broker, whose commits stay in order.
    wal_bytes_per_s: that PostgreSQL's disk and its standby take. put_per_s: of one prefix of the object store.
    """

    inline_max_bytes: int = 256 * 1024
    wait_s: float = 0.0
    uploads_at_once: int = 1
    segment_bytes: int = 64 * 1024 * 1024
    objects_per_segment: int = 4
    broker_network_bytes_per_s: float = 600 * MB
    wal_bytes_per_s: float = 300 * MB
    put_per_s: float = 3_500


@dataclass(frozen=True)
class Prices:
    """Dollars, typical list prices of a large provider in one region; not quotes.

    broker_month: of 2 processors and 8 GB; a broker uses one processor.
    database_small_month, database_large_month: with a standby; the large one for all commits that `MEASURED` names.
    transfer_gb:  between zones, both directions together.
    """

    broker_month: float = 75.0
    database_small_month: float = 260.0
    database_large_month: float = 2_100.0
    put_1000: float = 0.005
    get_1000: float = 0.0004
    stored_gb_month: float = 0.023
    transfer_gb: float = 0.02


MEASURED: Final = Measured()
PRICES: Final = Prices()


@dataclass(frozen=True)
class Load:
    """What clients do. producer_bytes: in one Produce request of one producer, about. fan_out: how often each record is
    read. transactions_per_s: of three partitions each; their records count in `written_bytes_per_s`."""

    name: str
    written_bytes_per_s: float
    requests_per_s: float
    fan_out: float
    transactions_per_s: float
    retention_days: float
    zones: int = 3


LOADS: Final = (
    Load("orders of a shop: small records, transactions", 1 * MB, 1_000, 2, 200, 30),
    Load("events of a product: many producers", 50 * MB, 5_000, 3, 50, 7),
    Load("logs of a platform: large batches", 500 * MB, 10_000, 2, 0, 3),
)


@dataclass(frozen=True)
class Outcome:
    """What a load takes with a number of brokers. busy: part of each budget that is used, by its name.

    flush_bytes, flushes_per_s: of one broker, as it flushes what has come while it flushed.
    flush_s: from the append to the acknowledgement.
    """

    load: Load
    brokers: int
    busy: dict[str, float]
    flush_bytes: float
    flushes_per_s: float
    flush_s: float
    transaction_s: float
    puts_per_s: float
    dollars: dict[str, float]

    @property
    def narrowest(self) -> str:
        return max(self.busy, key=lambda name: self.busy[name])

    @property
    def too_narrow(self) -> list[str]:
        """The budgets that are used too much."""
        return [name for name, used in self.busy.items() if used > BUSY_AT_MOST]

    @property
    def fits(self) -> bool:
        return not self.too_narrow

    @property
    def dollars_month(self) -> float:
        return sum(self.dollars.values())


def flush_s(size_bytes: float, setup: Setup, measured: Measured = MEASURED) -> float:
    """The time of one flush of a size, without the wait."""
    if size_bytes <= setup.inline_max_bytes:
        return measured.commit_s + size_bytes / measured.inline_bytes_per_s
    return measured.object_put_s + size_bytes / measured.object_bytes_per_s + measured.commit_s


def settled_flush(
    bytes_per_s: float, appends_per_s: float, setup: Setup, measured: Measured = MEASURED
) -> tuple[float, float, float]:
    """The flush that a broker settles at: its bytes, its time, and how many there are a second.

    A flush takes what has come during the one before, so its size follows from its time, and its time from its size.
    With fewer appends than flushes are possible, each append is a flush of its own.
    """
    if bytes_per_s <= 0 or appends_per_s <= 0:
        return 0.0, flush_s(0, setup, measured), 0.0
    size_bytes = bytes_per_s / appends_per_s
    for _ in range(200):
        takes_s = flush_s(size_bytes, setup, measured) + setup.wait_s
        uploads = setup.uploads_at_once if size_bytes > setup.inline_max_bytes else 1
        wanted = max(bytes_per_s / appends_per_s, bytes_per_s * takes_s / uploads)
        if math.isinf(wanted) or wanted > 1e12:
            return math.inf, math.inf, 0.0
        if abs(wanted - size_bytes) <= 1e-9 * size_bytes:
            break
        size_bytes += 0.5 * (wanted - size_bytes)  # halfway, as objects and rows may take turns at their bound
    return size_bytes, takes_s, bytes_per_s / size_bytes


def outcome(load: Load, brokers: int, setup: Setup = Setup(), measured: Measured = MEASURED) -> Outcome:
    """What a load takes with a number of brokers, each of which has its share of it."""
    written = load.written_bytes_per_s / brokers
    read = written * load.fan_out
    transactions = load.transactions_per_s / brokers
    requests = load.requests_per_s / brokers
    appends = requests + transactions * measured.flushes_per_transaction
    size_bytes, takes_s, flushes = settled_flush(written, appends, setup, measured)
    is_object = size_bytes > setup.inline_max_bytes
    segments_per_s = written / setup.segment_bytes
    puts = (flushes if is_object else 0.0) + segments_per_s * setup.objects_per_segment
    inline_bytes = 0.0 if is_object else written
    uploading = setup.uploads_at_once * measured.object_bytes_per_s
    busy = {
        "processor of a broker": (written * measured.produce_cpu_s_per_gb + read * measured.fetch_cpu_s_per_gb) / 1e9
        + requests * (1 + load.fan_out) * measured.request_cpu_s
        + transactions * measured.transaction_cpu_s
        + flushes * measured.flush_cpu_s,
        "commits of PostgreSQL": brokers * flushes / measured.commits_per_s,
        "write-ahead log of PostgreSQL": brokers * inline_bytes * 1.2 / setup.wal_bytes_per_s,
        "uploads of a broker": written / uploading if is_object else written / measured.object_bytes_per_s,
        "network of a broker": (2 * written + read + (written if is_object else 0)) / setup.broker_network_bytes_per_s,
        "requests of the object store": brokers * puts / setup.put_per_s,
    }
    return Outcome(
        load,
        brokers,
        busy,
        size_bytes,
        flushes,
        takes_s,
        takes_s * measured.flushes_per_transaction,
        brokers * puts,
        dollars_month(load, brokers, busy, puts * brokers),
    )


def dollars_month(
    load: Load, brokers: int, busy: dict[str, float], puts_per_s: float, prices: Prices = PRICES
) -> dict[str, float]:
    """What the outcome costs in a month, by item."""
    written_gb = load.written_bytes_per_s * MONTH_S / 1e9
    stored_gb = load.written_bytes_per_s * load.retention_days * 24 * 3600 / 1e9
    # Readers read the newest records from the leader's scratch. Clients and leaders are in the same zone by chance.
    crossing = (load.zones - 1) / load.zones
    used = max(busy["commits of PostgreSQL"], busy["write-ahead log of PostgreSQL"])
    return {
        "brokers": brokers * prices.broker_month,
        "PostgreSQL": prices.database_small_month
        + (prices.database_large_month - prices.database_small_month) * min(1.0, used / BUSY_AT_MOST),
        "requests of objects": puts_per_s * MONTH_S / 1000 * prices.put_1000,
        "objects": stored_gb * prices.stored_gb_month,
        "transfer between zones": written_gb * (1 + load.fan_out) * crossing * prices.transfer_gb,
    }


def smallest(load: Load, setup: Setup = Setup(), measured: Measured = MEASURED) -> Outcome:
    """The outcome with the fewest brokers, at least three, with which the load fits; where none does, with those that
    come nearest."""
    found = [outcome(load, count, setup, measured) for count in _counts()]
    fitting = next((one for one in found if one.fits), None)
    return fitting or min(found, key=lambda one: one.busy[one.narrowest])


def _counts() -> Iterator[int]:
    """Numbers of brokers to try: all small ones, then every twentieth part more."""
    count = FEWEST_BROKERS
    while count <= MOST_BROKERS:
        yield count
        count = max(count + 1, count * 21 // 20)


def best(load: Load) -> tuple[Outcome, Setup]:
    """The smallest cluster with the shortest wait with which the load fits; where none does, with the longest."""
    tried = [(smallest(load, setup), setup) for setup in (Setup(), *(Setup(wait_s=one) for one in WAITS_S))]
    return next((one for one in tried if one[0].fits), tried[-1])


WAITS_S: Final = (0.005, 0.025, 0.1, 0.25)


def breaking_point(load: Load) -> tuple[Outcome, list[str]]:
    """The last outcome that fits when a load is doubled again and again, and what is too narrow for
    twice as much, whatever the number of brokers: what more brokers relieve, and what they burden."""
    last = best(load)[0]
    factor = 2.0
    while factor < 2**24:
        larger = replace(
            load,
            written_bytes_per_s=load.written_bytes_per_s * factor,
            requests_per_s=load.requests_per_s * factor,
            transactions_per_s=load.transactions_per_s * factor,
        )
        found = best(larger)[0]
        if not found.fits:
            return last, sorted({name for one in _all(larger) for name in one.too_narrow[:1]})
        last, factor = found, factor * 2
    return last, []


def _all(load: Load) -> Iterator[Outcome]:
    """The outcomes with the longest wait for all numbers of brokers."""
    return (outcome(load, count, Setup(wait_s=WAITS_S[-1])) for count in _counts())


def table() -> str:
    """The table of the loads, in Markdown."""
    lines = [
        "| load | brokers | acknowledged after | transaction | narrowest | dollars a month |",
        "|---|---|---|---|---|---|",
    ]
    for load in LOADS:
        found, setup = best(load)
        waiting = f", flushes wait {setup.wait_s * 1000:g} ms" if setup.wait_s else ""
        busy = f"{found.narrowest} ({found.busy[found.narrowest]:.0%})"
        transaction = f"{_milliseconds(found.transaction_s)}" if load.transactions_per_s else "none"
        lines.append(
            f"| {load.name}: {load.written_bytes_per_s / MB:,g} MB/s, {load.transactions_per_s:,g} transactions/s "
            f"| {found.brokers}{waiting} | {_milliseconds(found.flush_s)} | {transaction} | {busy} "
            f"| {_dollars(found.dollars)} |"
        )
    return "\n".join(lines)


def breaking_table() -> str:
    """Where clusters with loads of these kinds break, in Markdown."""
    lines = ["| load of the kind | the most | brokers | for twice as much is too narrow |", "|---|---|---|---|"]
    for load in LOADS:
        found, too_narrow = breaking_point(load)
        most = f"{found.load.written_bytes_per_s / MB:,.0f} MB/s, {found.load.transactions_per_s:,.0f} transactions/s"
        lines.append(f"| {load.name} | {most} | {found.brokers} | {' or '.join(too_narrow)} |")
    return "\n".join(lines)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def _dollars(dollars: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {value:,.0f}" for name, value in dollars.items() if value >= 1)
    return f"{sum(dollars.values()):,.0f} ({parts})"


def main() -> None:
    if "--json" in sys.argv[1:]:
        document = [
            {
                "load": load.name,
                "brokers": found.brokers,
                "fits": found.fits,
                "narrowest": found.narrowest,
                "busy": found.busy,
                "flush_s": found.flush_s,
                "dollars_month": found.dollars,
            }
            for load in LOADS
            for found in [best(load)[0]]
        ]
        print(json.dumps(document, indent=2))
        return
    print(table())
    print()
    print(breaking_table())


if __name__ == "__main__":
    main()
