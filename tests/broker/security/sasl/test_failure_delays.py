"""Delays of failures: they grow for the address that fails, and for no other."""

from __future__ import annotations

from fencepost.broker.security.sasl.failure_delays import MAXIMUM_ADDRESSES, FailureDelays


def test_the_first_failures_have_the_delay_of_the_setting() -> None:
    delays = FailureDelays()
    assert [delays.failed("192.0.2.1", 100, 0) for _ in range(10)] == [100] * 10


def test_further_failures_within_a_minute_double_the_delay_up_to_five_seconds() -> None:
    delays = FailureDelays()
    found = [delays.failed("192.0.2.1", 100, time) for time in range(20)]
    assert found[10:] == [200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000, 5000]


def test_ten_thousand_passwords_take_more_than_half_a_day() -> None:
    delays, now_ms = FailureDelays(), 0
    for _ in range(10_000):
        now_ms += delays.failed("192.0.2.1", 100, now_ms)
    assert now_ms > 12 * 3600 * 1000


def test_failures_are_forgotten_in_time() -> None:
    delays = FailureDelays()
    for _ in range(1_000):
        delays.failed("192.0.2.1", 100, 0)
    assert delays.failed("192.0.2.1", 100, 1) == 5000
    assert delays.failed("192.0.2.1", 100, 120_002) == 100


def test_other_addresses_do_not_notice() -> None:
    delays = FailureDelays()
    for _ in range(1_000):
        delays.failed("192.0.2.1", 100, 0)
    assert delays.failed("192.0.2.2", 100, 0) == 100


def test_the_addresses_of_one_ipv6_network_count_together() -> None:
    delays = FailureDelays()
    for host in range(20):
        last_ms = delays.failed(f"2001:db8:1:2::{host:x}", 100, 0)
    assert last_ms == 5000
    assert delays.failed("2001:db8:1:3::1", 100, 0) == 100
    assert delays.failed("fe80::1%eth0", 100, 0) == 100
    assert delays.failed("no address:", 100, 0) == 100


def test_an_ipv4_address_is_the_same_in_ipv6() -> None:
    delays = FailureDelays()
    for _ in range(20):
        delays.failed("::ffff:192.0.2.1", 100, 0)
    assert delays.failed("192.0.2.1", 100, 0) == 5000
    assert delays.failed("::ffff:192.0.2.9", 100, 0) == 100


def test_without_a_delay_none_grows() -> None:
    delays = FailureDelays()
    assert {delays.failed("192.0.2.1", 0, 0) for _ in range(50)} == {0}


def test_a_longer_delay_of_the_setting_stays() -> None:
    delays = FailureDelays()
    assert {delays.failed("192.0.2.1", 9_000, 0) for _ in range(50)} == {9_000}


def test_the_addresses_that_are_remembered_are_bounded() -> None:
    delays = FailureDelays()
    for number in range(MAXIMUM_ADDRESSES + 5):
        delays.failed(f"host-{number}", 100, 0)
    assert len(delays._failures) == MAXIMUM_ADDRESSES


def test_a_clock_that_is_set_back_harms_nothing() -> None:
    delays = FailureDelays()
    for _ in range(20):
        delays.failed("192.0.2.1", 100, 1_000_000)
    assert delays.failed("192.0.2.1", 100, 0) == 5000
