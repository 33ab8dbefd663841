"""Topic settings: Kafka's names, the broker settings that give their defaults, and the checks on clients' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.broker.config.setting import (
    LARGEST_RECORD_BYTES,
    MAX_INT64,
    SMALLEST_SEGMENT_BYTES,
    Setting,
    SettingType,
    any_of,
    at_least,
    between,
    gzip_levels,
    one_of,
    only_false,
    replicas,
)
from fencepost.broker.config.settings import ConfigSource, ConfigSynonym, Settings
from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.LONG,
    SettingType.DOUBLE,
    SettingType.LIST,
)

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One config with its effective value, as DescribeConfigs shows it.

    synonyms: all sources of a value for this config, highest precedence first.
    """

    setting: Setting
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    is_sensitive: bool = False  # if so, its value is not shown

    @property
    def name(self) -> str:
        return self.setting.name


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One row: a topic config and the broker settings that give its default, highest precedence first."""

    name: str
    type: SettingType
    broker_names: tuple[str, ...]
    documentation: str
    fallback: Any = None  # the default if no broker setting gives one
    has_effect: bool = True
    is_internal: bool = False  # for tests: shown only if it is set, and not documented
    kafka_broker_name: str = ""  # the source of the default in Kafka, if it is no setting here
    setting: Setting = field(init=False)

    def __post_init__(self) -> None:
        bounds = _BOUNDS.get(self.name)
        row = Setting(self.name, self.type, self.fallback, self.documentation, bounds, (), self.has_effect)
        object.__setattr__(self, "setting", row)

    @property
    def log_config_field(self) -> str:
        return self.name.replace(".", "_")

    def default(self, settings: Settings) -> Any:
        """The value of a topic that does not set it: the first broker setting with a value, in this config's unit."""
        for broker_name in self.broker_names:
            value = settings.value(broker_name)
            if value is not None:
                return value * _unit_ms(broker_name) if type(value) is int and value > 0 else value
        return self.fallback


def _unit_ms(broker_name: str) -> int:
    """The factor from a broker setting's unit to that of the topic config."""
    if broker_name.endswith(".hours"):
        return 3_600_000
    if broker_name.endswith(".minutes"):
        return 60_000
    return 1


_BOUNDS = {
    "cleanup.policy": any_of("delete", "compact"),
    "compression.gzip.level": gzip_levels(),
    "compression.lz4.level": between(1, 17),
    "compression.zstd.level": between(-131_072, 22),
    "compression.type": one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "delete.retention.ms": at_least(0),
    "file.delete.delay.ms": at_least(0),
    "flush.messages": at_least(1),
    "follower.replication.throttled.replicas": replicas(),
    "flush.ms": at_least(0),
    "index.interval.bytes": at_least(0),
    "leader.replication.throttled.replicas": replicas(),
    "local.retention.bytes": at_least(-2),
    "local.retention.ms": at_least(-2),
    "max.compaction.lag.ms": at_least(1),
    "max.decompressed.message.bytes": between(1, LARGEST_RECORD_BYTES),
    "max.message.bytes": at_least(0),
    "message.timestamp.after.max.ms": at_least(0),
    "message.timestamp.before.max.ms": at_least(0),
    "message.timestamp.type": one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": between(0, 1),
    "min.compaction.lag.ms": at_least(0),
    "min.insync.replicas": at_least(1),
    "remote.copy.lag.bytes": at_least(-1),
    "remote.copy.lag.ms": at_least(-1),
    "remote.storage.enable": only_false(),
    "retention.ms": at_least(-1),
    "segment.bytes": at_least(SMALLEST_SEGMENT_BYTES),
    "segment.index.bytes": at_least(4),
    "segment.jitter.ms": at_least(0),
    "segment.ms": at_least(1),
}

NO_TIERS = "there is no tiered storage"
NO_REPLICAS = "a partition has one copy, so nothing is replicated"


def _accepted(
    name: str, setting_type: SettingType, fallback: Any, reason: str, kafka_broker_name: str = ""
) -> TopicSetting:
    """Declare a config without effect. reason: the rest of the sentence `Accepted and shown; ….`."""
    documentation = f"Accepted and shown; {reason}."
    return TopicSetting(name, setting_type, (), documentation, fallback, False, kafka_broker_name=kafka_broker_name)


