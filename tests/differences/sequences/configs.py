"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import time

from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.differences.exchange import ATTEMPTS, PAUSE_S, Exchange

UNKNOWN, TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NUMBERS = tuple(
    """
    -9223372036854775809 -2147483649 -131073 -131072 -3 -2 -1 0 1 2 3 4 9 10 17 18 22 23 1023 1024
    1048575 1048576 2147483647 2147483648 9223372036854775807 9223372036854775808 0.5 1.0 1.1 +1 1_000 1e3 many
    """.split()  # noqa: SIM905  # read and kept in order more easily than quoted
)
WORDS = tuple(
    """
    yes true False none delete delete,delete compact, ,delete GZIP gzip 0:1 0:1,2:3 0:1, 0:1,* * *,* CreateTime 1
    earliest latest by_duration:PT1H by_duration:P1DT2H by_duration:-PT1H by_duration:P by_duration:pt1h read_committed
    READ_COMMITTED
    """.split()  # noqa: SIM905  # as above
)
TYPES_OF_NUMBERS = (3, 4, 5, 6)
DYNAMIC_BROKER_WORDS = tuple(
    """
    compression.type log.cleanup.policy log.message.timestamp.type log.preallocate max.connections.per.ip.overrides
    transaction.partition.verification.enable unclean.leader.election.enable
    """.split()  # noqa: SIM905  # as above
)
DYNAMIC_BROKER_NUMBERS = tuple(
    """
    background.threads compression.gzip.level compression.lz4.level compression.zstd.level
    follower.replication.throttled.rate leader.replication.throttled.rate log.cleaner.backoff.ms
    log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor
    log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
    log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
    log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
    log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
    max.connection.creation.rate max.connections max.connections.per.ip max.decompressed.message.bytes
    message.max.bytes min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers producer.id.expiration.ms replica.alter.log.dirs.io.max.bytes.per.second
    """.split()  # noqa: SIM905  # as above
)
BROKER_SETTINGS = [
    "log.retention.ms",
    "log.retention.hours",
    "log.segment.bytes",
    "num.partitions",
    "message.max.bytes",
    "auto.create.topics.enable",
    "compression.type",
    "log.cleanup.policy",
    "group.max.session.timeout.ms",
    "offsets.retention.minutes",
    "transaction.max.timeout.ms",
    "default.replication.factor",
]


def run(exchange: Exchange) -> None:
    descriptions(exchange)
    replacements(exchange)
    increments(exchange)
    lists(exchange)
    bounds(exchange)


def descriptions(exchange: Exchange) -> None:
    name = exchange.create_topic("described", retention_ms="1000", cleanup_policy="compact,delete")
    level = IncrementalAlterConfigsResource(LOGGER, "1", [IncrementalAlterableConfig("root", SET, "ERROR")])
    exchange.call(IncrementalAlterConfigsRequest([level]), 1)
    for version in exchange.versions(DescribeConfigsRequest):

        def ask(
            situation: str,
            *resources: DescribeConfigsResource,
            synonyms: bool = False,
            documentation: bool = False,
            version: int = version,
        ) -> None:
            request = DescribeConfigsRequest(list(resources), synonyms, documentation)
            exchange.ask(f"describe: {situation}", request, version)

        def topic(keys: list[str] | None = None, *, name: str = name) -> DescribeConfigsResource:
            return DescribeConfigsResource(TOPIC, name, keys)

        def broker(name: str, keys: list[str] | None) -> DescribeConfigsResource:
            return DescribeConfigsResource(BROKER, name, keys)

        ask("a topic", topic())
        ask("a topic with synonyms", topic(["retention.ms", "cleanup.policy", "segment.bytes"]), synonyms=True)
        ask("a topic with documentation", topic(["retention.ms"]), documentation=True)
        ask("settings of a topic", topic(["retention.ms", "segment.bytes"]))
        ask("no settings of a topic", topic([]))
        ask("unknown settings of a topic", topic(["no.such.setting"]))
        ask("a setting twice", topic(["retention.ms", "retention.ms"]))
        ask("an unknown topic", topic(name="nothing"))
        ask("an empty topic", topic(name=""))
        ask("a bad topic", topic(name="a b"))
        ask("nothing")
        ask("a topic twice", topic(["retention.ms"]), topic(["segment.bytes"]))
        ask("settings of the broker", broker("1", BROKER_SETTINGS))
        ask("settings of the broker with synonyms", broker("1", ["log.retention.ms", "num.partitions"]), synonyms=True)
        ask("a group with synonyms", DescribeConfigsResource(GROUP, exchange.name("described"), None), synonyms=True)
        ask("an unknown broker", broker("9", ["num.partitions"]))
        ask("a broker that is no number", broker("one", ["num.partitions"]))
        ask("all brokers", broker("", None))
        ask("a logger", DescribeConfigsResource(LOGGER, "1", ["root"]))
        ask("all loggers", DescribeConfigsResource(LOGGER, "1", None))
        ask("an unknown logger", DescribeConfigsResource(LOGGER, "1", ["no.such.logger"]))
        ask("a logger of a broker that is no number", DescribeConfigsResource(LOGGER, "one", ["root"]))
        ask("a logger of an unknown broker", DescribeConfigsResource(LOGGER, "9", ["root"]))
        ask("a logger without name", DescribeConfigsResource(LOGGER, "", ["root"]))
        ask("an unknown kind", DescribeConfigsResource(77, "x", None))
        ask("a kind of 0", DescribeConfigsResource(UNKNOWN, "x", None))
        ask("a group", DescribeConfigsResource(GROUP, "group", None))
        ask("a group without name", DescribeConfigsResource(GROUP, "", None))
        ask("client metrics", DescribeConfigsResource(CLIENT_METRICS, "metrics", None))
        ask("client metrics without name", DescribeConfigsResource(CLIENT_METRICS, "", None))


