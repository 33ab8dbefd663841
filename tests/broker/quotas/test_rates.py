"""Rates over the last windows: bursts, pauses, and what is forgotten."""

from __future__ import annotations

import pytest

from fencepost.broker.quotas.rates import SampledRate, TokenBucket

NOW_MS = 1_700_000_000_000


@pytest.fixture
def rate() -> SampledRate:
    return SampledRate(window_ms=1000, window_count=11)


def test_a_burst_may_use_what_ten_windows_have_room_for(rate: SampledRate) -> None:
    rate.record(1000, NOW_MS)
    assert rate.throttle_ms(100, NOW_MS) == 0
    rate.record(1, NOW_MS)
    assert rate.throttle_ms(100, NOW_MS) > 0


def test_the_pause_brings_the_rate_down_to_the_limit(rate: SampledRate) -> None:
    rate.record(1500, NOW_MS)
    pause_ms = rate.throttle_ms(100, NOW_MS)
    assert pause_ms == 5000
    rate = SampledRate(window_ms=1000, window_count=30)
    rate.record(3500, NOW_MS)
    pause_ms = rate.throttle_ms(100, NOW_MS)
    assert rate.throttle_ms(100, NOW_MS + pause_ms + 29_000) == 0


def test_a_client_below_the_limit_is_never_throttled(rate: SampledRate) -> None:
    for second in range(60):
        rate.record(90, NOW_MS + second * 1000)
        assert rate.throttle_ms(100, NOW_MS + second * 1000) == 0


def test_a_client_at_twice_the_limit_pauses_half_of_the_time(rate: SampledRate) -> None:
    now_ms, used = NOW_MS, 0
    while now_ms < NOW_MS + 120_000:
        rate.record(20, now_ms)
        used += 20
        now_ms += 100 + rate.throttle_ms(100, now_ms)
    assert used == pytest.approx(120 * 100, rel=0.15)


def test_what_is_long_past_does_not_count(rate: SampledRate) -> None:
    rate.record(1_000_000, NOW_MS)
    assert rate.throttle_ms(1, NOW_MS + 11_000) == 0


def test_a_clock_that_was_set_back_forgives(rate: SampledRate) -> None:
    rate.record(1_000_000, NOW_MS)
    rate.record(1, NOW_MS - 3_600_000)
    assert rate.throttle_ms(1, NOW_MS - 3_600_000) == 0


def test_a_refund_takes_it_back(rate: SampledRate) -> None:
    rate.record(5000, NOW_MS)
    rate.record(-5000, NOW_MS)
    assert rate.throttle_ms(100, NOW_MS) == 0


def test_a_bucket_gives_more_than_it_has_once_and_then_fills_again() -> None:
    bucket = TokenBucket(burst_s=11, rate_per_s=2, now_ms=NOW_MS)
    assert bucket.owed_ms(2, NOW_MS) == 0
    bucket.take(30)  # of 22
    assert bucket.owed_ms(2, NOW_MS) == 4000
    assert bucket.owed_ms(2, NOW_MS + 3000) == 1000
    assert bucket.owed_ms(2, NOW_MS + 4000) == 0
    assert bucket.owed_ms(2, NOW_MS + 1_000_000) == 0
    bucket.take(23)
    assert bucket.owed_ms(2, NOW_MS + 1_000_000) == 500  # it holds no more than its burst
