"""The topic-level settings: Kafka's names, the broker settings behind their defaults, and the checks on what clients
send."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from broker.config.setting import MAX_INT64, Setting, SettingType, at_least, between, each_of, one_of
from broker.config.settings import SETTINGS, Settings

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.LONG,
    SettingType.DOUBLE,
    SettingType.LIST,
)


class ConfigSource(IntEnum):
    """Where the value of a config comes from, with the numbers of DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A config that could have given, or gives, the value of another."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One config with its effective value, as DescribeConfigs shows it. synonyms: strongest first, itself when set."""

    setting: Setting
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def name(self) -> str:
        return self.setting.name


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One row: a topic config and the broker settings, strongest first, that give its default."""

    name: str
    type: SettingType
    broker_names: tuple[str, ...]
    documentation: str
    fallback: Any = None  # the default where no broker setting gives one
    has_effect: bool = True
    setting: Setting = field(init=False)

    def __post_init__(self) -> None:
        bounds = _BOUNDS.get(self.name)
        row = Setting(self.name, self.type, self.fallback, self.documentation, bounds, (), self.has_effect)
        object.__setattr__(self, "setting", row)

    @property
    def log_config_field(self) -> str:
        return self.name.replace(".", "_")

    def default(self, settings: Settings) -> Any:
        """What a topic gets that does not set it: the first broker setting with a value, in this config's own unit."""
        for broker_name in self.broker_names:
            value = settings.value(broker_name)
            if value is not None:
                return value * _unit_ms(broker_name) if type(value) is int and value > 0 else value
        return self.fallback


def _unit_ms(broker_name: str) -> int:
    """What turns a broker setting's unit into that of the topic config."""
    if broker_name.endswith(".hours"):
        return 3_600_000
    if broker_name.endswith(".minutes"):
        return 60_000
    return 1


_BOUNDS = {
    "cleanup.policy": each_of("delete", "compact"),
    "compression.type": one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "delete.retention.ms": at_least(0),
    "file.delete.delay.ms": at_least(0),
    "flush.messages": at_least(1),
    "flush.ms": at_least(0),
    "index.interval.bytes": at_least(0),
    "max.compaction.lag.ms": at_least(1),
    "max.message.bytes": at_least(0),
    "message.timestamp.after.max.ms": at_least(0),
    "message.timestamp.before.max.ms": at_least(0),
    "message.timestamp.type": one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": between(0, 1),
    "min.compaction.lag.ms": at_least(0),
    "min.insync.replicas": at_least(1),
    "retention.bytes": at_least(-1),
    "retention.ms": at_least(-1),
    "segment.bytes": at_least(14),
    "segment.index.bytes": at_least(12),
    "segment.jitter.ms": at_least(0),
    "segment.ms": at_least(1),
}

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    row.name: row
    for row in (
        TopicSetting(
            "cleanup.policy",
            LIST,
            ("log.cleanup.policy",),
            "Old records: deleted by age and size, or compacted by key.",
        ),
        TopicSetting(
            "compression.type", STRING, ("compression.type",), "How batches are compressed; `producer`: as sent."
        ),
        TopicSetting(
            "delete.retention.ms",
            LONG,
            ("log.cleaner.delete.retention.ms",),
            "How long tombstones and markers outlive compaction.",
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
            "1: acknowledged means on disk. Larger: in the page cache.",
        ),
        TopicSetting(
            "flush.ms",
            LONG,
            (),
            "Accepted and shown; `flush.messages` decides when a write is on disk.",
            MAX_INT64,
            has_effect=False,
        ),
        TopicSetting(
            "index.interval.bytes", INT, ("log.index.interval.bytes",), "Bytes of log between two index entries."
        ),
        TopicSetting(
            "max.compaction.lag.ms",
            LONG,
            ("log.cleaner.max.compaction.lag.ms",),
            "How long a record stays uncompacted at most.",
        ),
        TopicSetting("max.message.bytes", INT, ("message.max.bytes",), "The largest record batch, after compression."),
        TopicSetting(
            "message.timestamp.after.max.ms",
            LONG,
            ("log.message.timestamp.after.max.ms",),
            "How far a record's time may lie after the broker's.",
        ),
        TopicSetting(
            "message.timestamp.before.max.ms",
            LONG,
            ("log.message.timestamp.before.max.ms",),
            "How far a record's time may lie before the broker's.",
        ),
        TopicSetting(
            "message.timestamp.type",
            STRING,
            ("log.message.timestamp.type",),
            "Whose time a record carries: producer's or broker's.",
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
            "How long a record stays uncompacted at least.",
        ),
        TopicSetting(
            "min.insync.replicas",
            INT,
            ("min.insync.replicas",),
            "Copies that must have a record before acks=all is answered.",
        ),
        TopicSetting(
            "preallocate",
            BOOLEAN,
            (),
            "Accepted and shown; files are never preallocated.",
            fallback=False,
            has_effect=False,
        ),
        TopicSetting(
            "retention.bytes", LONG, ("log.retention.bytes",), "Bytes of a partition that are kept; -1 for no limit."
        ),
        TopicSetting(
            "retention.ms",
            LONG,
            ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
            "How long a segment is kept; -1 for ever.",
        ),
        TopicSetting("segment.bytes", INT, ("log.segment.bytes",), "The size at which a segment is closed."),
        TopicSetting(
            "segment.index.bytes",
            INT,
            ("log.index.size.max.bytes",),
            "The largest an index grows before the segment rolls.",
        ),
        TopicSetting(
            "segment.jitter.ms",
            LONG,
            ("log.roll.jitter.ms", "log.roll.jitter.hours"),
            "The most taken off `segment.ms`, at random.",
        ),
        TopicSetting("segment.ms", LONG, ("log.roll.ms", "log.roll.hours"), "The age at which a segment is closed."),
        TopicSetting(
            "unclean.leader.election.enable",
            BOOLEAN,
            (),
            "Accepted and shown; a partition has one copy, so there is no election.",
            fallback=False,
            has_effect=False,
        ),
    )
}


