"""A scrape shows what clients have pushed, until they are gone."""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.telemetry.client_metrics import instance_text
from fencepost.broker.telemetry.otlp import LONGEST_ATTRIBUTES, LONGEST_NAME
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from tests.broker.metrics.test_broker_families import values_of
from tests.broker.supervision.planting import until
from tests.broker.test_node import connected
from tests.support.http_node import HttpNode, http_node
from tests.support.otlp import gauge, metrics_data, point, total

FAMILY = "fencepost_client_metric"


async def shown(http: HttpNode) -> dict[str, float]:
    found = values_of((await http.get("/metrics")).text)
    return {name: value for name, value in found.items() if name.startswith((FAMILY, "fencepost_metrics_left_out"))}


async def test_metrics_of_a_client_are_shown_while_it_is_connected(tmp_path: Path) -> None:
    async with http_node(tmp_path, fencepost_client_metrics_max_series=2) as http:
        configs = {"metrics": "*", "interval.ms": "100", "match": "client_software_name=shop-client"}
        await http.node.services.client_metrics_configs.alter("shop", lambda _: configs, validate_only=False)
        async with connected(http.node) as client:
            await client.call(ApiVersionsRequest("shop-client", "1.0"), ApiVersionsResponse, 3)
            response = await client.call(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse, 0)
            assert response.requested_metrics == ["*"]
            content = metrics_data(
                gauge("latency", point(1.5, topic='a"b')), total("sent", point(3)), gauge("more", point(1))
            )
            push = PushTelemetryRequest(response.client_instance_id, response.subscription_id, metrics=content)
            assert (await client.call(push, PushTelemetryResponse, 0)).error_code == 0
            found = await shown(http)
        await until(lambda: not len(http.node.services.client_metrics))
        assert not [name for name in await shown(http) if name.startswith(FAMILY + "{")]
    of_client = {name: value for name, value in found.items() if name.startswith(FAMILY + "{")}
    assert sorted(of_client.values()) == [1.5, 3.0]
    instance = instance_text(response.client_instance_id)
    assert all(f'client_instance_id="{instance}"' in name for name in of_client)
    assert [name for name in of_client if 'attributes="topic=a"b"' in name and 'metric="latency"' in name]
    assert found["fencepost_client_metrics_instances"] == 1
    assert found['fencepost_metrics_left_out{kind="client_series"}'] == 1


async def test_the_page_can_be_read_whatever_a_client_pushes(tmp_path: Path) -> None:
    hostile = '\x00\r\n"\\\x1b{}\u2028' * 20_000
    async with http_node(tmp_path) as http, connected(http.node) as client:
        response = await client.call(GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse, 0)
        content = metrics_data(gauge(hostile, point(math.nan, **{hostile: hostile}), point(-math.inf, a=hostile)))
        push = PushTelemetryRequest(response.client_instance_id, response.subscription_id, metrics=content)
        assert (await client.call(push, PushTelemetryResponse, 0)).error_code == 0
        text = (await http.get("/metrics")).text
    found = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples if sample.name == FAMILY
    ]
    assert sorted(str(sample.value) for sample in found) == ["-inf", "nan"]
    assert all(len(sample.labels["attributes"]) <= LONGEST_ATTRIBUTES for sample in found)
    assert all(len(sample.labels["metric"]) <= LONGEST_NAME for sample in found)
