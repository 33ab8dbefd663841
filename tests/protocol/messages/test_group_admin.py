"""DescribeGroups, ListGroups and DeleteGroups as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from tests.protocol.messages.golden import assert_bytes


def test_groups_are_listed_with_states_from_version_4_and_types_from_version_5_on() -> None:
    reply = ListGroupsResponse(
        groups=[ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")]
    )
    assert_bytes(
        reply,
        5,
        "00 00 00 00 00 00 02 02 67 09 63 6f 6e 73 75 6d 65 72 07 53 74 61 62 6c 65 08 63 6c 61 73 73 69",
        "63 00 00",
    )


def test_version_0_lists_no_more_than_protocols() -> None:
    reply = ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])
    assert_bytes(reply, 0, "00 00 00 00 00 01 00 01 67 00 08 63 6f 6e 73 75 6d 65 72")


def test_a_member_is_described_with_its_metadata_as_it_was_sent() -> None:
    reply = DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=[
                    DescribedGroupMember(
                        member_id="m",
                        client_id="c",
                        client_host="/h",
                        member_metadata=b"\x01",
                        member_assignment=b"\x02",
                    )
                ],
            )
        ]
    )
    assert_bytes(
        reply,
        5,
        "00 00 00 00 02 00 00 02 67 07 53 74 61 62 6c 65 09 63 6f 6e 73 75 6d 65 72 06 72 61 6e 67 65 02",
        "02 6d 00 02 63 03 2f 68 02 01 02 02 00 80 00 00 00 00 00",
    )


def test_each_group_is_deleted_alone() -> None:
    reply = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=68)])
    assert_bytes(reply, 2, "00 00 00 00 02 02 67 00 44 00 00")


def test_version_3_says_why_a_group_was_not_deleted() -> None:
    result = DeletableGroupResult(group_id="g", error_code=134, error_message="no")
    assert_bytes(DeleteGroupsResponse(results=[result]), 3, "00 00 00 00 02 02 67 00 86 03 6e 6f 00 00")
