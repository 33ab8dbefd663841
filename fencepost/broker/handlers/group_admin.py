"""DescribeGroups, ListGroups and DeleteGroups: administration of groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, succeeded
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api, written_in_slices
from fencepost.broker.requests.caught_up import may_have_missed
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.authorized_operations import GROUP_BITS
from fencepost.broker.rights.needed_rights import DELETE, DESCRIBE, GROUP, group_bits, named, only
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

DESCRIBE_KNOWS_GROUP_NOT_FOUND = 6  # KIP-1043
DEAD = "Dead"
GROUPS_PER_STEP = 100

GROUP_OPERATIONS = GROUP_BITS


class Describable(Protocol):
    """A group in the response to a request that describes groups."""

    error_code: int
    authorized_operations: int
    members: list[Any]


class DescribeRequest(Protocol):
    """A request that describes groups."""

    include_authorized_operations: bool


DescribedT = TypeVar("DescribedT", bound=Describable)
ResponseT = TypeVar("ResponseT")


def describing_failed(
    respond: Callable[..., ResponseT], described: Callable[..., Describable]
) -> Callable[[Any, ErrorCode, int], ResponseT]:
    """Return the function that builds the reply in which every group of the request fails with the same error."""
    return lambda request, error, version: respond(
        groups=[described(group_id=group_id, error_code=error) for group_id in request.group_ids]
    )


async def describe_in_turn(
    request: DescribeRequest,
    group_ids: Iterable[str],
    describe: Callable[[str], Awaitable[DescribedT]],
    respond: Callable[..., ResponseT],
) -> ResponseT | SlicedResponse:
    """Describe groups one after the other, with the allowed operations if requested."""
    groups = []
    slices = Slices(SLICE_S)
    for group_id in group_ids:
        await slices.turn()
        described = await describe(group_id)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        groups.append(described)
    return written_in_slices(respond(groups=groups), sum(1 + len(group.members) for group in groups))


# DescribeGroups


def describe_groups_failed(request: DescribeGroupsRequest, error: ErrorCode, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=error) for group_id in request.groups]
    )


@api(
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    versions="0-6",
    rights=NeededRights(items=(Items("groups", "groups", named(DESCRIBE, GROUP), are_first=True),), finish=group_bits),
    errors=COORDINATOR_AWAY | codes("INVALID_GROUP_ID GROUP_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND"),
    failed=describe_groups_failed,
)
async def handle_describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | SlicedResponse:
    """Describe state, protocol, members and assignments of each group.

    A group that does not exist is described as Dead, from version 6 on with GROUP_ID_NOT_FOUND (KIP-1043).
    Refuses, per group: the coordinator's errors.
    """

    async def describe(group_id: str) -> DescribedGroup:
        described = await context.services.groups.describe_group(group_id)
        if isinstance(described, HeartbeatRefusal):
            return _refused(group_id, described, context.api_version)
        return described

    return await describe_in_turn(request, request.groups, describe, DescribeGroupsResponse)


def _refused(group_id: str, refusal: HeartbeatRefusal, version: int) -> DescribedGroup:
    if refusal.error is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=refusal.error)
    described = DescribedGroup(group_id=group_id, group_state=DEAD)
    if version >= DESCRIBE_KNOWS_GROUP_NOT_FOUND:
        described.error_code, described.error_message = refusal
    return described


# ListGroups


@api(
    ListGroupsRequest,
    ListGroupsResponse,
    versions="0-5",
    rights=NeededRights(finish=only("groups", GROUP, "group_id", everything=DESCRIBE)),
    errors=COORDINATOR_AWAY,
)
async def handle_list_groups(
    context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | SlicedResponse:
    """List all groups, or those in the given states (4) and of the given types (5); case does not matter."""
    services = context.services
    if may_have_missed(services):
        await services.topics.catch_up()
    groups = await services.groups.list_groups()
    if isinstance(groups, ErrorCode):
        return ListGroupsResponse(error_code=groups)
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    slices = Slices(SLICE_S)
    shown: list[ListedGroup] = []
    for start in range(0, len(groups), GROUPS_PER_STEP):
        await slices.turn()
        shown += [
            group
            for group in groups[start : start + GROUPS_PER_STEP]
            if (not states or group.group_state.lower() in states) and (not types or group.group_type.lower() in types)
        ]
    return written_in_slices(ListGroupsResponse(groups=shown), len(shown))


# DeleteGroups


def delete_groups_failed(request: DeleteGroupsRequest, error: ErrorCode, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error) for group_id in request.groups_names]
    )


def _audit_deleted(context: RequestContext, request: Any, response: Any) -> Changes:
    for group in succeeded(response.results):
        yield AdministrativeChange("DELETE", "GROUP", group.group_id, {})


@api(
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    versions="0-3",
    rights=NeededRights(items=(Items("groups_names", "results", named(DELETE, GROUP)),)),
    audit=_audit_deleted,
    errors=COORDINATOR_AWAY | codes("INVALID_GROUP_ID GROUP_AUTHORIZATION_FAILED NON_EMPTY_GROUP GROUP_ID_NOT_FOUND"),
    failed=delete_groups_failed,
)
async def handle_delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | SlicedResponse:
    """Delete empty groups with all their offsets; NON_EMPTY_GROUP and GROUP_ID_NOT_FOUND for each that cannot be."""
    results = []
    slices = Slices(SLICE_S)
    for group_id in dict.fromkeys(request.groups_names):
        await slices.turn()
        # The share state of share groups is in another topic and is deleted first.
        error = await context.services.shares.prepare_to_delete_group(group_id)
        if error is ErrorCode.NONE:
            error = await context.services.groups.delete_group(group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return written_in_slices(DeleteGroupsResponse(results=results), len(results))
