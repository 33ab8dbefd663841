"""Every API that Kafka has and we speak, one module per family, request above response; here they are all together."""

from typing import Any

from protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.leader_epochs import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from protocol.messages.markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from protocol.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from protocol.schema import schema_of

REQUESTS: dict[int, type[Any]] = {
    schema_of(declared).api_key: declared
    for declared in (
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        SaslHandshakeRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DeleteRecordsRequest,
        InitProducerIdRequest,
        OffsetForLeaderEpochRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        EndTxnRequest,
        WriteTxnMarkersRequest,
        TxnOffsetCommitRequest,
        DescribeAclsRequest,
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        AlterReplicaLogDirsRequest,
        DescribeLogDirsRequest,
        SaslAuthenticateRequest,
        CreatePartitionsRequest,
        CreateDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        DescribeDelegationTokenRequest,
        DeleteGroupsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        OffsetDeleteRequest,
        DescribeClientQuotasRequest,
        AlterClientQuotasRequest,
        DescribeUserScramCredentialsRequest,
        AlterUserScramCredentialsRequest,
        DescribeQuorumRequest,
        UpdateFeaturesRequest,
        DescribeClusterRequest,
        DescribeProducersRequest,
        UnregisterBrokerRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupDescribeRequest,
        ListConfigResourcesRequest,
        DescribeTopicPartitionsRequest,
        ShareGroupHeartbeatRequest,
        ShareGroupDescribeRequest,
        ShareFetchRequest,
        ShareAcknowledgeRequest,
        AddRaftVoterRequest,
        RemoveRaftVoterRequest,
        StreamsGroupHeartbeatRequest,
        StreamsGroupDescribeRequest,
        DescribeShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
    )
}
"""The declared requests by API key."""

RESPONSES: dict[int, type[Any]] = {
    schema_of(declared).api_key: declared
    for declared in (
        ProduceResponse,
        FetchResponse,
        ListOffsetsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetFetchResponse,
        FindCoordinatorResponse,
        JoinGroupResponse,
        HeartbeatResponse,
        LeaveGroupResponse,
        SyncGroupResponse,
        DescribeGroupsResponse,
        ListGroupsResponse,
        SaslHandshakeResponse,
        ApiVersionsResponse,
        CreateTopicsResponse,
        DeleteTopicsResponse,
        DeleteRecordsResponse,
        InitProducerIdResponse,
        OffsetForLeaderEpochResponse,
        AddPartitionsToTxnResponse,
        AddOffsetsToTxnResponse,
        EndTxnResponse,
        WriteTxnMarkersResponse,
        TxnOffsetCommitResponse,
        DescribeAclsResponse,
        CreateAclsResponse,
        DeleteAclsResponse,
        DescribeConfigsResponse,
        AlterConfigsResponse,
        AlterReplicaLogDirsResponse,
        DescribeLogDirsResponse,
        SaslAuthenticateResponse,
        CreatePartitionsResponse,
        CreateDelegationTokenResponse,
        RenewDelegationTokenResponse,
        ExpireDelegationTokenResponse,
        DescribeDelegationTokenResponse,
        DeleteGroupsResponse,
        ElectLeadersResponse,
        IncrementalAlterConfigsResponse,
        AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsResponse,
        OffsetDeleteResponse,
        DescribeClientQuotasResponse,
        AlterClientQuotasResponse,
        DescribeUserScramCredentialsResponse,
        AlterUserScramCredentialsResponse,
        DescribeQuorumResponse,
        UpdateFeaturesResponse,
        DescribeClusterResponse,
        DescribeProducersResponse,
        UnregisterBrokerResponse,
        DescribeTransactionsResponse,
        ListTransactionsResponse,
        ConsumerGroupHeartbeatResponse,
        ConsumerGroupDescribeResponse,
        ListConfigResourcesResponse,
        DescribeTopicPartitionsResponse,
        ShareGroupHeartbeatResponse,
        ShareGroupDescribeResponse,
        ShareFetchResponse,
        ShareAcknowledgeResponse,
        AddRaftVoterResponse,
        RemoveRaftVoterResponse,
        StreamsGroupHeartbeatResponse,
        StreamsGroupDescribeResponse,
        DescribeShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsResponse,
    )
}
"""The declared replies by API key."""
