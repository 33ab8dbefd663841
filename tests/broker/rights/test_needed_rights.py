"""What each API answers to a client without rights, with rights on some resources, and with all: through the dispatcher
of a whole broker, at every version. Expected answers are Kafka 4.4's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.broker.config.password import Password
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.api import APIS
from fencepost.broker.requests.served import SERVED
from fencepost.broker.security.acls import AclOperation, AclPattern, AclResource, AclRule
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import acls as acl_messages
from fencepost.protocol.messages import (
    alter_configs,
    configs,
    consumer_groups,
    coordinators,
    delete_records,
    features,
    fetch,
    group_admin,
    group_membership,
    leader_epochs,
    list_offsets,
    log_dirs,
    markers,
    produce,
    producers,
    quorum,
    reassignments,
    scram_credentials,
    share_fetch,
    share_groups,
    share_offsets,
    share_state,
    streams_groups,
    transaction_admin,
    transactions,
)
from fencepost.protocol.messages import client_quotas as quotas
from fencepost.protocol.messages import cluster as clusters
from fencepost.protocol.messages import delegation_tokens as tokens
from fencepost.protocol.messages import group_offsets as offsets
from fencepost.protocol.messages import metadata as metadatas
from fencepost.protocol.messages import topics as topic_messages
from fencepost.protocol.streams_topology import StreamsSubtopology, StreamsTopicInfo
from tests.support.handler_context import batch
from tests.support.secured_broker import SecuredBroker, SecuredClient, rule, secured_broker

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TXN = AclResource.TRANSACTIONAL_ID
T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
UNKNOWN_ID = bytes([1]) * 16
TOPICS = ("seen", "hidden")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SecuredBroker]:
    async with secured_broker(tmp_path) as running:
        await running.create_topics(TOPICS)
        yield running


def versions_of(key: int) -> range:
    return range(APIS[key].minimum_version, APIS[key].maximum_version + 1)


def errors_in(response: Any) -> set[int]:
    """All error codes of a response, at any depth."""
    found: set[int] = set()
    if isinstance(response, list):
        for one in response:
            found |= errors_in(one)
    for name in getattr(type(response), "__slots__", ()) if not isinstance(response, (str, bytes)) else ():
        value = getattr(response, name, None)
        if name.endswith("error_code") and isinstance(value, int):
            found.add(value)
        elif value is not None and not isinstance(value, (int, str, bytes, float)):
            found |= errors_in(value)
    return found - {0}


class Case(NamedTuple):
    """A request that is refused for want of a right, whatever it names, and the rules that allow it.

    error: of the refusal. versions: other than all that are served.
    """

    request: Callable[[SecuredBroker], Any]
    error: ErrorCode
    rules: tuple[AclRule, ...]
    versions: tuple[int, int] | None = None


def case(request: Any, error: ErrorCode, *rules: AclRule, versions: tuple[int, int] | None = None) -> Case:
    return Case(request if callable(request) else lambda _: request, error, rules, versions)


ON_CLUSTER = {operation: rule(operation, CLUSTER) for operation in AclOperation}
OF_TOPIC = {operation: rule(operation, TOPIC, "hidden") for operation in AclOperation}
OF_GROUP = {operation: rule(operation, GROUP, "g") for operation in AclOperation}
WRITE_X, DESCRIBE_X = rule(WRITE, TXN, "x"), rule(DESCRIBE, TXN, "x")
TWO_PHASE_X = rule(AclOperation.TWO_PHASE_COMMIT, TXN, "x")


def produced(broker: SecuredBroker) -> Any:
    topic = produce.TopicProduceData(
        "hidden", broker.topic_id("hidden"), [produce.PartitionProduceData(0, batch(b"v"))]
    )
    return produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def produced_in_transaction(broker: SecuredBroker) -> Any:
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    topic = produce.TopicProduceData("hidden", broker.topic_id("hidden"), [produce.PartitionProduceData(0, records)])
    return produce.ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[topic])


def fetched(broker: SecuredBroker) -> Any:
    topic = fetch.FetchTopic("hidden", broker.topic_id("hidden"), [fetch.FetchPartition(0, partition_max_bytes=100)])
    return fetch.FetchRequest(topics=[topic], max_wait_ms=0)


def committed_in_transaction(broker: SecuredBroker) -> Any:
    topic = offsets.TxnOffsetCommitRequestTopic(
        "hidden", broker.topic_id("hidden"), [offsets.TxnOffsetCommitRequestPartition(0)]
    )
    return offsets.TxnOffsetCommitRequest("x", "g", topics=[topic])


def committed(broker: SecuredBroker) -> Any:
    topic = offsets.OffsetCommitRequestTopic(
        "hidden", broker.topic_id("hidden"), [offsets.OffsetCommitRequestPartition(0, 5)]
    )
    return offsets.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])


def fetched_offsets(broker: SecuredBroker) -> Any:
    topic_id = broker.topic_id("hidden")
    group = offsets.OffsetFetchRequestGroup("g", topics=[offsets.OffsetFetchRequestTopics("hidden", topic_id, [0])])
    return offsets.OffsetFetchRequest(
        group_id="g", topics=[offsets.OffsetFetchRequestTopic("hidden", [0])], groups=[group]
    )


def described_metadata(broker: SecuredBroker) -> Any:
    return metadatas.MetadataRequest([metadatas.MetadataRequestTopic(name="hidden")], allow_auto_topic_creation=False)


def shared(kind: Any, topic: Any, partition: Any, **fields: int) -> Callable[[SecuredBroker], Any]:
    return lambda broker: kind(
        group_id="g", member_id="m", topics=[topic(broker.topic_id("hidden"), [partition(0)])], **fields
    )


def subtopology() -> StreamsSubtopology:
    return StreamsSubtopology("0", source_topics=["hidden"])


def altered_config(resource_type: int, name: str) -> Any:
    config = alter_configs.IncrementalAlterableConfig("retention.ms", 0, "1000")
    return alter_configs.IncrementalAlterConfigsRequest(
        [alter_configs.IncrementalAlterConfigsResource(resource_type, name, [config])], validate_only=True
    )


NO_FILTER = acl_messages.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
HEARTBEAT_NAMES: dict[str, Any] = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["hidden"]}

CASES = {
    "Produce": case(produced, T29, OF_TOPIC[WRITE]),
    "Produce in a transaction": case(produced_in_transaction, X53, WRITE_X, OF_TOPIC[WRITE]),
    "Fetch": case(fetched, T29, OF_TOPIC[READ]),
    "Fetch of a follower": case(
        lambda broker: fetch.FetchRequest(
            replica_id=1,
            replica_state=fetch.ReplicaState(replica_id=1),
            topics=fetched(broker).topics,
        ),
        T29,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "ListOffsets": case(
        list_offsets.ListOffsetsRequest(
            -1, topics=[list_offsets.ListOffsetsTopic("hidden", [list_offsets.ListOffsetsPartition(0, timestamp=-1)])]
        ),
        T29,
        OF_TOPIC[DESCRIBE],
    ),
    "Metadata": case(described_metadata, T29, OF_TOPIC[DESCRIBE]),
    "OffsetCommit": case(committed, G30, OF_GROUP[READ], OF_TOPIC[READ]),
    "OffsetFetch": case(fetched_offsets, G30, OF_GROUP[DESCRIBE], OF_TOPIC[DESCRIBE]),
    "FindCoordinator of a group": case(coordinators.FindCoordinatorRequest("g", 0, ["g"]), G30, OF_GROUP[DESCRIBE]),
    "FindCoordinator of a transaction": case(
        coordinators.FindCoordinatorRequest("x", 1, ["x"]), X53, DESCRIBE_X, versions=(1, 6)
    ),
    "FindCoordinator of a share partition": case(
        coordinators.FindCoordinatorRequest("", 2, ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
        versions=(6, 6),
    ),
    "JoinGroup": case(
        group_membership.JoinGroupRequest("g", session_timeout_ms=1, protocol_type="consumer"), G30, OF_GROUP[READ]
    ),
    "SyncGroup": case(
        group_membership.SyncGroupRequest("g", 1, "m", protocol_type="consumer", protocol_name="range"),
        G30,
        OF_GROUP[READ],
    ),
    "Heartbeat": case(group_membership.HeartbeatRequest("g", 1, "m"), G30, OF_GROUP[READ]),
    "LeaveGroup": case(group_membership.LeaveGroupRequest("g", "m"), G30, OF_GROUP[READ]),
    "DescribeGroups": case(group_admin.DescribeGroupsRequest(["g"]), G30, OF_GROUP[DESCRIBE]),
    "DeleteGroups": case(group_admin.DeleteGroupsRequest(["g"]), G30, OF_GROUP[DELETE]),
    "CreateTopics": case(
        topic_messages.CreateTopicsRequest([topic_messages.CreatableTopic("hidden", 1, -1)], validate_only=True),
        T29,
        OF_TOPIC[CREATE],
    ),
    "CreateTopics by the cluster": case(
        topic_messages.CreateTopicsRequest([topic_messages.CreatableTopic("hidden", 1, -1)], validate_only=True),
        T29,
        ON_CLUSTER[CREATE],
    ),
    "DeleteTopics": case(
        topic_messages.DeleteTopicsRequest([topic_messages.DeleteTopicState("none")], ["none"]),
        T29,
        rule(DELETE, TOPIC, "none"),
    ),
    "DeleteTopics by the cluster": case(
        topic_messages.DeleteTopicsRequest([topic_messages.DeleteTopicState("none")], ["none"]),
        T29,
        ON_CLUSTER[DELETE],
    ),
    "CreatePartitions": case(
        topic_messages.CreatePartitionsRequest([topic_messages.CreatePartitionsTopic("hidden", 1, None)]),
        T29,
        OF_TOPIC[ALTER],
    ),
    "DeleteRecords": case(
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("hidden", [delete_records.DeleteRecordsPartition(0, 0)])]
        ),
        T29,
        OF_TOPIC[DELETE],
    ),
    "InitProducerId": case(transactions.InitProducerIdRequest("x", 1000), X53, WRITE_X),
    "InitProducerId without an id": case(
        transactions.InitProducerIdRequest(None, 1000), C31, ON_CLUSTER[AclOperation.IDEMPOTENT_WRITE]
    ),
    "InitProducerId of one who may write to a topic": case(
        transactions.InitProducerIdRequest(None, 1000), C31, rule(WRITE, TOPIC, "pre-", pattern=AclPattern.PREFIXED)
    ),
    "OffsetForLeaderEpoch": case(
        leader_epochs.OffsetForLeaderEpochRequest(
            -1, [leader_epochs.OffsetForLeaderTopic("hidden", [leader_epochs.OffsetForLeaderPartition(0)])]
        ),
        T29,
        OF_TOPIC[DESCRIBE],
    ),
    "OffsetForLeaderEpoch of a follower": case(
        leader_epochs.OffsetForLeaderEpochRequest(
            -1, [leader_epochs.OffsetForLeaderTopic("hidden", [leader_epochs.OffsetForLeaderPartition(0)])]
        ),
        T29,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "AddPartitionsToTxn": case(
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic("hidden", [0])],
        ),
        X53,
        WRITE_X,
        OF_TOPIC[WRITE],
        versions=(0, 3),
    ),
    "AddPartitionsToTxn of a broker": case(
        transactions.AddPartitionsToTxnRequest(
            [
                transactions.AddPartitionsToTxnTransaction(
                    "x", topics=[transactions.AddPartitionsToTxnTopic("hidden", [0])]
                )
            ]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
        versions=(4, 5),
    ),
    "AddOffsetsToTxn": case(transactions.AddOffsetsToTxnRequest("x", group_id="g"), X53, WRITE_X, OF_GROUP[READ]),
    "EndTxn": case(transactions.EndTxnRequest("x"), X53, WRITE_X),
    "WriteTxnMarkers": case(
        markers.WriteTxnMarkersRequest(
            [markers.WritableTxnMarker(1, 0, topics=[markers.WritableTxnMarkerTopic("hidden", [0])])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "WriteTxnMarkers of an administrator": case(
        markers.WriteTxnMarkersRequest(
            [markers.WritableTxnMarker(1, 0, topics=[markers.WritableTxnMarkerTopic("hidden", [0])])]
        ),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "TxnOffsetCommit": case(
        committed_in_transaction,
        X53,
        WRITE_X,
        OF_GROUP[READ],
        OF_TOPIC[READ],
    ),
    "OffsetDelete": case(
        offsets.OffsetDeleteRequest(
            "g", [offsets.OffsetDeleteRequestTopic("hidden", [offsets.OffsetDeleteRequestPartition(0)])]
        ),
        G30,
        OF_TOPIC[READ],  # without which a group that does not exist is named as what is missing
        OF_GROUP[DELETE],
    ),
    "DescribeConfigs of a topic": case(
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(2, "hidden", None)]),
        T29,
        OF_TOPIC[DESCRIBE_CONFIGS],
    ),
    "DescribeConfigs of a broker": case(
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(4, "1", None)]),
        C31,
        ON_CLUSTER[DESCRIBE_CONFIGS],
    ),
    "DescribeConfigs of a group": case(
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(32, "g", None)]),
        G30,
        OF_GROUP[DESCRIBE_CONFIGS],
    ),
    "AlterConfigs of a topic": case(
        alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(2, "hidden")], validate_only=True),
        T29,
        OF_TOPIC[ALTER_CONFIGS],
    ),
    "IncrementalAlterConfigs of a topic": case(altered_config(2, "hidden"), T29, OF_TOPIC[ALTER_CONFIGS]),
    "IncrementalAlterConfigs of a broker": case(altered_config(4, "1"), C31, ON_CLUSTER[ALTER_CONFIGS]),
    "IncrementalAlterConfigs of loggers": case(altered_config(8, "1"), C31, ON_CLUSTER[ALTER_CONFIGS]),
    "IncrementalAlterConfigs of a group": case(altered_config(32, "g"), G30, OF_GROUP[ALTER_CONFIGS]),
    "ListConfigResources": case(alter_configs.ListConfigResourcesRequest(), C31, ON_CLUSTER[DESCRIBE_CONFIGS]),
    "DescribeClientQuotas": case(quotas.DescribeClientQuotasRequest(), C31, ON_CLUSTER[DESCRIBE_CONFIGS]),
    "AlterClientQuotas": case(
        quotas.AlterClientQuotasRequest(
            [quotas.AlterEntryData([quotas.EntityData("user", "x")], [quotas.OpData("producer_byte_rate", 1.0)])],
            validate_only=True,
        ),
        C31,
        ON_CLUSTER[ALTER_CONFIGS],
    ),
    "DescribeUserScramCredentials": case(
        scram_credentials.DescribeUserScramCredentialsRequest(), C31, ON_CLUSTER[DESCRIBE]
    ),
    "AlterUserScramCredentials": case(
        scram_credentials.AlterUserScramCredentialsRequest([scram_credentials.ScramCredentialDeletion("alice", 1)]),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "DescribeAcls": case(NO_FILTER, C31, ON_CLUSTER[DESCRIBE]),
    "CreateAcls": case(
        acl_messages.CreateAclsRequest([acl_messages.AclCreation(2, "n", 3, "User:n", "*", 3, 3)]),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "DeleteAcls": case(
        acl_messages.DeleteAclsRequest([acl_messages.DeleteAclsFilter(2, "n", 3, None, None, 1, 1)]),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "DescribeLogDirs": case(log_dirs.DescribeLogDirsRequest(None), C31, ON_CLUSTER[DESCRIBE], versions=(3, 5)),
    "AlterReplicaLogDirs": case(
        log_dirs.AlterReplicaLogDirsRequest(
            [log_dirs.AlterReplicaLogDir("/x", [log_dirs.AlterReplicaLogDirTopic("hidden", [0])])]
        ),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "DescribeQuorum": case(quorum.DescribeQuorumRequest(), C31, ON_CLUSTER[DESCRIBE]),
    "UnregisterBroker": case(quorum.UnregisterBrokerRequest(99), C31, ON_CLUSTER[ALTER]),
    "UnregisterController": case(quorum.UnregisterControllerRequest(99), C31, ON_CLUSTER[ALTER]),
    "AddRaftVoter": case(quorum.AddRaftVoterRequest(), C31, ON_CLUSTER[ALTER]),
    "RemoveRaftVoter": case(quorum.RemoveRaftVoterRequest(), C31, ON_CLUSTER[ALTER]),
    "UpdateFeatures": case(
        features.UpdateFeaturesRequest(feature_updates=[features.FeatureUpdateKey("x", 1)]), C31, ON_CLUSTER[ALTER]
    ),
    "ElectLeaders": case(
        reassignments.ElectLeadersRequest(topic_partitions=[reassignments.TopicPartitions("hidden", [0])]),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "AlterPartitionReassignments": case(
        reassignments.AlterPartitionReassignmentsRequest(
            topics=[reassignments.ReassignableTopic("hidden", [reassignments.ReassignablePartition(0, [1])])]
        ),
        C31,
        ON_CLUSTER[ALTER],
    ),
    "ListPartitionReassignments": case(reassignments.ListPartitionReassignmentsRequest(), C31, ON_CLUSTER[DESCRIBE]),
    "DescribeProducers": case(
        producers.DescribeProducersRequest([producers.TopicRequest("hidden", [0])]), T29, OF_TOPIC[READ]
    ),
    "DescribeTransactions": case(transaction_admin.DescribeTransactionsRequest(["x"]), X53, DESCRIBE_X),
    "DescribeTopicPartitions": case(
        clusters.DescribeTopicPartitionsRequest([clusters.TopicRequest("hidden")]), T29, OF_TOPIC[DESCRIBE]
    ),
    "ConsumerGroupHeartbeat": case(
        consumer_groups.ConsumerGroupHeartbeatRequest(
            rebalance_timeout_ms=1000, topic_partitions=[], **HEARTBEAT_NAMES
        ),
        G30,
        OF_GROUP[READ],
        OF_TOPIC[DESCRIBE],
    ),
    "ConsumerGroupDescribe": case(consumer_groups.ConsumerGroupDescribeRequest(["g"]), G30, OF_GROUP[DESCRIBE]),
    "ShareGroupHeartbeat": case(
        share_groups.ShareGroupHeartbeatRequest(**HEARTBEAT_NAMES), G30, OF_GROUP[READ], OF_TOPIC[DESCRIBE]
    ),
    "InitializeShareGroupState": case(
        share_state.InitializeShareGroupStateRequest(
            "g", [share_state.InitializeShareStateTopic(partitions=[share_state.InitializeShareStatePartition(0)])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "ReadShareGroupState": case(
        share_state.ReadShareGroupStateRequest(
            "g", [share_state.ReadShareStateTopic(partitions=[share_state.ReadShareStatePartition(0)])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "WriteShareGroupState": case(
        share_state.WriteShareGroupStateRequest(
            "g", [share_state.WriteShareStateTopic(partitions=[share_state.WriteShareStatePartition(0)])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "DeleteShareGroupState": case(
        share_state.DeleteShareGroupStateRequest(
            "g", [share_state.DeleteShareStateTopic(partitions=[share_state.DeleteShareStatePartition(0)])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "ReadShareGroupStateSummary": case(
        share_state.ReadShareGroupStateSummaryRequest(
            "g", [share_state.ReadShareStateTopic(partitions=[share_state.ReadShareStatePartition(0)])]
        ),
        C31,
        ON_CLUSTER[CLUSTER_ACTION],
    ),
    "ShareGroupDescribe": case(share_groups.ShareGroupDescribeRequest(["g"]), G30, OF_GROUP[DESCRIBE]),
    "ShareFetch": case(
        shared(
            share_fetch.ShareFetchRequest, share_fetch.ShareFetchTopic, share_fetch.ShareFetchPartition, max_records=5
        ),
        G30,
        OF_GROUP[READ],
        OF_TOPIC[READ],
    ),
    "ShareAcknowledge": case(
        shared(
            share_fetch.ShareAcknowledgeRequest,
            share_fetch.ShareAcknowledgeTopic,
            share_fetch.ShareAcknowledgePartition,
        ),
        G30,
        OF_GROUP[READ],
    ),
    "StreamsGroupHeartbeat": case(
        streams_groups.StreamsGroupHeartbeatRequest(
            "g", "m", topology=streams_groups.StreamsGroupHeartbeatTopology(1, [subtopology()])
        ),
        G30,
        OF_GROUP[READ],
        OF_TOPIC[DESCRIBE],
    ),
    "StreamsGroupTopologyDescriptionUpdate": case(
        streams_groups.StreamsGroupTopologyDescriptionUpdateRequest("g", "m"), G30, OF_GROUP[READ]
    ),
    "StreamsGroupDescribe": case(streams_groups.StreamsGroupDescribeRequest(["g"]), G30, OF_GROUP[DESCRIBE]),
    "DescribeShareGroupOffsets": case(
        share_offsets.DescribeShareGroupOffsetsRequest(
            [
                share_offsets.DescribeShareGroupOffsetsRequestGroup(
                    "g", [share_offsets.DescribeShareGroupOffsetsRequestTopic("hidden", [0])]
                )
            ]
        ),
        G30,
        OF_GROUP[DESCRIBE],
        OF_TOPIC[DESCRIBE],
    ),
    "AlterShareGroupOffsets": case(
        share_offsets.AlterShareGroupOffsetsRequest(
            "g",
            [
                share_offsets.AlterShareGroupOffsetsRequestTopic(
                    "hidden", [share_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)]
                )
            ],
        ),
        G30,
        OF_GROUP[READ],
        OF_TOPIC[READ],
    ),
    "DeleteShareGroupOffsets": case(
        share_offsets.DeleteShareGroupOffsetsRequest(
            "g", [share_offsets.DeleteShareGroupOffsetsRequestTopic("hidden")]
        ),
        G30,
        OF_TOPIC[READ],  # without which a group that does not exist is named as what is missing
        OF_GROUP[DELETE],
    ),
}
WITHOUT_A_CASE = {
    # They need nothing.
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    # There are no tokens.
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    # They leave out what the client may not see.
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
}


async def test_there_is_a_case_for_every_api_that_refuses(broker: SecuredBroker) -> None:
    assert {one.request(broker).api_key for one in CASES.values()} == set(SERVED) - WITHOUT_A_CASE


@pytest.mark.parametrize("name", CASES)
async def test_a_request_is_refused_until_each_right_is_given(broker: SecuredBroker, name: str) -> None:
    """At every version: without rights, with all but the last right, and with all of them."""
    one = CASES[name]
    key = one.request(broker).api_key
    first, last = one.versions or (APIS[key].minimum_version, APIS[key].maximum_version)
    for version in range(first, last + 1):
        await broker.revoke_all()
        refused = await broker.alice.call(one.request(broker), version)
        assert errors_in(refused) == {one.error}, version
        await broker.allow(*one.rules[:-1])
        refused = await broker.alice.call(one.request(broker), version)
        assert errors_in(refused) & AUTHORIZATION_ERRORS, version
        await broker.allow(one.rules[-1])
        allowed = await broker.alice.call(one.request(broker), version)
        assert not errors_in(allowed) & AUTHORIZATION_ERRORS, version


AUTHORIZATION_ERRORS = {T29, G30, C31, X53}


# Requests that are refused in part

READ_SEEN = rule(READ, TOPIC, "seen")


def by_name(topics: list[Any], field: str = "name") -> list[tuple[Any, list[int]]]:
    """The names of a response's topics with the errors of their partitions."""
    return [(getattr(topic, field), sorted(errors_in(topic)) or [0]) for topic in topics]


