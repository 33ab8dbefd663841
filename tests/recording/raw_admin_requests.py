"""Scenarios for what administrators change and look at, beside topics: configs, records, log directories, leaders,
features, access and quotas; see raw_requests.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol import admin

from fencepost.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.messages.quorum import (
    AddRaftVoterRequest,
    Listener,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.recording.raw_session import Session

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
EXACT, DEFAULT, ANY = 0, 1, 2
UPGRADE, SAFE_DOWNGRADE = 1, 2
METADATA_TOPIC = "__cluster_metadata"


def alter_configs(session: Session, version: int) -> None:
    for name, config, value in (
        (session.topic, "retention.ms", "600000"),
        (session.topic, "retention.ms", "soon"),
        (session.topic, "retention.ms", None),
        ("nowhere", "retention.ms", "1"),
        (session.topic, None, None),
    ):
        configs = [] if config is None else [{"name": config, "value": value}]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        session.send(admin.AlterConfigsRequest, version, resources=[resource], validate_only=False)


def incremental_alter_configs(session: Session, version: int) -> None:
    def send(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> None:
        configs = [
            {"name": config, "config_operation": operation, "value": value} for config, operation, value in changes
        ]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
        session.send(admin.IncrementalAlterConfigsRequest, version, resources=[resource], validate_only=False)

    send(TOPIC, session.topic, ("cleanup.policy", APPEND, "compact"), ("flush.ms", SET, "1000"))
    send(TOPIC, session.topic, ("cleanup.policy", SUBTRACT, "compact"), ("flush.ms", DELETE, None))
    send(TOPIC, session.topic, ("flush.ms", SET, "1"), ("flush.ms", SET, "2"))
    send(TOPIC, "nowhere", ("flush.ms", SET, "1"))
    send(BROKER, "1", ("message.max.bytes", SET, "1048588"))
    send(BROKER, "1", ("message.max.bytes", DELETE, None))
    send(BROKER, "1", ("num.partitions", SET, "2"))
    send(BROKER, "99", ("message.max.bytes", SET, "1"))


def list_config_resources(session: Session, version: int) -> None:
    for resource_types in ([], [TOPIC], [BROKER, TOPIC], [GROUP], [99]):
        session.send(admin.ListConfigResourcesRequest, version, resource_types=resource_types)


def delete_records(session: Session, version: int) -> None:
    for name, partition, offset in ((session.topic, 0, 1), (session.topic, 0, 10**9), ("nowhere", 0, -1)):
        topics = [{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}]
        session.send(admin.DeleteRecordsRequest, version, topics=topics, timeout_ms=5000)


def describe_log_dirs(session: Session, version: int) -> None:
    session.send(admin.DescribeLogDirsRequest, version, topics=[{"topic": session.topic, "partitions": [0, 1, 9]}])
    session.send(admin.DescribeLogDirsRequest, version, topics=[])


def alter_replica_log_dirs(session: Session, version: int) -> None:
    moved = [{"name": session.topic, "partitions": [0, 1]}]
    session.send(admin.AlterReplicaLogDirsRequest, version, dirs=[{"path": "/nowhere", "topics": moved}])


def elect_leaders(session: Session, version: int) -> None:
    named = [{"topic": session.topic, "partitions": [0, 9]}, {"topic": "nowhere", "partitions": [0]}]
    for partitions in (named, None, []):
        session.send(admin.ElectLeadersRequest, version, election_type=0, topic_partitions=partitions, timeout_ms=5000)


def alter_partition_reassignments(session: Session, version: int) -> None:
    for partition, replicas in ((0, [1]), (0, [2]), (0, [1, 1]), (0, []), (0, None), (9, [1])):
        session.send(
            admin.AlterPartitionReassignmentsRequest,
            version,
            timeout_ms=5000,
            allow_replication_factor_change=True,
            topics=[{"name": session.topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}],
        )


def list_partition_reassignments(session: Session, version: int) -> None:
    for topics in (None, [{"name": session.topic, "partition_indexes": [0]}]):
        session.send(admin.ListPartitionReassignmentsRequest, version, timeout_ms=5000, topics=topics)


def describe_quorum(session: Session, version: int) -> None:
    for name in (METADATA_TOPIC, session.topic):
        topics = [{"topic_name": name, "partitions": [{"partition_index": 0}]}]
        session.send(admin.DescribeQuorumRequest, version, topics=topics)


def update_features(session: Session, version: int) -> None:
    for feature, level, upgrade_type in (
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 1, SAFE_DOWNGRADE),
        ("transaction.version", 2, UPGRADE),
        ("nothing", 1, UPGRADE),
    ):
        update = {
            "feature": feature,
            "max_version_level": level,
            "allow_downgrade": upgrade_type == SAFE_DOWNGRADE,
            "upgrade_type": upgrade_type,
        }
        session.send(
            admin.UpdateFeaturesRequest, version, timeout_ms=5000, validate_only=False, feature_updates=[update]
        )


def describe_acls(session: Session, version: int) -> None:
    anything: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    session.send(admin.DescribeAclsRequest, version, **anything)


def create_acls(session: Session, version: int) -> None:
    acl = {
        "resource_type": 2,
        "resource_name": session.topic,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    session.send(admin.CreateAclsRequest, version, creations=[acl])


def delete_acls(session: Session, version: int) -> None:
    acls = {
        "resource_type_filter": 2,
        "resource_name_filter": session.topic,
        "pattern_type_filter": 3,
        "principal_filter": "User:alice",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }
    session.send(admin.DeleteAclsRequest, version, filters=[acls])


def alter_user_scram_credentials(session: Session, version: int) -> None:
    credential = {"name": "alice", "mechanism": SCRAM_SHA_256, "iterations": 4096, "salt": b"salt"}
    credential["salted_password"] = b"p" * 32
    for deletions, upsertions in (
        ([], [credential]),
        ([], [credential | {"iterations": 10}]),
        ([{"name": "bob", "mechanism": SCRAM_SHA_512}], [credential, credential]),
    ):
        session.send(admin.AlterUserScramCredentialsRequest, version, deletions=deletions, upsertions=upsertions)


def describe_user_scram_credentials(session: Session, version: int) -> None:
    for users in (None, [{"name": "alice"}, {"name": "bob"}]):
        session.send(admin.DescribeUserScramCredentialsRequest, version, users=users)


def alter_client_quotas(session: Session, version: int) -> None:
    for entity, key, value in (
        ([("user", "alice"), ("client-id", None)], "producer_byte_rate", 1e9),
        ([("client-id", "quoted")], "request_percentage", 200.5),
        ([("user", "alice")], "consumer_byte_rate", -1.0),
        ([("planet", "mars")], "consumer_byte_rate", 1.0),
    ):
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": value, "remove": False}],
        }
        session.send(admin.AlterClientQuotasRequest, version, entries=[entry], validate_only=False)


def describe_client_quotas(session: Session, version: int) -> None:
    for kind, match_type, match in (("user", EXACT, "alice"), ("client-id", ANY, None), ("planet", DEFAULT, None)):
        components = [{"entity_type": kind, "match_type": match_type, "match": match}]
        session.send(admin.DescribeClientQuotasRequest, version, components=components, strict=False)


def unregister_broker(session: Session, version: int) -> None:
    for broker_id in (99, -1):
        session.send_own(UnregisterBrokerRequest(broker_id=broker_id), version)


def unregister_controller(session: Session, version: int) -> None:
    for controller_id in (99, -1):
        session.send_own(UnregisterControllerRequest(controller_id=controller_id), version)


def add_raft_voter(session: Session, version: int) -> None:
    listeners = [Listener(name="CONTROLLER", host="127.0.0.1", port=9093)]
    for cluster_id in (None, "elsewhere"):
        request = AddRaftVoterRequest(
            cluster_id=cluster_id, timeout_ms=5000, voter_id=2, voter_directory_id=b"v" * 16, listeners=listeners
        )
        session.send_own(request, version)


def remove_raft_voter(session: Session, version: int) -> None:
    for cluster_id in (None, "elsewhere"):
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=2, voter_directory_id=b"v" * 16)
        session.send_own(request, version)


def create_delegation_token(session: Session, version: int) -> None:
    renewers = [CreatableRenewers(principal_type="User", principal_name="alice")]
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=renewers, max_lifetime_ms=-1
    )
    session.send_own(request, version)


def renew_delegation_token(session: Session, version: int) -> None:
    session.send_own(RenewDelegationTokenRequest(hmac=b"hmac", renew_period_ms=-1), version)


def expire_delegation_token(session: Session, version: int) -> None:
    session.send_own(ExpireDelegationTokenRequest(hmac=b"hmac", expiry_time_period_ms=-1), version)


def describe_delegation_token(session: Session, version: int) -> None:
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")
    for owners in (None, [owner]):
        session.send_own(DescribeDelegationTokenRequest(owners=owners), version)


def sasl_handshake(session: Session, version: int) -> None:
    session.send_own(SaslHandshakeRequest(mechanism="PLAIN"), version)


def sasl_authenticate(session: Session, version: int) -> None:
    session.send_own(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