def replacements(exchange: Exchange) -> None:
    for version in exchange.versions(AlterConfigsRequest):
        name = exchange.create_topic("replaced", version=version, retention_ms="1000")

        def ask(
            situation: str,
            *configs: tuple[str, str | None],
            kind: int = TOPIC,
            name: str = name,
            version: int = version,
            validate_only: bool = False,
        ) -> None:
            settings = [AlterableConfig(key, value) for key, value in configs]
            request = AlterConfigsRequest([AlterConfigsResource(kind, name, settings)], validate_only)
            exchange.ask(f"replace: {situation}", request, version)

        ask("only validated", ("segment.bytes", "1048576"), validate_only=True)
        ask("only validated, refused", ("segment.bytes", "-1"), validate_only=True)
        ask("all", ("segment.bytes", "1048576"))
        ask("with nothing")
        ask("with an unknown setting", ("no.such.setting", "1"))
        ask("with no number", ("retention.ms", "soon"))
        ask("with a null", ("retention.ms", None))
        ask("with an empty text", ("retention.ms", ""))
        ask("with an empty name", ("", "1"))
        ask("with one twice", ("retention.ms", "1"), ("retention.ms", "2"))
        ask("with one good and one bad", ("retention.ms", "5"), ("segment.bytes", "x"))
        ask("an unknown topic", ("retention.ms", "1"), name="nothing")
        ask("an empty topic", ("retention.ms", "1"), name="")
        ask("a bad topic", ("retention.ms", "1"), name="a b")
        ask("an unknown kind", ("retention.ms", "1"), kind=77)
        ask("a kind of 0", ("retention.ms", "1"), kind=UNKNOWN)
        ask("an unknown broker", ("num.io.threads", "4"), kind=BROKER, name="9")
        ask("a broker that is no number", ("num.io.threads", "4"), kind=BROKER, name="one")
        ask("a broker's fixed setting", ("node.id", "4"), kind=BROKER, name="1")
        ask("a broker's unknown setting", ("no.such.setting", "4"), kind=BROKER, name="1", validate_only=True)
        ask("a logger", ("root", "INFO"), kind=LOGGER, name="1")
        twice = [AlterConfigsResource(TOPIC, name, []), AlterConfigsResource(TOPIC, name, [])]
        exchange.ask("replace: a topic twice", AlterConfigsRequest(twice), version)
        exchange.ask("replace: nothing", AlterConfigsRequest([]), version)