async def test_metadata_hides_a_topic_as_if_it_did_not_exist(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN)
    asked = [metadatas.MetadataRequestTopic(name=name) for name in ("seen", "hidden", "missing")]
    found = (await broker.alice.call(metadatas.MetadataRequest(asked, allow_auto_topic_creation=True))).topics
    assert [(topic.name, topic.error_code) for topic in found] == [("seen", 0), ("hidden", T29), ("missing", T29)]
    hidden, missing = found[1:]
    hidden.name = missing.name
    assert hidden == missing
    assert broker.services.topics.metadata.get("missing") is None


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_all_topics_leaves_out_those_that_are_hidden(broker: SecuredBroker, version: int) -> None:
    await broker.allow(READ_SEEN)
    asked = metadatas.MetadataRequest(None if version else [])
    assert [topic.name for topic in (await broker.alice.call(asked, version)).topics] == ["seen"]
    named = metadatas.MetadataRequest([metadatas.MetadataRequestTopic(name="hidden")])
    (refused,) = (await broker.alice.call(named, version)).topics
    assert (refused.name, refused.error_code, refused.partitions) == ("hidden", T29, [])


async def test_metadata_by_id_shows_no_name_of_a_hidden_topic(broker: SecuredBroker) -> None:
    asked = [
        metadatas.MetadataRequestTopic(broker.topic_id("hidden"), None),
        metadatas.MetadataRequestTopic(UNKNOWN_ID, None),
    ]
    found = (await broker.alice.call(metadatas.MetadataRequest(asked))).topics
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in found] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID),
        (None, T29, broker.topic_id("hidden")),
    ]


