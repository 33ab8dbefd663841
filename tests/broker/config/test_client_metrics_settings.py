"""Configs of subscriptions to client metrics: what may be set, and how patterns are read."""

from __future__ import annotations

import pytest

from fencepost.broker.config.client_metrics_settings import (
    LONGEST_PATTERN,
    MOST_METRICS,
    check_client_metrics_configs,
    describe_client_metrics_configs,
    match_patterns,
)
from fencepost.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"metrics": "*", "interval.ms": "100", "match": ""},
        {"interval.ms": "3600000", "match": " client_id = a.* ,client_source_port=1"},
    ],
)
def test_valid_configs_are_taken(configs: dict[str, str]) -> None:
    assert check_client_metrics_configs(configs) is None


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"interval": "1000"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_name=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=" + "a" * (LONGEST_PATTERN + 1)}, ErrorCode.INVALID_CONFIG),
        ({"metrics": "a,,b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a,"}, ErrorCode.INVALID_CONFIG),
        ({"metrics": ",".join(map(str, range(MOST_METRICS + 1)))}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_configs_that_cannot_be_are_refused_with_kafkas_code(configs: dict[str, str], error: ErrorCode) -> None:
    refusal = check_client_metrics_configs(configs)
    assert refusal is not None
    assert refusal.error is error
    assert refusal.message


def test_patterns_are_pairs_without_the_space_around_them() -> None:
    found = list(match_patterns({"match": " client_id = a.* ,client_source_port=1="}))
    assert found == [("client_id", "a.*"), ("client_source_port", "1")]


def test_every_config_is_described_with_its_sources() -> None:
    described = {one.name: one for one in describe_client_metrics_configs({"interval.ms": "1000"})}
    assert list(described) == ["interval.ms", "match", "metrics"]
    assert [synonym.value for synonym in described["interval.ms"].synonyms] == ["1000"]
    assert described["match"].synonyms == ()
