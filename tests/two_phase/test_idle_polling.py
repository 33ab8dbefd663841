"""Producers that wait between transactions: their statistics do not pile up, and nothing keeps them alive."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import pytest

from fencepost.two_phase import confluent_producer
from fencepost.two_phase.idle_polling import IDLE_POLLING, IdlePolling
from tests.support import conditions

NOBODY = "127.0.0.1:1"
PATIENCE_S = 60
until = partial(conditions.until, timeout_s=PATIENCE_S)


def producer_that_counts(seen: list[str], name: str = "orders-1") -> Any:
    return confluent_producer(
        {"bootstrap.servers": NOBODY, "transactional.id": name, "log_level": 0, "stats_cb": seen.append}
    )


def test_the_statistics_of_an_idle_producer_are_served_while_the_application_waits() -> None:
    seen: list[str] = []
    producer = producer_that_counts(seen)
    until(lambda: len(seen) > 20)
    producer.close()


def test_nothing_is_served_in_the_background_while_a_transaction_is_open() -> None:
    seen: list[str] = []
    producer = producer_that_counts(seen)
    until(lambda: bool(seen))
    with producer.fencepost_polling:
        producer.fencepost_is_idle = False
    counted = len(seen)
    producer.poll_if_idle()
    assert len(seen) == counted
    producer.fencepost_is_idle = True
    until(lambda: len(seen) > counted)
    producer.close()


def test_a_producer_that_is_dropped_is_gone_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        producer = producer_that_counts([])
        gone = weakref.ref(producer)
        del producer
        until(lambda: gone() is None)
    finally:
        gc.enable()


class Polled:
    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.count = 0

    def poll_if_idle(self) -> None:
        self.count += 1
        if self.count <= self.failures:
            raise ValueError("of a callback")


def test_a_producer_whose_with_has_ended_is_polled_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with producer_that_counts([]) as producer:
        pass
    IDLE_POLLING._poll_all()
    assert "an idle producer failed" not in caplog.text
    assert producer not in IDLE_POLLING._producers


def test_a_callback_that_fails_each_time_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    polling = IdlePolling()
    failing = Polled(failures=1_000)
    polling.add(failing)
    until(lambda: failing.count > 2)
    polling.remove(failing)
    until(lambda: polling._thread is None)
    assert caplog.text.count("an idle producer failed") == 1


def test_the_thread_ends_with_its_last_producer_and_begins_with_the_next() -> None:
    polling = IdlePolling()
    for _ in range(2):
        polled = Polled()
        polling.add(polled)
        until(lambda polled=polled: polled.count > 0)  # type: ignore[misc]
        polling.remove(polled)
        until(lambda: polling._thread is None)


def test_a_callback_that_fails_is_reported_and_the_others_are_polled(caplog: pytest.LogCaptureFixture) -> None:
    polling = IdlePolling()
    failing, other = Polled(failures=1), Polled()
    for one in (failing, other):
        polling.add(one)
    until(lambda: failing.count > 1 and other.count > 1)
    assert "a callback of an idle producer failed" in caplog.text
    for one in (failing, other):
        polling.remove(one)
    until(lambda: polling._thread is None)
