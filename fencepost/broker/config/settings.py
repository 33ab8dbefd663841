"""`Settings`: the values that the broker runs with, as typed attributes, and the source of each.

Only `override` changes them while the broker runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.config.cluster_settings import ClusterSettings
from fencepost.broker.config.security_table import MECHANISMS, AuthenticationSettings, EncryptionSettings
from fencepost.broker.config.setting import Scope, Setting, declared_settings
from fencepost.broker.config.table import (
    SECTIONS,
    ConnectionSettings,
    GroupSettings,
    HttpSettings,
    LogSettings,
    ServerSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    TopicSettings,
    TransactionSettings,
)

if TYPE_CHECKING:
    from fencepost.check_back.settings import ResolverSettings

LISTENER_PREFIX = "listener.name."
CHECK_BACK_PREFIX = "fencepost.check.back."


class ScopedName(NamedTuple):
    """The name of a setting for one listener, taken apart; the listener in lower case, the mechanism in upper case."""

    listener: str
    mechanism: str | None
    setting: str


def scoped_name(name: str) -> ScopedName | None:
    """Take `listener.name.<listener>.<setting>` or `listener.name.<listener>.<mechanism>.<setting>` apart; None for any
    other name. Whether there is such a setting is not checked."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    first, _, rest = setting.partition(".")
    if first.upper() in MECHANISMS:
        return ScopedName(listener.lower(), first.upper(), rest)
    return ScopedName(listener.lower(), None, setting)


def setting_of_listener(name: str) -> str | None:
    """The setting that a name sets for one listener, or for one mechanism on it; None if it has no effect."""
    scoped = scoped_name(name)
    row = None if scoped is None else SETTINGS.get(scoped.setting)
    if scoped is None or row is None or row.scope is Scope.BROKER:
        return None
    return scoped.setting if scoped.mechanism is None or row.scope is Scope.MECHANISM else None


