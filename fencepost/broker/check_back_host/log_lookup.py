"""Where the log of a partition is for the check-back: here, or on the node that leads it."""

from __future__ import annotations

from fencepost.broker.check_back_host.logs import LogHere, ReadableLog
from fencepost.broker.hosting.peers import Peers
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.check_back.ports import Unavailable


class Logs:
    """Finds logs. peers: the channel to the other nodes; None for a node that is alone."""

    def __init__(self, topics: Topics, clock: Clock, peers: Peers | None = None) -> None:
        self.topics = topics
        self._clock = clock
        self._peers = peers

    def at(self, place: TopicPartition) -> ReadableLog:
        """The log of a partition, where it is led now. Raises Unavailable."""
        log = self.topics.log(place)
        if log is not None:
            return LogHere(log, self._clock)
        if self._peers is not None and not self.topics.placement.is_local(place):
            leader = self.topics.placement.leader(place)
            if leader is None:
                raise Unavailable(f"{place} has no leader")
            # Imported here: a node that is alone needs none of it.
            from fencepost.broker.check_back_host.logs_elsewhere import LogElsewhere

            return LogElsewhere(place, leader.node_id, self._peers, self._clock)
        raise Unavailable(f"{place} is not led by this broker: {self.topics.error_of_absent_log(place).name}")
