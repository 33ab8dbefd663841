"""What the check-back counts."""

from __future__ import annotations

from fencepost.check_back.figures import LATENCY_BOUNDS_S, Figures, Latencies


def test_a_latency_is_counted_below_its_bound_and_the_longest_beyond_all() -> None:
    latencies = Latencies()
    for latency_s in (0.001, LATENCY_BOUNDS_S[0], 0.006, 99.0):
        latencies.add(latency_s)
    assert latencies.counts[:2] == [2, 1]
    assert latencies.counts[-1] == 1
    assert len(latencies.counts) == len(LATENCY_BOUNDS_S) + 1
    assert latencies.total_s == 0.001 + LATENCY_BOUNDS_S[0] + 0.006 + 99.0


def test_resolvers_have_latencies_of_their_own() -> None:
    figures = Figures(("orders", "stock"))
    figures.latencies["orders"].add(0.2)
    assert figures.latencies["stock"].total_s == 0
    assert figures.checks["orders", "commit"] == 0
