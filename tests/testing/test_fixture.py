"""The fixture `fencepost`: what a test says to its broker, and asks it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost import Broker
from fencepost.testing.errors import FaultNeverFiredError, MisuseError, RefusedError, WaitedInVainError
from fencepost.testing.results import Partition
from tests.testing.clients import (
    IN_ANOTHER_PROCESS,
    committing,
    consumer,
    consumer_with_partitions,
    producer,
    producer_in_transaction,
    transactional_producer,
)


def test_records_that_a_client_produces_are_read(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=3)
    client = producer(fencepost)
    client.produce("orders", b"one", b"key", 2, headers=[("trace", b"7")])
    client.flush(10)
    (record,) = fencepost.records("orders")
    assert (record.partition, record.offset, record.key, record.value) == (2, 0, b"key", b"one")
    assert record.headers == (("trace", b"7"),)
    assert fencepost.records("orders", partition=0) == []
    assert fencepost.topics() == {"orders": 3}


def test_clients_may_be_in_other_processes(fencepost: Broker) -> None:
    delay = fencepost.delay("Produce", seconds=0.001, client_id="elsewhere")
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, fencepost.bootstrap_servers], check=True)
    assert [record.value for record in fencepost.records("orders")] == [b"from elsewhere"]
    assert delay.fired == len(fencepost.requests("Produce", client_id="elsewhere")) == 1


def test_records_of_the_helper_reach_a_client(fencepost: Broker) -> None:
    assert fencepost.produce("orders", "one", None, b"three", key="k", headers={"h": "v"}) == [0, 1, 2]
    client = consumer(fencepost, "g", "orders")
    messages = [client.poll(10) for _ in range(3)]
    client.close()
    assert [message.value() for message in messages if message is not None] == [b"one", None, b"three"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(fencepost: Broker, compression: str) -> None:
    client = producer(fencepost, **{"compression.type": compression, "linger.ms": 50})
    for number in range(20):
        client.produce("orders", b"x" * 200 + str(number).encode(), partition=0)
    client.flush(10)
    assert [record.value[200:] for record in fencepost.records("orders") if record.value] == [
        str(number).encode() for number in range(20)
    ]


def test_records_of_open_and_aborted_transactions_are_left_out(fencepost: Broker) -> None:
    client = transactional_producer(fencepost, "till-1")
    for value, commit in ((b"kept", True), (b"dropped", False), (b"kept, too", True)):
        client.begin_transaction()
        client.produce("orders", value, partition=0)
        client.flush(10)
        if commit:
            client.commit_transaction(10)
        else:
            client.abort_transaction(10)
    client.begin_transaction()
    client.produce("orders", b"open", partition=0)
    client.flush(10)
    assert [record.value for record in fencepost.records("orders")] == [b"kept", b"kept, too"]
    everything = fencepost.records("orders", isolation="read_uncommitted")
    assert [record.value for record in everything] == [b"kept", b"dropped", b"kept, too", b"open"]
    assert fencepost.transaction("till-1").partitions == (Partition("orders", 0),)
    client.abort_transaction(10)


def test_records_can_be_waited_for(fencepost: Broker) -> None:
    fencepost.topic("orders")
    late = threading.Timer(0.05, fencepost.produce, ("orders", "late"))
    late.start()
    assert [record.value for record in fencepost.records("orders", count=1)] == [b"late"]
    late.join()
    with pytest.raises(WaitedInVainError, match=r"'orders' has 1 records, not 2 after 0.02 s(.|\n)*The broker's view"):
        fencepost.records("orders", count=2, timeout=0.02)


def test_transactions_show_their_state(fencepost: Broker) -> None:
    client = transactional_producer(fencepost, "till-1")
    assert fencepost.transaction("till-1").state == "Empty"
    client.begin_transaction()
    client.produce("orders", b"x")
    client.flush(10)
    open_one = fencepost.transaction("till-1")
    assert (open_one.state, open_one.is_open) == ("Ongoing", True)
    assert open_one.start_ms is not None
    client.commit_transaction(10)
    ended = fencepost.transaction("till-1")
    assert (ended.state, ended.is_open, ended.start_ms) == ("CompleteCommit", False, None)
    assert fencepost.transactions() == {"till-1": "CompleteCommit"}


def test_a_transaction_times_out_when_the_clock_is_turned(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x", **{"transaction.timeout.ms": 900_000})
    fencepost.advance(minutes=14)
    assert fencepost.transaction("till-1").state == "Ongoing"
    fencepost.advance(minutes=2)
    assert fencepost.transaction("till-1").state == "CompleteAbort"
    with pytest.raises(KafkaException) as raised:
        client.commit_transaction(10)
    assert raised.value.args[0].code() == KafkaError._FENCED


def test_the_clock_does_not_go_back_when_the_broker_restarts(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")  # with a time-out of a minute
    fencepost.advance(seconds=45)
    fencepost.crash()
    fencepost.restart()
    assert fencepost.transaction("till-1").state == "Ongoing"
    fencepost.advance(seconds=30)
    assert fencepost.transaction("till-1").state == "CompleteAbort"
    client.purge()


def test_retention_deletes_records_when_the_clock_is_turned(fencepost: Broker) -> None:
    fencepost.topic("orders", configs={"retention.ms": 3_600_000, "segment.ms": 60_000})
    fencepost.produce("orders", "old")
    fencepost.advance(hours=3)
    assert fencepost.records("orders") == []


def test_a_group_shows_members_offsets_and_lag(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=2)
    fencepost.produce("orders", "one", "two", partition=0)
    client = consumer(fencepost, "billing", "orders", **{"client.id": "app"})
    message = client.poll(10)
    assert message is not None
    client.commit(message, asynchronous=False)
    group = fencepost.group("billing")
    (member,) = group.members
    assert (group.kind, group.state, member.client_id) == ("classic", "Stable", "app")
    assert sorted(member.partitions) == [("orders", 0), ("orders", 1)]
    assert (group.offsets[Partition("orders", 0)], group.total_lag) == (1, 1)
    client.close()
    assert fencepost.group("billing").state == "Empty"


def test_lag_counts_records_and_not_the_markers_behind_them(fencepost: Broker) -> None:
    client = transactional_producer(fencepost, "till-1")
    client.begin_transaction()
    client.produce("orders", b"x", partition=0)
    client.commit_transaction(10)
    reader = consumer(fencepost, "billing", "orders")
    message = reader.poll(10)
    assert message is not None
    with pytest.raises(WaitedInVainError, match=r"lag of 0: orders-0 1"):
        fencepost.wait_for_lag("billing", topic="orders", timeout=0.05)
    reader.commit(message, asynchronous=False)
    fencepost.wait_for_lag("billing")
    reader.close()


def test_a_silent_member_is_expelled_when_the_clock_is_turned(fencepost: Broker) -> None:
    fencepost.topic("orders")
    client = consumer_with_partitions(fencepost, "billing", "orders", **{"session.timeout.ms": 6_000})
    assert len(fencepost.group("billing").members) == 1
    with fencepost.hold("Heartbeat", optional=True):
        fencepost.advance(seconds=7)
        assert fencepost.group("billing").members == ()
    client.close()


def test_requests_are_shown_with_their_fields_and_replies(fencepost: Broker) -> None:
    client = transactional_producer(fencepost, "till-1", **{"client.id": "shop"})
    client.begin_transaction()
    client.produce("orders", b"x", partition=0)
    client.commit_transaction(10)
    (asked,) = fencepost.requests("InitProducerId", transactional_id="till-1")
    assert (asked.api, asked.client_id, asked.outcome, asked.error) == ("InitProducerId", "shop", "answered", None)
    assert asked.fields.transaction_timeout_ms == 60_000
    assert asked.reply.producer_epoch == 0
    assert fencepost.requests("Produce", topic="orders", client_id="sh*")
    assert not fencepost.requests("Produce", topic="bills")
    fencepost.topic("bills")  # helpers' own requests are not shown
    assert not fencepost.requests("CreateTopics")


def test_a_fenced_producer_learns_it_at_its_commit(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    producer_id, epoch = fencepost.fence("till-1")
    assert (producer_id, epoch > 0) == (fencepost.transaction("till-1").producer_id, True)
    with pytest.raises(KafkaException) as raised:
        client.commit_transaction(10)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert fencepost.records("orders") == []


def test_a_failed_produce_is_retried_by_its_client(fencepost: Broker) -> None:
    fencepost.topic("orders")
    fault = fencepost.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", count=2)
    client = producer(fencepost, **{"retry.backoff.ms": 1})
    client.produce("orders", b"x")
    assert client.flush(10) == 0
    assert fault.fired == 2
    assert [record.value for record in fencepost.records("orders")] == [b"x"]
    assert [seen.error for seen in fencepost.requests("Produce")] == ["NOT_LEADER_OR_FOLLOWER"] * 2 + [None]


def test_a_fault_may_concern_one_partition_of_a_request(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=2)
    errors: dict[int, str | None] = {}

    def delivered(error: Any, message: Any) -> None:
        errors[message.partition()] = None if error is None else error.name()

    fault = fencepost.fail("Produce", "MESSAGE_TOO_LARGE", topic="orders", partition=1, count=None)
    client = producer(fencepost, **{"linger.ms": 20})
    client.produce("orders", b"a", partition=0, on_delivery=delivered)
    client.produce("orders", b"b", partition=1, on_delivery=delivered)
    client.flush(10)
    assert errors == {0: None, 1: "MSG_SIZE_TOO_LARGE"}
    assert fault.fired >= 1
    assert [record.value for record in fencepost.records("orders")] == [b"a"]


def test_a_fetch_of_one_partition_fails_and_the_other_is_read(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=2)
    fencepost.produce("orders", "a", partition=0)
    fencepost.produce("orders", "b", partition=1)
    with fencepost.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1, count=None) as fault:
        client = consumer(fencepost, "g", "orders")
        message = client.poll(10)
        assert message is not None
        assert (message.partition(), message.value()) == (0, b"a")
        fault.wait_until_fired()
    message = client.poll(10)
    assert message is not None
    assert (message.partition(), message.value()) == (1, b"b")
    client.close()


def test_held_replies_wait_until_they_are_released(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    with fencepost.hold("EndTxn") as held:
        committing = threading.Thread(target=client.commit_transaction, args=(10,))
        committing.start()
        held.wait_until_fired()
        assert held.waiting == 1
        assert fencepost.transaction("till-1").state == "CompleteCommit"
        committing.join(0.05)
        assert committing.is_alive()
        assert held.release() == 1
        committing.join(10)
        assert not committing.is_alive()


def test_held_requests_do_nothing_until_they_are_released(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    with fencepost.hold("EndTxn", on="request") as held:
        committing = threading.Thread(target=client.commit_transaction, args=(10,))
        committing.start()
        held.wait_until_fired()
        assert fencepost.transaction("till-1").state == "Ongoing"
    committing.join(10)
    assert fencepost.transaction("till-1").state == "CompleteCommit"


def test_delays_are_by_the_brokers_clock(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    with fencepost.delay("EndTxn", seconds=3600) as delay:
        committing = threading.Thread(target=client.commit_transaction, args=(10,))
        committing.start()
        delay.wait_until_fired()
        fencepost.advance(hours=1)
        committing.join(10)
        assert not committing.is_alive()


def test_a_lost_commit_reply_is_asked_for_again(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    fault = fencepost.disconnect("EndTxn")
    client.commit_transaction(20)
    assert fault.fired == 1
    assert [record.value for record in fencepost.records("orders")] == [b"x"]
    assert len(fencepost.requests("EndTxn")) == 2


def test_connections_of_a_client_are_closed_at_once(fencepost: Broker) -> None:
    client = producer(fencepost, **{"client.id": "shop"})
    client.list_topics(timeout=10)
    fault = fencepost.disconnect(client_id="shop")
    fault.wait_until_fired()
    client.produce("orders", b"x")
    assert client.flush(20) == 0


@pytest.mark.parametrize(("durable", "state"), [(True, "CompleteCommit"), (False, "Ongoing")])
def test_a_crash_after_a_commit_loses_it_before_it_is_durable_and_only_its_reply_after(
    fencepost: Broker, durable: bool, state: str
) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    fault = fencepost.crash_after("EndTxn", durable=durable)
    commit = committing(client)
    fault.wait_until_fired()
    assert "the broker does not answer" in fencepost.describe()
    with fencepost.hold("EndTxn", on="request", optional=True):  # the client repeats it at once
        fencepost.restart()
        assert fencepost.transaction("till-1").state == state
    commit.join()
    assert (fault.fired, fencepost.transaction("till-1").state) == (1, "CompleteCommit")
    assert [record.value for record in fencepost.records("orders")] == [b"x"]


def test_a_crash_before_a_record_is_durable_loses_it_and_no_other(fencepost: Broker) -> None:
    fencepost.produce("orders", "acknowledged")
    client = transactional_producer(fencepost, "till-1")
    client.begin_transaction()
    fault = fencepost.crash_after("Produce", durable=False, topic="orders")
    client.produce("orders", b"lost", partition=0)
    client.flush(0)
    fault.wait_until_fired()
    with fencepost.hold("Produce", on="request", optional=True):
        fencepost.restart()
        everything = fencepost.records("orders", isolation="read_uncommitted")
        assert [record.value for record in everything] == [b"acknowledged"]
        # That the partition is part of the transaction was durable before the record was appended.
        assert fencepost.transaction("till-1").partitions == (Partition("orders", 0),)
    client.commit_transaction(20)
    assert [record.value for record in fencepost.records("orders")] == [b"acknowledged", b"lost"]


def test_a_crash_before_an_offset_is_durable_loses_it(fencepost: Broker) -> None:
    fencepost.produce("orders", "one")
    client = consumer(fencepost, "billing", "orders")
    message = client.poll(10)
    assert message is not None
    fault = fencepost.crash_after("OffsetCommit", durable=False)
    client.commit(message, asynchronous=True)
    fault.wait_until_fired()
    with fencepost.hold("OffsetCommit", on="request", optional=True):
        fencepost.restart()
        assert fencepost.group("billing").offsets == {}
    client.close()


@pytest.mark.fencepost(settings={"group.initial.rebalance.delay.ms": 60_000})
def test_a_broker_that_is_stopped_does_not_crash_at_a_request_that_waits(
    fencepost: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fencepost.topic("orders")
    fault = fencepost.crash_after("JoinGroup", durable=False, after=1, optional=True)
    client = consumer(fencepost, "billing", "orders")
    while len(fencepost.requests("JoinGroup")) < 2:  # the first gets its member id
        client.poll(0.01)
    fencepost.restart()
    assert fault.fired == 0
    assert "unclean_stop_found" not in caplog.text
    client.close()


def test_a_request_that_appends_nothing_crashes_the_broker_before_its_reply(fencepost: Broker) -> None:
    client = producer(fencepost)
    fault = fencepost.crash_after("Metadata", durable=False)
    client.poll(0)
    fault.wait_until_fired()
    assert fencepost.requests("Metadata")[-1].outcome == "crash_after('Metadata', durable=False): done, and lost"
    fencepost.restart()
    client.produce("orders", b"x")
    assert client.flush(20) == 0


def test_faults_let_some_pass_and_count_how_often_they_fire(fencepost: Broker) -> None:
    fencepost.topic("orders")
    fault = fencepost.fail("Produce", "KAFKA_STORAGE_ERROR", after=1, count=1)
    client = producer(fencepost, **{"retry.backoff.ms": 1})
    for number in range(3):
        client.produce("orders", str(number))
        client.flush(10)
    assert fault.fired == 1
    assert [seen.error for seen in fencepost.requests("Produce")] == [None, "KAFKA_STORAGE_ERROR", None, None]


def test_an_error_may_come_after_all_is_done(fencepost: Broker) -> None:
    fencepost.topic("orders")
    fault = fencepost.fail("Produce", "REQUEST_TIMED_OUT", on="reply")
    client = producer(fencepost, **{"retry.backoff.ms": 1, "enable.idempotence": True})
    client.produce("orders", b"x")
    assert client.flush(10) == 0
    assert fault.fired == 1
    assert [record.value for record in fencepost.records("orders")] == [b"x"]


# Misuse


def test_the_message_for_misuse_is_one_sentence_with_the_remedy(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=2)
    transactional_producer(fencepost, "till-1")
    moment: Any = "answer"
    number: Any = 7
    for misuse, told in (
        (
            lambda: fencepost.records("ordres"),
            "create it with topic('ordres') first; did you mean 'orders'?",
        ),
        (lambda: fencepost.records("orders", partition=5), "'orders' has no partition 5: it has 2"),
        (lambda: fencepost.produce("orders", "x", partition=7), "'orders' has no partition 7: it has 2"),
        (lambda: fencepost.produce("orders"), "has no values: give one for each record"),
        (lambda: fencepost.topic("orders"), "there is a topic 'orders' already: create it before"),
        (lambda: fencepost.records("orders", isolation="committed"), "use 'read_committed' or 'read_uncommitted'"),
        (lambda: fencepost.transaction("till-2"), "call init_transactions() first; did you mean 'till-1'?"),
        (lambda: fencepost.group("billing"), "there is no group 'billing': have a consumer join it"),
        (lambda: fencepost.fail("Prodcue", "NONE"), "there is no API 'Prodcue': did you mean 'Produce'?"),
        (
            lambda: fencepost.fail("Produce", "NOT_LEADER"),
            "'NOT_LEADER': did you mean 'NOT_LEADER_OR_FOLLOWER'?",
        ),
        (lambda: fencepost.hold("EndTxn", topic="orders"), "EndTxn names no topics: leave out topic and partition"),
        (lambda: fencepost.hold("EndTxn", on=moment), "use 'request' (before) or 'reply'"),
        (lambda: fencepost.fail("Fetch", "NONE", count=0), "give a count of 1 or more, or None for all"),
        (lambda: fencepost.fail("Fetch", 9999), "there is no error 9999: use a name such as"),
        (lambda: fencepost.hold("Fetch", after=-1), "a fault cannot be in the past: give after of 0 or more"),
        (lambda: fencepost.delay("Fetch", -1), "a fault cannot be in the past: give seconds of 0 or more"),
        (lambda: fencepost.hold("Fetch", transactional_id="till-1"), "Fetch has no transactional id: leave it out"),
        (lambda: fencepost.hold("EndTxn", group="billing"), "EndTxn names no group: leave it out"),
        (lambda: fencepost.produce("orders", number), "7 is no content of a record: give bytes or text"),
        (lambda: fencepost.advance(), "give seconds, minutes, hours, days or weeks above 0"),
    ):
        with pytest.raises(MisuseError) as raised:
            misuse()
        assert told in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_fault_that_never_fired_fails_its_context(fencepost: Broker) -> None:
    fault = fencepost.hold("EndTxn", optional=True)
    fault.optional = False
    with pytest.raises(FaultNeverFiredError, match=r"hold\('EndTxn'\) never fired: no such request came"), fault:
        pass
    fault.optional = True


def test_what_the_broker_refuses_has_the_name_of_the_error(fencepost: Broker) -> None:
    with pytest.raises(RefusedError, match="INVALID_TOPIC_EXCEPTION") as raised:
        fencepost.topic("no good")
    assert raised.value.error == "INVALID_TOPIC_EXCEPTION"


def test_a_broker_that_has_crashed_says_so(fencepost: Broker) -> None:
    fencepost.crash()
    for misuse in (lambda: fencepost.advance(seconds=1), lambda: fencepost.records("orders")):
        with pytest.raises(MisuseError, match=r"the broker does not run: call restart\(\)"):
            misuse()
    assert "does not answer" in fencepost.describe()
    fencepost.restart()
    fencepost.topic("orders")


def test_what_is_asked_while_the_broker_crashes_is_answered(fencepost: Broker) -> None:
    fault = fencepost.hold("EndTxn", optional=True)
    answers: list[int] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            answers.append(fault.fired)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(20):
        count = len(answers)
        while len(answers) == count:
            time.sleep(0.0001)
        fencepost.crash()
        fencepost.restart()
    is_over.set()
    asking.join()
    assert set(answers) == {0}


def test_a_clock_that_is_turned_when_the_broker_crashes_says_so(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x")
    late = fencepost.delay("EndTxn", 30, on="request", count=1)
    crash = fencepost.crash_after("EndTxn")
    commit = committing(client)
    late.wait_until_fired()
    with pytest.raises(MisuseError, match=r"the broker does not run: call restart\(\)"):
        fencepost.advance(seconds=40)
    assert crash.fired == 1
    fencepost.restart()
    commit.join()


def test_the_brokers_view_says_who_holds_what_and_which_request_came_last(fencepost: Broker) -> None:
    client = producer_in_transaction(fencepost, "till-1", "orders", b"x", **{"client.id": "shop"})
    reader = consumer_with_partitions(fencepost, "billing", "orders", **{"client.id": "biller"})
    view = fencepost.describe()
    assert "topic orders-0: offsets 0 to 1; read_committed ends at 0, held by the transaction of 'till-1'" in view
    assert "transactional id 'till-1': Ongoing, producer 0 epoch 0" in view
    assert "classic group 'billing': Stable; biller has orders-0; no offsets" in view
    assert "Produce transactional_id='till-1' orders-0 from 'shop': answered" in view
    reader.close()
    client.abort_transaction(10)


# Speed


def test_a_week_passes_in_a_moment(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=10)
    begun_s = time.process_time()
    fencepost.advance(weeks=1)
    assert time.process_time() - begun_s < 2  # 0.03 s on a quiet machine


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_finds_an_empty_broker_at_the_same_address(
    fencepost: Broker, fencepost_bootstrap_servers: str, attempt: int
) -> None:
    assert fencepost.bootstrap_servers == fencepost_bootstrap_servers
    assert (fencepost.topics(), fencepost.transactions()) == ({}, {})
    with pytest.raises(MisuseError):
        fencepost.group("billing")
    fencepost.topic("orders")
    transactional_producer(fencepost, f"till-{attempt}")
    fencepost.advance(days=1)


def test_a_fresh_broker_is_another_one(fencepost: Broker, fencepost_fresh: Broker) -> None:
    fencepost.topic("orders")
    assert fencepost_fresh.topics() == {}
    assert fencepost_fresh.bootstrap_servers != fencepost.bootstrap_servers


@pytest.mark.fencepost(settings={"num.partitions": 4, "auto.create.topics.enable": True})
def test_a_mark_has_settings(fencepost: Broker, fencepost_fresh: Broker) -> None:
    for broker in (fencepost, fencepost_fresh):
        client = producer(broker)
        client.produce("orders", b"x")
        client.flush(10)
        assert broker.topics() == {"orders": 4}


def test_helpers_may_be_used_from_several_threads(fencepost: Broker) -> None:
    fencepost.topic("orders")
    threads = [threading.Thread(target=lambda: [fencepost.produce("orders", "x") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(fencepost.records("orders")) == 80


def test_a_broker_that_keeps_its_data_has_no_faults_unless_it_is_made_for_tests(tmp_path: Path) -> None:
    with Broker(tmp_path) as kept:
        kept.produce("orders", "x")
        with pytest.raises(MisuseError, match=r"has no faults, no clock to turn.*make it with durable=False"):
            kept.advance(days=1)
        with pytest.raises(MisuseError, match="durable=False"):
            kept.hold("EndTxn")
        assert "topic orders-0: offsets 0 to 1" in kept.describe()
    with Broker(tmp_path, durable=False) as for_tests:
        for_tests.advance(seconds=1)
        assert [record.value for record in for_tests.records("orders")] == [b"x"]
