"""UpdateFeatures: the levels of features that the whole cluster agrees on.

Source: KIP-584, KIP-1022.
"""

from fencepost.protocol.schema import field, int8, int16, int32, message, struct


@struct
class FeatureUpdateKey:
    """A feature and its new level; below 1 it is switched off.

    upgrade_type: 1 upgrade, 2 safe downgrade, 3 downgrade that may lose metadata.
    """

    feature: str = ""
    max_version_level: int16 = 0
    allow_downgrade: bool = field(versions="0", default=False)
    upgrade_type: int8 = field(versions="1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Change the levels of features, all or none of them."""

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = field(versions="1+", default=False)


@struct
class UpdatableFeatureResult:
    """Result of one feature."""

    feature: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """Errors: FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(versions="0-1", default=[])
