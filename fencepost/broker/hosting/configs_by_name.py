"""Configs of resources that need not exist, by name, in the metadata store: of groups, and of client metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fencepost.broker.config import AlterationRefusal
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument, read_settings_by_name
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.errors import NO_PROBLEM, ErrorWithMessage

log = get_logger(__name__)

Name = str
Configs = Mapping[str, str]
NO_CONFIGS: Final[Configs] = {}


class ConfigsByName:
    """The configs of all resources of a kind; those of a name without configs are not kept.

    kind: the name of the kind in the log. check: the reason to refuse the configs of a name, if any.
    """

    def __init__(
        self,
        store: MetadataStore,
        key: str,
        kind: str,
        check: Callable[[Name, Configs], AlterationRefusal | None],
    ) -> None:
        self._kind = kind
        self._check = check
        self._changing = asyncio.Lock()
        self._document: VersionedDocument[dict[Name, Configs]] = VersionedDocument(
            store,
            key,
            read=read_settings_by_name,
            write=lambda content: {name: dict(each) for name, each in content.items()},
            may_use_reserve=True,
        )

    async def open(self) -> None:
        """Load the stored configs, also those that another node has written since. Raises StorageError."""
        await self._document.load()

    @property
    def all(self) -> Mapping[Name, Configs]:
        """The configs of all names; another object after each change."""
        return self._document.content

    def names(self) -> Iterable[Name]:
        """The names with configs."""
        return self._document.content.keys()

    def of(self, name: Name) -> Configs:
        return self._document.content.get(name, NO_CONFIGS)

    async def alter(
        self, name: Name, change: Callable[[Configs], Configs | AlterationRefusal], *, validate_only: bool
    ) -> ErrorWithMessage:
        """Replace the configs of a name by the result of `change`.

        Errors: those of `change`, and of the check. Raises StorageError.
        """
        refusal: list[AlterationRefusal] = []

        def changed(content: dict[Name, Configs]) -> dict[Name, Configs] | None:
            refusal.clear()
            current = content.get(name, NO_CONFIGS)
            configs = change(current)
            if isinstance(configs, AlterationRefusal):
                refusal.append(configs)
                return None
            refused = self._check(name, configs)
            if refused is not None:
                refusal.append(refused)
            if refusal or validate_only or configs == current:
                return None
            others = {other: each for other, each in content.items() if other != name}
            return {**others, name: configs} if configs else others

        async with self._changing:
            before = self.of(name)
            await self._document.change(changed)
            after = self.of(name)
        if refusal:
            return refusal[0].error, refusal[0].message
        if after != before:
            log.info("configs_altered", kind=self._kind, resource=name, configs=sorted(after))
        return NO_PROBLEM
