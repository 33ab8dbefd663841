"""Rights, users and quotas."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import check
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.sasl_login import salted_password

RESOURCES: Final[Mapping[int, str]] = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional id",
    6: "delegation token",
    7: "user",
}
PATTERNS: Final[Mapping[int, str]] = {3: "literal", 4: "prefixed"}
OPERATIONS: Final[Mapping[int, str]] = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster action",
    10: "describe configs",
    11: "alter configs",
    12: "idempotent write",
    13: "create tokens",
    14: "describe tokens",
    15: "two phase commit",
}
PERMISSIONS: Final[Mapping[int, str]] = {3: "allow", 2: "deny"}
MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ENTITIES: Final = ("user", "client-id", "ip")
CLUSTER_NAME: Final = "kafka-cluster"
ITERATIONS: Final = 8_192
SALT_BYTES: Final = 24
ANY: Final = 1


@dataclass(frozen=True)
class Acl:
    """A rule, with Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def resource(self) -> str:
        return RESOURCES.get(self.resource_type, str(self.resource_type))

    @property
    def pattern(self) -> str:
        return PATTERNS.get(self.pattern_type, str(self.pattern_type))

    @property
    def operation_name(self) -> str:
        return OPERATIONS.get(self.operation, str(self.operation))

    @property
    def is_allowed(self) -> bool:
        return self.permission == 3

    @property
    def sentence(self) -> str:
        """`User:alice may read topics that begin with orders`."""
        verb = "may" if self.is_allowed else "may not"
        host = "" if self.host == "*" else f" from {self.host}"
        if self.resource_type == 4:
            place = "the cluster"
        elif self.pattern_type == 4:
            place = f"each {self.resource} whose name begins with {self.resource_name}"
        elif self.resource_name == "*":
            place = f"every {self.resource}"
        else:
            place = f"{self.resource} {self.resource_name}"
        principal = "Everybody" if self.principal == "User:*" else self.principal
        return f"{principal} {verb} {self.operation_name} on {place}{host}"


async def read_acls(cluster: Cluster) -> list[Acl] | None:
    """All rules; None if there is no authorizer. Raises ClusterError."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    reply = await cluster.send(request)
    if reply.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    check(reply.error_code, reply.error_message)
    found = [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for resource in reply.resources
        for one in resource.acls
    ]
    return sorted(found, key=lambda one: (one.resource_type, one.resource_name, one.principal, one.operation))


async def add_acl(cluster: Cluster, acl: Acl) -> None:
    """Raises ClusterError."""
    creation = AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    reply = await cluster.send_to_controller(CreateAclsRequest(creations=[creation]))
    check(reply.results[0].error_code, reply.results[0].error_message)


async def remove_acl(cluster: Cluster, acl: Acl) -> int:
    """Remove a rule, and return how many were: 0 if it was gone. Raises ClusterError."""
    one = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    reply = await cluster.send_to_controller(DeleteAclsRequest(filters=[one]))
    result = reply.filter_results[0]
    check(result.error_code, result.error_message)
    return len(result.matching_acls)


@dataclass(frozen=True)
class ScramUser:
    """A user with the SCRAM mechanisms that it may log in by, and their iterations."""

    name: str
    mechanisms: tuple[tuple[str, int], ...]


async def read_users(cluster: Cluster) -> list[ScramUser]:
    """Users with SCRAM credentials. Raises ClusterError."""
    reply = await cluster.send(DescribeUserScramCredentialsRequest(users=None))
    check(reply.error_code, reply.error_message)
    found = [
        ScramUser(
            one.user,
            tuple((MECHANISMS.get(info.mechanism, "unknown"), info.iterations) for info in one.credential_infos),
        )
        for one in reply.results
        if not one.error_code
    ]
    return sorted(found, key=lambda one: one.name)


async def set_password(cluster: Cluster, user: str, password: str, mechanisms: Sequence[int]) -> None:
    """Raises ClusterError. The password itself is not sent: only the SCRAM credential made from it."""
    for mechanism in mechanisms:  # a request may alter a user once only
        salt = os.urandom(SALT_BYTES)
        salted = salted_password(MECHANISMS[mechanism], password, salt, ITERATIONS)
        credential = ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=ITERATIONS, salt=salt, salted_password=salted
        )
        await _alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=[credential]))


async def remove_user(cluster: Cluster, user: ScramUser) -> None:
    """Remove all SCRAM credentials of a user. Raises ClusterError."""
    numbers = {name: number for number, name in MECHANISMS.items()}
    for name, _ in user.mechanisms:
        credential = ScramCredentialDeletion(name=user.name, mechanism=numbers[name])
        await _alter_users(cluster, AlterUserScramCredentialsRequest(deletions=[credential]))


async def _alter_users(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    reply = await cluster.send_to_controller(request)
    for result in reply.results:
        check(result.error_code, result.error_message)


Entity = tuple[tuple[str, str | None], ...]
"""Parts of an entity: (user, client-id or ip; its name, None for the default)."""


@dataclass(frozen=True)
class Quota:
    """A quota of an entity."""

    entity: Entity
    key: str
    value: float

    @property
    def who(self) -> str:
        return entity_text(self.entity)


def entity_text(entity: Entity) -> str:
    """`user alice, client-id default`."""
    return ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in entity)


async def read_quotas(cluster: Cluster) -> list[Quota]:
    """All quotas. Raises ClusterError."""
    reply = await cluster.send(DescribeClientQuotasRequest(components=[], strict=False))
    check(reply.error_code, reply.error_message)
    found = [
        Quota(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)), one.key, one.value)
        for entry in reply.entries or ()
        for one in entry.values
    ]
    return sorted(found, key=lambda one: (one.who, one.key))


async def alter_quota(
    cluster: Cluster, entity: Entity, key: str, value: float | None, *, validate_only: bool = False
) -> None:
    """Set a quota; None removes it. Raises ClusterError."""
    entry = AlterEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    reply = await cluster.send_to_controller(request)
    for result in reply.entries:
        check(result.error_code, result.error_message)
