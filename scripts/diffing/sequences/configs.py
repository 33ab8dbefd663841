"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from scripts.diffing.exchange import Exchange

UNKNOWN, TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
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


def descriptions(exchange: Exchange) -> None:
    name = exchange.create_topic("described", retention_ms="1000", cleanup_policy="compact,delete")
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
        ask("an unknown broker", broker("9", ["num.partitions"]))
        ask("a broker that is no number", broker("one", ["num.partitions"]))
        ask("all brokers", broker("", None))
        ask("a logger", DescribeConfigsResource(LOGGER, "1", ["root"]))
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
        ask("an unknown level of a logger", ("root", SET, "LOUD"), kind=LOGGER, name="1")
        ask("one bad and one good", ("segment.bytes", SET, "x"), ("retention.ms", SET, "77"))
        twice = [IncrementalAlterConfigsResource(TOPIC, name, []) for _ in range(2)]
        exchange.ask("change: a topic twice", IncrementalAlterConfigsRequest(twice), version)
        two = [
            IncrementalAlterConfigsResource(TOPIC, "nothing", [IncrementalAlterableConfig("retention.ms", SET, "1")]),
            IncrementalAlterConfigsResource(TOPIC, name, [IncrementalAlterableConfig("retention.ms", SET, "88")]),
        ]
        exchange.ask("change: a topic that is there and one that is not", IncrementalAlterConfigsRequest(two), version)
        described = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, ["retention.ms", "cleanup.policy"])])
        exchange.ask_until(
            f"change in version {version}: what came of it",
            described,
            4,
            lambda reply: any(config.value == "88" for config in reply.results[0].configs),
        )


def lists(exchange: Exchange) -> None:
    for version in exchange.versions(ListConfigResourcesRequest):
        for situation, kinds in {
            "client metrics": [CLIENT_METRICS],
            "groups": [GROUP],
            "brokers": [BROKER],
            "loggers": [LOGGER],
            "an unknown kind": [77],
            "a kind of 0": [UNKNOWN],
            "one known and one unknown": [BROKER, 77],
        }.items():
            exchange.ask(f"list: {situation}", ListConfigResourcesRequest(kinds), version)
