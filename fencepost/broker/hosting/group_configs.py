"""Configs of groups, in the metadata store; changes apply from the next request on (KIP-848, KIP-932).

Source: Kafka's GroupConfigManager.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.config import AlterationRefusal, ConfigValue, Settings
from fencepost.broker.config.group_settings import check_group_configs, describe_group_configs, group_value
from fencepost.broker.hosting.configs_by_name import Configs, ConfigsByName
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.errors import ErrorCode

GROUP_CONFIGS_KEY = "group-configs"

GroupId = str


class GroupConfigs(ConfigsByName):
    """The configs of all groups, whether a group exists or not."""

    def __init__(self, store: MetadataStore, settings: Settings) -> None:
        super().__init__(store, GROUP_CONFIGS_KEY, "group", self._problem)
        self._settings = settings

    def _problem(self, _: GroupId, configs: Configs) -> AlterationRefusal | None:
        reason = check_group_configs(configs, self._settings)
        return None if reason is None else AlterationRefusal(ErrorCode.INVALID_CONFIG, reason)

    def value(self, group_id: GroupId, name: str) -> Any:
        """The typed value of a config for a group."""
        return group_value(name, self.of(group_id), self._settings)

    def describe(self, group_id: GroupId) -> list[ConfigValue]:
        """Every config of a group with its value and the value's sources."""
        return describe_group_configs(self.of(group_id), self._settings)
