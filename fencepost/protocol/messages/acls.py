"""DescribeAcls, CreateAcls and DeleteAcls: rules that allow or deny operations on resources.

Numbers: resource types 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user; pattern
types 1 any, 2 match, 3 literal, 4 prefixed; operations 1 any, 2 all, 3 read, 4 write and so on; permissions 1 any,
2 deny, 3 allow.
Source: KIP-140, KIP-290.
"""

from fencepost.protocol.schema import int8, int16, int32, message, struct


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """Ask for the rules that match a filter; a name that is None matches every one."""

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class AclDescription:
    """One rule."""

    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class DescribeAclsResource:
    """A resource and its rules."""

    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 3
    acls: list[AclDescription] = []


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The rules, by resource.

    Errors: SECURITY_DISABLED, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


@struct
class AclCreation:
    """A new rule."""

    resource_type: int8 = 0
    resource_name: str = ""
    resource_pattern_type: int8 = 3
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Add rules."""

    creations: list[AclCreation] = []


@struct
class AclCreationResult:
    """Errors: SECURITY_DISABLED, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED."""

    error_code: int16 = 0
    error_message: str | None = ""


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """One result per rule."""

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = []


@struct
class DeleteAclsFilter:
    """Filter for the rules to remove; a name that is None matches every one."""

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Remove the rules that match filters."""

    filters: list[DeleteAclsFilter] = []


@struct
class DeleteAclsMatchingAcl:
    """A rule that a filter matched."""

    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 3
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class DeleteAclsFilterResult:
    """Errors: SECURITY_DISABLED, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED."""

    error_code: int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """One result per filter."""

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
