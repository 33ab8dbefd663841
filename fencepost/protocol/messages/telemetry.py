"""GetTelemetrySubscriptions and PushTelemetry: the metrics that a client is asked for, and sends (KIP-714)."""

from fencepost.protocol.schema import ZERO_UUID, int8, int16, int32, message, uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """Ask for the metrics that are wanted of this client. client_instance_id: zero in its first request."""

    client_instance_id: uuid = ZERO_UUID


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The wanted metrics, as prefixes of names: none for no metrics, `*` for all.

    client_instance_id: the id that the client has from now on. subscription_id: a checksum of the wanted metrics.
    delta_temporality: whether counters are to be sent as differences to the push before.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = []
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    """The metrics of a client. terminating: whether this is its last push.

    metrics: MetricsData of OTLP version 1, compressed as `compression_type` says.
    """

    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    terminating: bool = False
    compression_type: int8 = 0
    metrics: bytes = b""


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """Whether the metrics were taken."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
