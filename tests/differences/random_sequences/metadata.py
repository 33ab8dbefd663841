"""Topics, settings, quotas and credentials that come, change and go, with many mistakes in between.

Kafka's controller answers before its brokers know: so every change is waited for until the next thing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from fencepost.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from fencepost.protocol.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from fencepost.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.differences.exchange import Exchange
from tests.differences.random_sequences.steps import SlicedWork

STEPS_COUNT: Final = 65
BASES: Final = ("a", "b", "c", "d.e", "f_g")
GROUPS: Final = ("group-a", "group-b")
USERS: Final = ("user-a", "user-b")
CLIENTS: Final = ("client-a", "client-b")
BAD_NAMES: Final = ("", ".", "..", "a b", "n" * 250)
NO_SUCH_ID: Final = bytes(15) + b"\x63"
NO_SUCH_BROKER: Final = 77
FIRST_DELETION_BY_ID: Final = 6
FIRST_METADATA_BY_ID: Final = 12
FIRST_REASSIGNMENT_WITH_FACTOR: Final = 1
FIRST_DESCRIPTION_WITH_DOCUMENTATION: Final = 3
FIRST_METADATA_THAT_ASKS: Final = 4  # whether topics are to be created
TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS: Final = {SET: "set", DELETE: "deleted", APPEND: "appended", SUBTRACT: "subtracted"}
EXACT, DEFAULT, ANY = range(3)
ANY_ACL, LITERAL, ALL_OPERATIONS, ALLOW = 1, 3, 2, 3
TIMEOUT_MS: Final = 10_000
SETTINGS: Final[dict[int, dict[str, tuple[str, ...]]]] = {
    TOPIC: {
        "retention.ms": ("1000", "-1", "86400000", "-2", "soon", ""),
        "segment.bytes": ("1048576", "2000000", "17", "1e6"),
        "cleanup.policy": (
            "delete",
            "compact",
            "compact,delete",
            "compact, delete",
            "delete,delete",
            ",delete",
            "delete,",
            "burn",
            "",
        ),
        "compression.type": ("gzip", "producer", "zstd", "zip"),
        "max.message.bytes": ("0", "1000", "-1"),
        "message.timestamp.type": ("LogAppendTime", "CreateTime", "Never"),
        "min.insync.replicas": ("1", "2", "0"),
        "preallocate": ("true", "false", "maybe"),
        "no.such.setting": ("1",),
    },
    GROUP: {
        "consumer.session.timeout.ms": ("45000", "50000", "60000", "1", "60001", "x"),
        "consumer.heartbeat.interval.ms": ("5000", "10000", "4999"),
        "share.record.lock.duration.ms": ("15000", "30000", "60000", "1"),
        "share.auto.offset.reset": ("earliest", "latest", "first"),
        "no.such.setting": ("1",),
    },
    BROKER: {
        "log.cleaner.backoff.ms": ("15000", "20000", "-1"),
        "log.cleaner.delete.retention.ms": ("1000", "86400000", "-5"),
        "follower.replication.throttled.rate": ("1000000", "0"),
        "node.id": ("2",),
        "no.such.setting": ("1",),
    },
}
LISTS: Final = ("cleanup.policy",)
DYNAMIC_BROKER_SETTINGS: Final = (
    "log.cleaner.backoff.ms",
    "log.cleaner.delete.retention.ms",
    "follower.replication.throttled.rate",
)
BROKER_SETTINGS: Final = ("log.cleaner.backoff.ms", "log.cleaner.delete.retention.ms")
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "speed",
)
WORKING_QUOTAS: Final = QUOTAS[:4]
QUOTAS_OF_ADDRESSES: Final = QUOTAS[4:5]

Entity = tuple[str, str | None]


@dataclass
class Topic:
    name: str
    topic_id: bytes
    partitions_count: int


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics: dict[str, Topic] = {}
        self.deleted: list[bytes] = []
        self.created_count = 0
        # An address that most likely no other sequence uses; quotas of addresses have no other names.
        self.address = random.randrange(1, 256), random.randrange(256)

    def run(self) -> None:
        actions = (
            (14, self.create),
            (6, self.delete),
            (8, self.grow),
            (12, self.metadata),
            (8, self.describe_partitions),
            (9, self.change),
            (4, self.change_several),
            (4, self.replace),
            (9, self.describe),
            (4, self.describe_several),
            (2, self.describe_directories),
            (3, self.list_resources),
            (5, self.change_quotas),
            (4, self.describe_quotas),
            (5, self.change_credentials),
            (4, self.describe_credentials),
            (3, self.elect),
            (3, self.reassign),
            (2, self.list_reassignments),
            (2, self.describe_cluster),
            (2, self.acls),
        )
        self.create()
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        self.restore()

    def ask_change(self, description: str, request: Any, version: int) -> Any:
        reply = self.steps.ask(description, request, version)
        self.exchange.settle()
        return reply

    # Names

    def some_base(self) -> str:
        """Mostly of a topic that exists."""
        if self.topics and self.steps.happens(0.8):
            return self.random.choice(list(self.topics))
        return self.random.choice(BASES)

    def some_name(self) -> str:
        if self.steps.happens(0.08):
            return self.random.choice(BAD_NAMES)
        return self.exchange.name(self.some_base())

    def some_names(self) -> list[str]:
        names: dict[str, None] = {}
        for _ in range(self.random.randint(1, 3)):
            names[self.some_name()] = None
        return list(names)

    @staticmethod
    def said(names: list[str]) -> str:
        return ", ".join(name.partition("-seed")[0] or "''" for name in names)

    def some_id(self) -> bytes:
        if self.topics and self.steps.happens(0.7):
            return self.random.choice(list(self.topics.values())).topic_id
        return self.random.choice([NO_SUCH_ID, *self.deleted[-2:]])

    # Topics

    def create(self) -> None:
        bases = self.random.sample(BASES, self.random.randint(1, 2))
        topics = [self.creatable(base) for base in bases]
        words = [
            f"{base} {topic.num_partitions}/{topic.replication_factor}"
            f" {[(one.partition_index, one.broker_ids) for one in topic.assignments]}"
            f" {[(one.name, one.value) for one in topic.configs]}"
            for base, topic in zip(bases, topics, strict=True)
        ]
        if self.steps.happens(0.06):
            topics.append(CreatableTopic(self.random.choice(BAD_NAMES), 1, 1))
            words.append("a bad name")
        if self.steps.happens(0.05):
            topics.append(CreatableTopic(topics[0].name, 1, 1))
            words.append("the first again")
        version = self.steps.version(CreateTopicsRequest)
        # With its own id on Kafka alone, by declaration.
        validate_only = version < 7 and self.steps.happens(0.15)
        request = CreateTopicsRequest(topics, TIMEOUT_MS, validate_only)
        only = "only validate" if validate_only else "create"
        reply = self.ask_change(f"{only} {'; '.join(words)}", request, version)
        if reply is None or validate_only:
            return
        created = {result.name for result in reply.topics if not result.error_code}
        for base in bases:
            name = self.exchange.name(base)
            if name not in created:
                continue
            self.created_count += 1
            found = self.exchange.call(self.metadata_of(name), FIRST_METADATA_BY_ID).topics[0]
            self.exchange.remember(found.topic_id, f"the id of topic {self.created_count}")
            self.topics[base] = Topic(name, found.topic_id, len(found.partitions))

    @staticmethod
    def metadata_of(name: str) -> MetadataRequest:
        return MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

    def creatable(self, base: str) -> CreatableTopic:
        name = self.exchange.name(base)
        configs = []
        for setting in self.random.sample(list(SETTINGS[TOPIC]), self.random.choice((0, 0, 1, 2))):
            value = self.random.choice(SETTINGS[TOPIC][setting][:2])
            if self.steps.happens(0.15):
                value = self.random.choice(SETTINGS[TOPIC][setting])
            configs.append(CreatableTopicConfig(setting, value))
        if self.steps.happens(0.2):
            return CreatableTopic(name, -1, -1, self.assignments(), configs)
        partitions = self.random.choices((-1, 1, 2, 3, 5, 0, -2), (10, 30, 20, 20, 10, 5, 5))[0]
        replicas = self.random.choices((1, -1, 2, 0), (75, 15, 6, 4))[0]
        assignments = self.assignments() if self.steps.happens(0.04) else []
        return CreatableTopic(name, partitions, replicas, assignments, configs)

    def assignments(self) -> list[CreatableReplicaAssignment]:
        found = []
        for index in range(self.random.randint(1, 3)):
            brokers = [1] if self.steps.happens(0.85) else self.random.choice(([], [1, 1], [NO_SUCH_BROKER]))
            place = index if self.steps.happens(0.93) else index + 1
            found.append(CreatableReplicaAssignment(place, list(brokers)))
        return found

    def delete(self) -> None:
        version = self.steps.version(DeleteTopicsRequest)
        names = self.some_names()[:2]
        if version < FIRST_DELETION_BY_ID:
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
            words = self.said(names)
        elif self.steps.happens(0.5):
            request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=TIMEOUT_MS)
            words = self.said(names)
        else:
            request = DeleteTopicsRequest([DeleteTopicState(topic_id=self.some_id())], timeout_ms=TIMEOUT_MS)
            words = "by id"
        reply = self.ask_change(f"delete {words}", request, version)
        if reply is None:
            return
        gone = {result.name for result in reply.responses if not result.error_code}
        for base, topic in list(self.topics.items()):
            if topic.name in gone:
                self.deleted.append(self.topics.pop(base).topic_id)

    def grow(self) -> None:
        base = self.some_base()
        known = self.topics.get(base)
        count = known.partitions_count if known is not None else 1
        wanted = count + self.random.choices((1, 2, 0, -1, -count), (50, 20, 10, 10, 10))[0]
        assignments = None
        if self.steps.happens(0.3):
            added = max(0, wanted - count) + self.random.choices((0, 1, -1), (80, 10, 10))[0]
            brokers = [1] if self.steps.happens(0.8) else self.random.choice(([], [1, 1], [NO_SUCH_BROKER]))
            assignments = [CreatePartitionsAssignment(list(brokers)) for _ in range(max(0, added))]
        topics = [CreatePartitionsTopic(self.exchange.name(base), wanted, assignments)]
        if self.steps.happens(0.06):
            topics.append(CreatePartitionsTopic(self.exchange.name(base), wanted + 1, None))
        validate_only = self.steps.happens(0.15)
        version = self.steps.version(CreatePartitionsRequest)
        given = None if assignments is None else [one.broker_ids for one in assignments]
        only = "only validate" if validate_only else "grow"
        description = f"{only} {base} from {count} to {wanted}, on {given}{', twice' if len(topics) > 1 else ''}"
        reply = self.ask_change(description, CreatePartitionsRequest(topics, TIMEOUT_MS, validate_only), version)
        if reply is not None and known is not None and not validate_only and not reply.results[0].error_code:
            known.partitions_count = wanted

    # What is to be seen of them

    def metadata(self) -> None:
        version = self.steps.version(MetadataRequest)
        if version >= FIRST_METADATA_BY_ID and self.steps.happens(0.4):
            topics = [MetadataRequestTopic(topic_id, None) for topic_id in {self.some_id(): None, self.some_id(): None}]
            words = "by id"
        elif version < FIRST_METADATA_THAT_ASKS:
            # Older ones create what they ask for.
            names = [topic.name for topic in self.topics.values()]
            if not names:
                return
            topics = [MetadataRequestTopic(name=name) for name in names]
            words = self.said(names)
        else:
            names = self.some_names()
            topics = [MetadataRequestTopic(name=name) for name in names]
            words = self.said(names)
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        if self.steps.happens(0.2):
            request.include_topic_authorized_operations = True
        self.steps.ask(f"metadata of {words}", request, version)

    def describe_partitions(self) -> None:
        names = [name for name in self.some_names() if name]  # declared: Kafka stumbles over an empty one
        if not names:
            return
        limit = self.random.choice((2_000, 1, 2, 3, 5))
        cursor = None
        if self.steps.happens(0.4):
            cursor = Cursor(self.random.choice([*names, self.exchange.name("b")]), self.random.randint(0, 3))
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
        words = "" if cursor is None else f" from {self.said([cursor.topic_name])}-{cursor.partition_index} on"
        version = self.steps.version(DescribeTopicPartitionsRequest)
        self.steps.ask(f"{limit} partitions of {self.said(names)}{words}", request, version)

    def describe_cluster(self) -> None:
        version = self.steps.version(DescribeClusterRequest)
        request = DescribeClusterRequest(self.steps.happens(0.5), self.random.choice((1, 1, 2, 3)) if version else 1)
        self.steps.ask(f"the cluster, endpoints {request.endpoint_type}", request, version)

    # Settings

    def some_resource(self) -> tuple[int, str, str]:
        """Its kind, its name, and what to call it."""
        kind = self.random.choices((TOPIC, GROUP, BROKER), (60, 25, 15))[0]
        if kind == TOPIC:
            name = self.some_name()
            return kind, name, f"topic {self.said([name])}"
        if kind == GROUP:
            base = self.random.choice(GROUPS)
            return kind, self.exchange.name(base), base
        return kind, *self.random.choice((("", "all brokers"), ("1", "the broker"), ("9", "another broker")))

    def some_value(self, kind: int, setting: str) -> str:
        values = SETTINGS[kind][setting]
        return self.random.choice(values[:2]) if self.steps.happens(0.75) else self.random.choice(values)

    def change(self) -> None:
        kind, name, called = self.some_resource()
        changes, words = [], []
        for setting in self.random.sample(list(SETTINGS[kind]), self.random.choice((1, 1, 2, 3))):
            operation = self.random.choices((SET, DELETE), (75, 25))[0]
            if setting in LISTS and self.steps.happens(0.5):
                operation = self.random.choice((APPEND, SUBTRACT))
            if self.steps.happens(0.03):
                operation = self.random.choice((APPEND, SUBTRACT))
            value = None if operation == DELETE else self.some_value(kind, setting)
            changes.append(IncrementalAlterableConfig(setting, operation, value))
            words.append(f"{setting} {OPERATIONS[operation]} {value}")
        resources = [IncrementalAlterConfigsResource(kind, name, changes)]
        validate_only = self.steps.happens(0.15)
        only = "only validate" if validate_only else "change"
        request = IncrementalAlterConfigsRequest(resources, validate_only)
        version = self.steps.version(IncrementalAlterConfigsRequest)
        self.ask_change(f"{only} {called}: {', '.join(words)}", request, version)

    def change_several(self) -> None:
        """As tools do that have many to change: topics and a group at once, one of them maybe twice."""
        resources, words = [], []
        for _ in range(self.random.choice((2, 2, 3))):
            kind, name, called = self.some_resource()
            setting = self.random.choice(list(SETTINGS[kind]))
            operation = self.random.choice((SET, SET, DELETE))
            value = None if operation == DELETE else self.some_value(kind, setting)
            if self.steps.happens(0.05):
                value = None
            changes = [IncrementalAlterableConfig(setting, operation, value)]
            if self.steps.happens(0.08):
                changes.append(IncrementalAlterableConfig(setting, SET, self.some_value(kind, setting)))
            resources.append(IncrementalAlterConfigsResource(kind, name, changes))
            said = [(one.name, OPERATIONS[one.config_operation], one.value) for one in changes]
            words.append(f"{called}: {said}")
        request = IncrementalAlterConfigsRequest(resources, self.steps.happens(0.15))
        only = "only validate" if request.validate_only else "change"
        version = self.steps.version(IncrementalAlterConfigsRequest)
        self.ask_change(f"{only} {'; '.join(words)}", request, version)

    def describe_several(self) -> None:
        resources: list[DescribeConfigsResource] = []
        words = []
        for _ in range(self.random.choice((2, 3))):
            kind, name, called = self.some_resource()
            # One that is named twice is described once or twice, as its kind has it.
            if any((one.resource_type, one.resource_name) == (kind, name) for one in resources):
                continue
            known = (
                BROKER_SETTINGS if kind == BROKER else [key for key in SETTINGS[kind] if key != "min.insync.replicas"]
            )
            keys = self.random.sample(list(known), 2)
            resources.append(DescribeConfigsResource(kind, name, keys))
            words.append(f"{called}: {keys}")
        version = self.steps.version(DescribeConfigsRequest)
        request = DescribeConfigsRequest(resources, self.steps.happens(0.5))
        if version >= FIRST_DESCRIPTION_WITH_DOCUMENTATION:
            request.include_documentation = self.steps.happens(0.5)
        self.steps.ask(f"describe {'; '.join(words)}, synonyms {request.include_synonyms}", request, version)

    def describe_directories(self) -> None:
        """Nothing was written: all that are there are empty."""
        topics, words = [], []
        for base in self.random.sample(BASES, self.random.randint(1, 3)):
            partitions = self.some_partitions(base)
            topics.append(DescribableLogDirTopic(self.exchange.name(base), partitions))
            words.append(f"{base}-{partitions}")
        version = self.steps.version(DescribeLogDirsRequest)
        self.steps.ask(f"directories of {', '.join(words)}", DescribeLogDirsRequest(topics), version)

    def replace(self) -> None:
        kind, name, called = self.some_resource()
        if (kind, name) == (BROKER, ""):
            # Kafka keeps a setting of all brokers, by declaration, which may not be replaced.
            name, called = "1", "the broker"
        chosen = self.random.sample(list(SETTINGS[kind]), self.random.choice((0, 1, 2)))
        given = [(setting, self.some_value(kind, setting)) for setting in chosen]
        settings = [AlterableConfig(setting, value) for setting, value in given]
        version = self.steps.version(AlterConfigsRequest)
        request = AlterConfigsRequest([AlterConfigsResource(kind, name, settings)], self.steps.happens(0.15))
        only = "only validate, " if request.validate_only else ""
        self.ask_change(f"{only}replace those of {called} by {given}", request, version)

    def describe(self) -> None:
        kind, name, called = self.some_resource()
        # All settings of a broker are not the same ones.
        keys = list(BROKER_SETTINGS) if kind == BROKER else None
        if kind != BROKER and self.steps.happens(0.5):
            # Kafka shows another source for min.insync.replicas, by declaration.
            keys = self.random.sample([key for key in SETTINGS[kind] if key != "min.insync.replicas"], 3)
        version = self.steps.version(DescribeConfigsRequest)
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], self.steps.happens(0.4))
        self.steps.ask(f"describe {called}: {keys}, synonyms {request.include_synonyms}", request, version)

    def list_resources(self) -> None:
        version = self.steps.version(ListConfigResourcesRequest, lowest=1)
        reply = self.exchange.call(ListConfigResourcesRequest([GROUP]), version)
        names = {resource.resource_name for resource in reply.config_resources}
        found = [base for base in GROUPS if self.exchange.name(base) in names]
        self.exchange.note(self.steps.situation("groups with settings"), version, found)
        kinds = self.random.choice(([], [TOPIC], [TOPIC, GROUP], [BROKER, TOPIC], [BROKER], [BROKER_LOGGER, BROKER]))
        reply = self.exchange.call(ListConfigResourcesRequest(kinds), version)
        own = {self.exchange.name(base): base for base in (*GROUPS, *BASES)} | {"1": "the broker"}
        known = sorted(
            (own[one.resource_name], one.resource_type) for one in reply.config_resources if one.resource_name in own
        )
        self.exchange.note(
            self.steps.situation(f"resources of the kinds {kinds}"), version, [list(one) for one in known]
        )

    def restore(self) -> None:
        """What is not of this seed alone becomes as it was."""
        operations = [OpData(key, 0.0, remove=True) for key in WORKING_QUOTAS]
        entities = [[EntityData("user", None), EntityData("client-id", self.exchange.name(one))] for one in CLIENTS]
        self.exchange.call(AlterClientQuotasRequest([AlterEntryData(one, operations) for one in entities]), 1)
        changes = [IncrementalAlterableConfig(name, DELETE, None) for name in DYNAMIC_BROKER_SETTINGS]
        for name in ("", "1"):
            resource = IncrementalAlterConfigsResource(BROKER, name, changes)
            self.exchange.call(IncrementalAlterConfigsRequest([resource]), 1)
        self.exchange.settle()

    # Quotas and credentials

    def some_entity(self) -> list[Entity]:
        user: Entity = ("user", self.exchange.name(self.random.choice(USERS)))
        client: Entity = ("client-id", self.exchange.name(self.random.choice(CLIENTS)))
        address: Entity = ("ip", f"127.{self.address[0]}.{self.address[1]}.{self.random.choice((1, 2))}")
        entities: list[list[Entity]] = [[user], [client], [user, client], [user, ("client-id", None)]]
        entities += [[("user", None), client], [address]]
        if self.steps.happens(0.05):
            entities = [[("user", "")], [user, ("user", "other")], [("planet", "earth")], []]
        return self.random.choice(entities)

    @staticmethod
    def called(entity: list[Entity]) -> str:
        return " and ".join(
            f"{kind} {name.partition('-seed')[0] if name is not None else name}" for kind, name in entity
        )

    def change_quotas(self) -> None:
        entries, words = [], []
        for _ in range(self.random.choice((1, 1, 2))):
            entity = self.some_entity()
            working = QUOTAS_OF_ADDRESSES if entity and entity[0][0] == "ip" else WORKING_QUOTAS
            choices = working if self.steps.happens(0.93) else QUOTAS
            keys = self.random.sample(choices, self.random.choice((1, min(2, len(choices)))))
            operations = []
            for key in keys:
                value = self.random.choice((1_000_000.0, 50.0, 7.5, 20.0, 0.0, -1.0))
                operations.append(OpData(key, value, remove=self.steps.happens(0.3)))
            entries.append(AlterEntryData([EntityData(*part) for part in entity], operations))
            said = ", ".join(f"{one.key} {'removed' if one.remove else one.value}" for one in operations)
            words.append(f"{self.called(entity)}: {said}")
        request = AlterClientQuotasRequest(entries, self.steps.happens(0.15))
        only = "only validate quotas" if request.validate_only else "quotas"
        version = self.steps.version(AlterClientQuotasRequest)
        self.ask_change(f"{only} of {'; '.join(words)}", request, version)

    def describe_quotas(self) -> None:
        user = self.exchange.name(self.random.choice(USERS))
        client = self.exchange.name(self.random.choice(CLIENTS))
        address = f"127.{self.address[0]}.{self.address[1]}.{self.random.choice((1, 2))}"
        components: list[tuple[str, int, str | None]] = [("user", EXACT, user)]
        if self.steps.happens(0.2):
            components = [self.random.choice((("client-id", EXACT, client), ("ip", EXACT, address)))]
        elif self.steps.happens(0.2):
            components = [
                self.random.choice((("user", DEFAULT, None), ("user", ANY, None))),
                ("client-id", EXACT, client),
            ]
        elif self.steps.happens(0.5):
            other: tuple[int, str | None] = self.random.choice(((EXACT, client), (DEFAULT, None), (ANY, None)))
            components.append(("client-id", *other))
        strict = self.steps.happens(0.5)
        request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
        version = self.steps.version(DescribeClientQuotasRequest)
        words = [(kind, match, name and name.partition("-seed")[0]) for kind, match, name in components]
        self.steps.ask(f"quotas of {words}, strict {strict}", request, version)

    def change_credentials(self) -> None:
        base = self.random.choice(USERS)
        user = self.exchange.name(base) if self.steps.happens(0.95) else ""
        mechanism = self.random.choices((1, 2, 9, 0), (48, 48, 2, 2))[0]
        if self.steps.happens(0.35):
            request = AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, mechanism)])
            words = f"{base} loses {mechanism}"
        else:
            iterations = self.random.choices((4_096, 8_192, 16_384, 4_095, 16_385), (40, 30, 20, 5, 5))[0]
            given = ScramCredentialUpsertion(user, mechanism, iterations, b"salt", b"password")
            request = AlterUserScramCredentialsRequest([], [given])
            words = f"{base} gets {mechanism} of {iterations}"
        version = self.steps.version(AlterUserScramCredentialsRequest)
        self.ask_change(f"credentials: {words if user else 'of an empty name'}", request, version)

    def describe_credentials(self) -> None:
        bases = [self.random.choice((*USERS, "nobody")) for _ in range(self.random.choice((1, 1, 2, 3)))]
        request = DescribeUserScramCredentialsRequest([UserName(self.exchange.name(base)) for base in bases])
        version = self.steps.version(DescribeUserScramCredentialsRequest)
        self.steps.ask(f"credentials of {', '.join(bases)}", request, version)

    # Leaders and replicas

    def some_partitions(self, base: str) -> list[int]:
        topic = self.topics.get(base)
        count = 1 if topic is None else topic.partitions_count
        return sorted(self.random.sample(range(count + 1), self.random.randint(1, min(2, count + 1))))

    def elect(self) -> None:
        base = self.some_base()
        partitions = self.some_partitions(base)
        kind = self.random.choice((0, 0, 1))
        version = self.steps.version(ElectLeadersRequest)
        wanted = [TopicPartitions(self.exchange.name(base), partitions)]
        words = f"{base}-{partitions}"
        if self.steps.happens(0.3):
            other = self.random.choice([one for one in BASES if one != base])
            wanted.append(TopicPartitions(self.exchange.name(other), [0]))
            words += f", {other}-0"
        self.steps.ask(f"elect leaders of {words}, type {kind}", ElectLeadersRequest(kind, wanted), version)

    def reassign(self) -> None:
        base = self.some_base()
        wanted: list[ReassignablePartition] = []
        for index in self.some_partitions(base):
            replicas = self.random.choice(([1], [1], None, [NO_SUCH_BROKER], [], [1, 1]))
            wanted.append(ReassignablePartition(index, None if replicas is None else list(replicas)))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(self.exchange.name(base), wanted)])
        version = self.steps.version(AlterPartitionReassignmentsRequest)
        words = f"{base}: {[(one.partition_index, one.replicas) for one in wanted]}"
        if version >= FIRST_REASSIGNMENT_WITH_FACTOR and self.steps.happens(0.3):
            request.allow_replication_factor_change = False
            words += ", as many replicas as before"
        if self.steps.happens(0.2):
            other = self.random.choice([one for one in BASES if one != base])
            request.topics.append(ReassignableTopic(self.exchange.name(other), [ReassignablePartition(0, [1])]))
            words += f"; {other}: 0"
        self.ask_change(f"reassign {words}", request, version)

    def list_reassignments(self) -> None:
        base = self.some_base()
        partitions = self.some_partitions(base)
        wanted = ListPartitionReassignmentsTopics(self.exchange.name(base), partitions)
        version = self.steps.version(ListPartitionReassignmentsRequest)
        request = ListPartitionReassignmentsRequest(topics=[wanted])
        self.steps.ask(f"reassignments of {base}-{partitions}", request, version)

    def acls(self) -> None:
        creation = AclCreation(TOPIC, "orders", LITERAL, "User:somebody", "*", ALL_OPERATIONS, ALLOW)
        everything = (ANY_ACL, None, ANY_ACL, None, None, ANY_ACL, ANY_ACL)
        request: Any = self.random.choice(
            (
                CreateAclsRequest([creation]),
                DeleteAclsRequest([DeleteAclsFilter(*everything)]),
                DescribeAclsRequest(*everything),
            )
        )
        self.steps.ask("ACLs", request, self.steps.version(type(request)))


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