async def test_a_missing_topic_is_created_only_with_the_right_to_create_it(broker: SecuredBroker) -> None:
    await broker.allow(rule(DESCRIBE, TOPIC, "new"))
    asked = metadatas.MetadataRequest([metadatas.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    assert [topic.error_code for topic in (await broker.alice.call(asked)).topics] == [T29]
    assert broker.services.topics.metadata.get("new") is None
    await broker.allow(rule(CREATE, TOPIC, "new"))
    assert [topic.error_code for topic in (await broker.alice.call(asked)).topics] == [0]


async def test_operations_are_shown_as_far_as_they_are_allowed(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN, rule(READ, GROUP, "g"))
    asked = metadatas.MetadataRequest(
        [metadatas.MetadataRequestTopic(name="seen")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    found = await broker.alice.call(asked, 10)
    assert (found.topics[0].topic_authorized_operations, found.cluster_authorized_operations) == (264, 0)
    described = clusters.DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await broker.alice.call(described)).cluster_authorized_operations == 0
    group = group_admin.DescribeGroupsRequest(["g"], include_authorized_operations=True)
    assert (await broker.alice.call(group, 5)).groups[0].authorized_operations == 264
    await broker.allow(rule(DESCRIBE, CLUSTER), rule(ALTER_CONFIGS, CLUSTER))
    expected = 1 << DESCRIBE | 1 << ALTER_CONFIGS | 1 << DESCRIBE_CONFIGS
    assert (await broker.alice.call(described)).cluster_authorized_operations == expected


def produce_to(broker: SecuredBroker, *names: str, acks: int = -1) -> Any:
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name,
                UNKNOWN_ID if name == "missing" else broker.topic_id(name),
                [produce.PartitionProduceData(0, batch(b"v"))],
            )
            for name in names
        ],
    )