def increments(exchange: Exchange) -> None:
    for version in exchange.versions(IncrementalAlterConfigsRequest):
        name = exchange.create_topic("changed", version=version, retention_ms="1000")

        def ask(
            situation: str,
            *configs: tuple[str, int, str | None],
            kind: int = TOPIC,
            name: str = name,
            version: int = version,
            validate_only: bool = False,
        ) -> None:
            settings = [IncrementalAlterableConfig(key, operation, value) for key, operation, value in configs]
            request = IncrementalAlterConfigsRequest(
                [IncrementalAlterConfigsResource(kind, name, settings)], validate_only
            )
            exchange.ask(f"change: {situation}", request, version)

        ask("only validated", ("segment.bytes", SET, "1048576"), validate_only=True)
        ask("set", ("segment.bytes", SET, "1048576"))
        ask("set to null", ("segment.bytes", SET, None))
        ask("set to an empty text", ("segment.bytes", SET, ""))
        ask("deleted", ("segment.bytes", DELETE, None))
        ask("deleted, with a value", ("segment.bytes", DELETE, "7"))
        ask("deleted, never set", ("preallocate", DELETE, None))
        ask("unknown is deleted", ("no.such.setting", DELETE, None))
        ask("appended to a list", ("cleanup.policy", APPEND, "compact"))
        ask("appended what is there", ("cleanup.policy", APPEND, "compact"))
        ask("appended null", ("cleanup.policy", APPEND, None))
        ask("appended something bad", ("cleanup.policy", APPEND, "burn"))
        ask("subtracted from a list", ("cleanup.policy", SUBTRACT, "delete"))
        ask("subtracted what is not there", ("cleanup.policy", SUBTRACT, "delete"))
        ask("appended to a number", ("retention.ms", APPEND, "1"))
        ask("subtracted from a number", ("retention.ms", SUBTRACT, "1"))
        ask("an unknown operation", ("retention.ms", 9, "1"))
        ask("a negative operation", ("retention.ms", -1, "1"))
        ask("unknown is set", ("no.such.setting", SET, "1"))
        ask("no number", ("retention.ms", SET, "soon"))
        ask("out of range", ("segment.bytes", SET, "3"))
        ask("too small a segment", ("segment.bytes", SET, "1048575"))
        ask("too small a segment of all brokers", ("log.segment.bytes", SET, "1048575"), kind=BROKER, name="")
        ask("segments as tests have them", ("internal.segment.bytes", SET, "300"))
        ask("appended to segments as tests have them", ("internal.segment.bytes", APPEND, "300"))
        ask("segments as tests have them, no number", ("internal.segment.bytes", SET, ""))
        ask("no boolean", ("preallocate", SET, "maybe"))
        ask("one twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        ask("one set and deleted", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
        ask("nothing of a topic")
        ask("an unknown topic", ("retention.ms", SET, "1"), name="nothing")
        ask("an empty topic", ("retention.ms", SET, "1"), name="")
        ask("a bad topic", ("retention.ms", SET, "1"), name="a b")
        ask("an unknown kind", ("retention.ms", SET, "1"), kind=77)
        ask("an unknown broker", ("num.io.threads", SET, "4"), kind=BROKER, name="9")
        ask("a broker's fixed setting", ("node.id", SET, "4"), kind=BROKER, name="1")
        ask("all brokers, only validated", ("log.retention.ms", SET, "4"), kind=BROKER, name="", validate_only=True)
        ask("a broker's wrong value", ("log.retention.ms", SET, "x"), kind=BROKER, name="1")
        ask("a logger of an unknown broker", ("root", SET, "INFO"), kind=LOGGER, name="9")
        levels: dict[str, list[tuple[str, int, str | None]]] = {
            "an unknown level of a logger": [("root", SET, "LOUD")],
            "a level in small letters": [("root", SET, "info")],
            "no level": [("root", SET, "")],
            "a level of null": [("root", SET, None)],
            "a level appended": [("root", APPEND, "INFO")],
            "a level subtracted": [("root", SUBTRACT, "INFO")],
            "a level by an unknown operation": [("root", 9, "INFO")],
            "no level for the root": [("root", DELETE, None)],
            "the root by another name": [("ROOT", SET, "INFO")],
            "an unknown logger": [("no.such.logger", SET, "INFO")],
            "an unknown logger, to the level above it": [("no.such.logger", DELETE, None)],
            "a good level and a bad one": [("root", SET, "TRACE"), ("no.such.logger", SET, "INFO")],
            "a level twice": [("root", SET, "INFO"), ("root", SET, "INFO")],
            "no logger": [],
            "a level": [("root", SET, "WARN")],
        }
        for situation, changes in levels.items():
            ask(situation, *changes, kind=LOGGER, name="1")
        ask("a level, only validated", ("root", SET, "TRACE"), kind=LOGGER, name="1", validate_only=True)
        ask("a logger without broker", ("root", SET, "INFO"), kind=LOGGER, name="")
        ask("a logger of a broker that is no number", ("root", SET, "INFO"), kind=LOGGER, name="one")
        root = DescribeConfigsResource(LOGGER, "1", ["root", "no.such.logger"])
        exchange.ask(f"change in version {version}: the level of the root", DescribeConfigsRequest([root]), 4)
        ask("one bad and one good", ("segment.bytes", SET, "x"), ("retention.ms", SET, "77"))
        twice = [IncrementalAlterConfigsResource(TOPIC, name, []) for _ in range(2)]
        exchange.ask("change: a topic twice", IncrementalAlterConfigsRequest(twice), version)
        two = [
            IncrementalAlterConfigsResource(TOPIC, "nothing", [IncrementalAlterableConfig("retention.ms", SET, "1")]),
            IncrementalAlterConfigsResource(TOPIC, name, [IncrementalAlterableConfig("retention.ms", SET, "88")]),
        ]
        exchange.ask("change: a topic that is there and one that is not", IncrementalAlterConfigsRequest(two), version)
        shown = ["retention.ms", "cleanup.policy", "internal.segment.bytes"]
        described = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, shown)])
        exchange.ask_until(
            f"change in version {version}: what came of it",
            described,
            4,
            lambda reply: any(config.value == "88" for config in reply.results[0].configs),
        )


