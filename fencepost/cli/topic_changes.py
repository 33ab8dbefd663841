"""Creates, grows and deletes many topics, in requests of a bounded size, with an outcome for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.connection import refusal
from fencepost.cli.topic_choice import ZERO_ID, FoundTopic, read_found

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

TOPICS_PER_REQUEST: Final = 200
TIMEOUT_MS: Final = 12_000
"""For a request: less than the client waits for its answer."""
NONE, EXISTS, UNKNOWN_ID = 0, 36, 100

GONE: Final = "it was deleted, or deleted and created again, since it was looked up"


class Outcome(NamedTuple):
    """The outcome for one topic. error: None if it was changed. partitions_count: None if it is not told."""

    name: str
    error: str | None = None
    code: int = NONE
    partitions_count: int | None = None


async def create_topics(
    cluster: Cluster,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    settings: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> list[Outcome]:
    """Create topics, all alike, or only check whether that is possible. None: the broker's default."""
    from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]

    async def create(some: Sequence[str]) -> list[Outcome]:
        wanted = [
            CreatableTopic(
                name=name,
                num_partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=configs,
            )
            for name in some
        ]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=dry_run)
        reply = await cluster.send_to_controller(request)
        return [_outcome(one.name, one, one.num_partitions) for one in reply.topics]

    return await _in_pieces(names, create)


async def grow_topics(cluster: Cluster, names: Sequence[str], partitions: int, *, dry_run: bool) -> list[Outcome]:
    """Raise the partition counts of topics to `partitions`, or only check whether that is possible."""
    from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic

    async def grow(some: Sequence[str]) -> list[Outcome]:
        wanted = [CreatePartitionsTopic(name=name, count=partitions, assignments=None) for name in some]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=dry_run)
        reply = await cluster.send_to_controller(request)
        return [_outcome(one.name, one, partitions) for one in reply.results]

    return await _in_pieces(names, grow)


async def delete_topics(cluster: Cluster, topics: Sequence[FoundTopic]) -> list[Outcome]:
    """Delete these topics, and none that have got their names since."""
    from fencepost.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

    ids = {topic.topic_id: topic.name for topic in topics if topic.topic_id != ZERO_ID}
    by_name = {topic.name: topic for topic in topics}

    async def delete(some: Sequence[str]) -> list[Outcome]:
        wanted = [by_name[name] for name in some]
        states = [
            DeleteTopicState(topic_id=one.topic_id) if one.topic_id != ZERO_ID else DeleteTopicState(name=one.name)
            for one in wanted
        ]
        request = DeleteTopicsRequest(topics=states, topic_names=list(some), timeout_ms=TIMEOUT_MS)
        reply = await cluster.send_to_controller(request)
        return [_outcome(ids.get(bytes(one.topic_id)) or one.name or "", one) for one in reply.responses]

    return await _in_pieces(list(by_name), delete)


async def partition_counts(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Of those of these topics that there are."""
    return {name: found.partitions_count for name, found in (await read_found(cluster, names)).topics.items()}


async def _in_pieces(
    names: Sequence[str], change: Callable[[Sequence[str]], Awaitable[list[Outcome]]]
) -> list[Outcome]:
    """Change some at a time. After a failed request nobody knows of its topics, and no other is sent."""
    from fencepost.client.errors import ClusterError

    outcomes: list[Outcome] = []
    for first in range(0, len(names), TOPICS_PER_REQUEST):
        some = names[first : first + TOPICS_PER_REQUEST]
        try:
            answered = {one.name: one for one in await change(some)}
        except ClusterError as error:
            outcomes += [Outcome(name, f"nobody knows, look again: {error}") for name in some]
            outcomes += [Outcome(name, "not tried") for name in names[first + TOPICS_PER_REQUEST :]]
            return outcomes
        outcomes += [answered.get(name, Outcome(name, "the broker's answer does not have it")) for name in some]
    return outcomes


def _outcome(name: str, answer: Any, partitions_count: int = -1) -> Outcome:
    known = partitions_count if partitions_count >= 0 else None
    if not answer.error_code:
        return Outcome(name, partitions_count=known)
    if answer.error_code == UNKNOWN_ID:
        return Outcome(name, GONE, answer.error_code)
    from kafka.errors import for_code

    return Outcome(name, refusal(for_code(answer.error_code), answer.error_message), answer.error_code)


def fail_for(refused: Sequence[tuple[str, str]], action: str, asked_count: int, thing: str = "topic") -> None:
    """Raise ClickException for refused things, (name, reason) each: the reason alone if one was asked for."""
    if not refused:
        return
    if len(refused) == asked_count == 1:
        raise click.ClickException(refused[0][1])
    for name, reason in refused:
        click.echo(printable(f"{name} was not {action}: {reason}"), err=True)
    raise click.ClickException(f"{len(refused)} of {asked_count} {thing}s were not {action}")
