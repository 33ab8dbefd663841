"""DescribeAcls, CreateAcls and DeleteAcls, answered as Kafka without an authorizer: all clients may do everything.

Source: KIP-140; Kafka's AclApis and ControllerApis.
"""

from __future__ import annotations

from fencepost.broker.requests.api import RequestContext, api
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"


def describe_acls_failed(
    request: DescribeAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message)


@api(DescribeAclsRequest, DescribeAclsResponse, failed=describe_acls_failed)
def handle_describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """SECURITY_DISABLED: there is no authorizer."""
    return describe_acls_failed(
        request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER_ON_BROKER
    )


def create_acls_failed(
    request: CreateAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> CreateAclsResponse:
    """Every rule of the request fails with the same error."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error, error_message=message) for _ in request.creations]
    )


@api(CreateAclsRequest, CreateAclsResponse, failed=create_acls_failed)
def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """SECURITY_DISABLED for each: there is no authorizer."""
    return create_acls_failed(request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER)


def delete_acls_failed(
    request: DeleteAclsRequest, error: ErrorCode, version: int, message: str | None = None
) -> DeleteAclsResponse:
    """Every filter of the request fails with the same error."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=message) for _ in request.filters]
    )


@api(DeleteAclsRequest, DeleteAclsResponse, failed=delete_acls_failed)
def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """SECURITY_DISABLED for each: there is no authorizer."""
    return delete_acls_failed(request, ErrorCode.SECURITY_DISABLED, context.api_version, message=NO_AUTHORIZER)
