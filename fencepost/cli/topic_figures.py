"""Figures of topics and partitions: offsets, bytes, times, leaders; read as the web console reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import format_time

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

MAX_TIMESTAMP = -3


def read_figures(bootstrap: str) -> dict[str, dict[str, int | None]]:
    """By topic: records, size_bytes, offline partitions. Raises ClickException."""

    async def ask(cluster: Cluster) -> dict[str, dict[str, int | None]]:
        from fencepost.console.reading.topics import read_topics

        found = await read_topics(cluster, await cluster.view())
        return {
            topic.name: {"records": topic.records, "size_bytes": topic.size_bytes, "offline": len(topic.offline)}
            for topic in found
        }

    return ask_cluster(bootstrap, ask)


def read_partitions(bootstrap: str, name: str) -> list[dict[str, Any]]:
    """A row for each partition of a topic. Raises ClickException."""

    async def ask(cluster: Cluster) -> list[dict[str, Any]]:
        from fencepost.console.reading.topics import read_topics

        view = await cluster.view([name])
        (topic,) = await read_topics(cluster, view)
        if topic.error is not None:
            raise click.ClickException(f"topic {name!r} cannot be shown: {topic.error}")
        newest = await _newest(cluster, [(one.leader, name, one.index) for one in topic.partitions if not one.error])
        return [
            {
                "partition": one.index,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": list(known.replicas),
                "in_sync": list(known.in_sync),
                "log_start_offset": one.start,
                "last_stable_offset": one.last_stable_offset,
                "high_watermark": one.high_watermark,
                "size_bytes": one.size_bytes,
                "newest_record": format_time(newest.get(one.index, -1)),
                "error": one.error,
            }
            for one, known in zip(topic.partitions, view.topics[name].partitions, strict=True)
        ]

    return ask_cluster(bootstrap, ask)


async def _newest(cluster: Cluster, places: list[tuple[int, str, int]]) -> dict[int, int]:
    """By partition, the latest time of a record in ms; brokers before Kafka 3.0 do not say it."""
    from fencepost.client.consuming import UNCOMMITTED, list_offsets
    from fencepost.client.errors import ClusterError

    found: dict[int, int] = {}
    for leader in {leader for leader, _, _ in places}:
        led = [(topic, index) for one, topic, index in places if one == leader]
        try:
            replies = await list_offsets(cluster, leader, led, MAX_TIMESTAMP, UNCOMMITTED)
        except ClusterError:
            continue
        found |= {index: timestamp for (_, index), (code, timestamp, _) in replies.items() if not code}
    return found
