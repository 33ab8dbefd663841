"""A broker finishes the decided batches of Spark's sinks: what a decision lists is committed, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.broker.check_back_host import decided_batches
from fencepost.broker.check_back_host.decided_batches import DecidedBatches
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.node import Node
from fencepost.broker.transaction import shard
from fencepost.broker.transaction.sink_tasks import WATCH, SinkTasks
from fencepost.check_back.decided import DecisionTopics
from fencepost.protocol.errors import ErrorCode
from fencepost.spark.names import one_off_sink
from fencepost.two_phase import Token
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.broker.test_node import running
from tests.support.captured_events import capture_logs
from tests.support.check_back_broker import begin

JOB = one_off_sink("8cd0ef86-096d-4b7d-8237-fcb86ebd341a")
DRIVER = 7_000_001
SHORT_MS = 300


class Plain(NamedTuple):
    key: bytes | None
    value: bytes | None


class Sinks:
    """A broker, and what drivers and tasks of sinks do there."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def tasks(
        self, sink: str, count: int = 1, *, timeout_ms: int = 600_000, nonce: str = "3f9a1c02"
    ) -> list[Token]:
        names = [f"{sink}-{nonce}-{number}-{number}" for number in range(count)]
        return [Token(*await begin(self.node, name, timeout_ms), name) for name in names]

    async def topic(self, topic: str) -> PartitionLog:
        topics = self.node.services.topics
        if topics.metadata.get(topic) is None:
            await topics.create(topic, 1, {"cleanup.policy": "compact"})
        log = topics.log(TopicPartition(topic, 0))
        assert log is not None
        return log

    async def write(self, topic: str, key: str, value: bytes | None, *, is_open: bool = False) -> PartitionLog:
        log = await self.topic(topic)
        now_ms = self.node.services.clock.now_ms()
        log.append_records([Plain(key.encode(), value)], now_ms=now_ms, producer=(DRIVER, 0) if is_open else None)
        await log.flushed()
        return log

    async def decide(
        self, sink: str, tokens: Iterable[Token], *, topic: str = "", is_open: bool = False
    ) -> PartitionLog:
        value = json.dumps({"batch": 1, "query": "q", "tokens": [str(token) for token in tokens], "rows": 1, "id": "d"})
        return await self.write(topic or f"fencepost-sink-{sink}", sink, value.encode(), is_open=is_open)

    async def end(self, log: PartitionLog, *, committed: bool) -> None:
        now_ms = self.node.services.clock.now_ms()
        log.append_marker(DRIVER, 0, committed, coordinator_epoch=0, transaction_version=0, now_ms=now_ms)
        await log.flushed()

    def states(self, tokens: Iterable[Token]) -> list[str]:
        found = [self.node.services.transactions.find(token.transactional_id) for token in tokens]
        return [one.name if isinstance(one, ErrorCode) else one.state.display_name for one in found]

    async def all_are(self, tokens: Iterable[Token], state: str) -> None:
        await until(lambda: set(self.states(tokens)) == {state})

    @property
    def watched(self) -> SinkTasks:
        found = self.node.services.transactions.sink_tasks
        assert found is not None
        return found

    async def look(self) -> None:
        """Wait until the watch has looked at all that is open now."""
        looks = self.looks
        await until(lambda: self.looks > looks + 1)

    looks = 0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided_batches, "FIRST_MS", 0)
    monkeypatch.setattr(decided_batches, "PAUSE_S", 0.01)
    monkeypatch.setattr(decided_batches, "READ_S", 0.2)
    monkeypatch.setattr(shard, "HELD_RETRY_MS", 20)


@asynccontextmanager
async def sinks_at(directory: Path, monkeypatch: pytest.MonkeyPatch, **chosen: Any) -> AsyncIterator[Sinks]:
    async with running(directory, **chosen) as node:
        await node.ensure_loaded()
        if node.services.topics.metadata.get("out") is None:
            await node.services.topics.create("out", 2, {})
        sinks = Sinks(node)
        look = DecidedBatches._look_at_all

        async def counted(watch: DecidedBatches) -> None:
            await look(watch)
            sinks.looks += 1

        monkeypatch.setattr(DecidedBatches, "_look_at_all", counted)
        yield sinks
        monkeypatch.setattr(DecidedBatches, "_look_at_all", look)


