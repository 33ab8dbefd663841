"""Leaders of a cluster's partitions, for `fencepost cluster`: lists by node and by partition, moves, drains.

All of it goes through Kafka's APIs. The lists work with other brokers, too. Moves and drains do not: Apache Kafka would
take the leader of a move for the only replica, and keep the setting of a drain without a meaning.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import format_time

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

ALIVE, LEAVING, GONE = "alive", "leaving", "gone"
DRAIN_SETTING: Final = "fencepost.drain"
NONE: Final = -1
"""In place of a node's id."""
LOOK_S: Final = 0.2
NO_CHOICE: Final = (
    "only a cluster of several Fencepost brokers chooses leaders like this, and this is none; nothing was changed. "
    "With Apache Kafka, use kafka-leader-election or kafka-reassign-partitions"
)


class PartitionState(NamedTuple):
    """A partition with its leader, the node that is chosen to lead it and the one that it moves to; NONE for none."""

    topic: str
    partition: int
    is_internal: bool
    leader: int
    chosen: int
    next_leader: int
    epoch: int
    error: str

    @property
    def state(self) -> str:
        if self.error:
            return self.error
        if self.next_leader != NONE:
            return f"moving to {self.next_leader}"
        return "led" if self.leader != NONE else "without leader"

    @property
    def row(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader": _node(self.leader),
            "chosen": _node(self.chosen),
            "next_leader": _node(self.next_leader),
            "epoch": self.epoch if self.epoch >= 0 else None,
            "state": self.state,
        }


def _node(node_id: int) -> int | None:
    return None if node_id == NONE else node_id


# Reading


async def read_partitions(
    cluster: Cluster, topic: str | None = None, *, of_view: int | None = None
) -> list[PartitionState]:
    """All partitions that this user may see, or those of one topic, page by page. Raises ClusterError.

    of_view: the node that is asked, else any.
    """
    from fencepost.client.errors import check, error_name
    from fencepost.protocol.messages.cluster import DescribeTopicPartitionsRequest, TopicRequest

    found: list[PartitionState] = []
    cursor = None
    while True:
        topics = [] if topic is None else [TopicRequest(topic)]
        reply = await cluster.send(DescribeTopicPartitionsRequest(topics=topics, cursor=cursor), of_view)
        for described in reply.topics:
            if topic is not None:
                check(described.error_code, f"topic {topic}")
            found += [
                PartitionState(
                    described.name or "",
                    one.partition_index,
                    described.is_internal,
                    one.leader_id,
                    one.chosen_leader,
                    one.next_leader,
                    one.leader_epoch,
                    error_name(one.error_code) if one.error_code and one.leader_id != NONE else "",
                )
                for one in described.partitions
            ]
        cursor = reply.next_cursor
        if cursor is None:
            return found


async def read_views(cluster: Cluster, topic: str | None = None) -> list[list[PartitionState]]:
    """Read the states of all partitions from each live node: one may learn of a change some moments after another, and
    only the leader knows whether it serves clients already. Raises ClusterError; UnreachableError if one of them has
    just died."""
    from fencepost.client.errors import check
    from fencepost.protocol.messages.cluster import DescribeClusterRequest

    reply = await cluster.send(DescribeClusterRequest())
    check(reply.error_code, reply.error_message)
    alive = [node.broker_id for node in reply.brokers if not node.is_fenced]
    return [await read_partitions(cluster, topic, of_view=node_id) for node_id in alive]


async def read_nodes(cluster: Cluster) -> dict[int, dict[str, Any]]:
    """A row for each node that is or was there, by its id. Raises ClusterError."""
    from fencepost.client.errors import check
    from fencepost.protocol.messages.cluster import DescribeClusterRequest

    reply = await cluster.send(DescribeClusterRequest(include_fenced_brokers=True))
    check(reply.error_code, reply.error_message)
    partitions = await read_partitions(cluster)
    led = Counter(one.leader for one in partitions)
    internal = Counter(one.leader for one in partitions if one.is_internal)
    return {
        node.broker_id: {
            "node": node.broker_id,
            "state": node.state or (GONE if node.is_fenced else ALIVE),
            "has_state": bool(node.state),
            "since": format_time(node.since_ms),
            "listeners": [f"{one.name}://{address(one.host, one.port)}" for one in node.listeners]
            or ([] if node.is_fenced else [address(node.host, node.port)]),
            "leads": led[node.broker_id],
            "of_which_internal": internal[node.broker_id],
        }
        for node in sorted(reply.brokers, key=lambda node: int(node.broker_id))
    }