def end_offset(broker: SecuredBroker, topic: str) -> int:
    log = broker.services.topics.log(TopicPartition(topic, 0))
    return 0 if log is None else log.log_end_offset


async def test_produce_appends_what_is_allowed_and_refuses_the_rest(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TOPIC, "seen"))
    answered = await broker.alice.call(produce_to(broker, "hidden", "seen", "missing"), 12)
    assert by_name(answered.responses) == [("seen", [0]), ("hidden", [T29]), ("missing", [T29])]
    assert (end_offset(broker, "seen"), end_offset(broker, "hidden")) == (1, 0)


async def test_produce_by_id_tells_an_unknown_id_from_a_hidden_topic(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TOPIC, "seen"))
    answered = await broker.alice.call(produce_to(broker, "hidden", "seen", "missing"), 13)
    assert {topic.topic_id: sorted(errors_in(topic)) for topic in answered.responses} == {
        broker.topic_id("seen"): [],
        broker.topic_id("hidden"): [T29],
        UNKNOWN_ID: [ErrorCode.UNKNOWN_TOPIC_ID],
    }


async def test_produce_without_acknowledgement_closes_the_connection_after_what_is_allowed(
    broker: SecuredBroker,
) -> None:
    await broker.allow(rule(WRITE, TOPIC, "seen"))
    with pytest.raises(ConnectionError, match="acks=0"):
        await broker.alice.call(produce_to(broker, "hidden", "seen", acks=0), 12)
    assert (end_offset(broker, "seen"), end_offset(broker, "hidden")) == (1, 0)
    with pytest.raises(ConnectionError, match="acks=0"):
        await broker.alice.call(produce_to(broker, "hidden", acks=0), 12)


