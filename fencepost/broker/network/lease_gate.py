"""The gate for answers of a node that has a lease: one that may have lost it does not answer as a leader.

Whatever is written is guarded by the store, so an acknowledgement of a write is true whenever it leaves. What is
answered from memory is not: another node may lead by then, and know more. So the lease is compared when such an answer
leaves, not by a timer: a process that was stopped reads its sockets first when it goes on. In place of the answer the
client loses its connection, as it would if the node had died, and looks for the leader after its usual pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.broker.requests.api import CloseConnection
from fencepost.protocol.api_keys import ApiKey

ANSWERED_WITHOUT_LEASE: Final = frozenset(
    {
        # Answered when the batches are committed, or from batches that were.
        ApiKey.PRODUCE,
        # Answered from the metadata store, or the same by every node.
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        # Of what is on this machine.
        ApiKey.DESCRIBE_LOG_DIRS,
    }
)
"""All other APIs answer as the leader of partitions, or as the coordinator that follows from them."""

LEASE_IS_OVER: Final = "this node may have lost its lease, and another one may lead what it led"


class LeaseGate:
    """Lets answers of a leader pass while the lease is held. is_held: whether the lease is certainly in force."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held

    def guards(self, api_key: int) -> bool:
        """Whether answers of this API have to pass."""
        return api_key not in ANSWERED_WITHOUT_LEASE

    def require_lease(self) -> None:
        """Raises CloseConnection."""
        if not self._is_held():
            raise CloseConnection(LEASE_IS_OVER)
