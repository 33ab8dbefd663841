"""The broker's settings: the table (Kafka's names, defaults, documentation), and the ways to fill and show it."""

from broker.config.listeners import Endpoint, Listener, parse_listeners
from broker.config.loading import ConfigurationError, Entry, LoadedSettings, load_settings
from broker.config.setting import Setting, SettingType
from broker.config.settings import SETTINGS, Settings
from broker.config.topic_settings import (
    TOPIC_SETTINGS,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    check_topic_configs,
    describe_broker_configs,
    describe_topic_configs,
    effective_values,
)

__all__ = [
    "SETTINGS",
    "TOPIC_SETTINGS",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigValue",
    "ConfigurationError",
    "Endpoint",
    "Entry",
    "Listener",
    "LoadedSettings",
    "Setting",
    "SettingType",
    "Settings",
    "check_topic_configs",
    "describe_broker_configs",
    "describe_topic_configs",
    "effective_values",
    "load_settings",
    "parse_listeners",
]
