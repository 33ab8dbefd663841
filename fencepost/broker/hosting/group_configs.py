"""Configs of groups, in the metadata store; changes apply from the next request on (KIP-848, KIP-932).

Source: Kafka's GroupConfigManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fencepost.broker.config import AlterationRefusal, ConfigValue, Settings
from fencepost.broker.config.group_settings import check_group_configs, describe_group_configs, group_value
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument, read_settings_by_name
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage

log = get_logger(__name__)

GROUP_CONFIGS_KEY = "group-configs"

GroupId = str
Configs = Mapping[str, str]


class GroupConfigs:
    """The configs of all groups, whether a group exists or not."""

    def __init__(self, store: MetadataStore, settings: Settings) -> None:
        self._settings = settings
        self._changing = asyncio.Lock()
        self._document: VersionedDocument[dict[GroupId, Configs]] = VersionedDocument(
            store,
            GROUP_CONFIGS_KEY,
            read=read_settings_by_name,
            write=lambda content: {group_id: dict(each) for group_id, each in content.items()},
            may_use_reserve=True,
        )

    async def open(self) -> None:
        """Load the stored configs, also those that another node has written since. Raises StorageError."""
        await self._document.load()

    def group_ids(self) -> Iterable[GroupId]:
        """The groups with configs."""
        return self._document.content.keys()

    def value(self, group_id: GroupId, name: str) -> Any:
        """The typed value of a config for a group."""
        return group_value(name, self._document.content.get(group_id, {}), self._settings)

    def describe(self, group_id: GroupId) -> list[ConfigValue]:
        """Every config of a group with its value and the value's sources."""
        return describe_group_configs(self._document.content.get(group_id, {}), self._settings)

    async def alter(
        self, group_id: GroupId, change: Callable[[Configs], Configs | AlterationRefusal], *, validate_only: bool
    ) -> ErrorWithMessage:
        """Replace the configs of a group by the result of `change`.

        Errors: those of `change`, and INVALID_CONFIG. Raises StorageError.
        """
        refusal: list[AlterationRefusal] = []

        def changed(content: dict[GroupId, Configs]) -> dict[GroupId, Configs] | None:
            refusal.clear()
            current = content.get(group_id, {})
            configs = change(current)
            if isinstance(configs, AlterationRefusal):
                refusal.append(configs)
                return None
            reason = check_group_configs(configs, self._settings)
            if reason is not None:
                refusal.append(AlterationRefusal(ErrorCode.INVALID_CONFIG, reason))
            if refusal or validate_only or configs == current:
                return None
            others = {name: each for name, each in content.items() if name != group_id}
            return {**others, group_id: configs} if configs else others

        async with self._changing:
            before = self._document.content.get(group_id)
            await self._document.change(changed)
            after = self._document.content.get(group_id, {})
        if refusal:
            return refusal[0].error, refusal[0].message
        if after != (before or {}):
            log.info("group_configs_altered", group_id=group_id, configs=sorted(after))
        return NO_PROBLEM
