"""configs"""

from protocol.schema import field, int8, int16, int32, message, struct


@struct
class DescribeConfigsResource:
    """DescribeConfigsResource."""

    resource_type: int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """DescribeConfigsRequest."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = field(versions="3+", default=False)


@struct
class DescribeConfigsSynonym:
    """DescribeConfigsSynonym."""

    name: str = ""
    value: str | None = ""
    source: int8 = 0


@struct
class DescribeConfigsResourceResult:
    """DescribeConfigsResourceResult."""

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
    """DescribeConfigsResult."""

    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """DescribeConfigsResponse."""

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = []
