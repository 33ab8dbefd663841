"""A broker that moves, for tests: from one process to several, to a cluster of machines, and back, at one address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.soak.free_port import free_port, free_ports
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.machines import Machines

COMMAND_TIMEOUT_S = 300.0
NODES = 2
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "fencepost.node.settling.ms": "0",
    "log.retention.check.interval.ms": "500",
}


class MovedBroker:
    """The places of one broker, one after the other: clients that know its address go on.

    settings: of the broker, everywhere. directory: for data directories and scratch. protocol: of the listeners.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, protocol: str = "PLAINTEXT"
    ) -> None:
        self.port = free_ports(NODES)
        self._protocol = protocol
        self._directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._scratch_count = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def alone(self, data_directory: Path, *, is_killed: bool = False) -> Iterator[BrokerProcess]:
        """One process on a data directory. It is stopped at the end, or killed."""
        process = BrokerProcess(data_directory, settings=self._settings, protocol=self._protocol)
        process.port = self.port
        with process:
            yield process
            if not is_killed:
                process.terminate()
        assert "Traceback" not in process.output, process.output

    @contextmanager
    def in_processes(self, data_directory: Path, *, is_killed: bool = False) -> Iterator[BrokerProcesses]:
        """Several processes on a data directory. They are stopped at the end, or killed."""
        processes = BrokerProcesses(data_directory, NODES, settings=self._settings)
        processes.port, processes.protocol = self.port, self._protocol
        with processes:
            yield processes
            if not is_killed:
                processes.terminate()
        assert "Traceback" not in processes.output, processes.output

    @contextmanager
    def on_machines(self, url: str, objects: ObjectLocation, *, is_killed: bool = False) -> Iterator[Machines]:
        """A cluster, whose first broker has the address. It is stopped at the end, or killed."""
        self._scratch_count += 1
        scratch = self._directory / f"scratch-{self._scratch_count}"
        scratch.mkdir()
        machines = Machines(url, objects, scratch, NODES, settings=self._settings)
        machines[1].port = self.port
        machines[2].port = free_port()
        for machine in machines.machines.values():
            machine.protocol = self._protocol
        with machines:
            yield machines
            for machine in machines.machines.values():
                machine.kill() if is_killed else machine.terminate()
        assert "Traceback" not in machines.output, machines.output


def cluster_command(url: str, objects: ObjectLocation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `fencepost cluster …` with the stores of a cluster."""
    return subprocess.run(
        command_line(url, objects, *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def command_line(url: str, objects: ObjectLocation, *arguments: str) -> list[str]:
    """`fencepost cluster …` with the stores of a cluster."""
    name, *rest = arguments
    return [sys.executable, "-m", "fencepost", "cluster", name, *Machines(url, objects, Path(), 0).stores, *rest]


def moved(url: str, objects: ObjectLocation, *arguments: str) -> str:
    """Run an import or an export, which succeeds, and check the cluster; returns the output."""
    done = cluster_command(url, objects, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = cluster_command(url, objects, "check", "--deep")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return done.stdout + done.stderr