async def test_fetch_reads_what_is_allowed_and_refuses_the_rest(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN)

    def wanted(name: str, topic_id: bytes = UNKNOWN_ID) -> Any:
        return fetch.FetchTopic(name, topic_id, [fetch.FetchPartition(0, partition_max_bytes=100)])

    asked = fetch.FetchRequest(topics=[wanted("seen"), wanted("hidden"), wanted("missing")])
    assert by_name((await broker.alice.call(asked, 12)).responses, "topic") == [
        ("seen", [0]),
        ("hidden", [T29]),
        ("missing", [T29]),
    ]
    by_id = fetch.FetchRequest(topics=[wanted("", broker.topic_id("hidden")), wanted("", UNKNOWN_ID)])
    assert by_name((await broker.alice.call(by_id, 13)).responses, "topic_id") == [
        (UNKNOWN_ID, [ErrorCode.UNKNOWN_TOPIC_ID]),
        (broker.topic_id("hidden"), [T29]),
    ]


@pytest.mark.parametrize("version", [12, 17])
async def test_a_revoked_right_ends_a_fetch_session_s_reading_even_where_nothing_is_new(
    broker: SecuredBroker, version: int
) -> None:
    await broker.allow(READ_SEEN)
    topic = fetch.FetchTopic("seen", broker.topic_id("seen"), [fetch.FetchPartition(0, partition_max_bytes=100)])
    opened = await broker.alice.call(fetch.FetchRequest(topics=[topic], session_epoch=0), version)
    assert opened.session_id
    again = fetch.FetchRequest(session_id=opened.session_id, session_epoch=1)
    assert (await broker.alice.call(again, version)).responses == []
    await broker.revoke_all()
    again.session_epoch = 2
    assert errors_in(await broker.alice.call(again, version)) == {T29}


async def test_a_fetch_that_waits_reads_nothing_after_its_right_is_revoked(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN)
    topic = fetch.FetchTopic("seen", broker.topic_id("seen"), [fetch.FetchPartition(0, partition_max_bytes=100)])
    asked = fetch.FetchRequest(topics=[topic], max_wait_ms=60_000, min_bytes=1)
    waiting = asyncio.ensure_future(broker.alice.call(asked, 12))
    await asyncio.sleep(0)
    await broker.revoke_all()
    await broker.admin.call(produce_to(broker, "seen"), 12)
    answered = await asyncio.wait_for(waiting, 30)
    assert errors_in(answered) == {T29}
    assert not answered.responses[0].partitions[0].records