async def test_what_a_sink_has_decided_is_committed_without_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        decided = await sinks.tasks("squares", 3)
        of_a_dead_task = await sinks.tasks("squares", nonce="00000000")
        of_another = await sinks.tasks("cubes")
        with capture_logs() as lines:
            await sinks.decide("squares", decided)
            await sinks.all_are(decided, "CompleteCommit")
            await sinks.look()
        assert sinks.states(of_a_dead_task + of_another) == ["Ongoing"] * 2
        finished = [line for line in lines if line["event"] == "decided_batch_finished"]
        assert [(line["sink"], line["batch"], line["transactions"]) for line in finished] == [("squares", "1", 3)]
        assert (sinks.watched.finished, sinks.watched.unfinished) == (3, {})


async def test_a_job_without_a_sinks_name_is_finished_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        decided = await sinks.tasks(JOB, 2)
        await sinks.decide(JOB, decided, topic="fencepost-sink-batch")
        await sinks.all_are(decided, "CompleteCommit")


async def test_a_decision_counts_among_very_many_of_other_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch, fencepost_spark_decision_topics=("shared",)) as sinks:
        decided = await sinks.tasks("squares")
        await sinks.decide("squares", decided, topic="shared")
        log = await sinks.topic("shared")
        for _ in range(5):
            log.append_records([Plain(b"other", b"{}")] * 400, now_ms=1_000)
        await log.flushed()
        await sinks.all_are(decided, "CompleteCommit")


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("fencepost-sink-evil", "squares"),
        ("fencepost-sink-evil", "evil"),
        ("fencepost-sink-batch", "squares"),
        ("fencepost-sink-squares", "evil"),
        ("decisions", "squares"),
    ],
)
async def test_nobody_decides_about_another_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, key: str
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        tokens = await sinks.tasks("squares")
        of_evil = await sinks.tasks("evil")
        value = json.dumps({"tokens": [str(token) for token in tokens]})
        await sinks.write(topic, key, value.encode())
        await sinks.look()
        assert sinks.states(tokens + of_evil) == ["Ongoing"] * 2


async def test_a_topic_that_the_operator_names_decides_about_all_its_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"fencepost_spark_decision_topics": ("decisions", "team-*")}
    async with sinks_at(tmp_path, monkeypatch, **chosen) as sinks:
        squares, cubes = await sinks.tasks("squares"), await sinks.tasks("cubes")
        await sinks.decide("squares", squares + cubes, topic="decisions")
        await sinks.all_are(squares, "CompleteCommit")
        await sinks.look()
        assert sinks.states(cubes) == ["Ongoing"]
        await sinks.decide("cubes", cubes, topic="team-a")
        await sinks.all_are(cubes, "CompleteCommit")


@pytest.mark.parametrize("value", [b"nonsense", b'{"tokens": 1}', None, b'{"tokens": ["1:0:squares-driver", "x"]}'])
async def test_nonsense_decides_nothing_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: bytes | None
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        with capture_logs() as lines:
            await sinks.write("fencepost-sink-squares", "squares", value)
            undecided = await sinks.tasks("squares", timeout_ms=SHORT_MS)
            decided = await sinks.tasks("cubes")
            await sinks.decide("cubes", decided)
            await sinks.all_are(decided, "CompleteCommit")
            await sinks.all_are(undecided, "CompleteAbort")
        warned = [line for line in lines if line["event"] in ("decision_unreadable", "decision_lists_others")]
        assert len(warned) == (value is not None)


async def test_another_transaction_of_a_listed_id_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        (token,) = await sinks.tasks("squares")
        await sinks.decide("squares", [token._replace(producer_epoch=token.producer_epoch + 1)])
        await sinks.look()
        assert sinks.states([token]) == ["Ongoing"]


# Time


async def test_time_ends_what_is_not_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        without_topic = await sinks.tasks("cubes", timeout_ms=SHORT_MS)
        await sinks.decide("squares", [])
        undecided = await sinks.tasks("squares", timeout_ms=SHORT_MS)
        await sinks.all_are(without_topic + undecided, "CompleteAbort")
        await until(lambda: sinks.watched.open == {})


async def test_time_waits_for_a_decision_that_is_open_in_its_own_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        with capture_logs() as lines:
            for sink in ("squares", "cubes"):  # the transactions that decide begin before those that are decided
                await sinks.decide(sink, [], is_open=True)
            decided = await sinks.tasks("squares", 2, timeout_ms=SHORT_MS)
            undecided = await sinks.tasks("cubes", 2, timeout_ms=SHORT_MS)
            logs = [
                await sinks.decide(sink, tokens, is_open=True)
                for sink, tokens in (("squares", decided), ("cubes", undecided))
            ]
            await until(lambda: sinks.watched.held == {"squares": 2, "cubes": 2})
            await sinks.look()
            await sinks.look()
            assert sinks.states(decided + undecided) == ["Ongoing"] * 4
            await sinks.end(logs[0], committed=True)
            await sinks.end(logs[1], committed=False)
            await sinks.all_are(decided, "CompleteCommit")
            await sinks.all_are(undecided, "CompleteAbort")
        warnings = [line for line in lines if line["event"] == "time_outs_wait"]
        assert sorted(line["sink"] for line in warnings) == ["cubes", "squares"]


