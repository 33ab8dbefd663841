"""GetTelemetrySubscriptions and PushTelemetry as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from tests.protocol.messages.golden import assert_bytes

INSTANCE = bytes(range(16))
INSTANCE_BYTES = INSTANCE.hex(" ")


def test_a_client_names_itself() -> None:
    assert_bytes(GetTelemetrySubscriptionsRequest(INSTANCE), 0, f"{INSTANCE_BYTES} 00")


def test_the_wanted_metrics_come_last() -> None:
    response = GetTelemetrySubscriptionsResponse(
        client_instance_id=INSTANCE,
        subscription_id=-2,
        accepted_compression_types=[4],
        push_interval_ms=1_000,
        telemetry_max_bytes=256,
        delta_temporality=True,
        requested_metrics=["*"],
    )
    expected = f"00 00 00 00 00 00 {INSTANCE_BYTES} ff ff ff fe 02 04 00 00 03 e8 00 00 01 00 01 02 02 2a 00"
    assert_bytes(response, 0, expected)


def test_a_push_says_how_its_metrics_are_compressed() -> None:
    request = PushTelemetryRequest(INSTANCE, 7, terminating=True, compression_type=4, metrics=b"ab")
    assert_bytes(request, 0, f"{INSTANCE_BYTES} 00 00 00 07 01 04 03 61 62 00")
    assert_bytes(PushTelemetryResponse(error_code=117), 0, "00 00 00 00 00 75 00")