async def test_offsets_are_committed_for_topics_that_may_be_read(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN, rule(READ, GROUP, "g"))
    asked = offsets.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            offsets.OffsetCommitRequestTopic(name, partitions=[offsets.OffsetCommitRequestPartition(0, 7)])
            for name in ("seen", "hidden", "missing")
        ],
    )
    assert by_name((await broker.alice.call(asked, 9)).topics) == [
        ("hidden", [T29]),
        ("missing", [T29]),
        ("seen", [0]),
    ]
    await broker.admin.call(asked, 9)
    named = offsets.OffsetFetchRequestGroup(
        "g", topics=[offsets.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("seen", "hidden", "no")]
    )
    fetched_group = (await broker.alice.call(offsets.OffsetFetchRequest(groups=[named]), 9)).groups[0]
    assert [
        (one.name, one.partitions[0].error_code, one.partitions[0].committed_offset) for one in fetched_group.topics
    ] == [
        ("seen", 0, 7),
        ("hidden", T29, -1),
        ("no", T29, -1),
    ]
    everything = offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup("g", topics=None)])
    assert [one.name for one in (await broker.alice.call(everything, 9)).groups[0].topics] == ["seen"]
    old = offsets.OffsetFetchRequest("g", None)
    assert [one.name for one in (await broker.alice.call(old, 7)).topics] == ["seen"]


async def test_partitions_join_a_transaction_all_or_none(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TXN, "x"), rule(WRITE, TOPIC, "seen"))
    asked = transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name, [0]) for name in ("seen", "hidden", "missing")],
    )
    assert by_name((await broker.alice.call(asked, 3)).results_by_topic_v3_and_below) == [
        ("seen", [ErrorCode.OPERATION_NOT_ATTEMPTED]),
        ("hidden", [T29]),
        ("missing", [T29]),
    ]


async def test_a_two_phase_commit_needs_a_right_of_its_own(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TXN, "x"))
    asked = transactions.InitProducerIdRequest("x", 1000, enable2_pc=True)
    assert (await broker.alice.call(asked, 6)).error_code == X53
    await broker.allow(TWO_PHASE_X)
    assert (await broker.alice.call(asked, 6)).error_code == 0


async def test_a_transactional_id_needs_its_right_only_for_transactional_records(broker: SecuredBroker) -> None:
    await broker.allow(rule(WRITE, TOPIC, "hidden"))
    plain = produced(broker)
    plain.transactional_id = "x"
    assert errors_in(await broker.alice.call(plain, 12)) == set()
    assert errors_in(await broker.alice.call(produced_in_transaction(broker), 12)) == {X53}


async def test_lists_show_what_may_be_described(broker: SecuredBroker) -> None:
    for group in ("g-ok", "g-no"):
        committed_by_admin = committed(broker)
        committed_by_admin.group_id = group
        await broker.admin.call(committed_by_admin, 9)
    for name in ("tx-1", "tx-2"):
        assert (await broker.admin.call(transactions.InitProducerIdRequest(name, 1000), 4)).error_code == 0
    assert (await broker.alice.call(group_admin.ListGroupsRequest())).groups == []
    await broker.allow(rule(READ, GROUP, "g-ok"), rule(DESCRIBE, TXN, "tx-1"))
    assert [one.group_id for one in (await broker.alice.call(group_admin.ListGroupsRequest())).groups] == ["g-ok"]
    listed = await broker.alice.call(transaction_admin.ListTransactionsRequest())
    assert [one.transactional_id for one in listed.transaction_states] == ["tx-1"]
    described = await broker.alice.call(group_admin.DescribeGroupsRequest(["g-ok", "g-no"]))
    assert [(one.group_id, one.error_code) for one in described.groups] == [("g-no", G30), ("g-ok", 0)]
    await broker.allow(rule(DESCRIBE, CLUSTER))
    assert len((await broker.alice.call(group_admin.ListGroupsRequest())).groups) == 2


async def test_coordinators_are_shown_per_key(broker: SecuredBroker) -> None:
    await broker.allow(rule(READ, GROUP, "g-ok"), rule(WRITE, TXN, "tx-1"))
    found = await broker.alice.call(coordinators.FindCoordinatorRequest(key_type=0, coordinator_keys=["g-ok", "g-no"]))
    assert [(one.key, one.error_code) for one in found.coordinators] == [("g-ok", 0), ("g-no", G30)]
    found = await broker.alice.call(coordinators.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx-1", "no"]))
    assert [(one.key, one.error_code) for one in found.coordinators] == [("tx-1", 0), ("no", X53)]
    # librdkafka shows this text in place of the error's name.
    refused = await broker.alice.call(coordinators.FindCoordinatorRequest("g-no", 0), 3)
    assert (refused.error_code, refused.error_message) == (G30, "Group authorization failed.")


async def test_a_described_transaction_shows_partitions_of_topics_that_may_be_described(broker: SecuredBroker) -> None:
    begun = await broker.admin.call(transactions.InitProducerIdRequest("x", 60_000), 4)
    joined = transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name, [0]) for name in TOPICS],
    )
    assert errors_in(await broker.admin.call(joined, 3)) == set()
    await broker.allow(DESCRIBE_X, READ_SEEN)
    (found,) = (await broker.alice.call(transaction_admin.DescribeTransactionsRequest(["x"]))).transaction_states
    assert [topic.topic for topic in found.topics] == ["seen"]


async def test_configs_are_refused_by_the_kind_of_resource_in_words(broker: SecuredBroker) -> None:
    asked = configs.DescribeConfigsRequest(
        [configs.DescribeConfigsResource(kind, name, None) for kind, name in ((2, "hidden"), (2, "seen"), (4, "1"))]
    )
    found = (await broker.alice.call(asked)).results
    assert [(one.resource_name, one.error_code, one.error_message) for one in found] == [
        ("hidden", T29, "Topic authorization failed."),
        ("seen", T29, "Topic authorization failed."),
        ("1", C31, "Cluster authorization failed."),
    ]


async def test_topics_that_may_not_be_created_are_refused_before_their_names_are_checked(
    broker: SecuredBroker,
) -> None:
    asked = topic_messages.CreateTopicsRequest(
        [topic_messages.CreatableTopic(name, 1, -1) for name in ("new", "hidden", "bad/name", "twice", "twice")]
    )
    found = (await broker.alice.call(asked)).topics
    assert [(one.name, one.error_code, one.error_message) for one in found][-3:] == [
        (name, T29, "Authorization failed.") for name in ("new", "hidden", "bad/name")
    ]
    assert [(one.name, one.error_code) for one in found][:-3] == [("twice", ErrorCode.INVALID_REQUEST)]


