"""When a client instance may ask and push, as Kafka decides it."""

from __future__ import annotations

import pytest

from fencepost.broker.telemetry.client_instance import ClientInstance
from fencepost.broker.telemetry.subscriptions import Wanted
from fencepost.protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000
INTERVAL_MS = 1_000
ID = 77


def asked() -> ClientInstance:
    instance = ClientInstance(bytes(16), "shop")
    instance.ask(Wanted(("a",), INTERVAL_MS), ID, 1, NOW_MS)
    return instance


def push(
    instance: ClientInstance,
    now_ms: int,
    *,
    subscription: int = ID,
    codec: int = 0,
    size: int = 1,
    is_last: bool = False,
) -> ErrorCode:
    return instance.push(subscription, codec, size, now_ms, is_last=is_last, maximum_bytes=100)


def test_a_client_asks_once_in_an_interval() -> None:
    instance = asked()
    answers = [instance.get(NOW_MS + after_ms) for after_ms in (0, 999, 1_000)]
    assert answers == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE]


def test_a_client_pushes_at_once_after_asking_and_then_once_in_an_interval() -> None:
    instance = asked()
    assert instance.get(NOW_MS) is ErrorCode.NONE
    answers = [push(instance, NOW_MS + after_ms) for after_ms in (10, 20, 1_009, 1_010)]
    early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answers == [ErrorCode.NONE, early, early, ErrorCode.NONE]


def test_the_last_push_may_come_early_and_nothing_after_it() -> None:
    instance = asked()
    assert push(instance, NOW_MS) is ErrorCode.NONE
    assert push(instance, NOW_MS + 1, is_last=True) is ErrorCode.NONE
    assert push(instance, NOW_MS + 2, is_last=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("pushed", "error"),
    [
        ({"subscription": 78, "codec": 9, "size": 101}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9, "size": 101}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size": 100}, ErrorCode.NONE),
    ],
)
def test_refusals_come_in_kafkas_order(pushed: dict[str, int], error: ErrorCode) -> None:
    assert push(asked(), NOW_MS, **pushed) is error  # type: ignore[arg-type]  # counts only


def test_a_changed_subscription_may_be_asked_for_at_once() -> None:
    instance = asked()
    assert instance.get(NOW_MS) is ErrorCode.NONE
    instance.ask(Wanted(("b",), INTERVAL_MS), 78, 2, NOW_MS + 1)
    assert push(instance, NOW_MS + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    instance.ask(Wanted(("c",), INTERVAL_MS), 79, 3, NOW_MS + 2)
    assert instance.get(NOW_MS + 2) is ErrorCode.NONE


@pytest.mark.parametrize("wrong", [{"subscription": 78}, {"codec": 9}], ids=["subscription", "codec"])
def test_a_client_whose_push_was_refused_for_a_cause_that_asking_cures_asks_once_at_once(wrong: dict[str, int]) -> None:
    instance = asked()
    assert push(instance, NOW_MS, **wrong) is not ErrorCode.NONE  # type: ignore[arg-type]  # counts only
    answers = [instance.get(NOW_MS + after_ms) for after_ms in (1, 2)]
    assert answers == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_a_client_whose_push_was_too_large_asks_after_the_interval() -> None:
    instance = asked()
    assert push(instance, NOW_MS, size=101) is ErrorCode.TELEMETRY_TOO_LARGE
    assert instance.get(NOW_MS + 1) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(("interval_ms", "expiry_ms"), [(1_000, 60_000), (300_000, 900_000)])
def test_an_instance_expires_after_three_intervals_and_a_minute_at_least(interval_ms: int, expiry_ms: int) -> None:
    instance = ClientInstance(bytes(16), "shop")
    instance.ask(Wanted((), interval_ms), ID, 1, NOW_MS)
    assert instance.expires_ms == NOW_MS + expiry_ms
    instance.seen(NOW_MS + 5)
    assert instance.expires_ms == NOW_MS + 5 + expiry_ms
