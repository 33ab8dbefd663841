"""DescribeConfigs: the effective configuration of topics and brokers, and the source of each value (KIP-133)."""

from fencepost.protocol.schema import field, int8, int16, int32, message, struct


@struct
class DescribeConfigsResource:
    """A resource, with the names of the requested settings, or None for all. Types: 2 topic, 4 broker, 8 broker
    logger.
    """

    resource_type: int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for settings of resources."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = field(versions="3+", default=False)


@struct
class DescribeConfigsSynonym:
    """Another source of the value, in the order of precedence."""

    name: str = ""
    value: str | None = ""
    source: int8 = 0


@struct
class DescribeConfigsResourceResult:
    """A setting. `value` is None for a sensitive one.

    config_source: 1 the topic, 2 and 3 the broker at run time, 4 its properties file, 5 the default.
    config_type: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    """

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: int8 = field(versions="3+", default=0)
    documentation: str | None = field(versions="3+", default="")


@struct
class DescribeConfigsResult:
    """The settings of one resource.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = []
