"""A broker finishes the decided batches of Spark's sinks: no driver is started again, and time ends none of them."""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.check_back_host.decided_batches import FIRST_MS, PAUSE_S
from fencepost.spark.decision_topic import TOPIC_CONFIG
from fencepost.spark.names import one_off_sink, task_id
from fencepost.two_phase import Coordinator, Outcome, Token
from tests.support import conditions
from tests.support.broker_process import BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.committed_records import committed_records
from tests.support.dead_driver import decide, prepared_tasks
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.open_transactions import open_transactions
from tests.support.postgres import postgres_server

pytestmark = pytest.mark.integration

BOUND_S = FIRST_MS / 1000 + PAUSE_S
BUSY_S = 45.0
"""What a busy machine may add."""
TIME_OUT_MS = 12_000
JOB = one_off_sink("8cd0ef86-096d-4b7d-8237-fcb86ebd341a")
FEW = {"transaction.state.log.num.partitions": "6", "offsets.topic.num.partitions": "1"}
until = partial(conditions.until, timeout_s=90.0)


def create(bootstrap: str, *topics: str, is_decision_topic: bool = False) -> None:
    configs = TOPIC_CONFIG if is_decision_topic else {}
    client = AdminClient({"bootstrap.servers": bootstrap})
    for one in client.create_topics([NewTopic(topic, 1, 1, config=configs) for topic in topics]).values():
        one.result(60)


def outcomes(bootstrap: str, tokens: list[Token]) -> Counter[Outcome]:
    with Coordinator(bootstrap) as coordinator:
        return Counter(coordinator.outcome(token) for token in tokens)


def seen(bootstrap: str, topic: str = "out") -> list[str]:
    return sorted(record.value.decode() for record in committed_records(bootstrap, topic))


def values(sink: str, count: int) -> list[str]:
    return sorted(f"{sink}-{number}" for number in range(count))


def passed(age_ms: int) -> None:
    """Wait until a time after this call."""
    over_s = time.monotonic() + age_ms / 1000
    until(lambda: time.monotonic() > over_s)


def test_a_reader_sees_the_whole_batch_of_a_driver_that_died_and_nothing_of_others(broker: BrokerProcess) -> None:
    create(broker.bootstrap, "out")
    time.monotonic()
    decided = prepared_tasks(broker.bootstrap, "squares", "out", 4)
    of_job = prepared_tasks(broker.bootstrap, JOB, "out", 2)
    decide(broker.bootstrap, "squares", decided)
    decide(broker.bootstrap, JOB, of_job)
    both = sorted(values("squares", 4) + values(JOB, 2))
    conditions.until(lambda: seen(broker.bootstrap) == both, timeout_s=BOUND_S + BUSY_S)
    undecided = prepared_tasks(broker.bootstrap, "cubes", "out", 2)
    create(broker.bootstrap, "fencepost-sink-evil", "fencepost-sink-cubes", is_decision_topic=True)
    forge = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    listed = json.dumps({"batch": 1, "query": "q", "tokens": [str(token) for token in undecided]})
    for key in ("cubes", "evil"):
        forge.produce("fencepost-sink-evil", listed, key, 0)
    for value in ("nonsense", b"\xff", "[" * 10_000, '{"tokens": 1}'):
        forge.produce("fencepost-sink-cubes", value, "cubes", 0)
    assert forge.flush(60) == 0
    broker.wait_for_output(r"decision_unreadable .*cubes")
    assert outcomes(broker.bootstrap, undecided) == {Outcome.PREPARED: 2}
    decide(broker.bootstrap, "cubes", undecided)
    until(lambda: outcomes(broker.bootstrap, undecided) == {Outcome.COMMITTED: 2})


def test_a_thousand_tasks_are_finished_before_time_ends_them(broker: BrokerProcess) -> None:
    create(broker.bootstrap, "of-many")
    names = [task_id("many", "3f9a1c02", number, number) for number in range(1_000)]
    tokens = open_transactions(broker.host, broker.port, "of-many", names, timeout_ms=30_000)
    decide(broker.bootstrap, "many", tokens)
    until(lambda: outcomes(broker.bootstrap, tokens) == {Outcome.COMMITTED: 1_000})


