"""The model of a cluster's capacity and price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.cluster_model import (
    BUSY_AT_MOST,
    LOADS,
    MB,
    MEASURED,
    Load,
    Setup,
    best,
    breaking_point,
    breaking_table,
    flush_s,
    outcome,
    settled_flush,
    smallest,
    table,
)

SMALL = Load("small", 1 * MB, 100, 1, 0, 1)
SETUP = Setup()


def test_a_flush_takes_longer_the_larger_it_is_but_for_the_step_to_objects() -> None:
    times = [flush_s(size, SETUP) for size in (100, 10_000, 200_000)]
    assert times == sorted(times)
    assert flush_s(SETUP.inline_max_bytes + 1, SETUP) > MEASURED.object_put_s


@pytest.mark.parametrize("megabytes", [0.01, 1, 20, 80])
@pytest.mark.parametrize("appends_per_s", [10, 1_000])
@pytest.mark.parametrize("wait_s", [0.0, 0.025])
def test_all_that_is_written_is_flushed_and_flushes_do_not_overlap(
    megabytes: float, appends_per_s: float, wait_s: float
) -> None:
    setup = Setup(wait_s=wait_s)
    size_bytes, takes_s, per_s = settled_flush(megabytes * MB, appends_per_s, setup)
    assert size_bytes * per_s == pytest.approx(megabytes * MB)
    assert per_s <= appends_per_s * 1.001
    assert per_s * takes_s <= 1.05 or size_bytes == pytest.approx(SETUP.inline_max_bytes, rel=0.5)


def test_what_cannot_be_flushed_as_fast_as_it_comes_never_settles() -> None:
    size_bytes, _, per_s = settled_flush(2 * MEASURED.object_bytes_per_s, 10_000, SETUP)
    assert size_bytes == float("inf")
    assert per_s == 0
    several = Setup(uploads_at_once=4)
    assert settled_flush(2 * MEASURED.object_bytes_per_s, 10_000, several)[0] < float("inf")


def test_nothing_takes_nothing() -> None:
    idle = outcome(Load("nothing", 0, 0, 1, 0, 1), 3)
    assert max(idle.busy.values()) == 0
    assert idle.puts_per_s == 0
    assert set(idle.dollars) >= {"brokers", "PostgreSQL"}


def test_more_brokers_relieve_processors_and_burden_postgresql() -> None:
    few, many = (outcome(LOADS[1], count) for count in (5, 50))
    assert many.busy["processor of a broker"] < few.busy["processor of a broker"]
    assert many.busy["commits of PostgreSQL"] > few.busy["commits of PostgreSQL"]


def test_a_wait_makes_flushes_fewer_and_later() -> None:
    at_once, waiting = (outcome(LOADS[1], 5, Setup(wait_s=wait_s)) for wait_s in (0.0, 0.025))
    assert waiting.flushes_per_s < at_once.flushes_per_s
    assert waiting.flush_s > at_once.flush_s


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name.partition(":")[0])
def test_each_load_of_the_table_fits_and_one_broker_less_would_not_do(load: Load) -> None:
    found, setup = best(load)
    assert found.fits
    assert max(found.busy.values()) <= BUSY_AT_MOST
    assert found.brokers == 3 or not outcome(load, found.brokers - 1, setup).fits


def test_a_load_that_no_number_of_brokers_carries_names_what_is_too_narrow() -> None:
    found = smallest(replace(LOADS[0], transactions_per_s=10_000_000, requests_per_s=10_000_000))
    assert not found.fits
    assert found.too_narrow


def test_prices_grow_with_what_is_kept_and_read() -> None:
    less, more = (outcome(replace(SMALL, retention_days=days), 3).dollars["objects"] for days in (1, 10))
    assert more == pytest.approx(10 * less)
    one, two = (outcome(replace(SMALL, fan_out=count), 3).dollars["transfer between zones"] for count in (1, 3))
    assert two == pytest.approx(2 * one)
    assert outcome(replace(SMALL, zones=1), 3).dollars["transfer between zones"] == 0


def test_clusters_break_somewhere_and_the_tables_say_where() -> None:
    for load in LOADS:
        found, too_narrow = breaking_point(load)
        assert found.fits
        assert found.load.written_bytes_per_s > load.written_bytes_per_s
        assert too_narrow
    assert table().count("\n") == len(LOADS) + 1
    assert breaking_table().count("\n") == len(LOADS) + 1
