"""DescribeConfigs as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tests.protocol.messages.golden import assert_bytes


def test_all_configs_of_a_resource_are_asked_for_by_null() -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)],
        include_synonyms=True,
    )
    assert_bytes(request, 1, "00 00 00 01 02 00 01 74 ff ff ff ff 01")


def test_a_config_comes_with_its_sources() -> None:
    reply = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_message=None,
                resource_type=2,
                resource_name="t",
                configs=[
                    DescribeConfigsResourceResult(
                        name="a",
                        value="1",
                        config_source=5,
                        synonyms=[DescribeConfigsSynonym(name="b", value="1", source=5)],
                        config_type=3,
                        documentation=None,
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply, 4, "00 00 00 00 02 00 00 00 02 02 74 02 02 61 02 31 00 05 00 02 02 62 02 31 05 00 03 00 00 00 00"
    )
