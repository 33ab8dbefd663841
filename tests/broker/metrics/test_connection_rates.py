"""How many connections each listener accepts a second."""

from __future__ import annotations

from types import SimpleNamespace

from fencepost.broker.metrics.connection_rates import CreationRates


def test_a_rate_is_that_of_the_last_whole_minute() -> None:
    servers = [SimpleNamespace(accepted_count=100), SimpleNamespace(accepted_count=0)]
    rates = CreationRates(servers)  # type: ignore[arg-type]
    servers[0].accepted_count += 120
    assert rates.per_s(0) == 0.0
    rates.turn()
    assert (rates.per_s(0), rates.per_s(1)) == (2.0, 0.0)
    rates.turn()
    assert rates.per_s(0) == 0.0
