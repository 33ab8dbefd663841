"""The audit log has a line for each change that an administrator makes, and none for what was refused or only tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.events import events_to
from fencepost.broker.requests.administrative_changes import MAXIMUM_LISTED
from fencepost.broker.requests.api import APIS
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.acls import CreateAclsRequest
from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.client_quotas import AlterClientQuotasRequest, AlterEntryData, EntityData, OpData
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from tests.support.secured_broker import ADMIN, ALICE, rule, secured_broker

Events = list[dict[str, Any]]
TOPIC, GROUP, BROKER, LOGGERS = 2, 32, 4, 8


@pytest.fixture
def events() -> Iterator[Events]:
    found: Events = []

    def take(logger: str, level: str, event: Any) -> None:
        if logger == "broker.security.audit" and event["event"] in ("changed", "allowed"):
            found.append({"level": level, **event})

    with events_to(take):
        yield found


def _incremental(kind: int, name: str, *configs: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    altered = [IncrementalAlterableConfig(*config) for config in configs]
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, altered)])


def _commit(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])])


USER = [EntityData("user", "alice"), EntityData("client-id", None)]
EXPECTED: list[tuple[str, Callable[[], Any], int | None, list[tuple[str, str, str, dict[str, Any]]]]] = [
    (
        "topics are created",
        lambda: CreateTopicsRequest(
            [
                CreatableTopic("orders", 2, 1, [], [CreatableTopicConfig("retention.ms", "1000")]),
                CreatableTopic("bad/name", 1, 1),
            ]
        ),
        None,
        [("CREATE", "TOPIC", "orders", {"partitions": 2, "configs": {"retention.ms": "1000"}})],
    ),
    (
        "a topic is only tried",
        lambda: CreateTopicsRequest([CreatableTopic("tried", 1, 1)], validate_only=True),
        None,
        [],
    ),
    (
        "a topic gets partitions",
        lambda: CreatePartitionsRequest(
            [CreatePartitionsTopic("orders", 3, None), CreatePartitionsTopic("none", 3, None)]
        ),
        None,
        [("ALTER", "TOPIC", "orders", {"partitions": 3})],
    ),
    (
        "configs of a topic are set and removed",
        lambda: _incremental(TOPIC, "orders", ("retention.ms", 0, "5"), ("cleanup.policy", 1, None)),
        None,
        [("ALTER_CONFIGS", "TOPIC", "orders", {"set": {"retention.ms": "5"}, "removed": ["cleanup.policy"]})],
    ),
    (
        "configs of a topic are replaced",
        lambda: AlterConfigsRequest([AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", "7")])]),
        None,
        [("ALTER_CONFIGS", "TOPIC", "orders", {"set": {"retention.ms": "7"}})],
    ),
    (
        "a broker config is set, without its value",
        lambda: _incremental(BROKER, "", ("log.retention.ms", 0, "7000")),
        None,
        [("ALTER_CONFIGS", "BROKER", "", {"set": ["log.retention.ms"]})],
    ),
    (
        "a group config is set",
        lambda: _incremental(GROUP, "billing", ("consumer.session.timeout.ms", 0, "46000")),
        None,
        [("ALTER_CONFIGS", "GROUP", "billing", {"set": {"consumer.session.timeout.ms": "46000"}})],
    ),
    (
        "an unknown config is refused",
        lambda: _incremental(TOPIC, "orders", ("no.such.config", 0, "7000")),
        None,
        [],
    ),
    (
        "quotas are set and removed",
        lambda: AlterClientQuotasRequest(
            [
                AlterEntryData(USER, [OpData("producer_byte_rate", 1000.0), OpData("consumer_byte_rate", 0, True)]),
                AlterEntryData([EntityData("planet", "x")], [OpData("producer_byte_rate", 1.0)]),
            ]
        ),
        None,
        [
            (
                "ALTER_CONFIGS",
                "QUOTA",
                "client-id=<default>, user=alice",
                {"quotas": {"producer_byte_rate": 1000.0, "consumer_byte_rate": None}},
            )
        ],
    ),
    (
        "a user gets a password",
        lambda: AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion("nobody", 1)],
            upsertions=[ScramCredentialUpsertion("carol", 1, 4096, b"salt", b"p" * 32)],
        ),
        None,
        [("ALTER", "USER", "carol", {"set": ["SCRAM-SHA-256"]})],
    ),
    (
        "a feature is set",
        lambda: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("transaction.version", 1, upgrade_type=2)]),
        1,
        [("ALTER", "FEATURE", "transaction.version", {"level": 1})],
    ),
    (
        "offsets are reset",
        lambda: _commit("billing", 0),
        9,
        [("ALTER", "GROUP", "billing", {"offsets": ["orders-0: 0"]})],
    ),
    ("the same connection commits again", lambda: _commit("billing", 0), 9, []),
    (
        "an offset is deleted",
        lambda: OffsetDeleteRequest("billing", [OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])]),
        None,
        [("DELETE", "GROUP", "billing", {"offsets_of": ["orders-0"]})],
    ),
    (
        "groups are deleted",
        lambda: DeleteGroupsRequest(["billing", "nobody"]),
        None,
        [],  # its last offset is gone, and so is the group
    ),
    (
        "offsets of a share group are set",
        lambda: AlterShareGroupOffsetsRequest(
            "shared",
            [AlterShareGroupOffsetsRequestTopic("orders", [AlterShareGroupOffsetsRequestPartition(0, 0)])],
        ),
        None,
        [("ALTER", "GROUP", "shared", {"offsets": ["orders-0: 0"]})],
    ),
    (
        "offsets of a share group are deleted",
        lambda: DeleteShareGroupOffsetsRequest("shared", [DeleteShareGroupOffsetsRequestTopic("orders")]),
        None,
        [("DELETE", "GROUP", "shared", {"offsets_of": ["orders"]})],
    ),
    (
        "records are deleted",
        lambda: DeleteRecordsRequest(
            [DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 0), DeleteRecordsPartition(9, 0)])]
        ),
        None,
        [("DELETE", "TOPIC", "orders", {"records_before": ["0: 0"]})],
    ),
    (
        "a transaction is aborted",
        lambda: WriteTxnMarkersRequest([WritableTxnMarker(5, 0, False, [WritableTxnMarkerTopic("orders", [0, 9])])]),
        None,
        [
            (
                "ALTER",
                "PRODUCER",
                "5",
                {"producer_epoch": 0, "outcome": "aborted", "partitions": ["orders-0"]},
            )
        ],
    ),
    (
        "one is aborted with a reason",
        lambda: WriteTxnMarkersRequest(
            [WritableTxnMarker(5, 0, False, [WritableTxnMarkerTopic("orders", [0])])], "it hangs"
        ),
        None,
        [
            (
                "ALTER",
                "PRODUCER",
                "5",
                {"producer_epoch": 0, "outcome": "aborted", "partitions": ["orders-0"], "reason": "it hangs"},
            )
        ],
    ),
    (
        "a producer is fenced with a reason",
        lambda: InitProducerIdRequest("till-1", 60_000, forced=True, reason="its host is gone"),
        5,
        [
            (
                "WRITE",
                "TRANSACTIONAL_ID",
                "till-1",
                {"outcome": "fenced", "producer_id": 0, "producer_epoch": 0, "reason": "its host is gone"},
            )
        ],
    ),
    ("a producer begins its session", lambda: InitProducerIdRequest("till-1", 60_000), 5, []),
    (
        "two transactions of one producer are ended, and one of another",
        lambda: WriteTxnMarkersRequest(
            [
                WritableTxnMarker(6, 0, False, [WritableTxnMarkerTopic("orders", [0])]),
                WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("orders", [1])]),
                WritableTxnMarker(
                    6, 1, True, [WritableTxnMarkerTopic("orders", [2]), WritableTxnMarkerTopic("no", [0])]
                ),
            ]
        ),
        None,
        [
            ("ALTER", "PRODUCER", "6", {"producer_epoch": 0, "outcome": "aborted", "partitions": ["orders-0"]}),
            ("ALTER", "PRODUCER", "7", {"producer_epoch": 0, "outcome": "committed", "partitions": ["orders-1"]}),
            ("ALTER", "PRODUCER", "6", {"producer_epoch": 1, "outcome": "committed", "partitions": ["orders-2"]}),
        ],
    ),
    (
        "what is named twice is refused",
        lambda: CreateTopicsRequest([CreatableTopic("twice", 1, 1), CreatableTopic("twice", 1, 1)]),
        None,
        [],
    ),
    (
        "one of several resources is wrong",
        lambda: IncrementalAlterConfigsRequest(
            [
                IncrementalAlterConfigsResource(TOPIC, name, [IncrementalAlterableConfig("retention.ms", 0, "9")])
                for name in ("none", "orders", "twice", "twice")
            ]
        ),
        None,
        [("ALTER_CONFIGS", "TOPIC", "orders", {"set": {"retention.ms": "9"}})],
    ),
    (
        "a topic is deleted",
        lambda: DeleteTopicsRequest([DeleteTopicState(name="orders"), DeleteTopicState(name="none")]),
        None,
        [("DELETE", "TOPIC", "orders", {})],
    ),
]


async def test_each_change_has_one_line_with_who_made_it(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        events.clear()
        for story, request, version, expected in EXPECTED:
            message = request()
            await broker.admin.call(message, version)
            api = type(message).__name__.removesuffix("Request")
            assert events == [
                {
                    "level": "info",
                    "event": "changed",
                    "principal": ADMIN,
                    "host": "192.0.2.1",
                    "api": api,
                    "operation": operation,
                    "resource_type": resource_type,
                    "resource_name": name,
                    **details,
                }
                for operation, resource_type, name, details in expected
            ], story
            events.clear()


async def test_what_a_client_may_not_change_is_not_logged_as_changed(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        events.clear()
        for _, request, version, _ in EXPECTED:
            await broker.alice.call(request(), version)
    assert events == []


async def test_what_is_refused_beside_a_change_is_not_taken_for_it(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.create_topics(["hidden", "seen"])
        await broker.allow(rule(AclOperation.ALTER_CONFIGS, AclResource.TOPIC, "seen"))
        events.clear()
        config = IncrementalAlterableConfig("retention.ms", 0, "1000")
        wanted = [IncrementalAlterConfigsResource(2, name, [config]) for name in ("hidden", "seen")]
        await broker.alice.call(IncrementalAlterConfigsRequest(wanted))
        events_of_changes = [event for event in events if event["event"] == "changed"]
    assert [(event["resource_name"], event["principal"]) for event in events_of_changes] == [("seen", ALICE)]


async def test_a_broker_without_an_authorizer_has_the_lines_too(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path, authorizer_class_name="", super_users="") as broker:
        await broker.admin.call(CreateTopicsRequest([CreatableTopic("orders", 1, 1)]))
        await broker.admin.call(CreateAclsRequest([]))
    assert [(event["resource_name"], event["principal"]) for event in events] == [("orders", ADMIN)]


async def test_a_line_names_a_bounded_number_of_partitions(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.create_topics(["wide"], 150)
        partitions = [DeleteRecordsPartition(number, 0) for number in range(150)]
        await broker.admin.call(DeleteRecordsRequest([DeleteRecordsTopic("wide", partitions)]))
    (event,) = events
    assert len(event["records_before"]) == MAXIMUM_LISTED + 1
    assert event["records_before"][-1] == "50 more"


async def test_what_is_allowed_is_logged_at_level_debug_only(events: Events, tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.create_topics(["orders", "hidden"])
        await broker.allow(rule(AclOperation.DESCRIBE, AclResource.TOPIC, "orders"))
        await broker.alice.call(MetadataRequest([MetadataRequestTopic(name="orders")]))
        assert events == []
        await broker.admin.call(
            _incremental(LOGGERS, str(broker.services.node_id), ("broker.security.audit", 0, "DEBUG"))
        )
        events.clear()
        await broker.alice.call(MetadataRequest([MetadataRequestTopic(name="orders")]))
        await broker.admin.call(MetadataRequest([]))
    common = {"level": "debug", "event": "allowed", "host": "192.0.2.1", "api": "Metadata"}
    assert events == [
        {
            **common,
            "principal": ALICE,
            "operation": "DESCRIBE",
            "resource_type": "TOPIC",
            "resource_name": "orders",
        },
        {**common, "principal": ADMIN, "is_super_user": True},
    ]


def test_apis_that_change_something_are_administrative_or_the_work_of_clients() -> None:
    work_of_clients = {
        *("PRODUCE", "OFFSET_COMMIT", "TXN_OFFSET_COMMIT", "JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP"),
        *("INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "END_TXN", "CONSUMER_GROUP_HEARTBEAT"),
        *("SHARE_GROUP_HEARTBEAT", "SHARE_FETCH", "SHARE_ACKNOWLEDGE", "STREAMS_GROUP_HEARTBEAT"),
        "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
        *("METADATA", "SASL_HANDSHAKE", "SASL_AUTHENTICATE", "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"),
    }
    work_of_brokers = {
        *("INITIALIZE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE", "WRITE_SHARE_GROUP_STATE"),
        *("DELETE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY"),
    }
    change_nothing_here = {
        *("ALTER_REPLICA_LOG_DIRS", "ELECT_LEADERS", "UNREGISTER_BROKER", "UNREGISTER_CONTROLLER"),
        *("ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER"),
    }
    reads = ("DESCRIBE", "LIST", "FETCH", "OFFSET_FETCH", "OFFSET_FOR", "FIND", "API_VERSIONS", "CONSUMER_GROUP_DESC")
    for key, api in APIS.items():
        name = ApiKey(key).name
        expected = not (
            name in work_of_clients | work_of_brokers | change_nothing_here
            or name.startswith(reads)
            or name.endswith("_DESCRIBE")
        )
        assert (api.audit is not None) is expected, name
