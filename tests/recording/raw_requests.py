"""Requests that no client sends: every API of the recording at every version that Apache Kafka serves, on one plain
connection.

Each scenario is a function of a `Session` and one version; it leaves the broker in a state in which the same scenario
works at the next version.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from kafka.protocol import admin, consumer, metadata, producer

from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_offsets import TxnOffsetCommitRequest
from fencepost.protocol.messages.quorum import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.protocol.newer_messages import HIGHEST_OF_OTHERS
from tests.recording import newer_requests as newer
from tests.recording import raw_admin_requests as administration
from tests.recording import raw_data_requests as data
from tests.recording import raw_group_requests as groups
from tests.recording import raw_share_requests as shares
from tests.recording import raw_streams_requests as streams
from tests.recording import raw_transaction_requests as transactions
from tests.recording.raw_session import Session

# In an order in which each finds what it needs: fetch_aborted reads what end_txn wrote.
SCENARIOS: list[tuple[type[Any], Callable[[Session, int], None]]] = [
    (metadata.ApiVersionsRequest, data.api_versions),
    (metadata.MetadataRequest, data.describe_metadata),
    (admin.CreateTopicsRequest, data.create_topics),
    (admin.DeleteTopicsRequest, data.delete_topics),
    (admin.DescribeConfigsRequest, data.describe_configs),
    (admin.DescribeClusterRequest, data.describe_cluster),
    (admin.DescribeTopicPartitionsRequest, data.describe_topic_partitions),
    (metadata.FindCoordinatorRequest, data.find_coordinator),
    (producer.ProduceRequest, data.produce),
    (consumer.FetchRequest, data.fetch),
    (producer.InitProducerIdRequest, transactions.init_producer_id),
    (producer.AddPartitionsToTxnRequest, transactions.add_partitions_to_txn),
    (producer.EndTxnRequest, transactions.end_txn),
    (consumer.FetchRequest, data.fetch_aborted),
    (producer.AddOffsetsToTxnRequest, transactions.add_offsets_to_txn),
    (producer.TxnOffsetCommitRequest, transactions.txn_offset_commit),
    (admin.ListTransactionsRequest, transactions.list_transactions),
    (admin.DescribeTransactionsRequest, transactions.describe_transactions),
    (admin.DescribeProducersRequest, transactions.describe_producers),
    (producer.WriteTxnMarkersRequest, transactions.write_txn_markers),
    (consumer.ListOffsetsRequest, data.list_offsets),
    (consumer.OffsetForLeaderEpochRequest, data.offset_for_leader_epoch),
    (consumer.JoinGroupRequest, groups.join_group),
    (consumer.SyncGroupRequest, groups.sync_group),
    (consumer.HeartbeatRequest, groups.heartbeat),
    (consumer.LeaveGroupRequest, groups.leave_group),
    (consumer.OffsetCommitRequest, groups.offset_commit),
    (consumer.OffsetFetchRequest, groups.offset_fetch),
    (consumer.OffsetDeleteRequest, groups.offset_delete),
    (admin.DescribeGroupsRequest, groups.describe_groups),
    (admin.ListGroupsRequest, groups.list_groups),
    (admin.DeleteGroupsRequest, groups.delete_groups),
    (admin.CreatePartitionsRequest, data.create_partitions),
    (admin.AlterConfigsRequest, administration.alter_configs),
    (admin.IncrementalAlterConfigsRequest, administration.incremental_alter_configs),
    (admin.ListConfigResourcesRequest, administration.list_config_resources),
    (admin.DescribeLogDirsRequest, administration.describe_log_dirs),
    (admin.AlterReplicaLogDirsRequest, administration.alter_replica_log_dirs),
    (admin.ElectLeadersRequest, administration.elect_leaders),
    (admin.AlterPartitionReassignmentsRequest, administration.alter_partition_reassignments),
    (admin.ListPartitionReassignmentsRequest, administration.list_partition_reassignments),
    (admin.DescribeQuorumRequest, administration.describe_quorum),
    (admin.UpdateFeaturesRequest, administration.update_features),
    (admin.DescribeAclsRequest, administration.describe_acls),
    (admin.CreateAclsRequest, administration.create_acls),
    (admin.DeleteAclsRequest, administration.delete_acls),
    (admin.AlterUserScramCredentialsRequest, administration.alter_user_scram_credentials),
    (admin.DescribeUserScramCredentialsRequest, administration.describe_user_scram_credentials),
    (admin.AlterClientQuotasRequest, administration.alter_client_quotas),
    (admin.DescribeClientQuotasRequest, administration.describe_client_quotas),
    (admin.DeleteRecordsRequest, administration.delete_records),
    (SaslHandshakeRequest, administration.sasl_handshake),
    (SaslAuthenticateRequest, administration.sasl_authenticate),
    (CreateDelegationTokenRequest, administration.create_delegation_token),
    (RenewDelegationTokenRequest, administration.renew_delegation_token),
    (ExpireDelegationTokenRequest, administration.expire_delegation_token),
    (DescribeDelegationTokenRequest, administration.describe_delegation_token),
    (ShareGroupHeartbeatRequest, shares.share_group_heartbeat),
    (ShareGroupDescribeRequest, shares.share_group_describe),
    (ShareFetchRequest, shares.share_fetch),
    (ShareAcknowledgeRequest, shares.share_acknowledge),
    (InitializeShareGroupStateRequest, shares.initialize_share_group_state),
    (ReadShareGroupStateRequest, shares.read_share_group_state),
    (WriteShareGroupStateRequest, shares.write_share_group_state),
    (DeleteShareGroupStateRequest, shares.delete_share_group_state),
    (ReadShareGroupStateSummaryRequest, shares.read_share_group_state_summary),
    (DescribeShareGroupOffsetsRequest, shares.describe_share_group_offsets),
    (AlterShareGroupOffsetsRequest, shares.alter_share_group_offsets),
    (DeleteShareGroupOffsetsRequest, shares.delete_share_group_offsets),
    (StreamsGroupHeartbeatRequest, streams.streams_group_heartbeat),
    (StreamsGroupDescribeRequest, streams.streams_group_describe),
    (StreamsGroupTopologyDescriptionUpdateRequest, streams.streams_group_topology_description_update),
    (UnregisterBrokerRequest, administration.unregister_broker),
    (UnregisterControllerRequest, administration.unregister_controller),
    (AddRaftVoterRequest, administration.add_raft_voter),
    (RemoveRaftVoterRequest, administration.remove_raft_voter),
]

# Of APIs that kafka-python has in older versions.
NEWER: Final[list[tuple[type[Any], Callable[[Session, int], None]]]] = [
    (ApiVersionsRequest, newer.api_versions),
    (DeleteGroupsRequest, newer.delete_groups),
    (TxnOffsetCommitRequest, newer.txn_offset_commit),
]


def api_key_of(request_class: type[Any]) -> int:
    """Of a class of kafka-python, or of ours."""
    key: int = request_class.API_KEY if hasattr(request_class, "API_KEY") else request_class.api_key
    return key


def run(port: int) -> list[str]:
    """Sends every scenario at every version served; returns what failed, as "API vN: reason"."""
    topic = f"raw-{random.randrange(10**6)}"
    session = Session(port, topic=topic)
    topic_id = session.topic_id
    failures = []
    try:
        data.prepare(session)
        topic_id = session.topic_id
        for request_class, scenario in (*SCENARIOS, *NEWER):
            minimum_version, maximum_version = session.served[api_key_of(request_class)]
            if hasattr(request_class, "API_KEY"):  # kafka-python's
                maximum_version = min(maximum_version, request_class.max_version)
            elif (request_class, scenario) in NEWER:
                minimum_version = HIGHEST_OF_OTHERS[request_class.__name__.removesuffix("Request")] + 1
            for version in range(minimum_version, maximum_version + 1):
                try:
                    scenario(session, version)
                except (ConnectionError, RuntimeError, ValueError, TimeoutError) as failure:
                    failures.append(f"{request_class.__name__} v{version}: {failure!r}")
                    session.close()
                    session = Session(port, topic=topic)
                    session.topic_id = topic_id
    finally:
        session.close()
    return failures
