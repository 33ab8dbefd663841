"""A broker in this process that checks back, with a source that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.check_back_host import service as broker_check_back
from fencepost.broker.check_back_host.committed_reads import CommittedRead
from fencepost.broker.check_back_host.logs import LogHere
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.node import Node
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.check_back.question import Answer, Question, RecordReader
from fencepost.check_back.records import AUDIT_TOPIC
from fencepost.check_back.service import CheckBack
from fencepost.check_back.settings import ResolverSettings
from fencepost.protocol.errors import ErrorCode
from tests.broker.test_node import running

ORDERS = ResolverSettings("orders", ("order-*",), "http", first_ms=0, interval_ms=1, interval_max_ms=10)


class ScriptedSource:
    """See `fencepost.check_back.question.Resolver`. records: what the broker gave it to read."""

    def __init__(self) -> None:
        self.answer = Answer.UNKNOWN
        self.asked: list[Question] = []
        self.records: RecordReader | None = None
        self.is_closed = False

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer

    async def close(self) -> None:
        self.is_closed = True

    def make(self, _settings: ResolverSettings, records: RecordReader) -> ScriptedSource:
        self.records = records
        return self


@asynccontextmanager
async def running_check_back(
    directory: Path, source: ScriptedSource, monkeypatch: pytest.MonkeyPatch, **chosen: Any
) -> AsyncIterator[Node]:
    """A node with the topic `out`, of two partitions."""
    monkeypatch.setattr(broker_check_back, "resolver_for", source.make)
    monkeypatch.setattr(broker_check_back, "POLL_S", 0.005)
    settings = {"check_back": (ORDERS,), "transaction_two_phase_commit_enable": True} | chosen
    async with running(directory, **settings) as node:
        await node.ensure_loaded()
        if node.services.topics.metadata.get("out") is None:
            await node.services.topics.create("out", 2, {})
        yield node


async def begin(node: Node, name: str, timeout_ms: int = 60_000) -> Producer:
    """Open a transaction on both partitions of `out`."""
    transactions = node.services.transactions
    reply = await transactions.init_producer_id(name, timeout_ms=timeout_ms)
    assert reply.error is ErrorCode.NONE
    places = [TopicPartition("out", 0), TopicPartition("out", 1)]
    added = await transactions.add_partitions(name, reply.producer, places, version=TransactionVersion.V2)
    assert added is ErrorCode.NONE
    return reply.producer


async def audit(node: Node) -> list[Any]:
    """The records of the audit, from the first on."""
    log = node.services.topics.log(TopicPartition(AUDIT_TOPIC, 0))
    if log is None:
        return []
    return [
        json.loads(record.value or b"")
        async for record, _ in CommittedRead().records(LogHere(log, node.services.clock))
    ]


def core_of(node: Node) -> CheckBack:
    """The check-back of a node that has resolvers."""
    assert node.coordinators is not None
    assert node.coordinators.check_back is not None
    return node.coordinators.check_back.core