@pytest.mark.parametrize("kills", [1, 2])
def test_a_broker_that_was_away_for_longer_than_the_time_out_ends_only_what_is_not_decided(
    own_broker: BrokerProcess, kills: int
) -> None:
    bootstrap = own_broker.bootstrap
    create(bootstrap, "out", "other")
    decided = prepared_tasks(bootstrap, "squares", "out", 3, timeout_ms=TIME_OUT_MS)
    undecided = prepared_tasks(bootstrap, "cubes", "other", 3, timeout_ms=TIME_OUT_MS)
    decide(bootstrap, "squares", decided)
    decide(bootstrap, "cubes", [])
    own_broker.kill()
    passed(TIME_OUT_MS)
    for _ in range(kills):
        own_broker.start()
        if kills > 1:
            own_broker.kill()  # while it reads the decisions, or just after
    if kills > 1:
        own_broker.start()
    until(lambda: outcomes(bootstrap, decided) == {Outcome.COMMITTED: 3})
    until(lambda: outcomes(bootstrap, undecided) == {Outcome.ABORTED: 3})
    until(lambda: seen(bootstrap) == values("squares", 3))
    assert seen(bootstrap, "other") == []
    assert "Traceback" not in own_broker.output


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_time_out_waits_for_a_decision_that_is_being_committed(own_broker: BrokerProcess, is_committed: bool) -> None:
    bootstrap = own_broker.bootstrap
    create(bootstrap, "out")
    create(bootstrap, "fencepost-sink-squares", is_decision_topic=True)
    tokens = prepared_tasks(bootstrap, "squares", "out", 2, timeout_ms=TIME_OUT_MS)
    driver = Producer({"bootstrap.servers": bootstrap, "transactional.id": "squares-driver", "log_level": 0})
    driver.init_transactions(60)
    driver.begin_transaction()
    listed = json.dumps({"batch": 1, "query": "q", "tokens": [str(token) for token in tokens], "rows": 2})
    driver.produce("fencepost-sink-squares", listed, "squares", 0)
    assert driver.flush(60) == 0
    own_broker.wait_for_output(r"time_outs_wait .*squares")
    assert outcomes(bootstrap, tokens) == {Outcome.PREPARED: 2}
    if is_committed:
        driver.commit_transaction(60)
    else:
        driver.abort_transaction(60)
    expected = Outcome.COMMITTED if is_committed else Outcome.ABORTED
    until(lambda: outcomes(bootstrap, tokens) == {expected: 2})


def test_without_its_decision_topic_a_sinks_transactions_are_ended_by_time(own_broker: BrokerProcess) -> None:
    bootstrap = own_broker.bootstrap
    create(bootstrap, "out")
    tokens = prepared_tasks(bootstrap, "squares", "out", 2, timeout_ms=TIME_OUT_MS)
    decide(bootstrap, "squares", [])
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics(["fencepost-sink-squares"])["fencepost-sink-squares"].result(60)
    until(lambda: outcomes(bootstrap, tokens) == {Outcome.ABORTED: 2})


def test_of_several_processes_each_finishes_what_it_coordinates(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path / "data", 3, settings=FEW) as broker:
        bootstrap = broker.bootstrap
        create(bootstrap, "out")
        tokens = prepared_tasks(bootstrap, "squares", "out", 9, timeout_ms=30_000)
        undecided = prepared_tasks(bootstrap, "cubes", "out", 3, timeout_ms=30_000)
        decide(bootstrap, "squares", tokens)
        decide(bootstrap, "cubes", [])
        for node_id in broker.node_ids:
            broker.wait_for_another(node_id, than=broker.kill_node(node_id))
            broker.wait_for_answer(node_id)
        until(lambda: outcomes(bootstrap, tokens) == {Outcome.COMMITTED: 9})
        until(lambda: outcomes(bootstrap, undecided) == {Outcome.ABORTED: 3})
        until(lambda: seen(bootstrap) == values("squares", 9))
        assert "Traceback" not in broker.output, broker.output


def test_of_several_machines_one_is_lost_and_nothing_decided_is_ended_by_time(tmp_path: Path) -> None:
    with (
        postgres_server(is_durable=True) as database,
        object_server(tmp_path / "objects") as objects,
        Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=FEW) as machines,
    ):
        bootstrap = machines.bootstrap
        create(bootstrap, "out")
        tokens = prepared_tasks(bootstrap, "squares", "out", 9, timeout_ms=15_000)
        undecided = prepared_tasks(bootstrap, "cubes", "out", 3, timeout_ms=15_000)
        decide(bootstrap, "squares", tokens)
        decide(bootstrap, "cubes", [])
        client = AdminClient({"bootstrap.servers": bootstrap})
        topic = client.list_topics("fencepost-sink-squares", timeout=60).topics["fencepost-sink-squares"]
        machines.replace(topic.partitions[0].leader)
        until(lambda: outcomes(bootstrap, tokens) == {Outcome.COMMITTED: 9})
        until(lambda: outcomes(bootstrap, undecided) == {Outcome.ABORTED: 3})
        until(lambda: seen(bootstrap) == values("squares", 9))
        assert "Traceback" not in machines.output, machines.output
