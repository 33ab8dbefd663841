"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources: changes of the configs of topics, brokers, groups and
subscriptions to client metrics.

A change takes effect with the next request and survives a restart; the levels of loggers last until the process ends.
Source: KIP-133, KIP-226, KIP-339, KIP-412, KIP-1142; Kafka's ConfigAdminManager and ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from fencepost.broker.config import (
    SETTINGS,
    TOPIC_SETTINGS,
    Alteration,
    AlterationRefusal,
    AlterOperation,
    Setting,
    alter_configs,
    check_alterations,
    replace_configs,
)
from fencepost.broker.config.client_metrics_settings import CLIENT_METRICS_SETTINGS
from fencepost.broker.handlers.configs import ResourceType, wrong_broker
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import ALTERED_CONFIGS, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.needed_rights import ALTER_CONFIGS, DESCRIBE_CONFIGS, cluster, configs_of, key_of_config
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

FIRST_LIST_VERSION_WITH_TYPES = 1
_OPERATIONS = frozenset(AlterOperation)

Configs = Mapping[str, str]
Resource = AlterConfigsResource | IncrementalAlterConfigsResource


def alter_configs_failed(request: AlterConfigsRequest, error: ErrorCode, version: int) -> AlterConfigsResponse:
    """Every resource of the request fails with the same error."""
    return AlterConfigsResponse(responses=[_result(resource, (error, None)) for resource in request.resources])


_RESOURCE_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_SECRET_TYPES: Final = frozenset({"BROKER"})
_AUDITED_OPERATIONS: Final = ("set", "removed", "appended", "subtracted")


