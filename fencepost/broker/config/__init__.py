"""The broker's settings: the table (Kafka's names, defaults, documentation), loading, altering and describing."""

from fencepost.broker.config.alteration import (
    Alteration,
    AlterationRefusal,
    AlterOperation,
    alter_configs,
    check_alterations,
    replace_configs,
)
from fencepost.broker.config.dynamic import (
    DYNAMIC_NAMES,
    check_dynamic_configs,
    describe_broker_configs,
    describe_broker_defaults,
)
from fencepost.broker.config.listeners import Endpoint, Listener, parse_listeners
from fencepost.broker.config.loading import ConfigurationError, Entry, LoadedSettings, load_settings
from fencepost.broker.config.setting import SMALLEST_SEGMENT_BYTES, Setting, SettingType
from fencepost.broker.config.settings import SETTINGS, ConfigSource, ConfigSynonym, DynamicLayers, Settings
from fencepost.broker.config.topic_settings import (
    INTERNAL_SEGMENT_BYTES,
    TOPIC_SETTINGS,
    ConfigValue,
    check_topic_configs,
    describe_topic_configs,
    effective_values,
    readable_configs,
)

__all__ = [
    "DYNAMIC_NAMES",
    "INTERNAL_SEGMENT_BYTES",
    "SETTINGS",
    "SMALLEST_SEGMENT_BYTES",
    "TOPIC_SETTINGS",
    "AlterOperation",
    "Alteration",
    "AlterationRefusal",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigValue",
    "ConfigurationError",
    "DynamicLayers",
    "Endpoint",
    "Entry",
    "Listener",
    "LoadedSettings",
    "Setting",
    "SettingType",
    "Settings",
    "alter_configs",
    "check_alterations",
    "check_dynamic_configs",
    "check_topic_configs",
    "describe_broker_configs",
    "describe_broker_defaults",
    "describe_topic_configs",
    "effective_values",
    "load_settings",
    "parse_listeners",
    "readable_configs",
    "replace_configs",
]