async def test_configs_of_a_new_topic_need_the_right_to_describe_them(broker: SecuredBroker) -> None:
    await broker.allow(rule(CREATE, TOPIC, "new", pattern=AclPattern.PREFIXED))
    create = topic_messages.CreateTopicsRequest([topic_messages.CreatableTopic("new-1", 1, -1)])
    (created,) = (await broker.alice.call(create)).topics
    assert (created.error_code, created.topic_config_error_code, created.num_partitions) == (0, T29, -1)
    assert not created.configs
    await broker.allow(rule(DESCRIBE_CONFIGS, TOPIC, "new", pattern=AclPattern.PREFIXED))
    create.topics[0].name = "new-2"
    (created,) = (await broker.alice.call(create)).topics
    assert (created.error_code, created.topic_config_error_code, created.num_partitions) == (0, 0, 1)
    assert created.configs


async def test_topics_are_deleted_by_name_or_id_without_showing_hidden_names(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN)
    names = [topic_messages.DeleteTopicState(name) for name in ("hidden", "missing", "seen")]
    found = (await broker.alice.call(topic_messages.DeleteTopicsRequest(names))).responses
    assert {(one.name, one.error_code) for one in found} == {("hidden", T29), ("missing", T29), ("seen", T29)}
    ids = [broker.topic_id("seen"), broker.topic_id("hidden"), UNKNOWN_ID]
    asked = topic_messages.DeleteTopicsRequest([topic_messages.DeleteTopicState(None, one) for one in ids])
    found = (await broker.alice.call(asked)).responses
    assert {(one.name, one.topic_id, one.error_code) for one in found} == {
        (None, broker.topic_id("hidden"), T29),
        ("seen", broker.topic_id("seen"), T29),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    }
    await broker.allow(rule(DELETE, TOPIC, "seen"))
    found = (await broker.alice.call(asked)).responses
    assert (broker.topic_id("hidden"), T29) in {(one.topic_id, one.error_code) for one in found}
    assert [topic.name for topic in broker.services.topics.metadata.all() if not topic.is_internal] == ["hidden"]


async def test_pages_of_partitions_neither_show_nor_name_hidden_topics(broker: SecuredBroker) -> None:
    await broker.create_topics(["a-hidden", "b", "c-hidden", "d", "e-hidden"], partition_count=2)
    await broker.allow(rule(READ, TOPIC, "b"), rule(READ, TOPIC, "d"))
    shown, cursor = [], None
    while True:
        asked = clusters.DescribeTopicPartitionsRequest([], 2, cursor)
        page = await broker.alice.call(asked)
        shown += [(topic.name, len(topic.partitions), topic.error_code) for topic in page.topics]
        cursor = page.next_cursor
        if cursor is None:
            break
        assert "hidden" not in cursor.topic_name
    assert shown == [("b", 2, 0), ("d", 2, 0)]
    at_hidden = clusters.DescribeTopicPartitionsRequest([], 10, clusters.Cursor("c-hidden", 1))
    assert [topic.name for topic in (await broker.alice.call(at_hidden)).topics] == ["d"]
    named = [clusters.TopicRequest(name) for name in ("b", "c-hidden", "missing")]
    found = (await broker.alice.call(clusters.DescribeTopicPartitionsRequest(named))).topics
    assert [(topic.name, topic.error_code) for topic in found] == [("b", 0), ("c-hidden", T29), ("missing", T29)]


async def test_reads_of_partitions_refuse_hidden_and_missing_topics_alike(broker: SecuredBroker) -> None:
    await broker.allow(READ_SEEN)
    names = ("seen", "hidden", "missing")
    expected = [("seen", [0]), ("hidden", [T29]), ("missing", [T29])]
    listed = list_offsets.ListOffsetsRequest(
        -1,
        topics=[
            list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, timestamp=-1)]) for name in names
        ],
    )
    assert by_name((await broker.alice.call(listed)).topics) == expected
    described = producers.DescribeProducersRequest([producers.TopicRequest(name, [0]) for name in names])
    assert by_name((await broker.alice.call(described)).topics) == expected
    epochs = leader_epochs.OffsetForLeaderEpochRequest(
        -1, [leader_epochs.OffsetForLeaderTopic(name, [leader_epochs.OffsetForLeaderPartition(0)]) for name in names]
    )
    assert by_name((await broker.alice.call(epochs)).topics, "topic") == expected


@pytest.mark.parametrize("first", ["seen", "hidden"])
async def test_refused_items_are_answered_where_they_were_asked_for(broker: SecuredBroker, first: str) -> None:
    names = [first, *(name for name in ("seen", "hidden", "missing") if name != first)]
    await broker.allow(READ_SEEN, rule(READ, GROUP, "seen"), rule(WRITE, TXN, "seen"))
    described = producers.DescribeProducersRequest([producers.TopicRequest(name, [0]) for name in names])
    assert [topic.name for topic in (await broker.alice.call(described)).topics] == names
    for key_type in (0, 1):
        found = await broker.alice.call(coordinators.FindCoordinatorRequest("", key_type, names))
        assert [one.key for one in found.coordinators] == names
    transactions_described = await broker.alice.call(transaction_admin.DescribeTransactionsRequest(names))
    assert [one.transactional_id for one in transactions_described.transaction_states] == names
    groups = [offsets.OffsetFetchRequestGroup(name, topics=None) for name in names]
    fetched_groups = (await broker.alice.call(offsets.OffsetFetchRequest(groups=groups), 9)).groups
    assert [one.group_id for one in fetched_groups] == names


async def test_a_missing_group_is_named_before_topics_that_are_refused(broker: SecuredBroker) -> None:
    await broker.allow(OF_GROUP[DELETE])
    for name in ("OffsetDelete", "DeleteShareGroupOffsets"):
        answered = await broker.alice.call(CASES[name].request(broker))
        assert errors_in(answered) == {ErrorCode.GROUP_ID_NOT_FOUND}


async def test_a_refusal_for_want_of_a_right_on_the_cluster_says_which(broker: SecuredBroker) -> None:
    refused = await broker.alice.call(quorum.UnregisterBrokerRequest(99))
    assert refused.error_message == "Cluster authorization failed. alice needs ALTER on the cluster"
    elected = await broker.alice.call(CASES["ElectLeaders"].request(broker))
    assert elected.replica_election_results[0].partition_result[0].error_message == refused.error_message


async def test_a_follower_without_its_right_cannot_tell_an_unknown_id(broker: SecuredBroker) -> None:
    topic = fetch.FetchTopic("", UNKNOWN_ID, [fetch.FetchPartition(0, partition_max_bytes=100)])
    asked = fetch.FetchRequest(replica_id=1, replica_state=fetch.ReplicaState(replica_id=1), topics=[topic])
    assert errors_in(await broker.alice.call(asked)) == {T29}


