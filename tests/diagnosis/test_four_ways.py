"""The JSON API, the metrics, the console and the command line say the same of one broker."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition as KafkaPartition

from fencepost.broker.transaction.completion import Completion
from fencepost.cli.commands import fencepost
from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.reading.groups import lags_of, list_groups, read_committed
from fencepost.console.reading.in_doubt import read_in_doubt
from fencepost.console.reading.lags import ReadableCounts
from fencepost.console.reading.stuck import read_facts
from fencepost.console.reading.topics import read_partition
from fencepost.console.reading.transaction_history import read_history
from fencepost.diagnosis.lag import Lag
from fencepost.diagnosis.stuck import Explanation, explain
from tests.broker.metrics.test_broker_families import TIMEOUT_S, Metered, send, until
from tests.support.admin_client import create
from tests.support.hanging_transaction import leave_hanging

T = TypeVar("T")


class Asked(Metered):
    """A broker that is asked in four ways."""

    def http(self, path: str) -> Any:
        response = httpx.get(f"http://127.0.0.1:{self.http_port}{path}", timeout=TIMEOUT_S)
        assert response.status_code == 200, response.text
        return response.json()

    def command(self, *arguments: str) -> Any:
        result = CliRunner().invoke(fencepost, [*arguments, "--json", "-b", self.broker.bootstrap_servers])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def console(self, ask: Callable[[Cluster], Awaitable[T]]) -> T:
        async def run() -> T:
            host, _, port = self.broker.bootstrap_servers.rpartition(":")
            cluster = Cluster([(host, int(port))], ClientOptions())
            try:
                return await ask(cluster)
            finally:
                cluster.close()

        return asyncio.run(run())


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    settings = {
        "transaction.state.log.num.partitions": "2",
        "transaction.partition.verification.enable": "false",
        "transaction.two.phase.commit.enable": "true",
        "fencepost.two.phase.transactional.ids": "doubt-*",
    }
    found = Asked(tmp_path / "data", **settings)
    found.start()
    yield found
    found.broker.close()


async def lag_on_the_page(cluster: Cluster) -> Lag:
    """What the console's page of the group shows."""
    committed = await read_committed(cluster, (await list_groups(cluster)).listed)
    partition = await read_partition(cluster, "orders", 0)
    (found,) = lags_of(committed["billing"], {("orders", 0): partition})
    await ReadableCounts().fill(cluster, [(found, partition)])
    return found.lag


def test_lag_is_what_a_consumer_can_still_get_in_all_four(asked: Asked) -> None:
    create(asked.admin, "orders")
    writer = asked.transactional("till")
    for count, commits in ((5, True), (3, False)):
        writer.begin_transaction()
        send(writer, "orders", count)
        (writer.commit_transaction if commits else writer.abort_transaction)(TIMEOUT_S)
    send(asked.producer(), "orders", 2)
    asked.commit("billing", "orders", 0)
    for future in asked.admin.delete_records([KafkaPartition("orders", 0, 2)]).values():
        future.result(TIMEOUT_S)
    writer.begin_transaction()
    send(writer, "orders", 3)
    lag = Lag(end=15, deliverable=5, blocked=3)  # 2 of 5 records are deleted, 3 are aborted, 2 offsets are markers
    assert asked.console(lag_on_the_page) == lag
    (told,) = asked.http("/v1/groups/billing/lag")["partitions"]
    assert (told["lag"], told["lag_read_committed"], told["blocked"]) == lag[:3]
    (waiting,) = asked.http("/v1/stuck")["stuck"][0]["waiting_groups"]
    assert (waiting["deliverable"], waiting["blocked"]) == lag[1:3]
    labels, scraped = '{consumergroup="billing",partition="0",topic="orders"}', asked.values()
    names = ("kafka_consumergroup_lag", "fencepost_consumergroup_lag_read_committed")
    assert tuple(scraped[f"{name}{labels}"] for name in (*names, "fencepost_consumergroup_lag_blocked")) == lag[:3]
    (row,) = asked.command("groups", "describe", "billing")
    assert (row["lag"], row["read_committed_lag"]) == lag[:2]
    writer.abort_transaction(TIMEOUT_S)


def test_a_transaction_went_the_same_way_on_the_console_and_over_http(asked: Asked) -> None:
    create(asked.admin, "orders")
    writer = asked.transactional("till")
    writer.begin_transaction()
    send(writer, "orders", 2)
    writer.commit_transaction(TIMEOUT_S)
    until(lambda: asked.http("/v1/transactions/till/history")["events"][-1]["state"] == "CompleteCommit")
    found = asked.http("/v1/transactions/till/history")
    assert found["is_complete"]
    life = asked.console(partial(read_history, transactional_id="till"))
    told = [(one["offset"], one["state"], one["note"], one["after_ms"]) for one in found["events"]]
    assert [(one.offset, one.state, one.note, one.after_ms) for one in life.moments] == told
    assert "+ orders-0" in {note for _, _, note, _ in told}


def without_times(sentence: str) -> str:
    return re.sub(r"\d[\d.]* (ms|s|min)\b( \d+ s)?", "TIME", sentence)


def test_why_readers_wait_has_one_answer_in_all_four(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"live": "ongoing", "doubt": "two_phase", "hung": "hanging", "decided": "prepare_commit"}
    for topic in expected:
        create(asked.admin, topic)
    open_producers = [asked.transactional(name) for name in ("till", "doubt-1", "doubt-2")]
    for producer, topic in zip(open_producers, ("live", "doubt", "decided"), strict=True):
        producer.begin_transaction()
        send(producer, topic, 2)
    host, _, port = asked.broker.bootstrap_servers.rpartition(":")
    leave_hanging(host, int(port), "hung")
    monkeypatch.setattr(Completion, "_complete", no_marker_is_written)
    open_producers[2].commit_transaction(TIMEOUT_S)
    until(lambda: asked.http("/v1/transactions/doubt-2")["state"] == "PrepareCommit")
    for one in asked.http("/v1/stuck")["stuck"]:
        topic = one["topic"]
        assert one["cause"] == expected.pop(topic)
        explanation = asked.console(partial(explained, topic=topic))
        assert (explanation.cause.value, without_times(explanation.sentence)) == (
            one["cause"],
            without_times(one["explanation"]),
        )
        assert [without_times(advice) for _, advice in explanation.advice] == [
            without_times(advice) for advice in one["advice"]
        ]
        told = asked.command("transactions", "why", topic, "0")
        assert (told["cause"], without_times(told["sentence"])) == (one["cause"], without_times(one["explanation"]))
        age_s = asked.values()[f'fencepost_oldest_open_transaction_age_seconds{{partition="0",topic="{topic}"}}']
        assert abs(age_s * 1000 - one["held_by"]["age_ms"]) < 10_000
    assert expected == {}
    # The other transaction of two-phase commit is decided.
    in_doubt = ["doubt-1"]
    assert [row["transactional_id"] for row in asked.command("transactions", "list", "--in-doubt")] == in_doubt
    assert [one.transactional_id for one in asked.console(read_in_doubt).doubts] == in_doubt
    ongoing = asked.http("/v1/transactions?state=Ongoing")["transactions"]
    assert [one["transactional_id"] for one in ongoing if one["is_two_phase"]] == in_doubt


def no_marker_is_written(_: Completion) -> Coroutine[Any, Any, None]:
    async def wait() -> None:
        await asyncio.Event().wait()

    return wait()


async def explained(cluster: Cluster, topic: str) -> Explanation:
    return explain(await read_facts(cluster, BrokerHttp(None, None), topic, 0))
