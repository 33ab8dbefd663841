"""Several brokers as on several machines, for tests: processes that share a PostgreSQL, a bucket, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.broker.cluster.objects.location import ObjectLocation
from tests.support.broker_process import BrokerProcess

TAKE_OVER_TIMEOUT_S = 60.0


class Machine(BrokerProcess):
    """One broker. Its data directory is scratch."""

    def __init__(
        self,
        stores: Sequence[str],
        node_id: int,
        directory: Path,
        settings: Mapping[str, str],
        program: Sequence[str],
    ) -> None:
        super().__init__(
            directory / f"machine-{node_id}",
            settings={**settings, "node.id": str(node_id)},
            arguments=stores,
            program=program,
        )

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor renews its lease, and takes itself for the leader when it is woken."""
        os.kill(self.process_id, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.process_id, signal.SIGCONT)


class Machines:
    """The brokers of one cluster, by node id: from 1, or from `node.id` of the settings.

    login_at: how an administrator connects to one of them with librdkafka; None where everybody may.
    stores:  the options that name their PostgreSQL and their bucket.
    program: what Python runs with the arguments of `fencepost`.
    """

    def __init__(
        self,
        url: str,
        objects: ObjectLocation,
        directory: Path,
        count: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "fencepost"),
    ) -> None:
        self.login_at: Callable[[int], Mapping[str, Any]] | None = None
        keys = urlencode(
            {"access_key_id": objects.access_key_id, "secret_access_key": objects.secret_access_key}, quote_via=quote
        )
        place = f"s3://{objects.bucket}/{objects.prefix}?endpoint={objects.endpoint}&{keys}"
        self.stores = ("--cluster", url, "--objects", place)
        self.machines = {
            number: Machine(self.stores, number, directory, settings or {}, program) for number in range(1, count + 1)
        }

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(machine.bootstrap for machine in self.machines.values())

    def replace(self, node_id: int) -> None:
        """kill -9 of one, which starts again with nothing on its disk when the others lead what it led."""
        self[node_id].kill()
        self.wait_until_taken_over(node_id)
        self[node_id].start()

    def wait_until_taken_over(self, node_id: int) -> None:
        """Wait until each running broker names leaders of all partitions, and never the one that was lost."""
        admins = [
            AdminClient(self._login_at(number)) for number, machine in self.machines.items() if machine.is_running
        ]
        deadline_s = time.monotonic() + TAKE_OVER_TIMEOUT_S
        while not all(_is_led_without(admin, node_id) for admin in admins):
            assert time.monotonic() < deadline_s, f"nobody took over from node {node_id}:\n{self.output}"
            time.sleep(0.1)

    def _login_at(self, node_id: int) -> dict[str, Any]:
        login = {"bootstrap.servers": self[node_id].bootstrap} if self.login_at is None else self.login_at(node_id)
        return {**login, "log_level": 0}

    @property
    def output(self) -> str:
        return "\n".join(f"== {number} ==\n{machine.output}" for number, machine in self.machines.items())

    def __enter__(self) -> Self:
        for machine in self.machines.values():
            machine.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for machine in self.machines.values():
            if machine.is_running:
                machine.wake()
        for machine in self.machines.values():
            try:
                machine.terminate()
            except (AssertionError, subprocess.TimeoutExpired):
                machine.kill()


def _is_led_without(admin: AdminClient, node_id: int) -> bool:
    try:
        topics = admin.list_topics(timeout=TAKE_OVER_TIMEOUT_S).topics.values()
    except KafkaException:
        return False
    leaders = {partition.leader for topic in topics for partition in topic.partitions.values()}
    return not leaders & {node_id, -1}