def lists(exchange: Exchange) -> None:
    group = exchange.name("listed")
    timeout = IncrementalAlterableConfig("consumer.session.timeout.ms", SET, "50000")
    exchange.call(IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP, group, [timeout])]), 1)
    version = exchange.versions(ListConfigResourcesRequest)[-1]
    for _ in range(ATTEMPTS):
        reply = exchange.call(ListConfigResourcesRequest([GROUP]), version)
        found = [resource.resource_type for resource in reply.config_resources if resource.resource_name == group]
        if found:
            break
        time.sleep(PAUSE_S)
    exchange.note("list: a group with a config of its own", version, found)
    for version in exchange.versions(ListConfigResourcesRequest):
        for situation, kinds in {
            "client metrics": [CLIENT_METRICS],
            "brokers": [BROKER],
            "loggers": [LOGGER],
            "an unknown kind": [77],
            "a kind of 0": [UNKNOWN],
            "one known and one unknown": [BROKER, 77],
        }.items():
            exchange.ask(f"list: {situation}", ListConfigResourcesRequest(kinds), version)


def bounds(exchange: Exchange) -> None:
    """Settings of topics, and those of all brokers that may change, at the edges of what they take."""
    topic = exchange.create_topic("bounded")
    version = exchange.versions(IncrementalAlterConfigsRequest)[-1]

    def ask(whose: str, kind: int, name: str, setting: str, values: tuple[str, ...]) -> None:
        refused = {}
        for value in ("", *values):
            change = IncrementalAlterConfigsResource(kind, name, [IncrementalAlterableConfig(setting, SET, value)])
            reply = exchange.call(IncrementalAlterConfigsRequest([change], validate_only=True), version)
            refused[value] = reply.responses[0].error_code
        exchange.note(f"bounds of {whose}: {setting}", version, refused)

    for whose, kind, name in (("a topic", TOPIC, topic), ("a group", GROUP, "bounded")):
        reply = exchange.call(DescribeConfigsRequest([DescribeConfigsResource(kind, name)]), 4)
        for config in sorted(reply.results[0].configs, key=lambda config: config.name):
            ask(whose, kind, name, config.name, NUMBERS if config.config_type in TYPES_OF_NUMBERS else WORDS)
    for setting in DYNAMIC_BROKER_NUMBERS:
        ask("all brokers", BROKER, "", setting, NUMBERS)
    for setting in DYNAMIC_BROKER_WORDS:
        ask("all brokers", BROKER, "", setting, WORDS)
    for setting in ("max.connections", "max.connection.creation.rate"):
        ask("a listener of a broker", BROKER, "1", f"listener.name.plaintext.{setting}", NUMBERS)
        ask("a listener of all brokers", BROKER, "", f"listener.name.plaintext.{setting}", NUMBERS)
