"""A request of every API that needs rights, about any things: what is asked under every set of rules.

A request leaves things as they are where it can: members are unknown, producers are nobody's, changes are only
validated. What cannot be had otherwise comes last, under CHANGING.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    acls,
    alter_configs,
    client_quotas,
    cluster,
    configs,
    consumer_groups,
    coordinators,
    delete_records,
    features,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    leader_epochs,
    list_offsets,
    log_dirs,
    markers,
    metadata,
    produce,
    producers,
    quorum,
    reassignments,
    scram_credentials,
    share_fetch,
    share_groups,
    share_offsets,
    streams_groups,
    topics,
    transaction_admin,
    transactions,
)
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.streams_topology import StreamsSubtopology
from tests.differences.exchange import Exchange, batch

NO_SUCH_BROKER: Final = 99
NOBODY: Final = 987_654
"""A producer id that was never handed out."""
MEMBER: Final = "no-such-member"
SMALL_BYTES: Final = 100_000
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


class Things(NamedTuple):
    """What a request names; APIs that name one group or one transactional id name the first.

    topics: name and id.
    """

    topics: list[tuple[str, bytes]]
    groups: list[str]
    transactional_ids: list[str]

    @property
    def group(self) -> str:
        return self.groups[0]

    @property
    def transactional_id(self) -> str:
        return self.transactional_ids[0]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.topics]


class Question(NamedTuple):
    """One request of an API.

    request:  made from things.
    versions: the first and the last in which it is meant.
    lists:    names in the reply that other runs have left on the broker: the list's field, and that of the name.
    sorts:    what Kafka gives in the order of a hash table, in the same way.
    retry:    errors that Kafka gives until it has done what it was asked for.
    """

    request: Callable[[Things], Any]
    versions: tuple[int, int] = (0, 99)
    lists: tuple[str, str] | None = None
    sorts: tuple[str, str] | None = None
    retry: tuple[ErrorCode, ...] = ()

    def comparable(self, exchange: Exchange) -> Callable[[Any], None]:
        """Takes out of a reply what depends on the run."""

        def settle(reply: Any) -> None:
            if self.lists is not None:
                listed, name = self.lists
                setattr(reply, listed, [one for one in getattr(reply, listed) if exchange.is_ours(getattr(one, name))])
            if self.sorts is not None:
                sorted_, name = self.sorts
                getattr(reply, sorted_).sort(key=attrgetter(name))

        return settle


def _produced(things: Things, *, transactional: bool = False) -> Any:
    records = memoryview(
        batch(1, producer_id=NOBODY, epoch=0, sequence=0, transactional=True) if transactional else batch(1)
    )
    return produce.ProduceRequest(
        transactional_id=things.transactional_id if transactional else None,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            produce.TopicProduceData(name, topic_id, [produce.PartitionProduceData(0, records)])
            for name, topic_id in things.topics
        ],
    )


def _fetched(things: Things, replica_id: int = -1) -> Any:
    return fetch.FetchRequest(
        replica_id=replica_id,
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_bytes=SMALL_BYTES,
        topics=[
            fetch.FetchTopic(name, topic_id, [fetch.FetchPartition(0, partition_max_bytes=SMALL_BYTES)])
            for name, topic_id in things.topics
        ],
    )


def _committed(things: Things) -> Any:
    return group_offsets.OffsetCommitRequest(
        group_id=things.group,
        generation_id_or_member_epoch=-1,
        topics=[
            group_offsets.OffsetCommitRequestTopic(name, topic_id, [group_offsets.OffsetCommitRequestPartition(0, 5)])
            for name, topic_id in things.topics
        ],
    )


def _fetched_offsets(things: Things) -> Any:
    return group_offsets.OffsetFetchRequest(
        things.group,
        [group_offsets.OffsetFetchRequestTopic(name, [0]) for name in things.names],
        groups=[
            group_offsets.OffsetFetchRequestGroup(
                group,
                topics=[
                    group_offsets.OffsetFetchRequestTopics(name, topic_id, [0]) for name, topic_id in things.topics
                ],
            )
            for group in things.groups
        ],
    )


def _all_fetched_offsets(things: Things) -> Any:
    groups = [group_offsets.OffsetFetchRequestGroup(group, topics=None) for group in things.groups]
    return group_offsets.OffsetFetchRequest(things.group, None, groups=groups)


def _share_topics(topic: Any, partition: Any) -> Callable[[Things], list[Any]]:
    return lambda things: [topic(topic_id, [partition(0)]) for _, topic_id in things.topics]


def _described_configs(*kinds: int) -> Callable[[Things], Any]:
    """Of configs as few as there can be: what is compared is whether they are shown."""

    def request(things: Things) -> Any:
        names = {
            TOPIC: (things.names, ["retention.ms"]),
            GROUP: (things.groups, ["consumer.session.timeout.ms"]),
            BROKER: (["1"], ["log.cleaner.backoff.ms"]),
            LOGGER: (["1"], ["no.such.logger"]),
            CLIENT_METRICS: (things.groups, ["interval.ms"]),
        }
        return configs.DescribeConfigsRequest(
            [
                configs.DescribeConfigsResource(kind, name, names[kind][1])
                for kind in kinds
                for name in dict.fromkeys(names[kind][0])
            ]
        )

    return request


_CHANGED: Final = {
    TOPIC: ("retention.ms", "86400000"),
    GROUP: ("consumer.session.timeout.ms", "50000"),
    BROKER: ("log.cleaner.backoff.ms", "15000"),
}


def _altered_configs(kind: int) -> Callable[[Things], Any]:
    key, value = _CHANGED[kind]

    def request(things: Things) -> Any:
        changed = [
            alter_configs.IncrementalAlterConfigsResource(
                kind, name, [alter_configs.IncrementalAlterableConfig(key, 0, value)]
            )
            for name in _configured(kind, things)
        ]
        return alter_configs.IncrementalAlterConfigsRequest(changed, validate_only=True)

    return request


def _replaced_configs(kind: int) -> Callable[[Things], Any]:
    key, value = _CHANGED[kind]

    def request(things: Things) -> Any:
        changed = [
            alter_configs.AlterConfigsResource(kind, name, [alter_configs.AlterableConfig(key, value)])
            for name in _configured(kind, things)
        ]
        return alter_configs.AlterConfigsRequest(changed, validate_only=True)

    return request


def _configured(kind: int, things: Things) -> list[str]:
    names = {TOPIC: things.names, GROUP: things.groups, BROKER: ["1"]}
    return list(dict.fromkeys(names[kind]))


def _metadata(things: Things) -> Any:
    return metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name) for name in things.names],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def _offsets_in_transaction(things: Things) -> Any:
    return group_offsets.TxnOffsetCommitRequest(
        things.transactional_id,
        things.group,
        NOBODY,
        0,
        topics=[
            group_offsets.TxnOffsetCommitRequestTopic(
                name, topic_id, [group_offsets.TxnOffsetCommitRequestPartition(0, 3)]
            )
            for name, topic_id in things.topics
        ],
    )


def _heartbeat(kind: Any, **fields: Any) -> Callable[[Things], Any]:
    """Of a member that is not there, so that nobody joins."""
    return lambda things: kind(
        group_id=things.group,
        member_id=MEMBER,
        member_epoch=5,
        subscribed_topic_names=things.names,
        **fields,
    )


def _streams_heartbeat(things: Things) -> Any:
    topology = streams_groups.StreamsGroupHeartbeatTopology(1, [StreamsSubtopology("0", source_topics=things.names)])
    return streams_groups.StreamsGroupHeartbeatRequest(things.group, MEMBER, 0, topology=topology)


def _topics_of(request: Any, topic: Any) -> Callable[[Things], Any]:
    return lambda things: request([topic(name) for name in things.names])


def _share_offsets_described(things: Things) -> Any:
    return share_offsets.DescribeShareGroupOffsetsRequest(
        [
            share_offsets.DescribeShareGroupOffsetsRequestGroup(
                group, [share_offsets.DescribeShareGroupOffsetsRequestTopic(name, [0]) for name in things.names]
            )
            for group in things.groups
        ]
    )


def _share_offsets_altered(things: Things) -> Any:
    return share_offsets.AlterShareGroupOffsetsRequest(
        things.group,
        [
            share_offsets.AlterShareGroupOffsetsRequestTopic(
                name, [share_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)]
            )
            for name in things.names
        ],
    )


def _added_partitions(things: Things) -> Any:
    added = [transactions.AddPartitionsToTxnTopic(name, [0]) for name in things.names]
    return transactions.AddPartitionsToTxnRequest(
        [transactions.AddPartitionsToTxnTransaction(things.transactional_id, NOBODY, 0, topics=added)],
        v3_and_below_transactional_id=things.transactional_id,
        v3_and_below_producer_id=NOBODY,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=added,
    )


QUESTIONS: Final[dict[str, Question]] = {
    "Metadata": Question(_metadata, (4, 99)),
    "Metadata of all": Question(lambda things: metadata.MetadataRequest(None), (1, 99), ("topics", "name")),
    "Metadata by id": Question(
        lambda things: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(topic_id, None) for _, topic_id in things.topics],
            allow_auto_topic_creation=False,
        ),
        (12, 99),
    ),
    "DescribeCluster": Question(
        lambda things: cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    ),
    "DescribeTopicPartitions": Question(
        _topics_of(cluster.DescribeTopicPartitionsRequest, cluster.TopicRequest), sorts=("topics", "name")
    ),
    "DescribeTopicPartitions of all": Question(
        lambda things: cluster.DescribeTopicPartitionsRequest([]), lists=("topics", "name")
    ),
    "Produce": Question(_produced, (3, 99)),
    "Produce in a transaction": Question(lambda things: _produced(things, transactional=True), (3, 11)),
    "Fetch": Question(_fetched, (4, 99)),
    "Fetch of a follower": Question(lambda things: _fetched(things, replica_id=1), (4, 99)),
    "ListOffsets": Question(
        lambda things: list_offsets.ListOffsetsRequest(
            -1,
            topics=[
                list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, timestamp=-2)])
                for name in things.names
            ],
        )
    ),
    "OffsetForLeaderEpoch": Question(
        lambda things: leader_epochs.OffsetForLeaderEpochRequest(
            -1,
            [
                leader_epochs.OffsetForLeaderTopic(name, [leader_epochs.OffsetForLeaderPartition(0, -1, 0)])
                for name in things.names
            ],
        )
    ),
    "DescribeProducers": Question(
        lambda things: producers.DescribeProducersRequest([producers.TopicRequest(name, [0]) for name in things.names])
    ),
    "DeleteRecords": Question(
        lambda things: delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
                for name in things.names
            ],
            5_000,
        )
    ),
    "OffsetCommit": Question(_committed),
    "OffsetFetch": Question(_fetched_offsets),
    "OffsetFetch of all": Question(_all_fetched_offsets, (2, 99)),
    "FindCoordinator of a group": Question(
        lambda things: coordinators.FindCoordinatorRequest(things.group, 0, things.groups)
    ),
    "FindCoordinator of a transaction": Question(
        lambda things: coordinators.FindCoordinatorRequest(things.transactional_id, 1, things.transactional_ids),
        (1, 99),
    ),
    "FindCoordinator of a share partition": Question(
        lambda things: coordinators.FindCoordinatorRequest("", 2, [f"{things.group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]),
        (6, 99),
    ),
    "JoinGroup": Question(
        lambda things: group_membership.JoinGroupRequest(
            things.group,
            10_000,
            10_000,
            MEMBER,
            protocol_type="consumer",
            protocols=[group_membership.JoinGroupRequestProtocol("range", b"")],
        )
    ),
    "SyncGroup": Question(lambda things: group_membership.SyncGroupRequest(things.group, 1, MEMBER)),
    "Heartbeat": Question(lambda things: group_membership.HeartbeatRequest(things.group, 1, MEMBER)),
    "LeaveGroup": Question(
        lambda things: group_membership.LeaveGroupRequest(
            things.group, MEMBER, [group_membership.MemberIdentity(MEMBER)]
        )
    ),
    "DescribeGroups": Question(
        lambda things: group_admin.DescribeGroupsRequest(things.groups, include_authorized_operations=True)
    ),
    "ListGroups": Question(lambda things: group_admin.ListGroupsRequest()),
    "ConsumerGroupHeartbeat": Question(
        _heartbeat(consumer_groups.ConsumerGroupHeartbeatRequest, rebalance_timeout_ms=10_000, topic_partitions=[])
    ),
    "ConsumerGroupDescribe": Question(
        lambda things: consumer_groups.ConsumerGroupDescribeRequest(things.groups, include_authorized_operations=True)
    ),
    "ShareGroupHeartbeat": Question(_heartbeat(share_groups.ShareGroupHeartbeatRequest)),
    "ShareGroupDescribe": Question(
        lambda things: share_groups.ShareGroupDescribeRequest(things.groups, include_authorized_operations=True)
    ),
    "StreamsGroupHeartbeat": Question(_streams_heartbeat),
    "StreamsGroupDescribe": Question(
        lambda things: streams_groups.StreamsGroupDescribeRequest(things.groups, include_authorized_operations=True)
    ),
    "ShareFetch": Question(
        lambda things: share_fetch.ShareFetchRequest(
            group_id=things.group,
            member_id="AAAAAAAAAAAAAAAAAAAAAg",
            share_session_epoch=7,
            max_records=5,
            topics=_share_topics(share_fetch.ShareFetchTopic, share_fetch.ShareFetchPartition)(things),
        )
    ),
    "ShareAcknowledge": Question(
        lambda things: share_fetch.ShareAcknowledgeRequest(
            group_id=things.group,
            member_id="AAAAAAAAAAAAAAAAAAAAAg",
            share_session_epoch=7,
            topics=_share_topics(share_fetch.ShareAcknowledgeTopic, share_fetch.ShareAcknowledgePartition)(things),
        )
    ),
    "DescribeShareGroupOffsets": Question(_share_offsets_described),
    "AlterShareGroupOffsets": Question(_share_offsets_altered),
    "DeleteShareGroupOffsets": Question(
        lambda things: share_offsets.DeleteShareGroupOffsetsRequest(
            things.group, [share_offsets.DeleteShareGroupOffsetsRequestTopic(name) for name in things.names]
        )
    ),
    "InitProducerId": Question(
        lambda things: transactions.InitProducerIdRequest(things.transactional_id, 60_000, NOBODY, 0), (3, 99)
    ),
    "InitProducerId for two phases": Question(
        lambda things: transactions.InitProducerIdRequest(things.transactional_id, 60_000, NOBODY, 0, enable2_pc=True),
        (6, 99),
    ),
    "InitProducerId without an id": Question(lambda things: transactions.InitProducerIdRequest(None, 60_000)),
    "AddPartitionsToTxn": Question(_added_partitions, (0, 3)),
    "AddPartitionsToTxn of a broker": Question(_added_partitions, (4, 99)),
    "AddOffsetsToTxn": Question(
        lambda things: transactions.AddOffsetsToTxnRequest(things.transactional_id, NOBODY, 0, things.group)
    ),
    "TxnOffsetCommit": Question(_offsets_in_transaction),
    "EndTxn": Question(lambda things: transactions.EndTxnRequest(things.transactional_id, NOBODY, 0, committed=True)),
    "WriteTxnMarkers": Question(
        lambda things: markers.WriteTxnMarkersRequest(
            [markers.WritableTxnMarker(NOBODY, 0, topics=[markers.WritableTxnMarkerTopic("no-such-topic", [0])])]
        )
    ),
    "DescribeTransactions": Question(
        lambda things: transaction_admin.DescribeTransactionsRequest(things.transactional_ids)
    ),
    "ListTransactions": Question(
        lambda things: transaction_admin.ListTransactionsRequest(),
        lists=("transaction_states", "transactional_id"),
    ),
    "DescribeConfigs of topics": Question(_described_configs(TOPIC)),
    "DescribeConfigs of groups": Question(_described_configs(GROUP)),
    "DescribeConfigs of brokers and loggers": Question(_described_configs(BROKER, LOGGER)),
    "DescribeConfigs of all kinds": Question(_described_configs(TOPIC, BROKER, GROUP)),
    "IncrementalAlterConfigs of topics": Question(_altered_configs(TOPIC)),
    "IncrementalAlterConfigs of groups": Question(_altered_configs(GROUP)),
    "IncrementalAlterConfigs of a broker": Question(_altered_configs(BROKER)),
    "AlterConfigs of topics": Question(_replaced_configs(TOPIC)),
    "AlterConfigs of groups": Question(_replaced_configs(GROUP)),
    "ListConfigResources of topics": Question(
        lambda things: alter_configs.ListConfigResourcesRequest([TOPIC]), (1, 99), ("config_resources", "resource_name")
    ),
    "CreateTopics, only validated": Question(
        lambda things: topics.CreateTopicsRequest(
            [topics.CreatableTopic(name, 1, 1) for name in [*things.names, "bad/name"]], 5_000, validate_only=True
        ),
        (2, 6),  # later ones give only validated topics an id, in Kafka
    ),
    "CreatePartitions, only validated": Question(
        lambda things: topics.CreatePartitionsRequest(
            [topics.CreatePartitionsTopic(name, 3, None) for name in things.names], 5_000, validate_only=True
        )
    ),
    "DescribeClientQuotas": Question(
        lambda things: client_quotas.DescribeClientQuotasRequest(
            [client_quotas.ComponentData("user", 0, "no-such-user")]
        )
    ),
    "AlterClientQuotas, only validated": Question(
        lambda things: client_quotas.AlterClientQuotasRequest(
            [
                client_quotas.AlterEntryData(
                    [client_quotas.EntityData("user", "x")], [client_quotas.OpData("producer_byte_rate", 1.0)]
                )
            ],
            validate_only=True,
        )
    ),
    "DescribeUserScramCredentials": Question(
        lambda things: scram_credentials.DescribeUserScramCredentialsRequest([scram_credentials.UserName("nobody")])
    ),
    "AlterUserScramCredentials": Question(
        lambda things: scram_credentials.AlterUserScramCredentialsRequest(
            [scram_credentials.ScramCredentialDeletion("nobody", 1)]
        )
    ),
    "DescribeAcls": Question(lambda things: acls.DescribeAclsRequest(2, things.names[0], 3, "User:nobody", None, 1, 1)),
    "CreateAcls of nonsense": Question(
        lambda things: acls.CreateAclsRequest([acls.AclCreation(4, "not-the-cluster", 3, "User:nobody", "*", 3, 3)])
    ),
    "DeleteAcls": Question(
        lambda things: acls.DeleteAclsRequest([acls.DeleteAclsFilter(2, things.names[0], 3, "User:nobody", None, 1, 1)])
    ),
    "DescribeLogDirs": Question(
        lambda things: log_dirs.DescribeLogDirsRequest(
            [log_dirs.DescribableLogDirTopic(name, [0]) for name in things.names]
        )
    ),
    "AlterReplicaLogDirs": Question(
        lambda things: log_dirs.AlterReplicaLogDirsRequest(
            [
                log_dirs.AlterReplicaLogDir(
                    "/no-such-folder", [log_dirs.AlterReplicaLogDirTopic(name, [0]) for name in things.names]
                )
            ]
        )
    ),
    "DescribeQuorum": Question(
        lambda things: quorum.DescribeQuorumRequest(
            [quorum.DescribeQuorumTopic("no-such-topic", [quorum.DescribeQuorumPartition(0)])]
        )
    ),
    "UnregisterBroker": Question(lambda things: quorum.UnregisterBrokerRequest(NO_SUCH_BROKER)),
    "UpdateFeatures": Question(
        lambda things: features.UpdateFeaturesRequest(
            5_000, [features.FeatureUpdateKey("no.such.feature", 1)], validate_only=True
        )
    ),
    "ElectLeaders": Question(
        lambda things: reassignments.ElectLeadersRequest(
            0, [reassignments.TopicPartitions(name, [0]) for name in things.names], 5_000
        )
    ),
    "AlterPartitionReassignments": Question(
        lambda things: reassignments.AlterPartitionReassignmentsRequest(
            5_000,
            topics=[
                reassignments.ReassignableTopic(name, [reassignments.ReassignablePartition(0, None)])
                for name in things.names
            ],
        )
    ),
    "ListPartitionReassignments": Question(lambda things: reassignments.ListPartitionReassignmentsRequest()),
    "CreateDelegationToken": Question(lambda things: CreateDelegationTokenRequest()),
    "CreateDelegationToken for another": Question(
        lambda things: CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob"), (3, 99)
    ),
    "RenewDelegationToken": Question(lambda things: RenewDelegationTokenRequest(b"token")),
    "ExpireDelegationToken": Question(lambda things: ExpireDelegationTokenRequest(b"token")),
    "DescribeDelegationToken": Question(lambda things: DescribeDelegationTokenRequest()),
}
"""They leave what they name as it is, but for records, and offsets of 5."""

CHANGING: Final[dict[str, Question]] = {
    "Metadata that creates": Question(
        lambda things: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=f"{name}.auto") for name in things.names],
            allow_auto_topic_creation=True,
        ),
        (4, 99),
        retry=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
    ),
    "OffsetDelete": Question(
        lambda things: group_offsets.OffsetDeleteRequest(
            things.group,
            [
                group_offsets.OffsetDeleteRequestTopic(name, [group_offsets.OffsetDeleteRequestPartition(0)])
                for name in things.names
            ],
        )
    ),
    "CreateTopics": Question(
        lambda things: topics.CreateTopicsRequest(
            [topics.CreatableTopic(f"{name}.more", 1, 1) for name in things.names], 5_000
        ),
        (5, 99),
    ),
    "DeleteGroups": Question(lambda things: group_admin.DeleteGroupsRequest(things.groups)),
    "DeleteTopics by id": Question(
        lambda things: topics.DeleteTopicsRequest(
            [topics.DeleteTopicState(None, topic_id) for _, topic_id in things.topics], timeout_ms=5_000
        ),
        (6, 99),
    ),
    "DeleteTopics": Question(
        lambda things: topics.DeleteTopicsRequest(
            [topics.DeleteTopicState(name) for name in things.names], things.names, 5_000
        )
    ),
}
"""They change or remove what they name; in this order."""
