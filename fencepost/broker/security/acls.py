"""Access control lists: rules that allow or deny operations on resources, and filters that find rules.

Source: KIP-11, KIP-290 (prefixes); Kafka's AclBinding, ResourcePatternFilter and AclControlManager.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.security.principal import principal_problem

CLUSTER_NAME: Final = "kafka-cluster"
"""The one name of the resource that stands for the cluster."""
WILDCARD: Final = "*"
"""As the name of a literal pattern: all resources of the type. As a host: all hosts."""


class AclResource(IntEnum):
    """Types of resources, with Kafka's numbers. UNKNOWN and ANY are only in requests."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """Types of patterns for names. UNKNOWN, ANY and MATCH are only in requests."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's operations; the number is the bit in a set of operations. UNKNOWN and ANY are only in requests."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """The effect of a rule. UNKNOWN and ANY are only in requests."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_RESOURCES = frozenset(AclResource) - {AclResource.UNKNOWN, AclResource.ANY}
_PATTERNS = frozenset({AclPattern.LITERAL, AclPattern.PREFIXED})
_OPERATIONS = frozenset(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY}
_PERMISSIONS = frozenset({AclPermission.DENY, AclPermission.ALLOW})


class AclRule(NamedTuple):
    """One rule: for clients of a principal on a host, on resources that a pattern matches. Kafka calls it a binding."""

    resource: AclResource
    pattern: AclPattern
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    @property
    def described(self) -> str:
        """The rule in words, for the audit log."""
        name = f"{self.name}*" if self.pattern is AclPattern.PREFIXED else self.name
        kind = self.resource.name.lower().replace("_", " ")
        return (
            f"{self.permission.name.lower()} {self.principal} from {self.host} {self.operation.name} on {kind} {name}"
        )


class RequestedAcl(NamedTuple):
    """A rule or a filter as a request has it: with numbers that may be unknown, and None for a name that a filter
    leaves open."""

    resource: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int


def rule_of(wanted: RequestedAcl) -> AclRule | str:
    """Return the rule of a request, or the reason why it is none.

    Source: Kafka's AclApis.handleCreateAcls and AclControlManager.validateNewAcl.
    """
    name, principal, host = wanted.name or "", wanted.principal or "", canonical_host(wanted.host or "")
    if wanted.resource == AclResource.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not name:
        return "Invalid empty resource name"
    for kind, number, valid in (
        ("patternType", wanted.pattern, _PATTERNS),
        ("resourceType", wanted.resource, _RESOURCES),
        ("operation", wanted.operation, _OPERATIONS),
        ("permissionType", wanted.permission, _PERMISSIONS),
    ):
        if number not in valid:
            return f"Invalid {kind} {_name_of(kind, number)}"
    problem = principal_problem(principal)
    if problem is not None:
        return problem
    return AclRule(
        AclResource(wanted.resource),
        AclPattern(wanted.pattern),
        name,
        principal,
        host,
        AclOperation(wanted.operation),
        AclPermission(wanted.permission),
    )


_KINDS: Final[dict[str, type[IntEnum]]] = {
    "patternType": AclPattern,
    "resourceType": AclResource,
    "operation": AclOperation,
    "permissionType": AclPermission,
}


def _name_of(kind: str, number: int) -> str:
    known = _KINDS[kind]
    return known(number).name if number in known.__members__.values() else f"UNKNOWN ({number})"


def filter_problem(wanted: RequestedAcl) -> str | None:
    """Return the reason to refuse a request's filter: a number in it is unknown. None if all are known."""
    for kind, number in (
        ("resourceType", wanted.resource),
        ("patternType", wanted.pattern),
        ("operation", wanted.operation),
        ("permissionType", wanted.permission),
    ):
        if number == 0 or number not in _KINDS[kind].__members__.values():
            return f"The filter contains the unknown {kind} {number}"
    return None


def matcher_of(wanted: RequestedAcl) -> Callable[[AclRule], bool]:
    """Return the function that finds the rules of a filter.

    ANY matches every type of pattern that has exactly the name, MATCH all patterns that apply to a resource of the
    name. Source: Kafka's ResourcePatternFilter.matches and AccessControlEntryFilter.matches.
    """
    resource, pattern, name, principal, host, operation, permission = wanted
    if host is not None:
        host = canonical_host(host)

    def matches(rule: AclRule) -> bool:
        return (
            (resource == AclResource.ANY or rule.resource == resource)
            and (principal is None or rule.principal == principal)
            and (host is None or rule.host == host)
            and (operation == AclOperation.ANY or rule.operation == operation)
            and (permission == AclPermission.ANY or rule.permission == permission)
            and _matches_name(rule, pattern, name)
        )

    return matches


def _matches_name(rule: AclRule, pattern: int, name: str | None) -> bool:
    if pattern not in (AclPattern.ANY, AclPattern.MATCH, rule.pattern):
        return False
    if name is None:
        return True
    if pattern != AclPattern.MATCH:
        return rule.name == name
    if rule.pattern is AclPattern.LITERAL:
        return rule.name in (name, WILDCARD)
    return name.startswith(rule.name)
