"""ApiVersions: what the broker serves, and the refusal of a client that means another cluster or node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.handler_context import CLUSTER_ID, NODE_ID, HandlerBroker, open_broker

REBOOTSTRAP = ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


async def asked_by_client_of(
    broker: HandlerBroker, cluster_id: str | None, node_id: int, *, software: str = "test", version: int = 5
) -> ApiVersionsResponse:
    answer = await broker.call(ApiVersionsRequest(software, "1", cluster_id, node_id), version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (CLUSTER_ID, NODE_ID, ErrorCode.NONE),
        ("another", NODE_ID, REBOOTSTRAP),
        (CLUSTER_ID, NODE_ID + 1, REBOOTSTRAP),
        ("", NODE_ID, REBOOTSTRAP),
        (None, -1, ErrorCode.NONE),
        # Both or neither.
        (CLUSTER_ID, -1, ErrorCode.INVALID_REQUEST),
        ("another", -1, ErrorCode.INVALID_REQUEST),
        (None, NODE_ID, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_cluster_or_node_has_to_bootstrap_again(
    broker: HandlerBroker, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    answer = await asked_by_client_of(broker, cluster_id, node_id)
    assert answer.error_code == error
    assert bool(answer.api_keys) == (not error)
    assert bool(answer.finalized_features) == (not error)


async def test_older_versions_cannot_name_a_cluster(broker: HandlerBroker) -> None:
    answer = await asked_by_client_of(broker, "another", NODE_ID + 1, version=4)
    assert answer.error_code == ErrorCode.NONE


async def test_the_name_of_the_software_is_checked_first(broker: HandlerBroker) -> None:
    answer = await asked_by_client_of(broker, "another", NODE_ID, software="not a name")
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_version_5_shows_itself(broker: HandlerBroker) -> None:
    answer = await asked_by_client_of(broker, None, -1)
    shown = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert shown[ApiKey.API_VERSIONS] == (0, 5)
