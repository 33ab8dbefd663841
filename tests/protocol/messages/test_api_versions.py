"""ApiVersions as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.protocol.messages.golden import assert_bytes


def test_version_0_says_nothing_of_the_client() -> None:
    request = ApiVersionsRequest()
    assert_bytes(request, 0)


def test_version_3_names_the_client_s_software() -> None:
    request = ApiVersionsRequest(client_software_name="fp", client_software_version="1.0")
    assert_bytes(request, 3, "03 66 70 04 31 2e 30 00")


def test_version_5_names_the_cluster_and_the_node_that_the_client_means() -> None:
    request = ApiVersionsRequest(client_software_name="fp", client_software_version="1.0", cluster_id="c", node_id=7)
    assert_bytes(request, 5, "03 66 70 04 31 2e 30 02 63 00 00 00 07 00")
    assert_bytes(ApiVersionsRequest(), 5, "01 01 00 ff ff ff ff 00")


def test_features_are_tagged_fields_of_the_reply() -> None:
    reply = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
        supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=2)],
        finalized_features_epoch=3,
        finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=2)],
    )
    assert_bytes(
        reply,
        3,
        "00 00 02 00 12 00 00 00 04 00 00 00 00 00 03 00 08 02 02 66 00 00 00 02 00 01 08 00 00 00 00 00",
        "00 00 03 02 08 02 02 66 00 02 00 02 00",
    )
