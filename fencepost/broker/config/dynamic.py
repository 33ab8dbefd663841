"""Dynamic broker settings (KIP-226): those that can change while the broker runs, their checks, and their listing.

Source: Kafka's DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.config.loading import IGNORED_NAMES, IGNORED_PREFIXES, REFUSED_PREFIXES
from fencepost.broker.config.setting import Setting, SettingType, at_least
from fencepost.broker.config.settings import (
    ALIASES,
    SETTINGS,
    ConfigSource,
    ConfigSynonym,
    Settings,
    scoped_name,
    setting_of_listener,
)
from fencepost.broker.config.topic_settings import ConfigValue, invalid_value, shown_value

_SINGLE_LISTENERS = frozenset(
    """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905  # as above
)
"""Dynamic for single listeners only. Source: Kafka's DynamicSecurityConfigs."""

DYNAMIC_NAMES = frozenset(
    """
    fencepost.drain fencepost.shutdown.handover.ms fencepost.two.phase.transactional.ids
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level log.cleaner.backoff.ms
    log.cleaner.delete.retention.ms log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleanup.policy log.flush.interval.messages log.flush.interval.ms
    log.index.interval.bytes log.index.size.max.bytes log.message.timestamp.after.max.ms
    log.message.timestamp.before.max.ms log.message.timestamp.type log.retention.bytes log.retention.ms
    log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
    max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
    max.decompressed.message.bytes message.max.bytes min.insync.replicas producer.id.expiration.ms
    transaction.partition.verification.enable
    """.split()  # noqa: SIM905  # reads and is kept in order more easily than quoted names
)
"""The settings that are dynamic in Kafka, too. The code reads them anew at each use."""

# Dynamic in Kafka, for parts that do not exist here: values are checked and stored, so that tools can set them.
_WITHOUT_EFFECT = {
    row.name: row
    for row in (
        Setting("background.threads", SettingType.INT, None, "", at_least(1)),
        Setting("cordoned.log.dirs", SettingType.LIST, None, ""),
        Setting("follower.replication.throttled.rate", SettingType.LONG, None, "", at_least(0)),
        Setting("leader.replication.throttled.rate", SettingType.LONG, None, "", at_least(0)),
        Setting("log.cleaner.dedupe.buffer.size", SettingType.LONG, None, "", at_least(2**20 + 1)),
        Setting("log.cleaner.io.buffer.load.factor", SettingType.DOUBLE, None, ""),
        Setting("log.cleaner.io.buffer.size", SettingType.INT, None, "", at_least(0)),
        Setting("log.cleaner.io.max.bytes.per.second", SettingType.DOUBLE, None, ""),
        Setting("log.cleaner.threads", SettingType.INT, None, "", at_least(1)),
        Setting("log.preallocate", SettingType.BOOLEAN, None, ""),
        Setting("metric.reporters", SettingType.LIST, None, ""),
        Setting("num.io.threads", SettingType.INT, None, "", at_least(1)),
        Setting("num.network.threads", SettingType.INT, None, "", at_least(1)),
        Setting("num.recovery.threads.per.data.dir", SettingType.INT, None, "", at_least(1)),
        Setting("num.replica.fetchers", SettingType.INT, None, "", at_least(1)),
        Setting("replica.alter.log.dirs.io.max.bytes.per.second", SettingType.LONG, None, "", at_least(0)),
        Setting("sasl.kerberos.kinit.cmd", SettingType.STRING, None, ""),
        Setting("sasl.kerberos.min.time.before.relogin", SettingType.LONG, None, ""),
        Setting("sasl.kerberos.ticket.renew.jitter", SettingType.DOUBLE, None, ""),
        Setting("sasl.kerberos.ticket.renew.window.factor", SettingType.DOUBLE, None, ""),
        Setting("sasl.login.refresh.buffer.seconds", SettingType.INT, None, "", at_least(0)),
        Setting("sasl.login.refresh.min.period.seconds", SettingType.INT, None, "", at_least(0)),
        Setting("sasl.login.refresh.window.factor", SettingType.DOUBLE, None, ""),
        Setting("sasl.login.refresh.window.jitter", SettingType.DOUBLE, None, ""),
        Setting("unclean.leader.election.enable", SettingType.BOOLEAN, None, ""),
    )
}

