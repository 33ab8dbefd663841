"""GetTelemetrySubscriptions and PushTelemetry as clients see them, and when ApiVersions shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from tests.support.handler_context import HandlerBroker, open_broker
from tests.support.otlp import gauge, metrics_data, point

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path, fencepost_http_listener="127.0.0.1:0", telemetry_max_bytes=1_000) as opened:
        configs = {"metrics": "org.apache.kafka.", "interval.ms": "1000", "match": "client_id=test"}
        await opened.services.client_metrics_configs.alter("all", lambda _: configs, validate_only=False)
        yield opened


async def asked(broker: HandlerBroker, instance: bytes = bytes(16)) -> GetTelemetrySubscriptionsResponse:
    response: GetTelemetrySubscriptionsResponse = await broker.call(GetTelemetrySubscriptionsRequest(instance))
    return response


async def test_a_client_learns_what_to_push(broker: HandlerBroker) -> None:
    response = await asked(broker)
    assert response.client_instance_id != bytes(16)
    assert (response.error_code, response.requested_metrics) == (0, ["org.apache.kafka."])
    assert (response.push_interval_ms, response.telemetry_max_bytes) == (1_000, 1_000)
    assert (response.accepted_compression_types, response.delta_temporality) == ([4, 3, 1, 2], True)


async def test_a_client_that_asks_again_too_early_is_refused(broker: HandlerBroker) -> None:
    instance = (await asked(broker)).client_instance_id
    assert (await asked(broker, instance)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.clock.time_ms += 1_000
    again = await asked(broker, instance)
    assert (again.error_code, again.client_instance_id) == (0, instance)


async def test_what_a_client_pushes_is_kept(broker: HandlerBroker) -> None:
    response = await asked(broker)
    content = metrics_data(gauge("org.apache.kafka.g", point(1.5, topic="x")))
    push = PushTelemetryRequest(response.client_instance_id, response.subscription_id, metrics=content)
    assert (await broker.call(push)).error_code == 0
    (found,) = [one for one in broker.services.client_metrics.series() if one is not None]
    assert (found[0].client_id, *found[1:]) == ("test", "org.apache.kafka.g", "topic=x", 1.5)
    assert (await broker.call(push)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(1_001)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\x0a"}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_push_is_refused_with_kafkas_code(
    broker: HandlerBroker, changed: dict[str, Any], error: ErrorCode
) -> None:
    response = await asked(broker)
    fields: dict[str, Any] = {
        "client_instance_id": response.client_instance_id,
        "subscription_id": response.subscription_id,
        "metrics": b"",
    }
    assert (await broker.call(PushTelemetryRequest(**fields | changed))).error_code == error


@pytest.mark.parametrize("listener", [None, "127.0.0.1:0"])
async def test_clients_see_the_apis_if_there_is_a_page_of_metrics(tmp_path: Path, listener: str | None) -> None:
    async with open_broker(tmp_path, fencepost_http_listener=listener) as broker:
        response = await broker.call(ApiVersionsRequest("librdkafka", "2.6"))
    shown = {one.api_key for one in response.api_keys} & {GET, PUSH}
    assert shown == ({GET, PUSH} if listener else set())
