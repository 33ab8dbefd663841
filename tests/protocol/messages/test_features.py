"""UpdateFeatures as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.protocol.messages.golden import assert_bytes


def test_version_0_only_allows_a_downgrade() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1, allow_downgrade=True)]
    )
    assert_bytes(request, 0, "00 00 ea 60 02 02 66 00 01 01 00 00")


def test_version_1_names_the_kind_of_change() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=2)], validate_only=True
    )
    assert_bytes(request, 1, "00 00 ea 60 02 02 66 00 01 02 00 01 00")


def test_version_2_has_no_result_of_each_feature() -> None:
    reply = UpdateFeaturesResponse(error_code=42, error_message="no")
    assert_bytes(reply, 2, "00 00 00 00 00 2a 03 6e 6f 00")
