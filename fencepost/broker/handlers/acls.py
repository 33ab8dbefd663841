"""DescribeAcls, CreateAcls and DeleteAcls: the access control lists, which are the rights of clients.

Without an authorizer all clients may do everything, and there are no lists.
Source: KIP-140, KIP-290; Kafka's AclApis and AclControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.broker.requests.administrative_changes import audited_by_handler
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api, written_in_slices
from fencepost.broker.requests.declared_errors import WITHOUT_AUTHORIZER
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER, DESCRIBE, cluster
from fencepost.broker.security.acl_store import Acls, TooManyRulesError
from fencepost.broker.security.acls import AclRule, RequestedAcl, filter_problem, matcher_of, rule_of
from fencepost.broker.security.audit import Audit
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"


def describe_acls_failed(
    request: DescribeAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message)


@api(
    DescribeAclsRequest,
    DescribeAclsResponse,
    versions="1-3",
    rights=NeededRights(cluster(DESCRIBE)),
    needs_lease=False,
    errors=WITHOUT_AUTHORIZER,
    failed=describe_acls_failed,
)
async def handle_describe_acls(
    context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse | SlicedResponse:
    """Describe the rules that match a filter, by resource.

    Refuses: SECURITY_DISABLED (there is no authorizer), INVALID_REQUEST (the filter has an unknown number).
    """
    acls = context.services.acls
    if acls is None:
        return describe_acls_failed(
            request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER_ON_BROKER
        )
    wanted = _requested_filter(request)
    problem = filter_problem(wanted)
    if problem is not None:
        return describe_acls_failed(request, ErrorCode.INVALID_REQUEST, context.api_version, message=problem)
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    found = acls.matching(matcher_of(wanted))
    for rule in found:
        key = rule.resource, rule.pattern, rule.name
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(rule.resource, rule.name, rule.pattern, [])
        resource.acls.append(AclDescription(rule.principal, rule.host, rule.operation, rule.permission))
    response = DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))
    return written_in_slices(response, len(found))


def _requested_filter(request: DescribeAclsRequest | DeleteAclsFilter) -> RequestedAcl:
    return RequestedAcl(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def create_acls_failed(
    request: CreateAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> CreateAclsResponse:
    """Every rule of the request fails with the same error."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error, error_message=message) for _ in request.creations]
    )


@api(
    CreateAclsRequest,
    CreateAclsResponse,
    versions="1-3",
    rights=NeededRights(cluster(ALTER)),
    audit=audited_by_handler,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=WITHOUT_AUTHORIZER,
    failed=create_acls_failed,
)
async def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules, in force when the reply is sent; those that exist stay as they are.

    Refuses, per rule: SECURITY_DISABLED (there is no authorizer), INVALID_REQUEST (it is no rule), POLICY_VIOLATION
    (too many rules), KAFKA_STORAGE_ERROR.
    """
    acls = context.services.acls
    if acls is None:
        return create_acls_failed(request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER)
    wanted = [
        rule_of(
            RequestedAcl(
                creation.resource_type,
                creation.resource_pattern_type,
                creation.resource_name,
                creation.principal,
                creation.host,
                creation.operation,
                creation.permission_type,
            )
        )
        for creation in request.creations
    ]
    error, message = await _add(context, acls, [rule for rule in wanted if isinstance(rule, AclRule)])
    return CreateAclsResponse(
        results=[
            AclCreationResult(error, message)
            if isinstance(rule, AclRule)
            else AclCreationResult(ErrorCode.INVALID_REQUEST, rule)
            for rule in wanted
        ]
    )


async def _add(context: RequestContext, acls: Acls, rules: Sequence[AclRule]) -> ErrorWithMessage:
    try:
        added = await acls.add(rules)
    except TooManyRulesError as error:
        return ErrorCode.POLICY_VIOLATION, str(error)
    except StorageError as error:
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    _audit_changes(context, added=added)
    return NO_PROBLEM


def _audit_changes(context: RequestContext, *, added: Sequence[AclRule] = (), removed: Sequence[AclRule] = ()) -> None:
    gate = context.services.gate
    if gate is not None:
        Audit.changed_acls(gate.rights_of(context), added, removed)


def delete_acls_failed(
    request: DeleteAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> DeleteAclsResponse:
    """Every filter of the request fails with the same error."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=message) for _ in request.filters]
    )


@api(
    DeleteAclsRequest,
    DeleteAclsResponse,
    versions="1-3",
    rights=NeededRights(cluster(ALTER)),
    audit=audited_by_handler,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=WITHOUT_AUTHORIZER,
    failed=delete_acls_failed,
)
async def handle_delete_acls(
    context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | SlicedResponse:
    """Remove the rules that match filters, all in one change; each filter's matches are returned.

    Refuses, per filter: SECURITY_DISABLED (there is no authorizer), INVALID_REQUEST (it has an unknown number),
    KAFKA_STORAGE_ERROR.
    """
    acls = context.services.acls
    if acls is None:
        return delete_acls_failed(request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER)
    wanted = [_requested_filter(one) for one in request.filters]
    problems = [filter_problem(one) for one in wanted]
    filters: list[Callable[[AclRule], bool]] = [
        matcher_of(one) for one, problem in zip(wanted, problems, strict=True) if problem is None
    ]
    try:
        found = await acls.remove(filters)
    except StorageError as error:
        return delete_acls_failed(request, ErrorCode.KAFKA_STORAGE_ERROR, context.api_version, message=str(error))
    _audit_changes(context, removed=list(dict.fromkeys(rule for rules in found for rule in rules)))
    matches = iter(found)
    results = [
        DeleteAclsFilterResult(ErrorCode.NONE, None, [_removed(rule) for rule in next(matches)])
        if problem is None
        else DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, problem)
        for problem in problems
    ]
    return written_in_slices(DeleteAclsResponse(filter_results=results), sum(map(len, found)))


def _removed(rule: AclRule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        rule.resource,
        rule.name,
        rule.pattern,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