TOPIC_SETTINGS: dict[str, TopicSetting] = {
    row.name: row
    for row in (
        TopicSetting(
            "cleanup.policy",
            LIST,
            ("log.cleanup.policy",),
            "How old records are removed: deleted by age and size, or compacted by key.",
        ),
        TopicSetting(
            "compression.gzip.level",
            INT,
            ("compression.gzip.level",),
            "Compression level for gzip.",
        ),
        TopicSetting(
            "compression.lz4.level",
            INT,
            ("compression.lz4.level",),
            "Compression level for lz4.",
        ),
        TopicSetting(
            "compression.type", STRING, ("compression.type",), "How batches are compressed; `producer`: as sent."
        ),
        TopicSetting(
            "compression.zstd.level",
            INT,
            ("compression.zstd.level",),
            "Compression level for zstd.",
        ),
        TopicSetting(
            "delete.retention.ms",
            LONG,
            ("log.cleaner.delete.retention.ms",),
            "How long tombstones and markers are kept after compaction.",
        ),
        TopicSetting(
            "errors.deadletterqueue.group.enable",
            BOOLEAN,
            (),
            "Whether groups may have the topic as their dead-letter topic (KIP-1191).",
            fallback=False,
        ),
        TopicSetting(
            "file.delete.delay.ms",
            LONG,
            ("log.segment.delete.delay.ms",),
            "How long a removed segment's files stay on disk.",
        ),
        TopicSetting(
            "flush.messages",
            LONG,
            ("log.flush.interval.messages",),
            "1: acknowledged means on disk. Larger: in the page cache; flushed after this number of records.",
        ),
        TopicSetting(
            "flush.ms",
            LONG,
            ("log.flush.interval.ms",),
            "If `flush.messages` is larger than 1, records are flushed within this time, give or take 5 s.",
            MAX_INT64,
        ),
        _accepted("follower.replication.throttled.replicas", LIST, (), NO_REPLICAS),
        TopicSetting(
            "index.interval.bytes", INT, ("log.index.interval.bytes",), "Bytes of log between two index entries."
        ),
        TopicSetting(
            INTERNAL_SEGMENT_BYTES,
            INT,
            (),
            "Takes precedence over `segment.bytes`, and has no lower limit. For tests only.",
            is_internal=True,
        ),
        _accepted("leader.replication.throttled.replicas", LIST, (), NO_REPLICAS),
        _accepted("local.retention.bytes", LONG, -2, NO_TIERS, "log.local.retention.bytes"),
        _accepted("local.retention.ms", LONG, -2, NO_TIERS, "log.local.retention.ms"),
        TopicSetting(
            "max.compaction.lag.ms",
            LONG,
            ("log.cleaner.max.compaction.lag.ms",),
            "The most time that a record stays uncompacted.",
        ),
        TopicSetting(
            "max.decompressed.message.bytes",
            INT,
            ("max.decompressed.message.bytes",),
            "The largest record in a compressed batch, in bytes before compression.",
        ),
        TopicSetting("max.message.bytes", INT, ("message.max.bytes",), "The largest record batch, after compression."),
        TopicSetting(
            "message.timestamp.after.max.ms",
            LONG,
            ("log.message.timestamp.after.max.ms",),
            "How far a record's timestamp may lie after the broker's time.",
        ),
        TopicSetting(
            "message.timestamp.before.max.ms",
            LONG,
            ("log.message.timestamp.before.max.ms",),
            "How far a record's timestamp may lie before the broker's time.",
        ),
        TopicSetting(
            "message.timestamp.type",
            STRING,
            ("log.message.timestamp.type",),
            "The timestamp of a record: the producer's time, or the broker's at the append.",
        ),
        TopicSetting(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            ("log.cleaner.min.cleanable.ratio",),
            "The share of a log that must be uncompacted before it is compacted.",
        ),
        TopicSetting(
            "min.compaction.lag.ms",
            LONG,
            ("log.cleaner.min.compaction.lag.ms",),
            "The least time that a record stays uncompacted.",
        ),
        TopicSetting(
            "min.insync.replicas",
            INT,
            ("min.insync.replicas",),
            "Replicas that must have a record before acks=all is answered; capped at the one replica here.",
            has_effect=False,
        ),
        _accepted("preallocate", BOOLEAN, False, "files are never preallocated", "log.preallocate"),
        _accepted("remote.copy.lag.bytes", LONG, -1, NO_TIERS, "log.remote.copy.lag.bytes"),
        _accepted("remote.copy.lag.ms", LONG, 0, NO_TIERS, "log.remote.copy.lag.ms"),
        _accepted("remote.log.copy.disable", BOOLEAN, False, NO_TIERS),
        _accepted("remote.log.delete.on.disable", BOOLEAN, False, NO_TIERS),
        TopicSetting(
            "remote.storage.enable",
            BOOLEAN,
            (),
            "Accepted when false: there is no tiered storage.",
            fallback=False,
            has_effect=False,
        ),
        TopicSetting(
            "retention.bytes",
            LONG,
            ("log.retention.bytes",),
            "The most bytes of a partition that are kept; below 0: all.",
        ),
        TopicSetting(
            "retention.ms",
            LONG,
            ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
            "How long a segment is kept; -1: for ever.",
        ),
        TopicSetting("segment.bytes", INT, ("log.segment.bytes",), "The size at which a new segment begins."),
        TopicSetting(
            "segment.index.bytes",
            INT,
            ("log.index.size.max.bytes",),
            "The index size at which the segment rolls.",
        ),
        TopicSetting(
            "segment.jitter.ms",
            LONG,
            ("log.roll.jitter.ms", "log.roll.jitter.hours"),
            "The most that is subtracted from `segment.ms` at random.",
        ),
        TopicSetting("segment.ms", LONG, ("log.roll.ms", "log.roll.hours"), "The age at which a new segment begins."),
        _accepted(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            "a partition has one copy, so there is no election",
            "unclean.leader.election.enable",
        ),
    )
}