_OTHER_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _OTHER_UNITS for name in names}


def check_dynamic_configs(configs: Mapping[str, str]) -> str | None:
    """The reason why broker settings cannot be set at run time (INVALID_REQUEST), or None.

    Unknown names pass, as in Kafka, where they may be a plugin's; so do Kafka's dynamic names without effect here.
    """
    for name in configs:
        scoped = scoped_name(name)
        setting_name = name if scoped is None else scoped.setting
        is_known = setting_name in SETTINGS or setting_name in _WITHOUT_EFFECT
        if not is_known and setting_name.startswith(REFUSED_PREFIXES):
            return f"{name}: nothing here reads this security setting"
    for_all = sorted(_SINGLE_LISTENERS & configs.keys())
    if for_all:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(for_all)}]"
        )
    fixed = [name for name in configs if _is_fixed(name)]
    if fixed:
        return f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    for name, text in configs.items():
        setting = _row(name) or _WITHOUT_EFFECT.get(name)
        reason = None if setting is None else invalid_value(setting, text)
        if reason is not None:
            return reason
    return None


def _row(name: str) -> Setting | None:
    return SETTINGS.get(setting_of_listener(name) or name)


def _is_fixed(name: str) -> bool:
    scoped = setting_of_listener(name)
    if scoped is not None:
        return scoped not in DYNAMIC_NAMES and scoped not in _SINGLE_LISTENERS
    if name in DYNAMIC_NAMES or name in _WITHOUT_EFFECT:
        return False
    return name in SETTINGS or name in ALIASES or name in IGNORED_NAMES or name.startswith(IGNORED_PREFIXES)


def describe_broker_configs(settings: Settings) -> list[ConfigValue]:
    """Every broker setting with its value, sorted by name; then unknown names set at run time, without their values."""
    described = []
    for name, setting in sorted(SETTINGS.items()):
        synonyms = settings.synonyms(_own_unit_first(name))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        is_read_only = name not in DYNAMIC_NAMES
        described.append(
            ConfigValue(setting, settings.text(name), source, is_read_only, tuple(synonyms), setting.is_secret)
        )
    layers = settings.layers
    others = {name for name in (*layers.of_this_broker, *layers.of_all_brokers) if name not in SETTINGS}
    return described + [
        _describe_unknown(
            name,
            ConfigSource.DYNAMIC_BROKER if name in layers.of_this_broker else ConfigSource.DYNAMIC_DEFAULT_BROKER,
        )
        for name in sorted(others)
    ]


def _own_unit_first(name: str) -> tuple[str, ...]:
    """A setting and its equivalents in other units that have lower precedence, highest first."""
    names = _SYNONYMS.get(name, (name,))
    return names[names.index(name) :]


def describe_broker_defaults(settings: Settings) -> list[ConfigValue]:
    """The settings that were set at run time for all brokers, sorted by name."""
    described = []
    for name, text in sorted(settings.layers.of_all_brokers.items()):
        setting = SETTINGS.get(name)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        if setting is None:
            described.append(_describe_unknown(name, source))
            continue
        value = shown_value(setting, text)
        synonyms = (ConfigSynonym(name, value, source),)
        described.append(ConfigValue(setting, value, source, is_read_only=False, synonyms=synonyms))
    return described


def _describe_unknown(name: str, source: ConfigSource) -> ConfigValue:
    """Describe a name that is no setting. Its value may be a secret, so Kafka treats it as one."""
    setting = Setting(name, SettingType.STRING, None, "")
    synonyms = (ConfigSynonym(name, None, source),)
    return ConfigValue(setting, None, source, is_read_only=False, synonyms=synonyms, is_sensitive=True)
