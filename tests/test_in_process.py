"""`fencepost.Broker`: a broker inside the process that uses it, from its start to a crash."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost import Broker, in_process
from fencepost.broker.config import ConfigurationError
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from fencepost.broker.storage.disk import StorageError


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def transactional_producer(broker: Broker) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "till-1",
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    return producer


def commit(producer: Producer, value: str) -> None:
    producer.begin_transaction()
    producer.produce("orders", value)
    producer.commit_transaction(30)


def committed(broker: Broker, count: int) -> list[str]:
    """The first values that a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        values: list[str] = []
        while len(values) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.append((message.value() or b"").decode())
        return values
    finally:
        consumer.close()


def files(directory: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()
    }


def test_clients_use_it_as_any_broker(broker: Broker) -> None:
    commit(transactional_producer(broker), "one")
    assert committed(broker, 1) == ["one"]
    assert broker.bootstrap_servers == f"{broker.host}:{broker.port}"
    assert broker.is_running


def test_its_data_are_removed_with_the_context() -> None:
    with Broker() as broker:
        directory = broker.data_directory
        assert os.path.isdir(directory)
    assert not os.path.exists(directory)
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="has no data yet"):
        _ = broker.data_directory


def test_data_in_a_directory_of_the_users_stay(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        commit(transactional_producer(broker), "one")
    with Broker(tmp_path / "data") as broker:
        assert committed(broker, 1) == ["one"]


def test_what_was_committed_survives_crashes_and_the_client_goes_on(broker: Broker) -> None:
    producer, port = transactional_producer(broker), broker.port
    for number in range(3):
        commit(producer, str(number))
        broker.crash()
        assert not broker.is_running
        broker.restart()
        assert broker.port == port
    commit(producer, "last")
    assert committed(broker, 4) == ["0", "1", "2", "last"]


def test_a_crash_leaves_files_as_they_were_written_and_a_stop_closes_them_cleanly(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    commit(transactional_producer(broker), "one")
    before = files(broker.data_directory)
    broker.crash()
    after = files(broker.data_directory)
    logs = [name for name in before if name.endswith(".log")]
    assert logs
    assert all(after[name].startswith(before[name]) for name in logs)
    with caplog.at_level(logging.INFO, "fencepost"):
        broker.restart()
        assert "unclean_stop_found" in caplog.text
        caplog.clear()
        broker.restart()
        assert "unclean_stop_found" not in caplog.text
        assert "clean=True" in caplog.text


def test_requests_in_flight_get_no_answer_from_a_crash(broker: Broker) -> None:
    with socket.create_connection((broker.host, broker.port)) as connection:
        connection.settimeout(30)
        broker.crash()
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass  # so do processes end that are killed


def test_nothing_is_logged_after_a_crash(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    producer = transactional_producer(broker)
    commit(producer, "one")
    caplog.clear()
    broker.crash()
    assert caplog.text == ""


async def test_an_event_loop_is_not_kept_waiting() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    async with Broker() as broker:
        assert ticks > 0
        assert await asyncio.to_thread(broker.restart) is broker
    ticking.cancel()
    assert not broker.is_running


def test_several_live_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        commit(transactional_producer(one), "one")
        commit(transactional_producer(other), "other")
        assert (committed(one, 1), committed(other, 1)) == (["one"], ["other"])


def test_two_do_not_share_a_directory(tmp_path: Path) -> None:
    with Broker(tmp_path), pytest.raises(StorageError, match="in use by another broker"):
        Broker(tmp_path).start()


def test_settings_have_the_names_of_kafka() -> None:
    with Broker(settings={"auto.create.topics.enable": False, "num.partitions": 3}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        assert not admin.list_topics("missing", timeout=30).topics["missing"].partitions
    with pytest.raises(ConfigurationError, match=r"Broker\(settings\).*num\.partition"):
        Broker(settings={"num.partition": 3}).start()


def test_several_listeners_keep_their_ports() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    with Broker(settings={"listeners": listeners, "listener.security.protocol.map": protocols}) as broker:
        port = broker.port
        broker.restart()
        assert broker.port == port


def test_a_port_in_use_is_an_error_and_nothing_is_left_behind(broker: Broker) -> None:
    second = Broker(port=broker.port)
    with pytest.raises(StartError, match="the port is in use"):
        second.start()
    assert not second.is_running
    with pytest.raises(RuntimeError, match="has no data yet"):
        _ = second.data_directory
    assert [thread.name for thread in threading.enumerate()].count("fencepost-broker") == 1


def test_it_starts_and_stops_once_at_a_time(broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        broker.start()
    broker.stop()
    broker.stop()
    broker.crash()
    broker.start()


def test_before_its_start_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"with Broker\(\) as broker"):
        _ = Broker().bootstrap_servers


def test_one_that_cannot_go_on_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[Node] = []

    class KnownNode(Node):
        async def start(self) -> None:
            nodes.append(self)
            await super().start()

    monkeypatch.setattr(in_process, "Node", KnownNode)
    with Broker() as broker:
        thread, loop = broker._thread, broker._loop
        assert thread is not None
        assert loop is not None
        loop.call_soon_threadsafe(nodes[0]._fail, "a flush failed unexpectedly")
        thread.join(30)
        assert not broker.is_running
        assert broker.failure == "a flush failed unexpectedly"
        assert broker.restart().failure is None


def test_nothing_is_printed_and_the_log_is_the_standard_librarys(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    with caplog.at_level(logging.INFO, "fencepost"), Broker() as broker:
        commit(transactional_producer(broker), "one")
    assert ("fencepost.broker.hosting.topics", logging.INFO) in {
        (record.name, record.levelno) for record in caplog.records if "topic='orders'" in record.getMessage()
    }
    assert capfd.readouterr() == ("", "")
    assert structlog.get_config() == before


def test_importing_the_package_imports_nothing_of_the_broker() -> None:
    code = (
        "import sys, fencepost; assert fencepost.__version__ and 'Broker' in dir(fencepost); "
        "print([name for name in sys.modules if name.startswith(('fencepost.', 'uvloop', 'structlog'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_warnings_are_not_printed_by_a_program_that_configures_no_logging() -> None:
    code = "from fencepost import Broker\nwith Broker() as broker:\n    broker.crash()\n    broker.restart()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_program_that_forgets_its_broker_ends(tmp_path: Path) -> None:
    code = f"import fencepost; fencepost.Broker({str(tmp_path)!r}).start(); print('end')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_a_crash_is_noticed_by_clients(broker: Broker) -> None:
    producer = transactional_producer(broker)
    commit(producer, "one")
    broker.crash()
    producer.begin_transaction()
    producer.produce("orders", "lost")
    with pytest.raises(KafkaException):
        producer.commit_transaction(0.5)
