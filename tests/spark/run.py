"""The sink without Spark: runs of a query at a broker, their tasks and their driver, and the clients that they keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from fencepost.spark import clients, writing
from fencepost.spark.committing import Committer
from fencepost.spark.decision_topic import DecisionReader
from fencepost.spark.decisions import Batch, Save
from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.names import draw_nonce
from fencepost.spark.options import SinkOptions
from fencepost.spark.writing import Task, TaskReport, write
from fencepost.two_phase import Coordinator, Token

QUERY = "8cd0ef86-096d-4b7d-8237-fcb86ebd341a"
QUIET = {"kafka.log_level": "0"}
LAYOUT = Layout({"value": 0}, "out")
attempts = count()
sinks = count()
kept_by_runs: list[dict[Any, Any]] = []


class Run:
    """One run of a query: what Spark calls, with the clients that its workers keep."""

    def __init__(self, broker: Any, topic: str, sink: str, *, query: str = QUERY, **options: str) -> None:
        self.broker = broker
        self.sink = sink
        self.query = query
        self.options = SinkOptions.read(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "sink": sink, **QUIET, **options}
        )
        self.layout = replace(LAYOUT, topic=topic)
        self.kept: dict[Any, Any] = {}
        self.written: dict[str, Task] = {}
        kept_by_runs.append(self.kept)

    def task(
        self, number: int, partition: int, values: list[str], save: Save | None = None, *, nonce: str | None = None
    ) -> TaskReport:
        """Let a task write its rows. nonce: of the run of the batch; another one for each task by default."""
        clients._kept = self.kept
        writing._written = self.written
        task = Task(self.sink, Batch(self.query, number), nonce or draw_nonce(), partition, next(attempts), save)
        chunks = [Chunk([value.encode() for value in values], None, None, None, None)] if values else []
        return write(self.options, self.layout, task, iter(chunks))

    def tasks(self, number: int, *values: str, save: Save | None = None) -> list[TaskReport]:
        """A task for each value."""
        return [self.task(number, partition, [value], save) for partition, value in enumerate(values)]

    def commit(self, number: int, reports: list[TaskReport]) -> None:
        clients._kept = self.kept
        Committer(self.options, self.sink).commit(Batch(self.query, number), reports, self.layout)

    def abort(self, reports: list[TaskReport | None]) -> None:
        clients._kept = self.kept
        tokens = [report.token for report in reports if report is not None and report.token is not None]
        Committer(self.options, self.sink).abort(tokens, is_complete=None not in reports)

    def write(self, number: int, *values: str, save: Save | None = None) -> None:
        self.commit(number, self.tasks(number, *values, save=save))

    def again(self, **options: str) -> Run:
        """Another process takes over: it has none of the clients."""
        assert self.options.topic is not None
        return Run(self.broker, self.options.topic, self.sink, query=self.query, **options)

    def values(self) -> list[str]:
        assert self.options.topic is not None
        return sorted(record.value.decode() for record in self.broker.records(self.options.topic))

    def open(self) -> list[str]:
        with self.coordinator() as coordinator:
            return sorted(str(found.token) for found in coordinator.in_doubt(re.escape(self.sink) + "-.*"))

    def coordinator(self) -> Coordinator:
        return Coordinator(self.broker.bootstrap_servers)

    def decision_id(self) -> str:
        reader = DecisionReader(self.options)
        decision = reader.latest(self.sink, is_final=True).decision
        reader.close()
        assert decision is not None
        return decision.id


@pytest.fixture(autouse=True)
def clients_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(clients, "_kept", {})
    monkeypatch.setattr(writing, "_written", {})
    kept_by_runs.clear()
    yield
    for kept in kept_by_runs:
        for client, _ in kept.values():
            client.close()


def new_run(broker: Any, **options: str) -> Run:
    """A run of a query with a sink and a topic that no other one has."""
    number = next(sinks)
    return Run(broker, broker.topic(f"out-{number}", partitions=2), f"sink{number}", **options)


def tokens(reports: list[TaskReport]) -> list[Token]:
    return [report.token for report in reports if report.token is not None]
