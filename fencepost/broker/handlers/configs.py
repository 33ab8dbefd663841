"""DescribeConfigs: the settings of topics, groups, client metrics and this broker, their sources, and loggers.

Source: KIP-133, KIP-226 (synonyms), KIP-412 (loggers), KIP-569 (types and documentation); Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from enum import IntEnum

from fencepost.broker.config import ConfigSource, ConfigValue, describe_broker_configs, describe_broker_defaults
from fencepost.broker.handlers.metadata import missing_topic_error
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.caught_up import caught_up, may_have_missed
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.needed_rights import DESCRIBE_CONFIGS, configs_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

UNKNOWN_TYPE = 0
FEWEST_IN_SLICES = 10
"""From this number of resources on, the reply is built in slices between other requests: one takes up to 1 ms."""


class ResourceType(IntEnum):
    """Kinds of resources that can have configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_KINDS = frozenset(ResourceType)


def describe_configs_failed(request: DescribeConfigsRequest, error: ErrorCode, version: int) -> DescribeConfigsResponse:
    """Every resource of the request fails with the same error."""
    return DescribeConfigsResponse(results=[_failed(resource, error, None) for resource in request.resources])


def _failed(resource: DescribeConfigsResource, error: ErrorCode, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


@api(
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    versions="1-4",
    rights=NeededRights(items=(Items("resources", "results", configs_of(DESCRIBE_CONFIGS)),)),
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED "
        "CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST"
    ),
    failed=describe_configs_failed,
)
def handle_describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse | SlicedResponse]:
    """Describe the configs of each resource; all of them when `configuration_keys` is null or empty.

    Refuses, per resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another broker, or no
    name). As a whole: INVALID_REQUEST (a kind of resource that does not exist).
    """
    unknown = next((one for one in request.resources if one.resource_type not in _KINDS), None)
    if unknown is not None:
        message = f"Unexpected resource type {unknown.resource_type} for resource {unknown.resource_name}"
        return DescribeConfigsResponse(
            results=[_failed(resource, ErrorCode.INVALID_REQUEST, message) for resource in request.resources]
        )

    services = context.services
    of_topics = (one.resource_name for one in request.resources if one.resource_type == ResourceType.TOPIC)
    if may_have_missed(services, map(services.topics.metadata.get, of_topics)):
        return caught_up(context, lambda: _describe_all(services, request))
    return _describe_all(services, request)


def _describe_all(
    services: Services, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[SlicedResponse]:
    def steps() -> SlicedWork[DescribeConfigsResponse]:
        results = []
        for resource in request.resources:
            results.append(_describe(services, request, resource))
            yield
        return DescribeConfigsResponse(results=results)

    return build_in_slices(steps()) if len(request.resources) >= FEWEST_IN_SLICES else run_to_end(steps())


def _describe(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return _describe_loggers(services, resource)
    name = resource.resource_name
    values: Sequence[ConfigValue]
    if resource.resource_type == ResourceType.TOPIC:
        of_topic = services.topics.topic_config(name)
        if of_topic is None:
            return _failed(resource, missing_topic_error(name), f"The topic {name!r} does not exist.")
        values = of_topic
    elif resource.resource_type == ResourceType.BROKER:
        reason = wrong_broker(services, name)
        if reason is not None:
            return _failed(resource, ErrorCode.INVALID_REQUEST, reason)
        values = describe_broker_configs(services.settings) if name else describe_broker_defaults(services.settings)
    elif resource.resource_type == ResourceType.GROUP:
        if not name:
            return _failed(resource, ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        values = services.group_configs.describe(name)
    else:
        if not name:
            return _failed(resource, ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        values = services.client_metrics_configs.describe(name)
    wanted = _wanted(resource)
    return _described(
        resource, [_describe_value(request, value) for value in values if wanted is None or value.name in wanted]
    )


def _wanted(resource: DescribeConfigsResource) -> frozenset[str] | None:
    """The requested names; None for all."""
    return frozenset(resource.configuration_keys) if resource.configuration_keys else None


def _described(
    resource: DescribeConfigsResource, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _describe_loggers(services: Services, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    """Describe the level of each logger. As in Kafka, without synonyms, type and documentation."""
    name = resource.resource_name
    reason = wrong_broker(services, name) if name else "Broker id must not be empty"
    if reason is not None:
        return _failed(resource, ErrorCode.INVALID_REQUEST, reason)
    wanted = _wanted(resource)
    loggers = services.loggers
    return _described(
        resource,
        [
            DescribeConfigsResourceResult(
                name=logger, value=loggers.level(logger).name, config_source=ConfigSource.BROKER_LOGGER
            )
            for logger in loggers.names()
            if wanted is None or logger in wanted
        ],
    )


def wrong_broker(services: Services, name: str) -> str | None:
    """The message that the broker of this name has no configs here; None for this broker, and for `""`, all brokers."""
    if name in ("", str(services.node_id)):
        return None
    if not name.removeprefix("-").isdecimal():
        return f"Broker id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"


def _describe_value(request: DescribeConfigsRequest, value: ConfigValue) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.name,
        value=value.value,
        read_only=value.is_read_only,
        config_source=value.source,
        is_sensitive=value.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in value.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=UNKNOWN_TYPE if value.is_sensitive and not value.setting.is_secret else value.setting.type,
        documentation=value.setting.documentation if request.include_documentation else None,
    )