def _audit_altered(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    failed = {(one.resource_type, one.resource_name) for one in response.responses if one.error_code}
    for asked in request.resources:
        if (asked.resource_type, asked.resource_name) in failed:
            continue
        kind = _RESOURCE_TYPES.get(asked.resource_type, str(asked.resource_type))
        details: dict[str, Any] = {}
        by_operation = sorted(asked.configs, key=_operation_of)
        for operation, configs in groupby(by_operation, key=_operation_of):
            words = _AUDITED_OPERATIONS[operation] if operation in range(len(_AUDITED_OPERATIONS)) else "unknown"
            if words == "removed" or kind in _SECRET_TYPES:
                details[words] = [config.name for config in configs]
            else:
                details[words] = {config.name: config.value for config in configs}
        yield AdministrativeChange("ALTER_CONFIGS", kind, asked.resource_name, details)


def _operation_of(config: Any) -> int:
    """The number of the operation; AlterConfigs only sets."""
    operation: int = getattr(config, "config_operation", 0)
    return operation


@api(
    AlterConfigsRequest,
    AlterConfigsResponse,
    versions="0-2",
    rights=NeededRights(items=(Items("resources", "responses", configs_of(ALTER_CONFIGS), key_of=key_of_config),)),
    audit=_audit_altered,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=ALTERED_CONFIGS,
    failed=alter_configs_failed,
)
async def handle_alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of topics and brokers; configs that the request does not name return to their defaults.

    Refuses, per resource, as IncrementalAlterConfigs.
    """
    alterations = [
        [Alteration(config.name, 0, config.value) for config in resource.configs] for resource in request.resources
    ]

    def change(resource_alterations: Sequence[Alteration], _: _Kind) -> Change:
        return lambda current: replace_configs(resource_alterations)

    return AlterConfigsResponse(
        responses=await _alter_all(
            context.services, request.resources, alterations, change, validate_only=request.validate_only
        )
    )


def incremental_alter_configs_failed(
    request: IncrementalAlterConfigsRequest, error: ErrorCode, version: int
) -> IncrementalAlterConfigsResponse:
    """Every resource of the request fails with the same error."""
    return IncrementalAlterConfigsResponse(
        responses=[_result(resource, (error, None)) for resource in request.resources]
    )


@api(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    versions="0-1",
    rights=NeededRights(items=(Items("resources", "responses", configs_of(ALTER_CONFIGS), key_of=key_of_config),)),
    audit=_audit_altered,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=ALTERED_CONFIGS,
    failed=incremental_alter_configs_failed,
)
async def handle_incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to and subtract from single configs of topics, brokers, groups and client metrics, and set
    the levels of this broker's loggers; `validate_only` changes nothing.

    Refuses, per resource: INVALID_REQUEST (named twice, a config named twice or without a value, a kind of resource
    without configs, another broker, a broker config that is fixed while the broker runs or has no such value),
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG (of all but a
    broker), KAFKA_STORAGE_ERROR.
    """
    alterations = [
        [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
        for resource in request.resources
    ]

    def change(resource_alterations: Sequence[Alteration], kind: _Kind) -> Change:
        return lambda current: alter_configs(
            current, resource_alterations, setting_of=kind.setting_of, default_of=kind.default_of
        )

    return IncrementalAlterConfigsResponse(
        responses=await _alter_all(
            context.services, request.resources, alterations, change, validate_only=request.validate_only
        )
    )


class _Kind:
    """A kind of resource, with the data that an append to its list configs needs."""

    def __init__(self, services: Services, resource_type: int) -> None:
        self._settings = services.settings
        self._is_topic = resource_type == ResourceType.TOPIC
        self._is_group = resource_type == ResourceType.GROUP
        self._is_client_metrics = resource_type == ResourceType.CLIENT_METRICS

    def setting_of(self, name: str) -> Setting | None:
        if self._is_topic:
            return TOPIC_SETTINGS[name].setting if name in TOPIC_SETTINGS else None
        if self._is_group:
            return None  # none of a group's configs is a list
        if self._is_client_metrics:
            return CLIENT_METRICS_SETTINGS.get(name)
        return SETTINGS.get(name)

    def default_of(self, name: str) -> str | None:
        if self._is_topic:
            row = TOPIC_SETTINGS[name]
            return row.setting.format(row.default(self._settings))
        if self._is_client_metrics:
            return None
        return SETTINGS[name].format(self._settings.static_value(name))


Change = Callable[[Configs], "Configs | AlterationRefusal"]


async def _alter_all(
    services: Services,
    resources: Sequence[Resource],
    alterations: Sequence[Sequence[Alteration]],
    change: Callable[[Sequence[Alteration], _Kind], Change],
    *,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    await services.topics.catch_up()
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource, resource_alterations in zip(resources, alterations, strict=True):
        outcome: ErrorWithMessage
        if counts[resource.resource_type, resource.resource_name] > 1:
            outcome = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        elif (refusal := check_alterations(resource_alterations)) is not None:
            outcome = refusal
        elif _is_loggers(resource):
            name = resource.resource_name
            refusal = services.loggers.alter(services.node_id, name, resource_alterations, validate_only=validate_only)
            outcome = NO_PROBLEM if refusal is None else refusal
        else:
            changed = change(resource_alterations, _Kind(services, resource.resource_type))
            outcome = await _alter(services, resource, changed, validate_only=validate_only)
        results.append(_result(resource, outcome))
    return results


def _is_loggers(resource: Resource) -> bool:
    """Whether the resource is a set of loggers, whose levels are set one by one only, as in Kafka."""
    return resource.resource_type == ResourceType.BROKER_LOGGER and isinstance(
        resource, IncrementalAlterConfigsResource
    )


async def _alter(services: Services, resource: Resource, change: Change, *, validate_only: bool) -> ErrorWithMessage:
    name = resource.resource_name
    try:
        if resource.resource_type == ResourceType.TOPIC:
            if not name:
                return _without_name(change, "Default topic resources are not allowed.")
            return await services.topics.change_configs(name, change, validate_only=validate_only)
        if resource.resource_type == ResourceType.BROKER:
            reason = wrong_broker(services, name) or _unknown_operation(resource)
            if reason is not None:
                return ErrorCode.INVALID_REQUEST, reason
            return await services.broker_configs.alter(name, change, validate_only=validate_only)
        if resource.resource_type == ResourceType.GROUP:
            if not name:
                return _without_name(change, "Default group resources are not allowed.")
            return await services.group_configs.alter(name, change, validate_only=validate_only)
        if resource.resource_type == ResourceType.CLIENT_METRICS:
            if not name:
                return _without_name(change, "Subscription name can't be empty")
            return await services.client_metrics_configs.alter(name, change, validate_only=validate_only)
    except StorageError as error:
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    return ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"


def _unknown_operation(resource: Resource) -> str | None:
    """The message for an unknown operation: only for brokers; for other resources Kafka fails on it."""
    for config in resource.configs:
        if isinstance(config, IncrementalAlterableConfig) and config.config_operation not in _OPERATIONS:
            return f"Unknown operations type {config.config_operation}"
    return None


def _without_name(change: Change, reason: str) -> ErrorWithMessage:
    """Refuse configs of an unnamed resource. As in Kafka, an invalid change is reported before the missing name."""
    changed = change({})
    return changed if isinstance(changed, AlterationRefusal) else (ErrorCode.INVALID_REQUEST, reason)


def _result(resource: Resource, outcome: ErrorWithMessage) -> AlterConfigsResourceResponse:
    error, message = outcome
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


# ListConfigResources


@api(
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    versions="0-1",
    rights=NeededRights(cluster(DESCRIBE_CONFIGS)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_VERSION"),
)
def handle_list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the topics, the brokers and their loggers, and the groups and subscriptions to client metrics that have
    configs. Version 0 asks for client metrics only.

    Refuses: UNSUPPORTED_VERSION (a type that has no configs).
    """
    kinds = frozenset(request.resource_types) or frozenset(ResourceType)
    if context.api_version < FIRST_LIST_VERSION_WITH_TYPES:
        kinds = frozenset({ResourceType.CLIENT_METRICS})
    if not kinds <= frozenset(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services = context.services
    found = []
    nodes = [services.node_id, *(other.node_id for other in services.topics.placement.other_nodes())]
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind in kinds:
            found += [ConfigResource(resource_name=str(node), resource_type=kind) for node in nodes]
    if ResourceType.TOPIC in kinds:
        found += [
            ConfigResource(resource_name=topic.name, resource_type=ResourceType.TOPIC)
            for topic in services.topics.metadata.all()
        ]
    if ResourceType.GROUP in kinds:
        found += [
            ConfigResource(resource_name=group_id, resource_type=ResourceType.GROUP)
            for group_id in sorted(services.group_configs.names())
        ]
    if ResourceType.CLIENT_METRICS in kinds:
        found += [
            ConfigResource(resource_name=name, resource_type=ResourceType.CLIENT_METRICS)
            for name in sorted(services.client_metrics_configs.names())
        ]
    return ListConfigResourcesResponse(config_resources=found)