def effective_values(configs: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """The typed value of every topic setting for a topic with these configs. Raises ValueError for an unreadable
    one."""
    return {
        name: row.setting.parse(configs[name]) if name in configs else row.default(settings)
        for name, row in TOPIC_SETTINGS.items()
    }


def check_topic_configs(configs: Mapping[str, str | None], settings: Settings) -> str | None:
    """Why these configs are refused (INVALID_CONFIG), in words, or None. Source: Kafka's LogConfig.validate."""
    for name, text in configs.items():
        row = TOPIC_SETTINGS.get(name)
        if row is None:
            nearest = difflib.get_close_matches(name, TOPIC_SETTINGS, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            return f"Unknown topic config {name!r}{hint}"
        if text is None:
            return f"Topic config {name!r} has no value"
        try:
            row.setting.parse(text)
        except ValueError as error:
            return f"Invalid value for topic config {name!r}: {error}"
    values = effective_values({name: text for name, text in configs.items() if text is not None}, settings)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        return (
            f"min.compaction.lag.ms ({values['min.compaction.lag.ms']}) must not be larger than "
            f"max.compaction.lag.ms ({values['max.compaction.lag.ms']})"
        )
    return None


def describe_topic_configs(configs: Mapping[str, str], settings: Settings) -> list[ConfigValue]:
    """Every topic config with its effective value, sorted by name, and the broker settings behind it."""
    described = []
    for name, row in sorted(TOPIC_SETTINGS.items()):
        synonyms = []
        if name in configs:
            synonyms.append(ConfigSynonym(name, configs[name], ConfigSource.TOPIC))
        for broker_name in row.broker_names:
            text = settings.text(broker_name)
            if text is not None:
                is_default = settings.is_default(broker_name)
                synonyms.append(
                    ConfigSynonym(broker_name, text, ConfigSource.DEFAULT if is_default else ConfigSource.STATIC_BROKER)
                )
        value = configs[name] if name in configs else row.setting.format(row.default(settings))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        described.append(ConfigValue(row.setting, value, source, is_read_only=False, synonyms=tuple(synonyms)))
    return described


def describe_broker_configs(settings: Settings) -> list[ConfigValue]:
    """Every broker setting with its value, sorted by name; all are read-only while the broker runs."""
    described = []
    for name, setting in sorted(SETTINGS.items()):
        text = settings.text(name)
        source = ConfigSource.DEFAULT if settings.is_default(name) else ConfigSource.STATIC_BROKER
        synonyms = () if text is None else (ConfigSynonym(name, text, source),)
        described.append(ConfigValue(setting, text, source, is_read_only=True, synonyms=synonyms))
    return described
