"""Group settings: of consumer, share and streams groups, with the broker settings that give their defaults, and the
checks on clients' values.

Source: KIP-848, KIP-932, KIP-1071, KIP-1222; Kafka's GroupConfig and ShareGroupConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.broker.config.setting import Bounds, Setting, SettingType, at_least, distinct, one_of
from fencepost.broker.config.settings import ConfigSource, ConfigSynonym, Settings
from fencepost.broker.config.topic_settings import ConfigValue, invalid_value

_DURATION = (
    r"by_duration:(?i:(?P<sign>[-+]?)P(?=[-+\d]|T[-+\d])(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?)"
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
EARLIEST = "earliest"
LATEST = "latest"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


def duration_ms(reset: str) -> int | None:
    """The duration of `by_duration:P1DT2H30M`, as Java's Duration.parse reads it; None if it is no such duration, or a
    negative one."""
    match = re.fullmatch(_DURATION, reset)
    if match is None:
        return None
    found_ms = sum(float((match[unit] or "0").replace(",", ".")) * unit_ms for unit, unit_ms in _UNITS_MS.items())
    if match["sign"] == "-":
        found_ms = -found_ms
    return None if found_ms < 0 else int(found_ms)


_RESETS = Bounds(
    "earliest, latest or by_duration:DURATION, an ISO 8601 duration such as P1D or PT2H",
    lambda text: text in (EARLIEST, LATEST) or duration_ms(text) is not None,
)


_POSITIVE = at_least(1)


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """One row: a group config and the broker setting that gives its default, if any.

    limits: the broker settings that bound its value from below and above, if any.
    """

    setting: Setting
    broker_name: str | None = None
    limits: tuple[str | None, str | None] = (None, None)

    def default(self, settings: Settings) -> Any:
        if self.broker_name is None:
            return self.setting.default
        given = settings.value(self.broker_name)
        # Of a list of assignors the first is the default.
        return given[0] if self.setting.type is SettingType.STRING and isinstance(given, tuple) else given


def _row(
    name: str,
    documentation: str,
    broker_name: str,
    least: str | None = None,
    most: str | None = None,
    bounds: Bounds = _POSITIVE,
) -> GroupSetting:
    setting = Setting(name, SettingType.INT, None, documentation, bounds)
    return GroupSetting(setting, broker_name, (least, most))


GROUP_SETTINGS: dict[str, GroupSetting] = {
    row.setting.name: row
    for row in (
        _row(
            "consumer.assignment.interval.ms",
            "The least time between two assignments of the group.",
            "group.consumer.assignment.interval.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
            at_least(0),
        ),
        _row(
            "consumer.heartbeat.interval.ms",
            "How often members send heartbeats.",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        _row(
            "consumer.session.timeout.ms",
            "How long a member may go without a heartbeat.",
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
        GroupSetting(
            Setting(
                "errors.deadletterqueue.copy.record.enable",
                SettingType.BOOLEAN,
                False,
                "Whether dead letters have the original key, value and headers (KIP-1191).",
            )
        ),
        GroupSetting(
            Setting(
                DEAD_LETTER_TOPIC,
                SettingType.STRING,
                "",
                "The topic for records of a share group that are rejected, or have been delivered "
                "`share.delivery.count.limit` times; empty: they are only archived (KIP-1191).",
            )
        ),
        _row(
            "share.assignment.interval.ms",
            "The least time between two assignments of the group.",
            "group.share.assignment.interval.ms",
            "group.share.min.assignment.interval.ms",
            "group.share.max.assignment.interval.ms",
            at_least(0),
        ),
        GroupSetting(
            Setting(
                "share.auto.offset.reset",
                SettingType.STRING,
                LATEST,
                "Where the group begins in a partition that it has not read yet.",
                _RESETS,
            )
        ),
        _row(
            "share.delivery.count.limit",
            "The most deliveries of a record, after which it is archived.",
            "group.share.delivery.count.limit",
            "group.share.min.delivery.count.limit",
            "group.share.max.delivery.count.limit",
        ),
        _row(
            "share.heartbeat.interval.ms",
            "How often members send heartbeats.",
            "group.share.heartbeat.interval.ms",
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.heartbeat.interval.ms",
        ),
        GroupSetting(
            Setting(
                "share.isolation.level",
                SettingType.STRING,
                "read_uncommitted",
                "Whether records of transactions are delivered before those have committed.",
                one_of("read_committed", "read_uncommitted"),
            )
        ),
        _row(
            "share.partition.max.record.locks",
            "The most records of a partition in flight.",
            "group.share.partition.max.record.locks",
            "group.share.min.partition.max.record.locks",
            "group.share.max.partition.max.record.locks",
        ),
        _row(
            "share.record.lock.duration.ms",
            "How long a member holds the acquisition lock of a record.",
            "group.share.record.lock.duration.ms",
            "group.share.min.record.lock.duration.ms",
            "group.share.max.record.lock.duration.ms",
        ),
        GroupSetting(
            Setting(
                "share.renew.acknowledge.enable",
                SettingType.BOOLEAN,
                True,
                "Whether members may renew acquisition locks (KIP-1222).",
            )
        ),
        _row(
            "share.session.timeout.ms",
            "How long a member may go without a heartbeat.",
            "group.share.session.timeout.ms",
            "group.share.min.session.timeout.ms",
            "group.share.max.session.timeout.ms",
        ),
        _row(
            "streams.assignment.interval.ms",
            "The least time between two assignments of the group.",
            "group.streams.assignment.interval.ms",
            "group.streams.min.assignment.interval.ms",
            "group.streams.max.assignment.interval.ms",
            at_least(0),
        ),
        GroupSetting(
            Setting(
                "streams.assignor.name",
                SettingType.STRING,
                None,
                "The assignor of tasks to members.",
                one_of("sticky"),
            ),
            "group.streams.assignors",
        ),
        _row(
            "streams.heartbeat.interval.ms",
            "How often members send heartbeats.",
            "group.streams.heartbeat.interval.ms",
            "group.streams.min.heartbeat.interval.ms",
            "group.streams.max.heartbeat.interval.ms",
        ),
        _row(
            "streams.initial.rebalance.delay.ms",
            "How long a group that was empty waits for more members before it assigns tasks.",
            "group.streams.initial.rebalance.delay.ms",
            bounds=at_least(0),
        ),
        _row(
            "streams.num.standby.replicas",
            "Standby copies of each task's state.",
            "group.streams.num.standby.replicas",
            most="group.streams.max.standby.replicas",
            bounds=at_least(0),
        ),
        GroupSetting(
            Setting(
                "streams.rack.aware.assignment.tags",
                SettingType.LIST,
                None,
                "The client tags that every member needs; a member without one gets MISSING_CLIENT_TAGS.",
                distinct(),
            ),
            "group.streams.rack.aware.assignment.tags",
        ),
        _row(
            "streams.session.timeout.ms",
            "How long a member may go without a heartbeat.",
            "group.streams.session.timeout.ms",
            "group.streams.min.session.timeout.ms",
            "group.streams.max.session.timeout.ms",
        ),
    )
}


def check_group_configs(configs: Mapping[str, str], settings: Settings) -> str | None:
    """The reason to refuse these configs (INVALID_CONFIG), or None. Source: Kafka's GroupConfig.validate."""
    for name, text in configs.items():
        row = GROUP_SETTINGS.get(name)
        if row is None:
            return f"Unknown group config name: {name}"
        reason = invalid_value(row.setting, text)
        if reason is not None:
            return reason
        least, most = row.limits
        if least is not None and row.setting.parse(text) < settings.value(least):
            return f"{name} must be greater than or equal to {least}"
        if most is not None and row.setting.parse(text) > settings.value(most):
            return f"{name} must be less than or equal to {most}"
    if configs.get(DEAD_LETTER_TOPIC, "").startswith("__"):
        return f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'"
    for kind in ("consumer", "share", "streams"):
        session_timeout_ms = group_value(f"{kind}.session.timeout.ms", configs, settings)
        if session_timeout_ms <= group_value(f"{kind}.heartbeat.interval.ms", configs, settings):
            return f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
    return None


def group_value(name: str, configs: Mapping[str, str], settings: Settings) -> Any:
    """The typed value of a config for a group: its own or the broker's default, within the broker's limits."""
    row = GROUP_SETTINGS[name]
    if name not in configs:
        return row.default(settings)
    value = row.setting.parse(configs[name])
    least, most = row.limits
    if least is not None:
        value = max(value, settings.value(least))
    return value if most is None else min(value, settings.value(most))


def describe_group_configs(configs: Mapping[str, str], settings: Settings) -> list[ConfigValue]:
    """Every config of a group with its value and the value's sources, sorted by name."""
    described = []
    for name, row in sorted(GROUP_SETTINGS.items()):
        synonyms = []
        if name in configs:
            synonyms.append(ConfigSynonym(name, configs[name], ConfigSource.GROUP))
        if row.broker_name is None:
            default = row.setting.format(row.setting.default)
            synonyms.append(ConfigSynonym(name, default, ConfigSource.DEFAULT))
        else:
            synonyms += settings.synonyms((row.broker_name,))
        value = configs.get(name, row.setting.format(row.default(settings)))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        described.append(ConfigValue(row.setting, value, source, is_read_only=False, synonyms=tuple(synonyms)))
    return described
