"""docs/backup.md: a copy made as the page says, while clients write, has all that was committed and nothing torn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.docs.code_blocks import DOCS, blocks
from tests.docs.test_pages_run import executable
from tests.support.broker_process import BrokerProcess

PARTITIONS_COUNT = 3
SETTLED_S = 60.0
HOT_BACKUP, _, RESTORE = blocks((DOCS / "backup.md").read_text(encoding="utf-8"))


class Till(threading.Thread):
    """A transactional producer that writes to every partition of two topics, in one transaction after another."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.begun: list[str] = []
        self.committed: list[str] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )

    def run(self) -> None:
        try:
            self._producer.init_transactions(30)
            while not self._stopping.is_set():
                sale = f"{self.name}-{len(self.begun)}"
                self._producer.begin_transaction()
                self.begun.append(sale)
                for partition in range(PARTITIONS_COUNT):
                    for topic in ("orders", "payments"):
                        self._producer.produce(topic, sale, partition=partition)
                self._producer.commit_transaction(60)
                self.committed.append(sale)
        except (KafkaException, BufferError) as failure:
            self.failure = failure

    def stop(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive()
        assert self.failure is None, self.failure


def committed_records(bootstrap: str) -> dict[tuple[str, int], list[str]]:
    """The committed records of every partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [(topic, number) for topic in ("orders", "payments") for number in range(PARTITIONS_COUNT)]
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
    found: dict[tuple[str, int], list[str]] = {place: [] for place in places}
    unread = set(places)
    deadline = time.monotonic() + SETTLED_S
    while unread:
        assert time.monotonic() < deadline, unread
        message = consumer.poll(1)
        if message is None:
            continue
        place = (message.topic(), message.partition())
        if message.error() is not None:
            unread.discard(place)
        else:
            found[place].append(message.value().decode())
    consumer.close()
    return found


def wait_until_nothing_is_open(bootstrap: str) -> None:
    """Wait until every transaction that the copy contains has been completed, or aborted for its time-out."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        listed = subprocess.run(
            [sys.executable, "-m", "fencepost", "transactions", "list", "--bootstrap", bootstrap, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        states = {one["state"] for one in json.loads(listed.stdout)}
        if not states & {"Ongoing", "PrepareCommit", "PrepareAbort"}:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.2)


@pytest.mark.integration
def test_a_copy_of_a_frozen_broker_has_all_that_was_committed_and_each_transaction_whole(tmp_path: Path) -> None:
    original = BrokerProcess(tmp_path / "data")
    with original:
        admin = AdminClient({"bootstrap.servers": original.bootstrap})
        topics = [NewTopic(topic, PARTITIONS_COUNT, 1) for topic in ("orders", "payments")]
        for created in admin.create_topics(topics).values():
            created.result(10)
        tills = [Till(original.bootstrap, f"till-{number}") for number in range(3)]
        for till in tills:
            till.start()
        wait_until(lambda: all(len(till.committed) > 20 for till in tills))
        committed_before = [sale for till in tills for sale in till.committed]
        run_as_on_the_page(HOT_BACKUP.text, tmp_path, original.process_id)
        begun_by_then = {sale for till in tills for sale in till.begun}
        wait_until(lambda: sum(len(till.committed) for till in tills) > len(committed_before) + 20)
        for till in tills:
            till.stop()
        everything = committed_records(original.bootstrap)

    copy = tmp_path / "backup" / "fencepost"
    verified = subprocess.run(
        [sys.executable, "-m", "fencepost", "log", "verify", "--data-dir", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout

    restored = BrokerProcess(copy)
    with restored:
        wait_until_nothing_is_open(restored.bootstrap)
        copied = committed_records(restored.bootstrap)
        assert "log_damaged" not in restored.output
        assert "partition_went_offline" not in restored.output

    for place, values in copied.items():
        # What was open when the copy was made is aborted in it, and may have been committed later in the original.
        rest = iter(everything[place])
        assert all(value in rest for value in values), f"{place} has what was never committed in this order"
    places_of = Counter(sale for values in copied.values() for sale in values)
    assert set(places_of.values()) == {2 * PARTITIONS_COUNT}, "a transaction is torn"
    assert set(committed_before) <= set(places_of), "something acknowledged is missing"
    assert set(places_of) <= begun_by_then
    assert len(places_of) < len(everything["orders", 0]), "the copy was not made while clients wrote"


def run_as_on_the_page(commands: str, place: Path, process_id: int) -> None:
    """Run a block of the page: with another data directory and place for copies, and one broker as the unit."""
    tools = place / "tools"
    tools.mkdir()
    executable(tools / "systemctl", f"#!/bin/sh\necho {process_id}\n")
    (place / "backup").mkdir()
    assert "/var/lib/fencepost" in commands
    text = commands.replace("/var/lib/fencepost", str(place / "data")).replace("/backup/", f"{place}/backup/")
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        check=True,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLED_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.integration
def test_a_stopped_brokers_copy_verifies_and_serves_after_the_commands_of_the_page(tmp_path: Path) -> None:
    original = BrokerProcess(tmp_path / "data")
    with original:
        till = Till(original.bootstrap, "till-0")
        admin = AdminClient({"bootstrap.servers": original.bootstrap})
        for created in admin.create_topics([NewTopic(name, 3, 1) for name in ("orders", "payments")]).values():
            created.result(10)
        till.start()
        wait_until(lambda: len(till.committed) > 5)
        till.stop()
        expected = committed_records(original.bootstrap)
        assert original.terminate() == 0
    (tmp_path / "backup").mkdir()
    subprocess.run(["cp", "-a", str(tmp_path / "data"), str(tmp_path / "backup" / "fencepost")], check=True)

    tools = tmp_path / "tools"
    tools.mkdir()
    executable(tools / "systemctl", "#!/bin/sh\n")
    executable(tools / "fencepost", f'#!/bin/sh\nexec {sys.executable} -m fencepost "$@"\n')
    text = RESTORE.text.replace("/var/lib/fencepost", str(tmp_path / "data")).replace("/backup/", f"{tmp_path}/backup/")
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        check=True,
    )

    assert (tmp_path / "data.old").is_dir()
    restored = BrokerProcess(tmp_path / "data")
    with restored:
        assert committed_records(restored.bootstrap) == expected
