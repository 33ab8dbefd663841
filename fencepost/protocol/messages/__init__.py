"""Messages of all APIs that this broker speaks, one module per family, request above response.

A family is imported when one of its messages is first used: most brokers need few of them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from fencepost.protocol.api_keys import ApiKey

FAMILIES: Final[Mapping[int, tuple[str, str]]] = {
    ApiKey.PRODUCE: ("produce", "Produce"),
    ApiKey.FETCH: ("fetch", "Fetch"),
    ApiKey.LIST_OFFSETS: ("list_offsets", "ListOffsets"),
    ApiKey.METADATA: ("metadata", "Metadata"),
    ApiKey.OFFSET_COMMIT: ("group_offsets", "OffsetCommit"),
    ApiKey.OFFSET_FETCH: ("group_offsets", "OffsetFetch"),
    ApiKey.FIND_COORDINATOR: ("coordinators", "FindCoordinator"),
    ApiKey.JOIN_GROUP: ("group_membership", "JoinGroup"),
    ApiKey.HEARTBEAT: ("group_membership", "Heartbeat"),
    ApiKey.LEAVE_GROUP: ("group_membership", "LeaveGroup"),
    ApiKey.SYNC_GROUP: ("group_membership", "SyncGroup"),
    ApiKey.DESCRIBE_GROUPS: ("group_admin", "DescribeGroups"),
    ApiKey.LIST_GROUPS: ("group_admin", "ListGroups"),
    ApiKey.SASL_HANDSHAKE: ("sasl", "SaslHandshake"),
    ApiKey.API_VERSIONS: ("api_versions", "ApiVersions"),
    ApiKey.CREATE_TOPICS: ("topics", "CreateTopics"),
    ApiKey.DELETE_TOPICS: ("topics", "DeleteTopics"),
    ApiKey.DELETE_RECORDS: ("delete_records", "DeleteRecords"),
    ApiKey.INIT_PRODUCER_ID: ("transactions", "InitProducerId"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("leader_epochs", "OffsetForLeaderEpoch"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("transactions", "AddPartitionsToTxn"),
    ApiKey.ADD_OFFSETS_TO_TXN: ("transactions", "AddOffsetsToTxn"),
    ApiKey.END_TXN: ("transactions", "EndTxn"),
    ApiKey.WRITE_TXN_MARKERS: ("markers", "WriteTxnMarkers"),
    ApiKey.TXN_OFFSET_COMMIT: ("group_offsets", "TxnOffsetCommit"),
    ApiKey.DESCRIBE_ACLS: ("acls", "DescribeAcls"),
    ApiKey.CREATE_ACLS: ("acls", "CreateAcls"),
    ApiKey.DELETE_ACLS: ("acls", "DeleteAcls"),
    ApiKey.DESCRIBE_CONFIGS: ("configs", "DescribeConfigs"),
    ApiKey.ALTER_CONFIGS: ("alter_configs", "AlterConfigs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("log_dirs", "AlterReplicaLogDirs"),
    ApiKey.DESCRIBE_LOG_DIRS: ("log_dirs", "DescribeLogDirs"),
    ApiKey.SASL_AUTHENTICATE: ("sasl", "SaslAuthenticate"),
    ApiKey.CREATE_PARTITIONS: ("topics", "CreatePartitions"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("delegation_tokens", "CreateDelegationToken"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("delegation_tokens", "RenewDelegationToken"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("delegation_tokens", "ExpireDelegationToken"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("delegation_tokens", "DescribeDelegationToken"),
    ApiKey.DELETE_GROUPS: ("group_admin", "DeleteGroups"),
    ApiKey.ELECT_LEADERS: ("reassignments", "ElectLeaders"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("alter_configs", "IncrementalAlterConfigs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassignments", "AlterPartitionReassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("reassignments", "ListPartitionReassignments"),
    ApiKey.OFFSET_DELETE: ("group_offsets", "OffsetDelete"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("client_quotas", "DescribeClientQuotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("client_quotas", "AlterClientQuotas"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("scram_credentials", "DescribeUserScramCredentials"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("scram_credentials", "AlterUserScramCredentials"),
    ApiKey.DESCRIBE_QUORUM: ("quorum", "DescribeQuorum"),
    ApiKey.UPDATE_FEATURES: ("features", "UpdateFeatures"),
    ApiKey.DESCRIBE_CLUSTER: ("cluster", "DescribeCluster"),
    ApiKey.DESCRIBE_PRODUCERS: ("producers", "DescribeProducers"),
    ApiKey.UNREGISTER_BROKER: ("quorum", "UnregisterBroker"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transaction_admin", "DescribeTransactions"),
    ApiKey.LIST_TRANSACTIONS: ("transaction_admin", "ListTransactions"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer_groups", "ConsumerGroupHeartbeat"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("consumer_groups", "ConsumerGroupDescribe"),
    ApiKey.LIST_CONFIG_RESOURCES: ("alter_configs", "ListConfigResources"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("cluster", "DescribeTopicPartitions"),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("share_groups", "ShareGroupHeartbeat"),
    ApiKey.SHARE_GROUP_DESCRIBE: ("share_groups", "ShareGroupDescribe"),
    ApiKey.SHARE_FETCH: ("share_fetch", "ShareFetch"),
    ApiKey.SHARE_ACKNOWLEDGE: ("share_fetch", "ShareAcknowledge"),
    ApiKey.ADD_RAFT_VOTER: ("quorum", "AddRaftVoter"),
    ApiKey.REMOVE_RAFT_VOTER: ("quorum", "RemoveRaftVoter"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ("share_state", "InitializeShareGroupState"),
    ApiKey.READ_SHARE_GROUP_STATE: ("share_state", "ReadShareGroupState"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ("share_state", "WriteShareGroupState"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ("share_state", "DeleteShareGroupState"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ("share_state", "ReadShareGroupStateSummary"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("streams_groups", "StreamsGroupHeartbeat"),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("streams_groups", "StreamsGroupDescribe"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("share_offsets", "DescribeShareGroupOffsets"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("share_offsets", "AlterShareGroupOffsets"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("share_offsets", "DeleteShareGroupOffsets"),
}
"""By API key: the module here that declares the API, and its name, the prefix of its messages' names."""


class DeclaredMessages(Mapping[int, type[Any]]):
    """By API key, the classes whose names end in `suffix`."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: dict[int, type[Any]] = {}

    def __getitem__(self, api_key: int) -> type[Any]:
        found = self._found.get(api_key)
        if found is None:
            family, name = FAMILIES[api_key]
            found = getattr(import_module(f"{__name__}.{family}"), name + self._suffix)
            self._found[api_key] = found
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(FAMILIES)

    def __len__(self) -> int:
        return len(FAMILIES)


REQUESTS: Final[Mapping[int, type[Any]]] = DeclaredMessages("Request")
"""The declared requests by API key."""

RESPONSES: Final[Mapping[int, type[Any]]] = DeclaredMessages("Response")
"""The declared replies by API key."""
