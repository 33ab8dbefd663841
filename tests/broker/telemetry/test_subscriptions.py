"""A client is asked for the metrics of all subscriptions that match it, at the least of their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.broker.telemetry.compiled_subscriptions import compile_subscriptions
from fencepost.broker.telemetry.subscriptions import (
    LONGEST_TEXT,
    Wanted,
    subscription_id,
    wanted_of,
)
from fencepost.protocol.messages.telemetry import GetTelemetrySubscriptionsResponse
from fencepost.protocol.schema import decode

CLIENT = {
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAg",
    "client_id": "shop-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.4.0",
    "client_source_address": "192.0.2.7",
    "client_source_port": "50000",
}
INSTANCE = bytes(range(15)) + b"x"


def wanted(*configs: dict[str, str], **client: str) -> Wanted:
    return wanted_of(compile_subscriptions(configs, 100_000), CLIENT | client, 300_000)


def test_without_a_subscription_no_metrics_are_wanted() -> None:
    assert wanted() == Wanted((), 300_000)


def test_overlapping_subscriptions_are_added_up() -> None:
    found = wanted({"metrics": "b.,a."}, {"metrics": "a.,c", "interval.ms": "1000"}, {"match": "client_id=other"})
    assert found == Wanted(("a.", "b.", "c"), 1_000)


def test_an_asterisk_stands_alone_for_all() -> None:
    assert wanted({"metrics": "a."}, {"metrics": "*"}).metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "is_asked"),
    [
        ("client_id=shop-.*", True),
        ("client_id=shop", False),
        ("client_id=shop-\\d,client_software_name=apache-kafka-java", True),
        ("client_id=shop-\\d,client_software_name=librdkafka", False),
        ("client_software_version=4\\..*", True),
        ("client_source_address=192\\.0\\.2\\.7,client_source_port=50000", True),
        ("client_instance_id=A+g", True),
    ],
)
def test_every_pattern_has_to_match_the_whole_text(match: str, is_asked: bool) -> None:
    assert bool(wanted({"metrics": "*", "match": match}).metrics) == is_asked


@pytest.mark.parametrize(
    "client_id", ["x" * (LONGEST_TEXT + 1), "a\nb", "\ud800"], ids=["long", "two lines", "no text"]
)
def test_a_text_that_java_might_match_otherwise_matches_nothing(client_id: str) -> None:
    assert not wanted({"metrics": "*", "match": "client_id=.*"}, client_id=client_id).metrics


def test_a_client_without_an_id_matches_no_pattern_of_ids() -> None:
    subscriptions = compile_subscriptions([{"metrics": "*", "match": "client_id=.*"}], 100_000)
    assert not wanted_of(subscriptions, {}, 300_000).metrics


def test_the_subscription_id_follows_from_metrics_interval_and_instance() -> None:
    first = subscription_id(Wanted(("a",), 1_000), INSTANCE)
    assert first == subscription_id(Wanted(("a",), 1_000), INSTANCE)
    others = {
        subscription_id(Wanted(("b",), 1_000), INSTANCE),
        subscription_id(Wanted(("a",), 2_000), INSTANCE),
        subscription_id(Wanted(("a",), 1_000), bytes(16)),
    }
    assert len(others | {first}) == 4
    assert all(-(2**31) <= one < 2**31 for one in others)


def test_the_id_of_a_subscription_is_that_of_apache_kafka() -> None:
    recorded = Path(__file__).resolve().parents[2] / "frames" / "get_telemetry_subscriptions.jsonl"
    replies = [bytes.fromhex(json.loads(line)["response"])[5:] for line in recorded.read_text().splitlines()]
    answers = [decode(GetTelemetrySubscriptionsResponse, reply, 0) for reply in replies]
    asked = [one for one in answers if not one.error_code]
    assert asked
    for one in asked:
        wanted = Wanted(tuple(one.requested_metrics), one.push_interval_ms)
        assert subscription_id(wanted, one.client_instance_id) == one.subscription_id
