"""Several brokers as on several machines, for tests: processes that share a PostgreSQL, a bucket, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.broker.cluster.objects.location import ObjectLocation
from tests.support.broker_process import BrokerProcess


class Machine(BrokerProcess):
    """One broker. Its data directory is scratch."""

    def __init__(
        self, url: str, objects: ObjectLocation, node_id: int, directory: Path, settings: Mapping[str, str]
    ) -> None:
        place = f"s3://{objects.bucket}/{objects.prefix}?endpoint={objects.endpoint}"
        super().__init__(
            directory / f"machine-{node_id}",
            settings={"node.id": str(node_id), **settings},
            arguments=("--cluster", url, "--objects", place),
        )

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor renews its lease, and takes itself for the leader when it is woken."""
        os.kill(self.process_id, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.process_id, signal.SIGCONT)


class Machines:
    """The brokers of one cluster, by node id from 1."""

    def __init__(
        self,
        url: str,
        objects: ObjectLocation,
        directory: Path,
        count: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.machines = {
            number: Machine(url, objects, number, directory, settings or {}) for number in range(1, count + 1)
        }

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(machine.bootstrap for machine in self.machines.values())

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
