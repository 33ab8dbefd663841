"""`fencepost spark`: finishes the decided batches of Spark's sinks in any Kafka."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.connection import bootstrap_option, coordinator_options, json_option, kafka_errors

if TYPE_CHECKING:
    from fencepost.check_back.finishing import Finished
    from fencepost.check_back.ledgers import Ledgers

MOST_ENDED: Final = 10_000
"""Batches without a done mark that a service remembers, so as not to ask about them again."""


@click.group()
def spark() -> None:
    """Finish the decided batches of Spark's sinks."""


@spark.command("finish")
@bootstrap_option
@json_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="GLOB",
    help="Topics in which sinks decide; may be given several times. Default: fencepost-sink-*. Others decide about all "
    "sinks: name none that strangers may write to.",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1, 86_400),
    metavar="SECONDS",
    help="Go on until SIGTERM or Ctrl-C, and look again after this time.",
)
def finish(bootstrap: str, as_json: bool, topics: tuple[str, ...], every_s: float | None) -> None:
    """Commit the decided batches that drivers have left open.

    For Apache Kafka, where nobody else does it until the query is started again: run it as a service, with --every. A
    broker of Fencepost does it by itself. It commits listed transactions, aborts none, and fences no driver, so it may
    run beside living ones. Batch jobs are marked as done. The exit code is 1 if a decided transaction was aborted, or
    could not be committed.
    """
    from fencepost.check_back.decided import DEFAULT_GLOB, DecisionTopics

    with kafka_errors(bootstrap):
        options = coordinator_options(bootstrap)
    work = _Work(bootstrap, options, DecisionTopics(topics or (DEFAULT_GLOB,)), as_json=as_json)
    is_whole = asyncio.run(work.run(every_s))
    if not is_whole and every_s is None:
        raise SystemExit(1)


class _Work:
    """The passes over a cluster, and the lines about them. A service writes a line again only if it says more."""

    def __init__(self, bootstrap: str, options: Mapping[str, Any], topics: Any, *, as_json: bool) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._topics = topics
        self._as_json = as_json
        self._said: dict[str, str] = {}
        self._ended: dict[tuple[str, str, str | None], None] = {}  # nothing of these is open any more

    async def run(self, every_s: float | None) -> bool:
        """Look once, or until SIGTERM; return whether nothing is lost and nothing is left open."""
        from fencepost.check_back.ledgers import Ledgers
        from fencepost.client.cluster import Cluster
        from fencepost.client.errors import ClusterError
        from fencepost.client.options import addresses_of, options_of
        from fencepost.two_phase import Coordinator

        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        cluster = Cluster(addresses_of(self._bootstrap), options_of(self._options))
        ledgers = Ledgers(cluster, self._topics)
        coordinator = Coordinator(self._bootstrap, **self._options)
        try:
            while True:
                try:
                    await ledgers.read()
                    is_whole = await self._finish_all(ledgers, coordinator, stopped, is_service=every_s is not None)
                    self._said.pop("", None)
                except (ClusterError, TimeoutError, OSError) as error:
                    if every_s is None:
                        raise click.ClickException(f"{self._bootstrap}: {error or type(error).__name__}") from None
                    self._warn("", f"{self._bootstrap}: {error or type(error).__name__}; it is tried again")
                if every_s is None or stopped.is_set():
                    return every_s is not None or is_whole
                try:
                    async with asyncio.timeout(every_s):
                        await stopped.wait()
                except TimeoutError:
                    continue
                return True
        finally:
            cluster.close()
            coordinator.close()

    async def _finish_all(
        self, ledgers: Ledgers, coordinator: Any, stopped: asyncio.Event, *, is_service: bool
    ) -> bool:
        from fencepost.check_back.finishing import finish as finish_batch

        is_whole = True
        for topic, problem in ledgers.problems.items():
            is_whole = False
            self._warn(topic, f"{topic} was not read: {problem}")
        for topic, ledger in list(ledgers.found.items()):
            for key, problem in ledger.unreadable.items():
                self._warn(f"{topic} {key}", f"{topic}: the record under the key {key!r} is no decision: {problem}")
            for batch in list(ledger.batches.values()):
                if stopped.is_set():
                    return is_whole
                if (topic, batch.sink, batch.id) in self._ended:
                    continue
                done = await finish_batch(ledgers, topic, batch, coordinator)
                if is_service and done.error is None and batch.id is not None:
                    self._ended[topic, batch.sink, batch.id] = None
                    if len(self._ended) > MOST_ENDED:
                        del self._ended[next(iter(self._ended))]
                is_whole = is_whole and not done.lost and done.error is None
                self._report(done, is_service=is_service)
            if not is_service:
                for sink in sorted(ledger.done):
                    self._print(f"{sink}: nothing to do", {"sink": sink, "topic": topic, "done": True})
        return is_whole

    def _report(self, done: Finished, *, is_service: bool) -> None:
        batch = done.batch
        fields = {
            "sink": batch.sink,
            "topic": done.topic,
            "batch": batch.batch,
            "query": batch.query,
            "rows": batch.rows,
            "transactions": len(batch.tokens),
            "committed": done.committed,
            "already_committed": done.already,
            "lost": list(done.lost),
            "unknown": list(done.unknown),
            "error": done.error,
            "marked_done": done.is_marked,
        }
        words = _words(done)
        name = f"{done.topic} {batch.sink}"
        is_said = self._said.get(name) == words
        self._said[name] = words
        # A service says each commit, and each loss once.
        is_worth_it = done.committed or done.is_marked or done.lost or done.error is not None
        if not is_service or (is_worth_it and not is_said):
            self._print(words, fields)

    def _print(self, words: str, fields: Mapping[str, Any]) -> None:
        click.echo(json.dumps({**fields, "message": words}) if self._as_json else printable(words))

    def _warn(self, name: str, words: str) -> None:
        if self._said.get(name) != words:
            self._said[name] = words
            click.echo(printable(words), err=True)


def _words(done: Finished) -> str:
    batch = done.batch
    name = f"batch job {batch.batch}" if batch.is_job else f"{batch.sink}: batch {batch.batch}"
    rows = "" if batch.rows is None else f", {batch.rows} rows"
    parts = [f"committed {done.committed} of {len(batch.tokens)} transactions"] if done.committed else []
    if done.already:
        parts.append(f"{done.already} were committed before")
    if done.lost:
        parts.append(
            f"{len(done.lost)} are lost, though decided: {_some(done.lost)}. Compare the topic with the source"
        )
    if done.unknown:
        parts.append(f"{len(done.unknown)} are not known here any more: {_some(done.unknown)}")
    if done.error is not None:
        parts.append(done.error)
    if not parts:
        parts.append("nothing to do")
    return f"{name}{rows}: {'; '.join(parts)}" + (". It is marked as done" if done.is_marked else "")


def _some(tokens: Iterable[str]) -> str:
    listed = list(tokens)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
