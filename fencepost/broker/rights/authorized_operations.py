"""Bit sets of the operations that a client may do: all of them, unless an authorizer is configured.

`broker.rights.needed_rights` takes the bits away for which the client has no right.
Source: KIP-430; Kafka's AclEntry.supportedOperations and AuthHelper.authorizedOperations.
"""

from __future__ import annotations

from fencepost.broker.security.acls import AclOperation

NOT_ASKED_FOR = -(2**31)

TOPIC_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
_TOPIC_BITS = sum(1 << operation for operation in TOPIC_OPERATIONS)
_CLUSTER_BITS = sum(1 << operation for operation in CLUSTER_OPERATIONS)
GROUP_BITS = sum(1 << operation for operation in GROUP_OPERATIONS)


def topic_operations(*, asked_for: bool) -> int:
    return _TOPIC_BITS if asked_for else NOT_ASKED_FOR


def cluster_operations(*, asked_for: bool) -> int:
    return _CLUSTER_BITS if asked_for else NOT_ASKED_FOR
