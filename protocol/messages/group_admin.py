"""group_admin"""

from protocol.schema import field, int16, int32, message, struct


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """DescribeGroupsRequest."""

    groups: list[str] = []
    include_authorized_operations: bool = field(versions="3+", default=False)


@struct
class DescribedGroupMember:
    """DescribedGroupMember."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="4+", default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@struct
class DescribedGroup:
    """DescribedGroup."""

    error_code: int16 = 0
    error_message: str | None = field(versions="6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: int32 = field(versions="3+", default=-2147483648)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """DescribeGroupsResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    groups: list[DescribedGroup] = []


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """ListGroupsRequest."""

    states_filter: list[str] = field(versions="4+", default=[])
    types_filter: list[str] = field(versions="5+", default=[])


@struct
class ListedGroup:
    """ListedGroup."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = field(versions="4+", default="")
    group_type: str = field(versions="5+", default="")


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """ListGroupsResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    groups: list[ListedGroup] = []


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """DeleteGroupsRequest."""

    groups_names: list[str] = []


@struct
class DeletableGroupResult:
    """DeletableGroupResult."""

    group_id: str = ""
    error_code: int16 = 0


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """DeleteGroupsResponse."""

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = []
