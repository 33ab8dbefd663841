"""CreateTopics, DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions, DescribeCluster."""

from __future__ import annotations

from fencepost.protocol.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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

NO_SUCH_ID = bytes(15) + b"\x63"
NO_SUCH_BROKER = 77
BAD_NAMES = {
    "empty name": "",
    "a dot": ".",
    "two dots": "..",
    "a blank in the name": "a b",
    "a slash in the name": "a/b",
    "an umlaut in the name": "ä",
    "a name of 250 characters": "n" * 250,
}


def run(exchange: Exchange) -> None:
    creation(exchange)
    growth(exchange)
    metadata(exchange)
    descriptions(exchange)
    deletion(exchange)


def creation(exchange: Exchange) -> None:
    for version in exchange.versions(CreateTopicsRequest):

        def ask(situation: str, *topics: CreatableTopic, version: int = version, validate_only: bool = False) -> None:
            request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
            exchange.ask(f"create: {situation}", request, version)

        def topic(
            base: str, partitions: int = 1, replicas: int = 1, *, version: int = version, **more: list[object]
        ) -> CreatableTopic:
            given: dict[str, list[object]] = {"assignments": [], "configs": []} | more
            return CreatableTopic(exchange.name(base, version), partitions, replicas, **given)  # type: ignore[arg-type]

        def config(name: str, value: str | None) -> list[object]:
            return [CreatableTopicConfig(name, value)]

        def assigned(*replicas: tuple[int, list[int]]) -> list[object]:
            return [CreatableReplicaAssignment(index, brokers) for index, brokers in replicas]

        ask("no topic")
        ask("only validated", topic("validated", 3), validate_only=True)
        ask("a topic", topic("created", 3))
        ask("a topic that exists", topic("created", 3))
        ask("a topic that exists, only validated", topic("created", 3), validate_only=True)
        for situation, name in BAD_NAMES.items():
            ask(situation, CreatableTopic(name, 1, 1))
        ask("an internal topic", CreatableTopic("__consumer_offsets", 1, 1), validate_only=True)
        ask("default partitions and replicas", topic("defaults", -1, -1))
        ask("0 partitions", topic("zero", 0))
        ask("-2 partitions", topic("negative", -2))
        ask("0 replicas", topic("no-replicas", 1, 0))
        ask("-2 replicas", topic("negative-replicas", 1, -2))
        ask("2 replicas", topic("two-replicas", 1, 2))
        ask("the same twice in a request", topic("twice"), topic("twice"))
        ask("one good and one bad", topic("good"), CreatableTopic("a b", 1, 1), topic("no-replicas", 1, 0))
        ask("names that collide", topic("col.lide"), topic("col_lide"))
        ask("a name that collides with one that exists", topic("col.lide"))
        ask("a name that collides, the other way", topic("col_lide"))
        ask("a config", topic("configured", configs=config("retention.ms", "1000")))
        ask("a config without value", topic("no-value", configs=config("retention.ms", None)))
        ask("an unknown config", topic("unknown-config", configs=config("no.such.config", "1")))
        ask("a config that is no number", topic("no-number", configs=config("retention.ms", "soon")))
        ask("a config out of its range", topic("range", configs=config("segment.bytes", "-1")))
        ask("too small a segment", topic("small", configs=config("segment.bytes", "1048575")))
        ask("segments as tests have them", topic("tested", configs=config("internal.segment.bytes", "300")))
        ask("an unknown cleanup policy", topic("policy", configs=config("cleanup.policy", "burn")))
        ask("a broker's config", topic("brokers", configs=config("num.network.threads", "1")))
        ask("the same config twice", topic("twice-config", configs=config("retention.ms", "1") * 2))
        ask("assignments", topic("assigned", -1, -1, assignments=assigned((0, [1]), (1, [1]))))
        ask("assignments and counts", topic("both", 1, 1, assignments=assigned((0, [1]))))
        ask("assignments to nobody", topic("nobody", -1, -1, assignments=assigned((0, []))))
        ask("assignments to an unknown broker", topic("far", -1, -1, assignments=assigned((0, [NO_SUCH_BROKER]))))
        ask("assignments to one broker twice", topic("double", -1, -1, assignments=assigned((0, [1, 1]))))
        ask("assignments with a gap", topic("gap", -1, -1, assignments=assigned((0, [1]), (2, [1]))))
        ask("assignments that begin at 1", topic("late", -1, -1, assignments=assigned((1, [1]))))
        ask("assignments of one partition twice", topic("same", -1, -1, assignments=assigned((0, [1]), (0, [1]))))
        ask("assignments of different sizes", topic("sizes", -1, -1, assignments=assigned((0, [1]), (1, []))))
        ask("a very large topic, only validated", topic("large", 20_000), validate_only=True)


def growth(exchange: Exchange) -> None:
    for version in exchange.versions(CreatePartitionsRequest):
        name = exchange.create_topic("grown", partitions=2, version=version)

        def ask(
            situation: str, *topics: CreatePartitionsTopic, version: int = version, validate_only: bool = False
        ) -> None:
            request = CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
            exchange.ask(f"grow: {situation}", request, version)

        def to(count: int, assignments: list[list[int]] | None = None, *, name: str = name) -> CreatePartitionsTopic:
            given = None if assignments is None else [CreatePartitionsAssignment(brokers) for brokers in assignments]
            return CreatePartitionsTopic(name, count, given)

        ask("no topic")
        ask("only validated", to(5), validate_only=True)
        ask("to as many as there are", to(2))
        ask("to fewer", to(1))
        ask("to none", to(0))
        ask("to -1", to(-1))
        ask("an unknown topic", CreatePartitionsTopic("nothing", 3, None))
        ask("an empty name", CreatePartitionsTopic("", 3, None))
        ask("a bad name", CreatePartitionsTopic("a b", 3, None))
        ask("the same twice in a request", to(4), to(4))
        ask("too few assignments", to(4, [[1]]))
        ask("too many assignments", to(3, [[1], [1]]))
        ask("an assignment to an unknown broker", to(3, [[NO_SUCH_BROKER]]))
        ask("an assignment to nobody", to(3, [[]]))
        ask("an assignment to one broker twice", to(3, [[1, 1]]))
        ask("no assignments in the list", to(3, []))
        ask("with assignments", to(4, [[1]]))
        ask("with assignments for all new ones", to(5, [[1]]))
        ask("more", to(6))
        exchange.ask_until(
            "grow: the partitions there are then",
            MetadataRequest(topics=[MetadataRequestTopic(name=name)]),
            8,
            lambda reply: len(reply.topics[0].partitions) == 6,
        ) if version == 3 else None


def metadata(exchange: Exchange) -> None:
    existing = exchange.create_topic("described", partitions=2)
    other = exchange.create_topic("other")
    topic_id = exchange.topic_id(existing)
    for version in exchange.versions(MetadataRequest):

        def ask(
            situation: str,
            topics: list[MetadataRequestTopic] | None,
            *,
            creates: bool = False,
            version: int = version,
            operations: bool = False,
        ) -> None:
            request = MetadataRequest(
                topics,
                allow_auto_topic_creation=creates,
                include_cluster_authorized_operations=operations,
                include_topic_authorized_operations=operations,
            )
            exchange.ask(f"metadata: {situation}", request, version)

        def named(*names: str) -> list[MetadataRequestTopic]:
            return [MetadataRequestTopic(name=name) for name in names]

        if version > 0:
            ask("none", [])
        ask("a topic", named(existing))
        ask("two topics", named(other, existing))
        ask("a topic twice", named(existing, existing))
        ask("with operations", named(existing), operations=True)
        if version >= 4:
            ask("an unknown topic", named(exchange.name("absent")))
            ask("an unknown and a known topic", named(exchange.name("absent"), existing))
            for situation, name in BAD_NAMES.items():
                ask(situation, named(name))
                if version in (4, 12):
                    ask(f"{situation}, to be created", named(name), creates=True)
        if version >= 10:
            ask("by id and name", [MetadataRequestTopic(topic_id, existing)])
            ask("an unknown id with a name", [MetadataRequestTopic(NO_SUCH_ID, existing)])
        if version >= 12:
            ask("by id", [MetadataRequestTopic(topic_id, None)])
            ask("an unknown id", [MetadataRequestTopic(NO_SUCH_ID, None)])
            ask(
                "an unknown and a known id",
                [MetadataRequestTopic(NO_SUCH_ID, None), MetadataRequestTopic(topic_id, None)],
            )
            ask("a null name without id", [MetadataRequestTopic(name=None)])
            ask("by id and by name", [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(name=other)])
        created = MetadataRequest(named(exchange.name("made", version)), allow_auto_topic_creation=True)
        exchange.ask_until(
            "metadata: a topic that is made by asking",
            created,
            version,
            lambda reply: reply.topics[0].error_code == 0,
        )


