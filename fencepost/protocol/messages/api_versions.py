"""ApiVersions: the versions that the broker serves, and the levels of features (KIP-35, KIP-511, KIP-584, KIP-1242)."""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    """The first request on a connection. A broker that does not know its version answers in version 0.

    cluster_id, node_id: the cluster and the node that the client means to reach; None and -1 if it does not know them.
    """

    client_software_name: str = field(versions="3+", default="")
    client_software_version: str = field(versions="3+", default="")
    cluster_id: str | None = field(versions="5+", default=None)
    node_id: int32 = field(versions="5+", default=-1)


@struct
class ApiVersion:
    """An API with the lowest and highest version that are served."""

    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class SupportedFeatureKey:
    """A feature with the levels that the broker could run at. Versions 0 to 3 must leave out those with level 0
    (KAFKA-17492).
    """

    name: str = ""
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class FinalizedFeatureKey:
    """A feature with the levels that the whole cluster has settled on; `transaction.version` among them."""

    name: str = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """The served APIs and the features. Its header is of version 0 in all versions.

    Errors: UNSUPPORTED_VERSION (with one entry, the supported versions), INVALID_REQUEST for an ill-formed
    software name, REBOOTSTRAP_REQUIRED (5+) from another cluster or node than the client means.
    """

    error_code: int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: int32 = field(versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0, default=[])
    finalized_features_epoch: int64 = field(versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2, default=[])
    zk_migration_ready: bool = field(versions="3+", tag=3, default=False)