def address(host: str, port: int) -> str:
    """An address as it is written."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def nodes_of(bootstrap: str) -> list[dict[str, Any]]:
    """Return the rows of `cluster nodes`. Raises ClickException."""
    return list(ask_cluster(bootstrap, read_nodes).values())


def partitions_of(bootstrap: str, topic: str | None, node_id: int | None) -> list[dict[str, Any]]:
    """Return the rows of `cluster partitions`: those of a topic, and led by a node, if these are given."""
    found = ask_cluster(bootstrap, lambda cluster: read_partitions(cluster, topic))
    return [one.row for one in found if node_id is None or one.leader == node_id]


# Moving


def move(bootstrap: str, topic: str, partition: int, target: int | None, *, wait_s: float | None) -> str:
    """Choose the leader of a partition, None to give the choice back; return a sentence on it. Raises ClickException.

    wait_s: maximum time to wait until it has moved; None not to wait.
    """

    async def ask(cluster: Cluster) -> str:
        from fencepost.client.errors import check
        from fencepost.protocol.messages.reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        nodes = await read_nodes(cluster)
        if target is not None:
            _check_can_lead(nodes, target)
        if len(nodes) > 1:
            _check_chooses_leaders(nodes)
        replicas = None if target is None else [target]
        wanted = ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])
        reply = await cluster.send(AlterPartitionReassignmentsRequest(topics=[wanted]))
        check(reply.error_code, reply.error_message)
        (answer,) = reply.responses[0].partitions
        if target is None and answer.error_code == _nothing_chosen():
            return f"nobody has chosen who leads {topic}-{partition}; nothing changed"
        check(answer.error_code, answer.error_message)

        async def left() -> str:
            views = await read_views(cluster, topic)
            found = [one for view in views for one in view if one.partition == partition]
            has_moved = all(one.next_leader == NONE and one.leader != NONE for one in found)
            is_known = len(found) == len(views) and len({one.leader for one in found}) == 1
            return "" if has_moved and is_known else f"{topic}-{partition} is still moving"

        if wait_s is not None:
            await _until_none(left, wait_s)
        is_left = bool(await _words(left))
        if target is None:
            return f"the cluster chooses again who leads {topic}-{partition}"
        return f"{topic}-{partition} is {'moving to' if is_left else 'led by'} {target}"

    return ask_cluster(bootstrap, ask)


def _nothing_chosen() -> int:
    from fencepost.protocol.errors import ErrorCode

    return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def drain(bootstrap: str, node_id: int, *, is_over: bool, wait_s: float | None) -> str:
    """Have a node hand over all its partitions, or end that; return the result in words. As `move`."""

    async def ask(cluster: Cluster) -> str:
        from fencepost.console.reading.settings import ResourceKind, alter_settings

        nodes = await read_nodes(cluster)
        _check_can_be_drained(nodes, node_id, is_over=is_over)
        _check_chooses_leaders(nodes)
        value = None if is_over else "true"
        await alter_settings(cluster, ResourceKind.BROKER, str(node_id), [(DRAIN_SETTING, value)], node_id=node_id)

        async def left() -> str:
            now = await read_nodes(cluster)
            state = now[node_id]["state"]
            if is_over:
                return "" if state == ALIVE else f"node {node_id} is still {state}"
            views = await read_views(cluster)
            count = max(sum(one.leader == node_id for one in partitions) for partitions in views)
            return f"node {node_id} still leads {count} partitions" if count else ""

        if wait_s is not None:
            await _until_none(left, wait_s)
        if is_over:
            return f"node {node_id} takes partitions again"
        if wait_s is not None:
            return f"node {node_id} leads nothing any more"
        return f"node {node_id} hands over {nodes[node_id]['leads']} partitions"

    return ask_cluster(bootstrap, ask)


def _check_chooses_leaders(nodes: Mapping[int, Mapping[str, Any]]) -> None:
    """Raises ClickException for other brokers than several of Fencepost, which alone tell their states."""
    if not any(node["has_state"] for node in nodes.values()):
        raise click.ClickException(NO_CHOICE)


def _check_can_lead(nodes: Mapping[int, Mapping[str, Any]], node_id: int) -> None:
    """Raises ClickException."""
    _check_is_known(nodes, node_id)
    if nodes[node_id]["state"] == GONE:
        raise click.ClickException(
            f"node {node_id} is gone, since {nodes[node_id]['since']}; start it, or name another"
        )


def _check_is_known(nodes: Mapping[int, Mapping[str, Any]], node_id: int) -> None:
    """Raises ClickException."""
    if node_id not in nodes:
        raise click.ClickException(f"there is no node {node_id}; the nodes are {', '.join(map(str, nodes))}")


def _check_can_be_drained(nodes: Mapping[int, Mapping[str, Any]], node_id: int, *, is_over: bool) -> None:
    """Raises ClickException."""
    _check_is_known(nodes, node_id)
    if nodes[node_id]["state"] == GONE:
        raise click.ClickException(
            f"node {node_id} is gone and leads nothing; a node can be drained, and resumed, while it is there"
        )
    others = [each for each, node in nodes.items() if each != node_id and node["state"] == ALIVE]
    if not others and not is_over:
        raise click.ClickException(f"no other node is alive that could lead what node {node_id} hands over")


async def _words(left: Callable[[], Awaitable[str]]) -> str:
    """Describe the rest of the work; a node that does not answer may have died just now, and others will lead."""
    from fencepost.client.errors import UnreachableError

    try:
        return await left()
    except UnreachableError as error:
        return str(error)


async def _until_none(left: Callable[[], Awaitable[str]], wait_s: float) -> None:
    """Wait until no work is left. Raises ClickException after wait_s, with the rest of the work."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while words := await _words(left):
        if loop.time() > deadline_s:
            raise click.ClickException(
                f"it is not done after {wait_s:g} s: {words}. It goes on, and `fencepost cluster` shows it"
            )
        await asyncio.sleep(LOOK_S)