class ConfigSource(IntEnum):
    """Source of a config's value, with the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """A config that gives, or could give, the value of another."""

    name: str
    value: str | None
    source: ConfigSource


class DynamicLayers:
    """Settings that were set while the broker ran (KIP-226): texts by Kafka name, for this broker and for all brokers.

    static: the values that they replaced, by attribute.
    """

    __slots__ = ("of_all_brokers", "of_this_broker", "static")

    def __init__(self) -> None:
        self.of_this_broker: Mapping[str, str] = {}
        self.of_all_brokers: Mapping[str, str] = {}
        self.static: dict[str, Any] = {}


@dataclass(frozen=True)
class Settings(
    ShareGroupSettings,
    StreamsGroupSettings,
    GroupSettings,
    TransactionSettings,
    LogSettings,
    TopicSettings,
    AuthenticationSettings,
    EncryptionSettings,
    ClusterSettings,
    HttpSettings,
    ConnectionSettings,
    ServerSettings,
):
    """All settings: `settings.transaction_max_timeout_ms` is Kafka's `transaction.max.timeout.ms`, in milliseconds.

    Made by `load_settings` from the user's sources, or directly in tests: `Settings(log_dirs="…", num_partitions=3)`.
    An attribute always holds the value in force; only `override` changes it while the broker runs.
    origins:      the source of each name that was set: `broker.properties:12`, `--set`, `FENCEPOST_NUM_PARTITIONS`.
    of_listeners: settings of single listeners, texts by whole name: `listener.name.internal.max.connections`.
    check_back:   the sources that are asked about transactions in doubt, in their order.
    """

    origins: Mapping[str, str] = field(default_factory=dict)
    of_listeners: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets among them
    check_back: tuple[ResolverSettings, ...] = ()
    layers: DynamicLayers = field(default_factory=DynamicLayers, repr=False, compare=False)

    def value(self, name: str) -> Any:
        """The typed value of a setting by its Kafka name."""
        return getattr(self, SETTINGS[name].attribute)

    def of_listener(self, name: str, listener: str, mechanism: str | None = None) -> Any:
        """The typed value of a setting for one listener, or one SASL mechanism on it; None if it has no own one."""
        part = listener if mechanism is None else f"{listener}.{mechanism}"
        own_name = f"{LISTENER_PREFIX}{part.lower()}.{name}"
        for texts in (self.layers.of_this_broker, self.layers.of_all_brokers, self.of_listeners):
            if own_name in texts:
                # Texts are checked before they are stored, but not by versions that did not know the name.
                with contextlib.suppress(ValueError):
                    return SETTINGS[name].parse(texts[own_name])
        return None

    def for_listener(self, name: str, listener: str, mechanism: str | None = None) -> Any:
        """The typed value in force for one listener, or one SASL mechanism on it: the mechanism's own, else the
        listener's own, else the broker's. Read anew, as all of them may change while the broker runs."""
        for part in (mechanism, None) if mechanism is not None else (None,):
            value = self.of_listener(name, listener, part)
            if value is not None:
                return value
        return self.value(name)

    def static_value(self, name: str) -> Any:
        """The typed value that the broker was started with."""
        attribute = SETTINGS[name].attribute
        static = self.layers.static
        return static[attribute] if attribute in static else getattr(self, attribute)

    def is_default(self, name: str) -> bool:
        """Whether the broker was started with the default of a setting."""
        return name not in self.origins and bool(self.static_value(name) == SETTINGS[name].default)

    def text(self, name: str) -> str | None:
        """The value as Kafka shows it in DescribeConfigs; None when unset."""
        setting = SETTINGS[name]
        return setting.format(getattr(self, setting.attribute))

    def override(self, *, of_this_broker: Mapping[str, str], of_all_brokers: Mapping[str, str]) -> list[str]:
        """Replace the dynamic values; one for this broker takes precedence over one for all brokers.

        Takes texts by Kafka name. Unknown names change nothing. Settings whose text cannot be read keep their static
        value; their names are returned.
        """
        layers = self.layers
        for attribute, value in layers.static.items():
            object.__setattr__(self, attribute, value)
        layers.static = {}
        unreadable = []
        for name, text in {**of_all_brokers, **of_this_broker}.items():
            setting = SETTINGS.get(name)
            if setting is None:
                continue
            try:
                value = setting.parse(text)
            except ValueError:
                unreadable.append(name)
                continue
            layers.static[setting.attribute] = getattr(self, setting.attribute)
            object.__setattr__(self, setting.attribute, value)
        layers.of_this_broker, layers.of_all_brokers = of_this_broker, of_all_brokers
        return unreadable

    def synonyms(self, names: tuple[str, ...]) -> list[ConfigSynonym]:
        """All sources that give, or could give, the value of the first of some settings, highest precedence first.

        names: the setting and its equivalents in other units, highest precedence first.
        Source: Kafka's ConfigHelper.configSynonyms, which returns nothing if the first is not set anywhere.
        """
        found = []
        layers = self.layers
        for layer, source in (
            (layers.of_this_broker, ConfigSource.DYNAMIC_BROKER),
            (layers.of_all_brokers, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ):
            found += [ConfigSynonym(name, layer[name], source) for name in names if name in layer]
        found += [
            ConfigSynonym(name, SETTINGS[name].format(self.static_value(name)), ConfigSource.STATIC_BROKER)
            for name in names
            if not self.is_default(name)
        ]
        found += [
            ConfigSynonym(name, SETTINGS[name].format(SETTINGS[name].default), ConfigSource.DEFAULT)
            for name in names
            if SETTINGS[name].default is not None
        ]
        first = next((position for position, synonym in enumerate(found) if synonym.name == names[0]), len(found))
        return found[first:]


SETTINGS: dict[str, Setting] = {
    name: setting for section in SECTIONS for name, setting in declared_settings(section).items()
}
"""The rows of the table by Kafka name, in the order of the documentation."""

ALIASES: dict[str, str] = {alias: setting.name for setting in SETTINGS.values() for alias in setting.aliases}
