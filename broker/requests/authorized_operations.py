"""Bit sets of the operations that a client may do: all of them, as the broker has no authorization.

Source: KIP-430; Kafka's AclOperation and AuthHelper.authorizedOperations without an authorizer.
"""

from __future__ import annotations

from enum import IntEnum

NOT_ASKED_FOR = -(2**31)


class AclOperation(IntEnum):
    """Kafka's operations; the number is the bit."""

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


_TOPIC_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_CLUSTER_OPERATIONS = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
_TOPIC_BITS = sum(1 << operation for operation in _TOPIC_OPERATIONS)
_CLUSTER_BITS = sum(1 << operation for operation in _CLUSTER_OPERATIONS)


def topic_operations(*, asked_for: bool) -> int:
    return _TOPIC_BITS if asked_for else NOT_ASKED_FOR


def cluster_operations(*, asked_for: bool) -> int:
    return _CLUSTER_BITS if asked_for else NOT_ASKED_FOR
