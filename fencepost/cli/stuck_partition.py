"""Why read_committed consumers of a partition wait: `transactions why`, and the hanging transactions of a cluster."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.console_client import ask_cluster

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster
    from fencepost.diagnosis.stuck import Explanation, Facts, OpenTransaction


MOST_NAMED: Final = 5


def show_why(bootstrap: str, topic: str, partition: int, http: tuple[str | None, str | None], *, as_json: bool) -> None:
    """Print a sentence, the chain down to the client, and the remedy. http: URL of the broker's HTTP port, token."""
    from fencepost.console.broker_http import BrokerHttp
    from fencepost.console.reading.stuck import read_facts
    from fencepost.diagnosis.stuck import explain

    facts = ask_cluster(bootstrap, lambda cluster: read_facts(cluster, BrokerHttp(*http), topic, partition))
    explanation = explain(facts)
    remedies = [
        {"remedy": remedy.value, "advice": advice, "command": _command(remedy.value, facts, explanation)}
        for remedy, advice in explanation.advice
    ]
    if explanation.cause.value == "two_phase" and facts.coordinator is not None:
        name = facts.coordinator.transactional_id
        for outcome in ("commit", "abort"):
            advice = f"If the application is gone for good and its database says {outcome}, end it in its place."
            command = f"fencepost transactions {outcome} {name}"
            remedies.append({"remedy": outcome, "advice": advice, "command": command})
    if as_json:
        _print_json(facts, explanation, remedies)
        return
    click.echo(printable(explanation.sentence))
    click.echo()
    for depth, link in enumerate(explanation.chain):
        details = f" ({', '.join(link.details)})" if link.details else ""
        click.echo(printable(f"{'  ' * depth}{link.kind} {link.name}{details}"))
    for consequence in explanation.consequences:
        click.echo(printable(consequence))
    for remedy in remedies:
        click.echo()
        click.echo(printable(str(remedy["advice"])))
        if remedy["command"]:
            click.echo(printable(f"  {remedy['command']}"))


def _command(remedy: str, facts: Facts, explanation: Explanation) -> str | None:
    if remedy == "abort" and facts.coordinator is not None:
        ends = "abort" if explanation.cause.value == "two_phase" else "terminate"
        return f"fencepost transactions {ends} {facts.coordinator.transactional_id}"
    if remedy == "abort hanging" and explanation.holder is not None:
        start = explanation.holder.first_offset
        return f"fencepost transactions abort-hanging {facts.topic} {facts.partition} --start-offset {start}"
    return None


def _print_json(facts: Facts, explanation: Explanation, remedies: list[dict[str, str | None]]) -> None:
    document = {
        "topic": facts.topic,
        "partition": facts.partition,
        "cause": explanation.cause.value,
        "sentence": explanation.sentence,
        "log_start_offset": facts.log_start_offset,
        "last_stable_offset": facts.last_stable_offset,
        "high_watermark": facts.high_watermark,
        "chain": [dataclasses.asdict(link) for link in explanation.chain],
        "consequences": explanation.consequences,
        "remedies": remedies,
    }
    click.echo(json.dumps(document, indent=2))


def hanging_transactions(bootstrap: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each open transaction of a partition that no coordinator knows, and sentences that name the
    places that could not be searched. Raises ClickException.
    """
    return ask_cluster(bootstrap, _hanging)


async def _hanging(cluster: Cluster) -> tuple[list[dict[str, Any]], list[str]]:
    from fencepost.console.reading.topics import read_topics
    from fencepost.console.reading.transactions import open_transactions, read_producers
    from fencepost.console.reading.unserved import TRANSACTION_STATE, unserved

    topics = await read_topics(cluster, await cluster.view(), with_sizes=False)
    held = [partition for topic in topics for partition in topic.partitions if partition.behind]
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for partition in held:
        by_leader.setdefault(partition.leader, []).append((partition.topic, partition.index))
    found = await read_producers(cluster, by_leader.items())
    now_ms = int(time.time() * 1000)
    away = [f"{one.name}: {one.error}" for topic in topics for one in topic.offline]
    away += [f"{topic}-{index}: {error}" for (topic, index), error in found.errors.items()]
    missing = [f"{len(away)} partitions could not be looked at: {', '.join(away[:MOST_NAMED])}"] if away else []
    of_coordinators = await unserved(cluster, TRANSACTION_STATE)
    if of_coordinators is not None:
        missing.append(of_coordinators)
    rows = [
        {
            "topic": producer.topic,
            "partition": producer.partition,
            "producer_id": opened.producer_id,
            "producer_epoch": opened.producer_epoch,
            "start_offset": opened.first_offset,
            "age_ms": max(0, now_ms - opened.last_write_ms),
        }
        for producer in found.producers
        for opened in open_transactions([producer])
        if await _is_hanging(cluster, producer.topic, producer.partition, opened)
    ]
    return rows, missing


async def _is_hanging(cluster: Cluster, topic: str, partition: int, opened: OpenTransaction) -> bool:
    """Whether all coordinators answer, and none knows it. One that begins or ends just now is not, or no longer."""
    from fencepost.console.reading.transactions import coordinator_view_of
    from fencepost.diagnosis.stuck import Cause, cause_of

    known, error = await coordinator_view_of(cluster, opened.producer_id)
    return cause_of(opened, (topic, partition), known, error, int(time.time() * 1000)) is Cause.HANGING
