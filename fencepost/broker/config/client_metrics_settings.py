"""Configs of client metrics: which metrics the broker asks of which clients, and the checks on their values.

Source: KIP-714; Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fencepost.broker.config.alteration import AlterationRefusal
from fencepost.broker.config.setting import Setting, SettingType
from fencepost.broker.config.settings import ConfigSource, ConfigSynonym
from fencepost.broker.config.topic_settings import ConfigValue, invalid_value
from fencepost.protocol.errors import ErrorCode

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
LEAST_INTERVAL_MS: Final = 100
GREATEST_INTERVAL_MS: Final = 3_600_000
MATCHED_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
LONGEST_PATTERN: Final = 1_000
"""Characters of a pattern; far more than a name or an address needs."""
MOST_METRICS: Final = 1_000
"""Prefixes of one subscription; a client is sent those of all that match it."""
LONGEST_PREFIX: Final = 1_000

CLIENT_METRICS_SETTINGS: Final = {
    row.name: row
    for row in (
        Setting(
            METRICS,
            SettingType.LIST,
            (),
            "Prefixes of the names of the metrics that clients send, such as `org.apache.kafka.consumer.`; `*`: all.",
        ),
        Setting(
            INTERVAL_MS,
            SettingType.INT,
            DEFAULT_INTERVAL_MS,
            f"How often clients send them: {LEAST_INTERVAL_MS} to {GREATEST_INTERVAL_MS}.",
        ),
        Setting(
            MATCH,
            SettingType.LIST,
            (),
            "The clients that send them, as `attribute=pattern`; the pattern is a regular expression of the whole, "
            f"and all patterns have to match. Attributes: {', '.join(MATCHED_ATTRIBUTES)}. Empty: all clients.",
        ),
    )
}


def client_metrics_value(name: str, configs: Mapping[str, str]) -> Any:
    """The typed value of a config of a subscription."""
    setting = CLIENT_METRICS_SETTINGS[name]
    return setting.parse(configs[name]) if name in configs else setting.default


def match_patterns(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The attributes and patterns of `match`; an entry that is no pair has the attribute `""`."""
    for entry in client_metrics_value(MATCH, configs):
        attribute, equals, pattern = entry.partition("=")
        is_pair = equals and pattern.rstrip("=") and "=" not in pattern.rstrip("=")
        yield (attribute.strip(), pattern.rstrip("=").strip()) if is_pair else ("", entry)


def check_client_metrics_configs(configs: Mapping[str, str]) -> AlterationRefusal | None:
    """The reason to refuse these configs of a subscription, or None; patterns are compiled by the caller.

    INVALID_REQUEST: an unknown name, an interval out of its bounds. INVALID_CONFIG: all else.
    """
    for name in configs:
        if name not in CLIENT_METRICS_SETTINGS:
            return AlterationRefusal(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    for name, text in configs.items():
        reason = invalid_value(CLIENT_METRICS_SETTINGS[name], text)
        if reason is not None:
            return AlterationRefusal(ErrorCode.INVALID_CONFIG, reason)
        if CLIENT_METRICS_SETTINGS[name].type is SettingType.LIST and _has_empty_entry(text):
            return AlterationRefusal(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
    interval_ms = client_metrics_value(INTERVAL_MS, configs)
    if not LEAST_INTERVAL_MS <= interval_ms <= GREATEST_INTERVAL_MS:
        return AlterationRefusal(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {LEAST_INTERVAL_MS} and "
            f"{GREATEST_INTERVAL_MS} (1 hour)",
        )
    metrics = client_metrics_value(METRICS, configs)
    if len(metrics) > MOST_METRICS or any(len(prefix) > LONGEST_PREFIX for prefix in metrics):
        reason = f"{METRICS}: more than {MOST_METRICS} prefixes, or one of more than {LONGEST_PREFIX} characters"
        return AlterationRefusal(ErrorCode.INVALID_CONFIG, reason)
    for attribute, pattern in match_patterns(configs):
        if attribute not in MATCHED_ATTRIBUTES or len(pattern) > LONGEST_PATTERN:
            reason = (
                f"Illegal client matching pattern: {f'{attribute}={pattern}' if attribute else pattern}: expected "
                f"attribute=pattern, with one of {', '.join(MATCHED_ATTRIBUTES)}, and a pattern of up to "
                f"{LONGEST_PATTERN} characters"
            )
            return AlterationRefusal(ErrorCode.INVALID_CONFIG, reason[:1_000])
    return None


def _has_empty_entry(text: str) -> bool:
    return bool(text) and not all(entry.strip() for entry in text.split(","))


def describe_client_metrics_configs(configs: Mapping[str, str]) -> list[ConfigValue]:
    """Every config of a subscription with its value and the value's sources, sorted by name."""
    described = []
    for name, setting in sorted(CLIENT_METRICS_SETTINGS.items()):
        default = setting.format(setting.default)
        source = ConfigSource.CLIENT_METRICS if name in configs else ConfigSource.DEFAULT
        # As in Kafka, the default is no synonym here.
        synonyms = (ConfigSynonym(name, configs[name], source),) if name in configs else ()
        described.append(
            ConfigValue(setting, configs.get(name, default), source, is_read_only=False, synonyms=synonyms)
        )
    return described
