"""DescribeAcls, CreateAcls and DeleteAcls as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_filter_may_leave_name_principal_and_host_open() -> None:
    request = DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert_bytes(request, 1, "02 ff ff 01 ff ff ff ff 01 01")


def test_a_rule_is_created_with_its_pattern() -> None:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name="t-",
                resource_pattern_type=4,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    )
    assert_bytes(request, 2, "02 02 03 74 2d 04 07 55 73 65 72 3a 61 02 2a 03 03 00 00")


def test_each_rule_that_a_deletion_meets_is_in_the_reply() -> None:
    reply = DeleteAclsResponse(
        throttle_time_ms=5,
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None,
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=2,
                        resource_name="t",
                        principal="User:a",
                        host="*",
                        operation=4,
                        permission_type=3,
                    )
                ],
            )
        ],
    )
    assert_bytes(reply, 3, "00 00 00 05 02 00 00 00 02 00 00 00 02 02 74 03 07 55 73 65 72 3a 61 02 2a 04 03 00 00 00")
