"""`Settings`: the values the broker runs with, as typed attributes, and where each of them came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.config.setting import Setting, declared_settings
from broker.config.table import (
    SECTIONS,
    ConnectionSettings,
    GroupSettings,
    LogSettings,
    ServerSettings,
    TopicSettings,
    TransactionSettings,
)


@dataclass(frozen=True)
class Settings(GroupSettings, TransactionSettings, LogSettings, TopicSettings, ConnectionSettings, ServerSettings):
    """All settings: `settings.transaction_max_timeout_ms` is Kafka's `transaction.max.timeout.ms`, in milliseconds.

    Made by `load_settings` from what a user wrote, or directly, by tests: `Settings(log_dirs="…", num_partitions=3)`.
    origins: for each name that was set, where: `broker.properties:12`, `--set`, `FENCEPOST_NUM_PARTITIONS`.
    """

    origins: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """The typed value of a setting by its Kafka name."""
        return getattr(self, SETTINGS[name].attribute)

    def is_default(self, name: str) -> bool:
        return name not in self.origins and bool(self.value(name) == SETTINGS[name].default)

    def text(self, name: str) -> str | None:
        """The value as Kafka shows it in DescribeConfigs; None when unset."""
        setting = SETTINGS[name]
        return setting.format(getattr(self, setting.attribute))


SETTINGS: dict[str, Setting] = {
    name: setting for section in SECTIONS for name, setting in declared_settings(section).items()
}
"""The rows of the table by Kafka name, in the order of the documentation."""

ALIASES: dict[str, str] = {alias: setting.name for setting in SETTINGS.values() for alias in setting.aliases}
