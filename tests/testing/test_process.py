"""The fixture `fencepost_process`: kill -9, restarts, freezing, and faults that kill."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost.testing.errors import MisuseError
from fencepost.testing.process import ProcessBroker
from tests.testing.clients import committing, producer, producer_in_transaction, transactional_producer


def test_what_was_committed_survives_kill_9(fencepost_process: ProcessBroker) -> None:
    client = transactional_producer(fencepost_process, "till-1")
    client.begin_transaction()
    client.produce("orders", b"x")
    client.commit_transaction(10)
    killed, address = fencepost_process.process_id, fencepost_process.bootstrap_servers
    fencepost_process.kill()
    assert not fencepost_process.is_running
    fencepost_process.restart()
    assert (fencepost_process.process_id != killed, fencepost_process.bootstrap_servers) == (True, address)
    assert [record.value for record in fencepost_process.records("orders", count=1)] == [b"x"]


@pytest.mark.parametrize(("durable", "state"), [(True, "CompleteCommit"), (False, "Ongoing")])
def test_a_fault_kills_the_process_before_or_after_a_commit_is_durable(
    fencepost_process: ProcessBroker, durable: bool, state: str
) -> None:
    client = producer_in_transaction(fencepost_process, "till-1", "orders", b"x")
    fault = fencepost_process.crash_after("EndTxn", durable=durable)
    commit = committing(client)
    assert fencepost_process.wait_for_exit() == -signal.SIGKILL
    assert fault.fired == 1
    assert fencepost_process.requests("EndTxn")[-1].outcome.startswith("crash_after('EndTxn'")
    with fencepost_process.hold("EndTxn", on="request", optional=True):  # the client repeats it at once
        fencepost_process.restart()
        assert fencepost_process.transaction("till-1").state == state
    commit.join()
    assert (fault.fired, fencepost_process.transaction("till-1").state) == (1, "CompleteCommit")
    assert [record.value for record in fencepost_process.records("orders", count=1)] == [b"x"]


def test_faults_outlive_a_restart(fencepost_process: ProcessBroker) -> None:
    fencepost_process.topic("orders")
    fault = fencepost_process.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=3)
    client = producer(fencepost_process, **{"retry.backoff.ms": 1})
    client.produce("orders", b"x")
    client.flush(10)
    assert fault.fired == 3
    other = fencepost_process.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=1)
    fencepost_process.restart()
    client.produce("orders", b"y")
    client.flush(10)
    assert (fault.fired, other.fired) == (3, 1)


def test_a_frozen_process_answers_nothing_until_it_goes_on(fencepost_process: ProcessBroker) -> None:
    fencepost_process.topic("orders")
    client = producer(fencepost_process)
    client.list_topics(timeout=10)
    fencepost_process.freeze()
    client.produce("orders", b"x")
    assert client.flush(0.2) == 1
    for misuse in (fencepost_process.requests, fencepost_process.topics):
        with pytest.raises(MisuseError, match=r"frozen and answers nothing: call thaw\(\) first"):
            misuse()
    fencepost_process.thaw()
    assert client.flush(10) == 0


def test_the_clock_of_a_process_can_be_turned_and_does_not_go_back(fencepost_process: ProcessBroker) -> None:
    _client = producer_in_transaction(fencepost_process, "till-1", "orders", b"x")
    fencepost_process.advance(seconds=45)
    fencepost_process.kill()
    fencepost_process.restart()
    assert fencepost_process.transaction("till-1").state == "Ongoing"
    fencepost_process.advance(seconds=30)
    assert fencepost_process.transaction("till-1").state == "CompleteAbort"


def test_a_process_that_does_not_run_says_what_to_do(fencepost_process: ProcessBroker) -> None:
    fencepost_process.kill()
    with pytest.raises(MisuseError, match=r"does not run: call restart\(\)"):
        fencepost_process.advance(seconds=1)
    with pytest.raises(MisuseError, match=r"does not run: call restart\(\)"):
        fencepost_process.topics()
    with pytest.raises(MisuseError, match=r"does not run: call restart\(\)"):
        fencepost_process.freeze()
    assert "does not answer" in fencepost_process.describe()


def test_a_process_may_be_ended_and_started_while_another_thread_asks_it_something() -> None:
    with ProcessBroker() as broker:
        fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", optional=True)
        has_ended = threading.Event()

        def ask() -> int:
            asked = 0
            while not has_ended.is_set():
                assert fault.fired == 0
                asked += 1
            return asked

        with ThreadPoolExecutor(3) as threads:
            asking = [threads.submit(ask) for _ in range(3)]
            try:
                for end in (broker.kill, broker.stop, broker.close) * 2:
                    broker.restart()
                    end()
            finally:
                has_ended.set()
            assert all(one.result() for one in asking)


def test_a_call_over_the_wire_that_waits_does_not_hold_up_the_end_of_the_process() -> None:
    with ProcessBroker() as broker, ThreadPoolExecutor(1) as threads:
        broker.topic("orders")
        waiting = threads.submit(broker.records, "orders", count=1, timeout=300)
        broker.close()
        with pytest.raises((MisuseError, ConnectionError)):
            waiting.result(60)


def test_a_start_that_fails_has_the_reason_of_the_process() -> None:
    broker = ProcessBroker(settings={"num.partition": 3})
    with pytest.raises(RuntimeError, match=r"did not start: ConfigurationError: .*num\.partition"):
        broker.start()
    broker.close()


def test_the_process_ends_with_its_context() -> None:
    with ProcessBroker() as broker:
        process_id, directory = broker.process_id, broker.data_directory
        broker.topic("orders")
    assert not os.path.exists(directory)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
