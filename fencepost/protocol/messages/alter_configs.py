"""AlterConfigs and IncrementalAlterConfigs change settings of resources, ListConfigResources lists those with settings.

Source: KIP-133, KIP-339, KIP-1142.
"""

from fencepost.protocol.schema import field, int8, int16, int32, message, struct


@struct
class AlterableConfig:
    """A setting and its new text."""

    name: str = ""
    value: str | None = ""


@struct
class AlterConfigsResource:
    """A resource with all its new settings. Types: 2 topic, 4 broker, 8 broker logger."""

    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replace the settings of resources; settings that are not named return to their defaults."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


@struct
class AlterConfigsResourceResponse:
    """Result of one resource.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_REQUEST.
    """

    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


@struct
class IncrementalAlterableConfig:
    """A setting and its operation: 0 set, 1 delete, 2 append to and 3 subtract from a list."""

    name: str = ""
    config_operation: int8 = 0
    value: str | None = ""


@struct
class IncrementalAlterConfigsResource:
    """A resource with its changes. Types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""

    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[IncrementalAlterableConfig] = []


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Change single settings of resources, and leave the others as they are."""

    resources: list[IncrementalAlterConfigsResource] = []
    validate_only: bool = False


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Ask which resources have settings. From version 1 on of the given types, of all types when there are none."""

    resource_types: list[int8] = field(versions="1+", default=[])


@struct
class ConfigResource:
    """A resource that has settings. Types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""

    resource_name: str = ""
    resource_type: int8 = field(versions="1+", default=16)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources, in no order.

    Errors: UNSUPPORTED_VERSION (a type that has no settings).
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = []
