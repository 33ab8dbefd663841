"""Table of served APIs: the module of `broker.handlers` that answers each, and its versions.

A module is imported at the first request for one of its APIs: most brokers use few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.protocol.api_keys import ApiKey


class Served(NamedTuple):
    """The handler module and the versions of one API.

    module:             the one in `broker.handlers` that declares its handler with `@api`.
    versions:           lowest and highest version served, both inclusive.
    advertised_minimum: the lowest version that ApiVersions reports.
    unstable_from:      from this version on Kafka may still change the message: served, and shown, only with
                        `unstable.api.versions.enable`.
    is_administrative:  whether it changes what administrators look after: `broker.rights.administrative_changes`
                        says what a request has changed, for the audit log.
    """

    module: str
    minimum_version: int
    maximum_version: int
    advertised_minimum: int
    unstable_from: int | None
    is_administrative: bool

    def highest_version(self, *, with_unstable: bool) -> int:
        if self.unstable_from is None or with_unstable:
            return self.maximum_version
        return self.unstable_from - 1


def served(
    module: str,
    versions: str,
    *,
    advertised_minimum: int | None = None,
    unstable_from: int | None = None,
    is_administrative: bool = False,
) -> Served:
    """Make a row. versions: `"0-5"`, or `"4"` for a single one."""
    first, _, last = versions.partition("-")
    minimum = int(first)
    return Served(
        module,
        minimum,
        int(last or first),
        minimum if advertised_minimum is None else advertised_minimum,
        unstable_from,
        is_administrative,
    )


SERVED: Final[Mapping[int, Served]] = {
    ApiKey.PRODUCE: served("produce", "3-13", advertised_minimum=0),
    ApiKey.FETCH: served("fetch", "4-18"),
    ApiKey.LIST_OFFSETS: served("list_offsets", "1-11"),
    ApiKey.METADATA: served("metadata", "0-13"),
    ApiKey.OFFSET_COMMIT: served("group_offsets", "2-10"),
    ApiKey.OFFSET_FETCH: served("group_offsets", "1-10"),
    ApiKey.FIND_COORDINATOR: served("coordinators", "0-6"),
    ApiKey.JOIN_GROUP: served("group_membership", "0-9"),
    ApiKey.HEARTBEAT: served("group_membership", "0-4"),
    ApiKey.LEAVE_GROUP: served("group_membership", "0-5"),
    ApiKey.SYNC_GROUP: served("group_membership", "0-5"),
    ApiKey.DESCRIBE_GROUPS: served("group_admin", "0-6"),
    ApiKey.LIST_GROUPS: served("group_admin", "0-5"),
    ApiKey.SASL_HANDSHAKE: served("sasl", "0-1"),
    ApiKey.API_VERSIONS: served("api_versions", "0-4"),
    ApiKey.CREATE_TOPICS: served("topics", "2-7", is_administrative=True),
    ApiKey.DELETE_TOPICS: served("topics", "1-6", is_administrative=True),
    ApiKey.DELETE_RECORDS: served("delete_records", "0-2", is_administrative=True),
    ApiKey.INIT_PRODUCER_ID: served("transactions", "0-6", unstable_from=6),  # KIP-939, not finished in Kafka either
    ApiKey.OFFSET_FOR_LEADER_EPOCH: served("leader_epochs", "2-4"),
    ApiKey.ADD_PARTITIONS_TO_TXN: served("transactions", "0-5"),
    ApiKey.ADD_OFFSETS_TO_TXN: served("transactions", "0-4"),
    ApiKey.END_TXN: served("transactions", "0-5"),
    ApiKey.WRITE_TXN_MARKERS: served("markers", "1-2", is_administrative=True),
    ApiKey.TXN_OFFSET_COMMIT: served("group_offsets", "0-5"),
    ApiKey.DESCRIBE_ACLS: served("acls", "1-3"),
    ApiKey.CREATE_ACLS: served("acls", "1-3", is_administrative=True),
    ApiKey.DELETE_ACLS: served("acls", "1-3", is_administrative=True),
    ApiKey.DESCRIBE_CONFIGS: served("configs", "1-4"),
    ApiKey.ALTER_CONFIGS: served("alter_configs", "0-2", is_administrative=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: served("log_dirs", "1-2"),
    ApiKey.DESCRIBE_LOG_DIRS: served("log_dirs", "1-5"),
    ApiKey.SASL_AUTHENTICATE: served("sasl", "0-2"),
    ApiKey.CREATE_PARTITIONS: served("topics", "0-3", is_administrative=True),
    ApiKey.CREATE_DELEGATION_TOKEN: served("delegation_tokens", "1-3"),
    ApiKey.RENEW_DELEGATION_TOKEN: served("delegation_tokens", "1-2"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: served("delegation_tokens", "1-2"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: served("delegation_tokens", "1-3"),
    ApiKey.DELETE_GROUPS: served("group_admin", "0-2", is_administrative=True),
    ApiKey.ELECT_LEADERS: served("reassignments", "0-2"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: served("alter_configs", "0-1", is_administrative=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: served("reassignments", "0-1", is_administrative=True),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: served("reassignments", "0"),
    ApiKey.OFFSET_DELETE: served("group_offsets", "0", is_administrative=True),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: served("client_quotas", "0-1"),
    ApiKey.ALTER_CLIENT_QUOTAS: served("client_quotas", "0-1", is_administrative=True),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: served("scram_credentials", "0"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: served("scram_credentials", "0", is_administrative=True),
    ApiKey.DESCRIBE_QUORUM: served("quorum", "0-2"),
    ApiKey.UPDATE_FEATURES: served("features", "0-2", is_administrative=True),
    ApiKey.DESCRIBE_CLUSTER: served("cluster", "0-2"),
    ApiKey.DESCRIBE_PRODUCERS: served("producers", "0"),
    ApiKey.UNREGISTER_BROKER: served("quorum", "0"),
    ApiKey.DESCRIBE_TRANSACTIONS: served("transaction_admin", "0"),
    ApiKey.LIST_TRANSACTIONS: served("transaction_admin", "0-2"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: served("consumer_groups", "0-1"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: served("consumer_groups", "0-1"),
    ApiKey.LIST_CONFIG_RESOURCES: served("alter_configs", "0-1"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: served("cluster", "0"),
    ApiKey.SHARE_GROUP_HEARTBEAT: served("share_groups", "1"),
    ApiKey.SHARE_GROUP_DESCRIBE: served("share_groups", "1"),
    ApiKey.SHARE_FETCH: served("share_fetch", "1-2"),
    ApiKey.SHARE_ACKNOWLEDGE: served("share_fetch", "1-2"),
    ApiKey.ADD_RAFT_VOTER: served("quorum", "0-1"),
    ApiKey.REMOVE_RAFT_VOTER: served("quorum", "0"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: served("share_state", "0"),
    ApiKey.READ_SHARE_GROUP_STATE: served("share_state", "0"),
    ApiKey.WRITE_SHARE_GROUP_STATE: served("share_state", "0-1"),
    ApiKey.DELETE_SHARE_GROUP_STATE: served("share_state", "0"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: served("share_state", "0-1"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: served("streams_groups", "0"),
    ApiKey.STREAMS_GROUP_DESCRIBE: served("streams_groups", "0"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: served("share_offsets", "0-1"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: served("share_offsets", "0", is_administrative=True),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: served("share_offsets", "0", is_administrative=True),
}
"""By API key."""
