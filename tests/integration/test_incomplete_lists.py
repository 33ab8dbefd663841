"""Commands and pages that list what coordinators know, while a part of that cannot be read: they say so, and fail."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.check_back.records import STATE_TOPIC, Command, command_entry
from fencepost.cli.commands import fencepost
from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.console.reading.groups import list_groups
from fencepost.console.reading.in_doubt import read_in_doubt
from fencepost.console.reading.transactions import coordinator_view_of, list_transactions
from tests.support.broker_process import BrokerProcess
from tests.support.data_directory import batches_of, flip

pytestmark = pytest.mark.integration
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose coordinators cannot load their partitions, and that cannot open the check-back's."""
    process = BrokerProcess(tmp_path_factory.mktemp("damaged") / "data", settings=SETTINGS)
    with process as broker:
        fencepost_of(broker, "topics", "create", "orders", "-p", "1")
        fencepost_of(broker, "topics", "create", STATE_TOPIC, "-p", "1")
        for name in ("a", "b"):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("orders", b"open", partition=0)
            entry = command_entry(Command(name, "ask-again", None, 1))
            plain = Producer({"bootstrap.servers": broker.bootstrap})
            plain.produce(STATE_TOPIC, entry.encoded_value(), key=entry.key, partition=0)
            assert plain.flush(60) == producer.flush(60) == 0
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            consumer.close()
        broker.terminate()
        for topic in ("__transaction_state", "__consumer_offsets", STATE_TOPIC):
            first = process.data_directory / f"{topic}-0" / f"{0:020}.log"
            if topic == STATE_TOPIC:
                first.unlink()
                first.mkdir()
            else:
                flip(str(first), batches_of(str(first))[0][0] + 70)
        broker.start()
        yield broker


def fencepost_of(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(fencepost, arguments, env={"FENCEPOST_BOOTSTRAP": broker.bootstrap})


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        (("transactions", "list"), "__transaction_state"),
        (("transactions", "list", "--in-doubt"), "__transaction_state"),
        (("transactions", "list", "--in-doubt"), STATE_TOPIC),
        (("transactions", "list", "--older-than", "1s"), "__transaction_state"),
        (("transactions", "list", "--hanging"), "__transaction_state"),
        (("groups", "list"), "__consumer_offsets"),
    ],
)
def test_a_list_that_lacks_something_says_so_and_fails(
    damaged: BrokerProcess, arguments: tuple[str, ...], topic: str
) -> None:
    done = fencepost_of(damaged, *arguments)
    assert done.exit_code == 1
    assert topic in done.stderr
    assert ("LEADER_NOT_AVAILABLE" if topic == STATE_TOPIC else "NOT_COORDINATOR") in done.stderr
    assert done.stdout == ""


def test_a_list_for_programs_is_printed_and_fails(damaged: BrokerProcess) -> None:
    done = fencepost_of(damaged, "groups", "list", "--json")
    assert json.loads(done.stdout) == []
    assert done.exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("transactions", "describe", "a"),
        ("transactions", "ask-again", "a"),
        ("transactions", "abort-hanging", "orders", "0", "--start-offset", "0", "--yes"),
        ("groups", "describe", "a"),
    ],
)
def test_a_command_about_what_cannot_be_read_fails(damaged: BrokerProcess, arguments: tuple[str, ...]) -> None:
    done = fencepost_of(damaged, *arguments)
    assert done.exit_code == 1
    assert "no such" not in done.stderr
    assert "there is no" not in done.stderr
    assert done.stdout == ""


async def test_pages_say_what_is_missing(damaged: BrokerProcess) -> None:
    cluster = Cluster([(damaged.host, damaged.port)], ClientOptions())
    try:
        transactions = await list_transactions(cluster)
        groups = await list_groups(cluster)
        in_doubt = await read_in_doubt(cluster)
        _, error = await coordinator_view_of(cluster, 1)
    finally:
        cluster.close()
    of_transactions = "1 of 1 partitions of __transaction_state do not answer: 0 (NOT_COORDINATOR)"
    assert transactions.missing == [f"{of_transactions}."]
    assert groups.missing == ["1 of 1 partitions of __consumer_offsets do not answer: 0 (NOT_COORDINATOR)."]
    assert f"{of_transactions}." in in_doubt.missing
    assert any(sentence.startswith("What the check-back knows cannot be read") for sentence in in_doubt.missing)
    assert error == of_transactions  # so nothing is said to hang