def effective_values(configs: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """The typed value of every topic setting for a topic with these configs. Raises ValueError if one is unreadable."""
    return {
        name: row.setting.parse(configs[name]) if name in configs else row.default(settings)
        for name, row in TOPIC_SETTINGS.items()
    }


def readable_configs(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The readable configs of a topic, and the reason for each that is not readable."""
    readable, reasons = {}, []
    for name, text in configs.items():
        reason = invalid_value(TOPIC_SETTINGS[name].setting, text) if name in TOPIC_SETTINGS else None
        if reason is None:
            readable[name] = text
        else:
            reasons.append(reason)
    return readable, reasons


def check_topic_configs(configs: Mapping[str, str | None], settings: Settings) -> str | None:
    """The reason to refuse these configs (INVALID_CONFIG), or None. Source: Kafka's LogConfig.validate."""
    for name, text in configs.items():
        row = TOPIC_SETTINGS.get(name)
        if row is None:
            nearest = difflib.get_close_matches(name, TOPIC_SETTINGS, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            return f"Unknown topic config name: {name}{hint}"
        if text is None:
            return f"Topic config {name!r} has no value"
        reason = invalid_value(row.setting, text)
        if reason is not None:
            return reason
    values = effective_values({name: text for name, text in configs.items() if text is not None}, settings)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({values['min.compaction.lag.ms']}) > "
            f"max.compaction.lag.ms ({values['max.compaction.lag.ms']})"
        )
    return None


def invalid_value(setting: Setting, text: str) -> str | None:
    """The reason why a setting refuses a value, beginning with Kafka's words; None if it accepts it."""
    try:
        setting.parse(text)
    except ValueError as error:
        return f"Invalid value {text} for configuration {setting.name}: {error}"
    return None


def shown_value(setting: Setting, text: str) -> str | None:
    """A set value as it is shown to clients; unchanged if it cannot be read."""
    try:
        return setting.format(setting.parse(text))
    except ValueError:
        return text


def describe_topic_configs(configs: Mapping[str, str], settings: Settings) -> list[ConfigValue]:
    """Every topic config with its effective value, sorted by name, and the broker settings behind it."""
    described = []
    for name, row in sorted(TOPIC_SETTINGS.items()):
        if row.is_internal and name not in configs:
            continue
        synonyms = settings.synonyms(row.broker_names) if row.broker_names else []
        if row.kafka_broker_name:
            synonyms.append(
                ConfigSynonym(row.kafka_broker_name, row.setting.format(row.fallback), ConfigSource.DEFAULT)
            )
        if name in configs:
            value = shown_value(row.setting, configs[name])
            synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.TOPIC))
        else:
            value = row.setting.format(row.default(settings))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        described.append(ConfigValue(row.setting, value, source, is_read_only=False, synonyms=tuple(synonyms)))
    return described
