"""A right that is lacking has the error code of its resource, with Kafka's words."""

from __future__ import annotations

import pytest

from fencepost.broker.requests.declared_rights import MESSAGES, Needed, on_cluster
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (AclResource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AclResource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (AclResource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (AclResource.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_the_lack_of_a_right_has_the_error_of_its_resource(resource: AclResource, error: ErrorCode) -> None:
    assert Needed(AclOperation.READ, resource, "name").error == error
    assert MESSAGES[error]


def test_a_right_on_the_cluster_needs_no_name() -> None:
    assert on_cluster(AclOperation.ALTER) == (AclOperation.ALTER, AclResource.CLUSTER, CLUSTER_NAME)
