"""DescribeGroups, ListGroups and DeleteGroups: administration of groups."""

from fencepost.protocol.schema import field, int16, int32, message, struct


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Ask for classic groups by their ids."""

    groups: list[str] = []
    include_authorized_operations: bool = field(versions="3+", default=False)


@struct
class DescribedGroupMember:
    """A member; its bytes are opaque to the broker."""

    member_id: str = ""
    group_instance_id: str | None = field(versions="4+", default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@struct
class DescribedGroup:
    """A group. Up to version 5 one that does not exist is described as Dead, without an error.

    Errors: GROUP_ID_NOT_FOUND (6+), COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = field(versions="6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: int32 = field(versions="3+", default=-2147483648)  # the default means not requested


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One description per group."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    groups: list[DescribedGroup] = []


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Ask for the groups of this coordinator; empty filters let everything through (KIP-518, KIP-848)."""

    states_filter: list[str] = field(versions="4+", default=[])
    types_filter: list[str] = field(versions="5+", default=[])


@struct
class ListedGroup:
    """A group in a list."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = field(versions="4+", default="")
    group_type: str = field(versions="5+", default="")


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups that passed.

    Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
    """

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    groups: list[ListedGroup] = []


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups and their committed offsets."""

    groups_names: list[str] = []


@struct
class DeletableGroupResult:
    """Result of one group.

    Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED. The message is for GROUP_DELETION_FAILED, which only a
    broker with a plugin for topology descriptions answers (KIP-1331).
    """

    group_id: str = ""
    error_code: int16 = 0
    error_message: str | None = field(versions="3+", default=None)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """One outcome per group."""

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = []
