"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesResponse,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_config_is_set_with_its_operation() -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="7")],
            )
        ],
        validate_only=True,
    )
    assert_bytes(request, 1, "02 02 02 74 02 0d 72 65 74 65 6e 74 69 6f 6e 2e 6d 73 00 02 37 00 00 01 00")


def test_all_configs_are_replaced_by_those_that_are_sent() -> None:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=4, resource_name="1", configs=[AlterableConfig(name="a", value=None)])
        ]
    )
    assert_bytes(request, 0, "00 00 00 01 04 00 01 31 00 00 00 01 00 01 61 ff ff 00")


def test_resources_have_types_from_version_1_on() -> None:
    reply = ListConfigResourcesResponse(config_resources=[ConfigResource(resource_name="g", resource_type=32)])
    assert_bytes(reply, 1, "00 00 00 00 00 00 02 02 67 20 00 00")
