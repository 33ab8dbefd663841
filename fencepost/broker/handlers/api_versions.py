"""ApiVersions: the APIs and versions that this broker serves, and its feature levels.

Source: KIP-35, KIP-511, KIP-584 (features), KAFKA-17492 (features that start at 0), KIP-1242 (a client in
the wrong place); Kafka's ApiVersionManager,
KafkaApis.handleApiVersionsRequest and ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re

from fencepost.broker.hosting.features import SUPPORTED
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import response_frame
from fencepost.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from fencepost.protocol.primitives import Buffer

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_FEATURES_FROM_ZERO = 4
FIRST_VERSION_WITH_CLUSTER = 5
NO_NODE = -1

# AddPartitionsToTxn 4 and 5 are for brokers only (KIP-890): a client that sees them could use them.
HIGHEST_ADVERTISED = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}

CLIENT_METRICS_APIS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
LONGEST_SOFTWARE_NAME = 64
"""Characters that are kept of the name of a client's library, and of its version."""

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(
    ApiVersionsRequest,
    ApiVersionsResponse,
    versions="0-5",
    rights=None,
    needs_lease=False,
    errors=codes("UNSUPPORTED_VERSION INVALID_REQUEST REBOOTSTRAP_REQUIRED"),
)
def handle_api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List all served APIs and the feature levels; the APIs of client metrics only with an HTTP listener.

    Refuses: INVALID_REQUEST for an unusable client software name, or a cluster without a node; REBOOTSTRAP_REQUIRED
    from version 5 on, if the client means another cluster or node.
    """
    version = context.api_version
    if not is_valid(request, version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    services = context.services
    if version >= FIRST_VERSION_WITH_CLUSTER and not _is_meant(services, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    features = services.features
    shows_client_metrics = bool(services.settings.fencepost_http_listener)
    is_software_kept = shows_client_metrics or services.near_reads is not None
    if is_software_kept and version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        context.connection.client_software = (
            request.client_software_name[:LONGEST_SOFTWARE_NAME],
            request.client_software_version[:LONGEST_SOFTWARE_NAME],
        )
    return ApiVersionsResponse(
        api_keys=advertised_versions(
            with_unstable=services.settings.unstable_api_versions_enable, with_client_metrics=shows_client_metrics
        ),
        supported_features=[
            SupportedFeatureKey(name, supported.minimum, supported.maximum)
            for name, supported in SUPPORTED.items()
            # Older Java clients refuse a supported feature that starts at 0 (KAFKA-17492).
            if supported.minimum > 0 or version >= FIRST_VERSION_WITH_FEATURES_FROM_ZERO
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in features.levels.items() if level > 0
        ],
    )


def _is_meant(services: Services, request: ApiVersionsRequest) -> bool:
    """Whether the client means this node of this cluster; one that names no cluster means any."""
    return request.cluster_id is None or (request.cluster_id, request.node_id) == (
        services.cluster_id,
        services.node_id,
    )


def is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """Whether the client names its software as KIP-511 wants it, and both a cluster and a node or neither (KIP-1242);
    a version that does not have them is valid.
    """
    if version >= FIRST_VERSION_WITH_CLUSTER and (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    return version < FIRST_VERSION_WITH_SOFTWARE_NAME or bool(
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    )


def advertised_versions(*, with_unstable: bool = False, with_client_metrics: bool = True) -> list[ApiVersion]:
    """The version ranges that clients are shown, by API key.

    with_client_metrics: whether clients are asked for metrics; as in Kafka, if there is a receiver, here `/metrics`.
    """
    return [
        ApiVersion(
            key,
            served.advertised_minimum,
            HIGHEST_ADVERTISED.get(ApiKey(key), served.highest_version(with_unstable=with_unstable)),
        )
        for key, served in sorted(SERVED.items())
        if with_client_metrics or key not in CLIENT_METRICS_APIS
    ]


def unsupported_version_reply(correlation_id: int) -> list[Buffer]:
    """The reply to a version above ours: in version 0, which every client reads, with the supported range."""
    served = SERVED[ApiKey.API_VERSIONS]
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(ApiKey.API_VERSIONS, served.minimum_version, served.maximum_version)],
    )
    return response_frame(correlation_id, response, 0)
