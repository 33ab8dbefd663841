"""What operators ask: DeleteRecords, directories, elections, reassignments, the quorum, ACLs, tokens, SASL, SCRAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from fencepost.protocol.messages.quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from fencepost.protocol.messages.streams_groups import StreamsGroupTopologyDescriptionUpdateRequest
from fencepost.protocol.schema import schema_of
from tests.differences.exchange import Exchange, batch

PREFERRED, UNCLEAN = 0, 1
ANY = 1
TOPIC, LITERAL, ALL_OPERATIONS, ALLOW = 2, 3, 2, 3
SCRAM_SHA_256 = 1


def run(exchange: Exchange) -> None:
    deleted_records(exchange)
    topic = exchange.create_topic("operated", partitions=2)
    directories(exchange, topic)
    leadership(exchange, topic)
    quorum(exchange)
    credentials(exchange)


def ask_all(exchange: Exchange, request_type: type[Any], situations: Mapping[str, Any]) -> None:
    """Every situation at every version."""
    for version in exchange.versions(request_type):
        for situation, request in situations.items():
            exchange.ask(f"{schema_of(request_type).name.removesuffix('Request')}: {situation}", request, version)


def deleted_records(exchange: Exchange) -> None:
    exchange.find_coordinator("any", 0)  # which creates the internal topic
    for version in exchange.versions(DeleteRecordsRequest):
        name = exchange.create_topic("shortened", partitions=2, version=version)
        exchange.fill(name, batch(3), batch(3), batch(3))

        def ask(situation: str, topic: str, *partitions: tuple[int, int], version: int = version) -> None:
            wanted = [DeleteRecordsPartition(partition, offset) for partition, offset in partitions]
            request = DeleteRecordsRequest([DeleteRecordsTopic(topic, wanted)], 5_000)
            exchange.ask(f"delete records: {situation}", request, version)

        ask("a few", name, (0, 2))
        ask("the same again", name, (0, 2))
        ask("fewer", name, (0, 1))
        ask("behind the end", name, (0, 10))
        ask("a negative offset", name, (0, -2))
        ask("up to the high watermark", name, (0, -1))
        ask("an empty partition", name, (1, -1))
        ask("an unknown partition", name, (7, 0))
        ask("a negative partition", name, (-1, 0))
        ask("an unknown topic", "nothing", (0, 0))
        ask("an empty name", "", (0, 0))
        ask("no partitions", name)
        ask("an internal topic", "__consumer_offsets", (0, 0))
        exchange.ask("delete records: no topics", DeleteRecordsRequest([], 5_000), version)


def directories(exchange: Exchange, topic: str) -> None:
    ask_all(
        exchange,
        DescribeLogDirsRequest,
        {
            "a partition": DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])]),
            "two partitions": DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0, 1])]),
            "an unknown partition": DescribeLogDirsRequest([DescribableLogDirTopic(topic, [9])]),
            "an unknown topic": DescribeLogDirsRequest([DescribableLogDirTopic("nothing", [0])]),
            "no topics": DescribeLogDirsRequest([]),
            "no partitions": DescribeLogDirsRequest([DescribableLogDirTopic(topic, [])]),
        },
    )
    ask_all(
        exchange,
        AlterReplicaLogDirsRequest,
        {
            "an unknown directory": AlterReplicaLogDirsRequest(
                [AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic(topic, [0])])]
            ),
            "a directory that is not absolute": AlterReplicaLogDirsRequest(
                [AlterReplicaLogDir("nowhere", [AlterReplicaLogDirTopic(topic, [0])])]
            ),
            "an unknown topic": AlterReplicaLogDirsRequest(
                [AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic("nothing", [0])])]
            ),
            "none": AlterReplicaLogDirsRequest([]),
        },
    )


def leadership(exchange: Exchange, topic: str) -> None:
    ask_all(
        exchange,
        ElectLeadersRequest,
        {
            "preferred": ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [0, 1])]),
            "unclean": ElectLeadersRequest(UNCLEAN, [TopicPartitions(topic, [0])]),
            "an unknown type": ElectLeadersRequest(7, [TopicPartitions(topic, [0])]),
            "an unknown partition": ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [9])]),
            "a negative partition": ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [-1])]),
            "an unknown topic": ElectLeadersRequest(PREFERRED, [TopicPartitions("nothing", [0])]),
            "nothing": ElectLeadersRequest(PREFERRED, []),
            "a topic without partitions": ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [])]),
        },
    )

    def to(*replicas: int, partition: int = 0, topic: str = topic) -> AlterPartitionReassignmentsRequest:
        wanted = [ReassignablePartition(partition, list(replicas))]
        return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, wanted)])

    ask_all(
        exchange,
        AlterPartitionReassignmentsRequest,
        {
            "to where it is": to(1),
            "to an unknown broker": to(9),
            "to nobody": to(),
            "to one broker twice": to(1, 1),
            "to a negative broker": to(-1),
            "an unknown partition": to(1, partition=9),
            "an unknown topic": to(1, topic="nothing"),
            "cancelled, never begun": AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(topic, [ReassignablePartition(0, None)])]
            ),
            "nothing": AlterPartitionReassignmentsRequest(),
        },
    )
    ask_all(
        exchange,
        ListPartitionReassignmentsRequest,
        {
            "all": ListPartitionReassignmentsRequest(),
            "of a topic": ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics(topic, [0])]),
            "of an unknown topic": ListPartitionReassignmentsRequest(
                topics=[ListPartitionReassignmentsTopics("nothing", [0])]
            ),
            "of nothing": ListPartitionReassignmentsRequest(topics=[]),
        },
    )


def quorum(exchange: Exchange) -> None:
    def about(topic: str, *partitions: int) -> DescribeQuorumRequest:
        wanted = [DescribeQuorumPartition(partition) for partition in partitions]
        return DescribeQuorumRequest([DescribeQuorumTopic(topic, wanted)])

    ask_all(
        exchange,
        DescribeQuorumRequest,
        {
            "another topic": about("nothing", 0),
            "another partition": about("__cluster_metadata", 3),
            "nothing": DescribeQuorumRequest([]),
        },
    )
    ask_all(
        exchange,
        UnregisterBrokerRequest,
        {"an unknown broker": UnregisterBrokerRequest(77), "a negative broker": UnregisterBrokerRequest(-1)},
    )
    ask_all(
        exchange,
        UnregisterControllerRequest,
        {
            "an unknown controller": UnregisterControllerRequest(77),
            "a negative controller": UnregisterControllerRequest(-1),
        },
    )
    ask_all(
        exchange,
        StreamsGroupTopologyDescriptionUpdateRequest,
        {
            "a description without a plugin": StreamsGroupTopologyDescriptionUpdateRequest("group", "member"),
            "a description of nothing": StreamsGroupTopologyDescriptionUpdateRequest(),
        },
    )


def credentials(exchange: Exchange) -> None:
    ask_all(
        exchange,
        DescribeAclsRequest,
        {
            "all": DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY),
            "unknown kinds": DescribeAclsRequest(0, None, 0, None, None, 0, 0),
        },
    )
    creation = AclCreation(TOPIC, "orders", LITERAL, "User:somebody", "*", ALL_OPERATIONS, ALLOW)
    ask_all(exchange, CreateAclsRequest, {"one": CreateAclsRequest([creation]), "none": CreateAclsRequest([])})
    deletion = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    ask_all(exchange, DeleteAclsRequest, {"all": DeleteAclsRequest([deletion]), "none": DeleteAclsRequest([])})
    ask_all(
        exchange,
        CreateDelegationTokenRequest,
        {
            "one": CreateDelegationTokenRequest(),
            "an owner without a type": CreateDelegationTokenRequest(None, "bob"),
        },
    )
    ask_all(exchange, RenewDelegationTokenRequest, {"one": RenewDelegationTokenRequest(b"token", 1_000)})
    ask_all(exchange, ExpireDelegationTokenRequest, {"one": ExpireDelegationTokenRequest(b"token", -1)})
    ask_all(
        exchange,
        DescribeDelegationTokenRequest,
        {"all": DescribeDelegationTokenRequest(None), "none": DescribeDelegationTokenRequest([])},
    )
    ask_all(
        exchange,
        SaslHandshakeRequest,
        {"a mechanism": SaslHandshakeRequest("PLAIN"), "no mechanism": SaslHandshakeRequest("")},
    )
    ask_all(exchange, SaslAuthenticateRequest, {"a password": SaslAuthenticateRequest(b"\0user\0password")})
    ask_all(
        exchange,
        AlterUserScramCredentialsRequest,
        {
            "an unknown user": AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", SCRAM_SHA_256)]),
            "an unknown mechanism": AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", 9)]),
            "too few iterations": AlterUserScramCredentialsRequest(
                [], [ScramCredentialUpsertion("somebody", SCRAM_SHA_256, 1, b"salt", b"password")]
            ),
            "an empty name": AlterUserScramCredentialsRequest(
                [], [ScramCredentialUpsertion("", SCRAM_SHA_256, 4_096, b"salt", b"password")]
            ),
            "nothing": AlterUserScramCredentialsRequest(),
        },
    )
    ask_all(
        exchange,
        DescribeUserScramCredentialsRequest,
        {
            "an unknown user": DescribeUserScramCredentialsRequest([UserName("nobody")]),
            "a user twice": DescribeUserScramCredentialsRequest([UserName("nobody"), UserName("nobody")]),
            "an empty name": DescribeUserScramCredentialsRequest([UserName("")]),
        },
    )