@pytest.mark.parametrize("version", [5, 6])
async def test_a_missing_topic_is_named_as_missing_to_those_who_may_describe_it(
    broker: SecuredBroker, version: int
) -> None:
    await broker.allow(rule(DESCRIBE, TOPIC, "missing"), READ_SEEN)
    names = ["missing", "seen", "hidden"]
    asked = topic_messages.DeleteTopicsRequest([topic_messages.DeleteTopicState(name) for name in names], names)
    found = (await broker.alice.call(asked, version)).responses
    assert {one.name: one.error_code for one in found} == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "seen": T29,
        "hidden": T29,
    }


async def test_tokens_are_disabled_for_clients_that_have_authenticated(broker: SecuredBroker) -> None:
    own = await broker.alice.call(tokens.CreateDelegationTokenRequest())
    assert (own.error_code, own.principal_name) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "alice")
    for_bob = tokens.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    refused = await broker.alice.call(for_bob)
    assert (refused.error_code, refused.principal_name, refused.token_requester_principal_name) == (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "bob",
        "alice",
    )
    await broker.allow(rule(AclOperation.CREATE_TOKENS, AclResource.USER, "User:bob"))
    assert (await broker.alice.call(for_bob)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    for request in (
        tokens.RenewDelegationTokenRequest(b"x"),
        tokens.ExpireDelegationTokenRequest(b"x"),
        tokens.DescribeDelegationTokenRequest(),
    ):
        assert errors_in(await broker.alice.call(request)) == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}


async def test_a_token_for_another_owner_needs_a_right_and_so_does_its_sight(tmp_path: Path) -> None:
    async with secured_broker(tmp_path, delegation_token_secret_key=Password("key")) as broker:
        for_bob = tokens.CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="bob",
            renewers=[tokens.CreatableRenewers("User", "carol")],
        )
        refused = await broker.alice.call(for_bob)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        await broker.allow(rule(AclOperation.CREATE_TOKENS, AclResource.USER, "User:bob"))
        created = await broker.alice.call(for_bob)
        assert (created.error_code, created.principal_name) == (ErrorCode.NONE, "bob")
        assert created.token_requester_principal_name == "alice"
        for change in (
            tokens.RenewDelegationTokenRequest(created.hmac, -1),
            tokens.ExpireDelegationTokenRequest(created.hmac, -1),
        ):
            refused = await broker.alice.call(change)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

        async def seen(principal: str) -> list[str]:
            client = SecuredClient(broker.services, principal)
            reply = await client.call(tokens.DescribeDelegationTokenRequest(None))
            assert reply.error_code == ErrorCode.NONE
            return [token.token_id for token in reply.tokens]

        assert [len(await seen(f"User:{name}")) for name in ("bob", "carol", "admin", "alice")] == [1, 1, 1, 0]
        for right in (
            rule(DESCRIBE, AclResource.DELEGATION_TOKEN, created.token_id),
            rule(AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:bob"),
        ):
            await broker.revoke_all()
            assert await seen("User:alice") == []
            await broker.allow(right)
            assert await seen("User:alice") == [created.token_id]


async def test_members_subscribe_by_pattern_to_topics_that_they_may_see(broker: SecuredBroker) -> None:
    await broker.allow(rule(READ, GROUP, "g"), READ_SEEN)
    asked = consumer_groups.ConsumerGroupHeartbeatRequest(
        "g", "m", rebalance_timeout_ms=1000, subscribed_topic_regex=".*e.*", topic_partitions=[]
    )
    joined = await broker.alice.call(asked, 1)
    assert [one.topic_id for one in joined.assignment.topic_partitions] == [broker.topic_id("seen")]


async def test_a_group_with_a_hidden_topic_is_not_described(broker: SecuredBroker) -> None:
    asked = consumer_groups.ConsumerGroupHeartbeatRequest(
        "g", "m", rebalance_timeout_ms=1000, subscribed_topic_names=["seen", "hidden"], topic_partitions=[]
    )
    await broker.admin.call(asked, 1)
    await broker.allow(rule(DESCRIBE, GROUP, "g"), READ_SEEN)
    (found,) = (await broker.alice.call(consumer_groups.ConsumerGroupDescribeRequest(["g"]))).groups
    assert (found.group_id, found.error_code, found.members) == ("g", T29, [])
    await broker.allow(rule(DESCRIBE, TOPIC, "hidden"))
    (found,) = (await broker.alice.call(consumer_groups.ConsumerGroupDescribeRequest(["g"]))).groups
    assert (found.error_code, len(found.members)) == (0, 1)


async def test_streams_members_may_not_have_internal_topics_created_without_the_right(broker: SecuredBroker) -> None:
    await broker.allow(rule(READ, GROUP, "g"), READ_SEEN, rule(DESCRIBE, TOPIC, "g-store-changelog"))
    part = StreamsSubtopology(
        "0", source_topics=["seen"], state_changelog_topics=[StreamsTopicInfo("g-store-changelog")]
    )
    asked = streams_groups.StreamsGroupHeartbeatRequest(
        "g",
        "m",
        rebalance_timeout_ms=1000,
        topology=streams_groups.StreamsGroupHeartbeatTopology(1, [part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    joined = await broker.alice.call(asked)
    assert joined.error_code == 0
    assert any("Unauthorized to CREATE on topics g-store-changelog" in one.status_detail for one in joined.status)
    await broker.services.groups.streams.settled()
    assert broker.services.topics.metadata.get("g-store-changelog") is None


async def test_share_members_acquire_records_of_topics_that_they_may_read(broker: SecuredBroker) -> None:
    await broker.allow(rule(READ, GROUP, "g"), READ_SEEN)
    asked = share_fetch.ShareFetchRequest(
        group_id="g",
        member_id="m",
        max_records=10,
        topics=[
            share_fetch.ShareFetchTopic(topic_id, [share_fetch.ShareFetchPartition(0)])
            for topic_id in (broker.topic_id("seen"), broker.topic_id("hidden"), UNKNOWN_ID)
        ],
    )
    found = {one.topic_id: errors_in(one) for one in (await broker.alice.call(asked)).responses}
    assert found[broker.topic_id("hidden")] == {T29}
    assert found[UNKNOWN_ID] == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert T29 not in found.get(broker.topic_id("seen"), set())
