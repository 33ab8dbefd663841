"""A broker whose data directory is copied, and later put back as docs/backup.md says, under living clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess

KEPT: Final = [f"kept-{number:02}" for number in range(20)]
LOST: Final = [f"lost-{number:02}" for number in range(15)]
NEW: Final = [f"new-{number:02}" for number in range(30)]
"""More than were lost: if they got the same offsets, a reader of the lost history would begin amid them."""


class RestoredBroker:
    """A broker, its copy, and the copy in its place on the same address. Topics of one partition: orders, empty."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._copy = broker.data_directory.parent / "backup"

    def write(self, values: Sequence[str], topic: str = "orders") -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0

    def copy(self) -> None:
        """Copy the stopped broker, which then goes on."""
        assert self.broker.terminate() == 0
        shutil.copytree(self.broker.data_directory, self._copy)
        self.broker.start()

    def lose_and_restore(self) -> None:
        self.broker.kill()
        shutil.rmtree(self.broker.data_directory)
        self._copy.rename(self.broker.data_directory)
        command = [sys.executable, "-m", "fencepost", "log", "restored", "--data-dir", str(self.broker.data_directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.broker.start()


@contextmanager
def restored_broker(
    folder: Path, *arguments: str, topics: Sequence[str] = ("orders", "empty")
) -> Iterator[RestoredBroker]:
    """A broker with the records KEPT in `orders`, if that is one of its topics, below a folder."""
    folder.mkdir(exist_ok=True)
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        restored = RestoredBroker(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values() if topics else ():
            created.result(30)
        if "orders" in topics:
            restored.write(KEPT)
        yield restored
        assert "Traceback" not in broker.output
        assert "partition_went_offline" not in broker.output
