"""GetTelemetrySubscriptions and PushTelemetry: metrics that clients send of themselves.

Source: KIP-714; Kafka's ClientMetricsManager.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

ACCEPTED_COMPRESSION: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The best first: clients take the first that they have."""


@api(
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    versions="0",
    rights=None,
    needs_lease=False,
    errors=codes("THROTTLING_QUOTA_EXCEEDED"),
)
def handle_get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Ask a client for the metrics of the subscriptions that match it, and say how often it shall push them.

    Refuses: THROTTLING_QUOTA_EXCEEDED (asked again before the interval is over).
    """
    services = context.services
    error, instance = services.client_metrics.get(request.client_instance_id, context.client_id, context.connection)
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=services.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


@api(
    PushTelemetryRequest,
    PushTelemetryResponse,
    versions="0",
    rights=None,
    needs_lease=False,
    errors=codes(
        "INVALID_REQUEST THROTTLING_QUOTA_EXCEEDED UNKNOWN_SUBSCRIPTION_ID UNSUPPORTED_COMPRESSION_TYPE "
        "TELEMETRY_TOO_LARGE INVALID_RECORD"
    ),
)
async def handle_push_telemetry(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take the metrics of a client, which `/metrics` shows until the client is gone.

    Refuses: INVALID_REQUEST (no client instance id, or after the client's last push), THROTTLING_QUOTA_EXCEEDED (before
    the interval is over), UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD
    (metrics that cannot be read).
    """
    services = context.services
    error = await services.client_metrics.push(
        request.client_instance_id,
        context.client_id,
        context.connection,
        subscription_id=request.subscription_id,
        compression_type=request.compression_type,
        is_last=request.terminating,
        content=request.metrics,
    )
    return PushTelemetryResponse(error_code=error)
