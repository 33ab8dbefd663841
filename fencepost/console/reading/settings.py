"""Settings of topics, brokers, groups and loggers: their values, their sources, and changes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import check
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "this broker, changed",
    3: "all brokers, changed",
    4: "broker's file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
SET, DELETE = 0, 1


class ResourceKind(IntEnum):
    """A kind of resource with settings, with Kafka's number."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    GROUP = 32


@dataclass(frozen=True)
class Setting:
    """A setting. value: None if it is secret."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_secret: bool
    documentation: str


async def read_settings(cluster: Cluster, kind: ResourceKind, name: str, node_id: int | None = None) -> list[Setting]:
    """The settings of a resource. Those of a broker or its loggers come from that broker. Raises ClusterError."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    reply = await cluster.send(request, node_id)
    found = reply.results[0]
    check(found.error_code, found.error_message)
    settings = [
        Setting(
            one.name,
            one.value,
            SOURCES.get(one.config_source, "unknown"),
            one.config_source == 5,
            one.read_only,
            one.is_sensitive,
            one.documentation or "",
        )
        for one in found.configs
    ]
    return sorted(settings, key=lambda one: one.name)


async def alter_settings(
    cluster: Cluster,
    kind: ResourceKind,
    name: str,
    changes: Sequence[tuple[str, str | None]],
    *,
    node_id: int | None = None,
    validate_only: bool = False,
) -> None:
    """Set settings; None removes one, so that its default holds. Raises ClusterError."""
    configs = [
        IncrementalAlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes
    ]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    reply = await cluster.send(request, node_id)
    for result in reply.responses:
        check(result.error_code, result.error_message)