def descriptions(exchange: Exchange) -> None:
    first = exchange.create_topic("a-paged", partitions=3)
    second = exchange.create_topic("b-paged", partitions=2)
    for version in exchange.versions(DescribeTopicPartitionsRequest):

        def ask(
            situation: str, *names: str, limit: int = 2_000, cursor: Cursor | None = None, version: int = version
        ) -> None:
            request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
            exchange.ask(f"describe partitions: {situation}", request, version)

        ask("a topic", first)
        ask("two, not in order", second, first)
        ask("the same twice", first, first)
        ask("a page of two", first, second, limit=2)
        ask("a page that ends with a topic", first, second, limit=3)
        ask("the next page", first, second, limit=2, cursor=Cursor(first, 2))
        ask("from a topic on", first, second, cursor=Cursor(second, 0))
        ask("from behind the last partition", first, cursor=Cursor(first, 3))
        ask("from a topic that is not asked for", first, cursor=Cursor(second, 0))
        ask("from a negative partition", first, cursor=Cursor(first, -1))
        ask("a limit of 0", first, limit=0)
        ask("a negative limit", first, limit=-1)
        ask("an unknown topic", "nothing")
        ask("an unknown and a known topic", "nothing", first)
        ask("an empty name", "")
        ask("a bad name", "a b")
    for version in exchange.versions(DescribeClusterRequest):
        exchange.ask("describe cluster", DescribeClusterRequest(), version)
        exchange.ask("describe cluster: with operations", DescribeClusterRequest(True), version)
        if version >= 1:
            exchange.ask("describe cluster: its controllers", DescribeClusterRequest(endpoint_type=2), version)
            exchange.ask("describe cluster: unknown endpoints", DescribeClusterRequest(endpoint_type=3), version)
        if version >= 2:
            exchange.ask(
                "describe cluster: fenced brokers, too", DescribeClusterRequest(include_fenced_brokers=True), version
            )


def deletion(exchange: Exchange) -> None:
    for version in exchange.versions(DeleteTopicsRequest):
        name = exchange.create_topic("deleted", version=version)
        kept = exchange.create_topic("kept", version=version)
        kept_id = exchange.topic_id(kept)

        def ask(situation: str, *names: str, version: int = version) -> None:
            states = [DeleteTopicState(name=name) for name in names]
            request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=10_000)
            exchange.ask(f"delete: {situation}", request, version)

        def ask_states(situation: str, *states: DeleteTopicState, version: int = version) -> None:
            exchange.ask(f"delete: {situation}", DeleteTopicsRequest(topics=list(states), timeout_ms=10_000), version)

        ask("none")
        ask("an unknown topic", "nothing")
        ask("an empty name", "")
        ask("a bad name", "a b")
        ask("a topic", name)
        ask("a topic that was deleted", name)
        if version < 6:
            ask("the same twice in a request", kept, kept)
        else:
            ask("the same twice in a request", kept, kept)
            ask_states("an unknown id", DeleteTopicState(topic_id=NO_SUCH_ID))
            ask_states("neither name nor id", DeleteTopicState())
            ask_states("name and id", DeleteTopicState(kept, kept_id))
            ask_states("by id and by name, the same", DeleteTopicState(kept), DeleteTopicState(topic_id=kept_id))
            ask_states("an unknown id twice", *[DeleteTopicState(topic_id=NO_SUCH_ID)] * 2)
            ask_states("by id", DeleteTopicState(topic_id=kept_id))