async def test_after_a_restart_that_took_longer_than_the_time_out_what_is_decided_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decided_batches, "FIRST_MS", 600_000)  # so only a time-out asks
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        for sink in ("squares", "cubes"):
            await sinks.decide(sink, [])
        decided = await sinks.tasks("squares", 2, timeout_ms=5_000)
        undecided = await sinks.tasks("cubes", 2, timeout_ms=5_000)
        await sinks.decide("squares", decided)
        assert sinks.states(decided + undecided) == ["Ongoing"] * 4
        clock = sinks.node.services.clock
        over_ms = clock.now_ms() + 5_100
    await until(lambda: clock.now_ms() > over_ms)
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        await sinks.all_are(decided, "CompleteCommit")
        await sinks.all_are(undecided, "CompleteAbort")


async def test_a_decision_topic_that_is_deleted_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        undecided = await sinks.tasks("squares", timeout_ms=SHORT_MS)
        await sinks.decide("squares", undecided, is_open=True)
        await sinks.node.services.topics.delete("fencepost-sink-squares")
        await sinks.all_are(undecided, "CompleteAbort")


async def test_two_phase_transactions_of_tasks_stay_open_until_they_are_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"transaction_two_phase_commit_enable": True, "fencepost_two_phase_transactional_ids": ("squares-*",)}
    async with sinks_at(tmp_path, monkeypatch, **chosen) as sinks:
        tokens = await sinks.tasks("squares", timeout_ms=SHORT_MS)
        await sinks.look()
        assert sinks.states(tokens) == ["Ongoing"]
        await sinks.decide("squares", tokens)
        await sinks.all_are(tokens, "CompleteCommit")


# Costs


async def test_nothing_runs_and_nothing_is_imported_without_a_transaction_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, decided_batches.__name__)
    async with running(tmp_path) as node:
        await node.ensure_loaded()
        await node.services.topics.create("out", 2, {})
        await begin(node, "orders-1")
        watched = node.services.transactions.sink_tasks
        assert watched is not None
        assert (watched._task, watched.open) == (None, {})
        assert decided_batches.__name__ not in sys.modules
    monkeypatch.setitem(sys.modules, decided_batches.__name__, decided_batches)


async def test_the_watch_ends_with_the_last_transaction_and_begins_again_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        for nonce in ("00000001", "00000002"):
            tokens = await sinks.tasks("squares", nonce=nonce)
            task = sinks.watched._task
            assert task is not None
            assert not task.done()
            await sinks.decide("squares", tokens)
            await sinks.all_are(tokens, "CompleteCommit")
            await asyncio.wait_for(task, 60)
            assert (sinks.watched.open, sinks.watched.unfinished) == ({}, {})


async def test_without_topics_that_may_decide_time_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, fencepost_spark_decision_topics=()) as node:
        await node.ensure_loaded()
        await node.services.topics.create("out", 2, {})
        assert node.services.transactions.sink_tasks is None
        sinks = Sinks(node)
        tokens = await sinks.tasks("squares", timeout_ms=SHORT_MS)
        await sinks.decide("squares", tokens)
        await sinks.all_are(tokens, "CompleteAbort")


# Failures


@unforeseen
@plants(WATCH)
async def test_an_unforeseen_failure_is_logged_and_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        look = DecidedBatches._look
        with logged(WATCH, "squares"), monkeypatch.context() as planted:
            planted.setattr(DecidedBatches, "_look", raising(error, 1, look))
            tokens = await sinks.tasks("squares")
            await sinks.decide("squares", tokens)
            await sinks.all_are(tokens, "CompleteCommit")


async def test_a_watch_that_cannot_be_made_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sinks_at(tmp_path, monkeypatch) as sinks:
        with logged(WATCH), monkeypatch.context() as planted:
            planted.setattr(decided_batches, "DecisionTopics", raising(OSError("no file"), 1, DecisionTopics))
            tokens = await sinks.tasks("squares", timeout_ms=SHORT_MS)
            await sinks.decide("squares", tokens)
            await sinks.all_are(tokens, "CompleteCommit")
