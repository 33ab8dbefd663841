"""Levels of the cluster's features, which clients adapt to; stored in the metadata store once they are set.

Source: KIP-584, KIP-1022; Kafka's FeatureControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from fencepost.broker.config import Settings
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.checked_json import INT16_MAX, object_of

log = get_logger(__name__)

FEATURES_KEY = "features"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"


class LevelRange(NamedTuple):
    """The levels of a feature that this broker knows."""

    minimum: int
    maximum: int


SUPPORTED: Mapping[str, LevelRange] = {
    GROUP_VERSION: LevelRange(0, 1),  # 1: the consumer group protocol (KIP-848)
    # 33: Apache Kafka 4.4 (4.4-IV2). There is no metadata log that could have another level; consoles read this one to
    # find the version of Kafka.
    METADATA_VERSION: LevelRange(33, 33),
    SHARE_VERSION: LevelRange(0, 2),  # 1: share groups (KIP-932), 2: their dead-letter queues (KIP-1191)
    STREAMS_VERSION: LevelRange(0, 1),  # 1: the streams rebalance protocol (KIP-1071)
    TRANSACTION_VERSION: LevelRange(0, 2),  # 2: an epoch for every transaction (KIP-890)
}


class UpgradeType(IntEnum):
    """Allowed kinds of a level's change, with Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and its new level; upgrade_type: the number as sent."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True)
class _Finalized:
    """The levels that were set. epoch: the number of changes."""

    epoch: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)


class Features:
    """The levels in force: those that were set, else the highest, or the settings' `transaction.version`.

    on_changed: called after levels have changed.
    """

    def __init__(self, store: MetadataStore, settings: Settings) -> None:
        self.on_changed: list[Callable[[], None]] = []
        self._settings = settings
        self._in_force: _Finalized | None = None
        self._document: VersionedDocument[_Finalized] = VersionedDocument(
            store,
            FEATURES_KEY,
            read=_read,
            write=lambda finalized: {"epoch": finalized.epoch, "levels": dict(finalized.levels)},
        )

    async def open(self) -> None:
        """Put the stored levels in force, also those that another node has written since. Raises StorageError."""
        await self._document.load()
        self._put_in_force()

    @property
    def epoch(self) -> int:
        """The epoch of the levels; clients adopt levels of a higher epoch."""
        return self._document.content.epoch

    @property
    def levels(self) -> Mapping[str, int]:
        """The levels of all supported features, by name."""
        return {name: self.level(name) for name in SUPPORTED}

    def level(self, name: str) -> int:
        level = self._document.content.levels.get(name)
        if level is not None:
            return max(level, SUPPORTED[name].minimum)  # an older broker may have stored one that is gone
        return self._settings.fencepost_transaction_version if name == TRANSACTION_VERSION else SUPPORTED[name].maximum

    def check(self, update: FeatureUpdate) -> str | None:
        """The reason why a level cannot be set (INVALID_UPDATE_VERSION), or None."""
        name, level, upgrade_type = update
        if upgrade_type not in UpgradeType.__members__.values():
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        supported = SUPPORTED.get(name)
        if supported is None:
            node = f"Local controller {self._settings.node_id}"
            return f"{node} does not support this feature." if level else f"Feature {name} not found."
        if not supported.minimum <= level <= supported.maximum:
            versions = f"{supported.minimum}-{supported.maximum}"
            return f"Local controller {self._settings.node_id} only supports versions {versions}"
        current = self.level(name)
        if level < current and upgrade_type == UpgradeType.UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level > current and upgrade_type != UpgradeType.UPGRADE:
            return "Can't downgrade to a newer version."
        return None

    async def update(self, updates: Sequence[FeatureUpdate]) -> None:
        """Set levels that have been checked. Raises StorageError."""
        levels = {update.name: update.level for update in updates}
        if not levels:
            return

        def changed(finalized: _Finalized) -> _Finalized:
            return _Finalized(finalized.epoch + 1, {**finalized.levels, **levels})

        await self._document.change(changed)
        log.info("features_updated", **{name.replace(".", "_"): level for name, level in levels.items()})
        self._put_in_force()

    def _put_in_force(self) -> None:
        if self._in_force is not self._document.content:
            for callback in self.on_changed:
                callback()
            self._in_force = self._document.content


def _read(content: Any) -> _Finalized:
    if content is None:
        return _Finalized()
    fields = object_of(content)
    levels = fields.object("levels")
    return _Finalized(fields.whole("epoch"), {name: levels.whole(name, 0, INT16_MAX) for name in levels})
