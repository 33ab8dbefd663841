"""Configs become subscriptions; those that this version cannot read match no client."""

from __future__ import annotations

from fencepost.broker.telemetry.compiled_subscriptions import compile_subscriptions

MEMORY_BYTES = 100_000


def test_a_subscription_has_its_metrics_interval_and_patterns() -> None:
    configs = {"metrics": "a., b.", "interval.ms": "1000", "match": "client_id=x.*, client_source_port=1"}
    (found,) = compile_subscriptions([configs], MEMORY_BYTES)
    assert (found.metrics, found.interval_ms) == (("a.", "b."), 1_000)
    assert [attribute for attribute, _ in found.patterns] == ["client_id", "client_source_port"]
    assert found.patterns[0][1].fullmatch("xy")


def test_a_stored_subscription_that_cannot_be_read_is_left_out() -> None:
    unreadable = [{"metrics": "a", "match": "client_id=(?=x)"}, {"interval.ms": "often"}]
    assert [one.metrics for one in compile_subscriptions([*unreadable, {"metrics": "b"}], MEMORY_BYTES)] == [("b",)]


def test_of_two_patterns_for_an_attribute_the_last_counts() -> None:
    (found,) = compile_subscriptions([{"match": "client_id=a,client_id=b"}], MEMORY_BYTES)
    ((attribute, pattern),) = found.patterns
    assert attribute == "client_id"
    assert pattern.fullmatch("b")
    assert not pattern.fullmatch("a")
