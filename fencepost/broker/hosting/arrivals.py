"""The seam through which directories of partitions come to the node that leads them from now on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.disk import StorageError


class Found(Enum):
    """Location of a partition's directory. HERE: in the log directory, by now. NOWHERE: it has never been created.
    MISSING: it has been created, and cannot be found."""

    HERE = auto()
    NOWHERE = auto()
    MISSING = auto()


class Arrival(NamedTuple):
    """The state of a partition's directory when it was found.

    error:  the reason why it could not be prepared, though it was found.
    sealed: the segments below those in the directory, in rising order; they are in a store that all nodes share.
    durable_end: see `ArrivingLog`.
    """

    found: Found
    last_state: LastLeaderState = LastLeaderState()
    error: StorageError | None = None
    sealed: Sequence[RemoteSegmentMetadata] = ()
    durable_end: int = 0


class Arrivals(Protocol):
    """Prepares the directories of logs that other nodes led. A node that is alone has none."""

    async def prepare(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, Arrival]:
        """Move the directories of partitions that this node leads into its own; one arrival for each. Raises no
        expected exception."""
        ...

    async def created(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Make new directories durable, and record that they exist. Failures are logged.

        topic_ids: those of the new partitions; a topic that has taken a name meanwhile has no directory yet.
        """
        ...

    def all_last_states(self) -> Mapping[TopicPartition, LastLeaderState]:
        """The state in which the previous leader of each partition has left its log. No entry: nothing is stored."""
        ...
