"""api_versions"""

from protocol.schema import field, int16, int32, int64, message, struct


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """ApiVersionsRequest."""

    client_software_name: str = field(versions="3+", default="")
    client_software_version: str = field(versions="3+", default="")


@struct
class ApiVersion:
    """ApiVersion."""

    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class SupportedFeatureKey:
    """SupportedFeatureKey."""

    name: str = ""
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class FinalizedFeatureKey:
    """FinalizedFeatureKey."""

    name: str = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """ApiVersionsResponse."""

    error_code: int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: int32 = field(versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0, default=[])
    finalized_features_epoch: int64 = field(versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2, default=[])
    zk_migration_ready: bool = field(versions="3+", tag=3, default=False)
