"""From one broker to a cluster of machines and back, with all that it has, under clients that live through it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.history.writer import HistoryWriter
from fencepost.soak.client_process import Surroundings
from fencepost.soak.client_processes import Crew
from fencepost.soak.final_read import Examiner, wait_until_settled
from fencepost.soak.plan import Plan
from tests.support.moved_broker import MovedBroker, moved
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer

PATIENCE_S = 240.0


class History:
    """Clients of two libraries that transact through all moves, and the record of what they did and saw."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.plan = Plan(seed=7, kinds=("confluent", "kafka-python"), rate=40)
        self._bootstrap = bootstrap
        self._path = directory / "history.jsonl"
        self._history = HistoryWriter.open(self._path)
        logs = directory / "clients"
        logs.mkdir()
        self.crew = Crew(Surroundings(self.plan, bootstrap, self._path, logs, None))

    def create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for made in admin.create_topics([NewTopic(*one, 1) for one in self.plan.topics().items()]).values():
            made.result(30)

    def work(self) -> None:
        """Wait until each transactional client has committed again."""
        since_s = time.monotonic()
        while self.crew.idle_since(since_s):
            self.crew.look()  # librdkafka may wait for ever when all brokers end at once: such a client is replaced
            assert time.monotonic() - since_s < PATIENCE_S, self.crew.idle_since(since_s)
            time.sleep(0.05)

    def finish(self) -> None:
        """Stop the clients, and record what can be read at last."""
        self.crew.stop(60)
        assert wait_until_settled(self._bootstrap) == []
        examiner = Examiner(self._bootstrap, self.plan.partitions())
        assert examiner.unstable_partitions() == []
        client = self._history.client("final-read", isolation_level="read_committed")
        assert examiner.record_everything(client).records_count > 0
        examiner.record_offsets(client, self.plan.kinds)

    def check(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "fencepost", "history", "check", str(self._path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_clients_live_through_every_move_and_lose_nothing(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path
) -> None:
    broker = MovedBroker(tmp_path)
    history = History(broker.bootstrap, tmp_path)
    bucket = objects.make_bucket()
    first, second = database.cluster_url(), database.cluster_url()
    try:
        with broker.alone(tmp_path / "data"):
            history.create_topics()
            history.work()
        moved(first, bucket, "import", str(tmp_path / "data"))
        with broker.on_machines(first, bucket):
            history.work()
        moved(first, bucket, "export", "--all", str(tmp_path / "out"))
        with broker.alone(tmp_path / "out"):
            history.work()
        with broker.in_processes(tmp_path / "out"):
            history.work()
        moved(second, bucket, "import", str(tmp_path / "out"))
        with broker.on_machines(second, bucket):
            history.work()
            history.finish()
    finally:
        history.crew.kill_all()
    history.check()
