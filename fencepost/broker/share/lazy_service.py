"""Lazy holder of the share service: imports and starts it at its first use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fencepost.broker.kernel.topic_partition import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fencepost.broker.config import Settings
    from fencepost.broker.group.service import GroupService
    from fencepost.broker.hosting.group_configs import GroupConfigs
    from fencepost.broker.hosting.peers import Peers
    from fencepost.broker.hosting.topics import Topics
    from fencepost.broker.kernel.clock import Clock
    from fencepost.broker.share.dead_letter_copies import DeadLetterCounts
    from fencepost.broker.share.service import ShareService


class LazyShareService:
    """Creates the one `ShareService` of a broker."""

    def __init__(
        self,
        topics: Topics,
        groups: GroupService,
        group_configs: GroupConfigs,
        settings: Settings,
        clock: Clock,
        *,
        take_producer_id: Callable[[], int | None],
        peers: Peers | None = None,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._group_configs = group_configs
        self._settings = settings
        self._clock = clock
        self._take_producer_id = take_producer_id
        self._peers = peers
        self._made: ShareService | None = None

    def start(self) -> None:
        """Start the service now if `__share_group_state` exists, so that its state is loaded and pruned."""
        if self._topics.metadata.get(SHARE_GROUP_STATE_TOPIC) is not None:
            self.get()

    def get(self) -> ShareService:
        """Return the started service. Raises ImportError and OSError if it cannot be loaded; a later call tries
        again."""
        if self._made is None:
            from fencepost.broker.share.service import ShareService

            made = ShareService(
                self._topics,
                self._groups,
                self._group_configs,
                self._settings,
                self._clock,
                take_producer_id=self._take_producer_id,
                peers=self._peers,
            )
            made.start()
            self._made = made
        return self._made

    def dead_letter_counts(self) -> Mapping[str, DeadLetterCounts]:
        """Return the counts of dead letters, by group, without starting the service."""
        return {} if self._made is None else self._made.dead_letters.counts

    def waiting_copies(self) -> Mapping[str, int]:
        """Return the number of share partitions with waiting dead letters, by group, of those whose state is kept
        here."""
        return {} if self._made is None else Counter(key.group_id for key in self._made.coordinator.waiting())

    async def ensure_loaded(self) -> None:
        """Wait until all state is loaded, or could not be."""
        if self._made is not None:
            await self._made.coordinator.ensure_loaded()

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()
