"""How the last leader of a partition left its log, for the next one, which reads as little of it as that allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata


class LastLeaderState(NamedTuple):
    """The state in which the last leader left a log.

    recovery_point:   below it, all is durable and undamaged.
    log_start_offset: below it, all is deleted.
    was_closed:       whether it was closed as by a clean stop, and not opened since: nothing of it has to be recovered.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    was_closed: bool = False


class ArrivingLog(NamedTuple):
    """A log that this node opens, to lead it in this epoch. Its directory is in the log directory.

    sealed: the segments below those in the directory, which are in a store that all nodes share; in rising order.
    durable_end: below it, all is durable, though it has to be read: a log that ends sooner is damaged.
    """

    topic_partition: TopicPartition
    config: LogConfig
    leader_epoch: int
    last_state: LastLeaderState
    sealed: Sequence[RemoteSegmentMetadata] = ()
    durable_end: int = 0
