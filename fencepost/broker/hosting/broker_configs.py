"""Dynamic broker configs (KIP-226): stored in the metadata store, and applied to `Settings` here.

Source: Kafka's DynamicBrokerConfig.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from fencepost.broker.config import AlterationRefusal, Settings, check_dynamic_configs
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument, read_settings_by_name
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage

log = get_logger(__name__)

BROKER_CONFIGS_KEY = "broker-configs"
ALL_BROKERS = ""
"""In place of a node id: the defaults of all brokers."""

BrokerName = str
Configs = Mapping[str, str]
Check = Callable[[Configs, bool], Awaitable[str | None]]


class BrokerConfigs:
    """The dynamic configs of this broker and of all brokers. `settings` has the values in force.

    on_changed:  called after values in force have changed.
    on_repeated: called after a request, to this or another node, that sets the values in force again: names of files
                 whose content has changed.
    checks:      called before a change, with the configs and whether they are for this broker only; each returns the
                 reason why they cannot be put in force, or None.
    """

    def __init__(self, store: MetadataStore, settings: Settings) -> None:
        self.on_changed: list[Callable[[], None]] = []
        self.on_repeated: list[Callable[[], None]] = []
        self.checks: list[Check] = []
        self._settings = settings
        self._own_name = str(settings.node_id)
        self._changing = asyncio.Lock()
        self._in_force: dict[BrokerName, Configs] | None = None
        self._document: VersionedDocument[dict[BrokerName, Configs]] = VersionedDocument(
            store,
            BROKER_CONFIGS_KEY,
            read=read_settings_by_name,
            write=lambda content: {name: dict(configs) for name, configs in content.items()},
            may_use_reserve=True,
        )

    async def open(self) -> None:
        """Apply the stored configs, also those that another node has written since. Raises StorageError."""
        async with self._changing:
            await self._document.load()
            self._put_in_force()

    def configs(self, name: BrokerName) -> Configs:
        """The configs of a broker, or of ALL_BROKERS."""
        return self._document.content.get(name, {})

    async def alter(
        self, name: BrokerName, change: Callable[[Configs], Configs | AlterationRefusal], *, validate_only: bool
    ) -> ErrorWithMessage:
        """Replace the configs of a broker, or of ALL_BROKERS, by the result of `change`.

        Errors: those of `change`, and INVALID_REQUEST for configs that are not dynamic. Raises StorageError.
        """
        refusal: list[AlterationRefusal] = []

        def changed(content: dict[BrokerName, Configs]) -> dict[BrokerName, Configs] | None:
            refusal.clear()
            current = content.get(name, {})
            configs = change(current)
            if isinstance(configs, AlterationRefusal):
                refusal.append(configs)
                return None
            reason = check_dynamic_configs(configs)
            if reason is not None:
                refusal.append(AlterationRefusal(ErrorCode.INVALID_REQUEST, reason))
            if refusal or validate_only or configs == current:
                return None
            return {**content, name: configs}

        async with self._changing:
            before = self.configs(name)
            reason = await self._problem_with(change(before), of_this_broker=name != ALL_BROKERS)
            if reason is not None:
                return ErrorCode.INVALID_REQUEST, reason
            await self._document.change(changed)
            if refusal:
                return refusal[0].error, refusal[0].message
            is_changed = self.configs(name) != before
            if is_changed:
                log.info("broker_configs_altered", broker=name, configs=sorted(self.configs(name)))
            elif name == ALL_BROKERS and not validate_only:
                await self._document.change(dict)  # notifies the other nodes
            self._put_in_force()
            if not is_changed and not validate_only and name != ALL_BROKERS:
                self._repeat()
        return NO_PROBLEM

    async def _problem_with(self, configs: Configs | AlterationRefusal, *, of_this_broker: bool) -> str | None:
        if isinstance(configs, AlterationRefusal) or check_dynamic_configs(configs) is not None:
            return None  # refused with its own reason
        for check in self.checks:
            reason = await check(configs, of_this_broker)
            if reason is not None:
                return reason
        return None

    def _put_in_force(self) -> None:
        before, content = self._in_force, self._document.content
        if content is before:
            return
        if content == before:
            self._repeat()
        else:
            self._apply()
        self._in_force = content

    def _repeat(self) -> None:
        for hook in self.on_repeated:
            hook()

    def _apply(self) -> None:
        unreadable = self._settings.override(
            of_this_broker=self.configs(self._own_name), of_all_brokers=self.configs(ALL_BROKERS)
        )
        if unreadable:
            log.error("broker_configs_unreadable", names=unreadable, reason="left as the broker was started with them")
        for hook in self.on_changed:
            hook()
