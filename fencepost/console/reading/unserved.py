"""Partitions of a topic that no broker serves: their transactions or groups are missing from lists without a notice.

Brokers leave out the entries of a partition of `__transaction_state` or `__consumer_offsets` while it is offline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.coordinator_partitions import name_of_each
from fencepost.client.errors import DENIED, ClusterError, error_name
from fencepost.console.reading.topics import BROKER_S, PartitionState, fill_offsets, partition_states
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest

TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
NOT_SERVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
MOST_NAMED: Final = 5


async def unserved(cluster: Cluster, topic: str) -> str | None:
    """Which partitions of a topic do not answer, and why, as a sentence without a full stop.

    None if all answer, if there is no such topic, or if this user may not see it: then nobody can say.
    """
    try:
        view = await cluster.view([topic])
        found = view.topics.get(topic)
        if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or found.error in DENIED:
            return None
        if found.error:
            return f"{topic} does not answer: {error_name(found.error)}"
        states = partition_states(view, [(topic, one.index) for one in found.partitions])
        await fill_offsets(cluster, states)
        if topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            await _ask_coordinators(cluster, topic, states)
    except ClusterError as error:
        return f"{topic} could not be asked: {error}"
    away = [state for state in states if state.error is not None]
    if not away or any(state.error == error_name(code) for code in DENIED for state in away):
        return None
    named = ", ".join(f"{state.index} ({state.error})" for state in away[:MOST_NAMED])
    more = f" and {len(away) - MOST_NAMED} more" if len(away) > MOST_NAMED else ""
    return f"{len(away)} of {len(states)} partitions of {topic} do not answer: {named}{more}"


async def _ask_coordinators(cluster: Cluster, topic: str, states: Sequence[PartitionState]) -> None:
    """Ask about an id of each partition: a coordinator may be unable to load a partition that can be read otherwise."""
    names = name_of_each(len(states))
    by_leader: dict[int, list[PartitionState]] = defaultdict(list)
    for state in states:
        if state.error is None and state.index < len(names):
            by_leader[state.leader].append(state)
    for leader, led in by_leader.items():
        asked = [names[state.index] for state in led]
        if topic == TRANSACTION_STATE:
            reply = await cluster.send_within(DescribeTransactionsRequest(transactional_ids=asked), leader, BROKER_S)
            errors = {one.transactional_id: one.error_code for one in reply.transaction_states}
        else:
            reply = await cluster.send_within(DescribeGroupsRequest(groups=asked), leader, BROKER_S)
            errors = {one.group_id: one.error_code for one in reply.groups}
        for state, name in zip(led, asked, strict=True):
            code = errors.get(name, ErrorCode.NONE)
            if code in NOT_SERVED:
                state.error = error_name(code)


def not_asked(node_id: int, reason: str) -> str:
    """That a broker is missing in a list, as a sentence."""
    return f"Broker {node_id} could not be asked: {reason}."
