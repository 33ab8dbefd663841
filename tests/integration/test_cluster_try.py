"""A trial cluster: one command runs brokers, PostgreSQL and an object store, and ends them all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.soak.free_port import free_ports
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, write
from tests.support.conditions import until
from tests.support.postgres import short_directory

pytestmark = pytest.mark.integration

NODES = 3


class Trial:
    """The command and its parts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports(NODES)
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node_id) for node_id in range(1, NODES + 1))

    def address(self, node_id: int) -> str:
        return f"127.0.0.1:{self.port + node_id - 1}"

    def command(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "fencepost", "cluster", "try"),
            *("--directory", str(self.directory), "--port", str(self.port), *arguments),
        ]

    def start(self) -> str:
        """Start it; return the line that says that it is ready."""
        settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
        self.process = subprocess.Popen(
            self.command("--nodes", str(NODES), *settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command beside the one that is running."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=180)

    def process_of(self, node_id: int) -> int:
        return int((self.directory / f"node-{node_id}.pid").read_text())

    def processes(self) -> set[int]:
        """All processes of the trial but its parent: their command lines name its directory."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (self.process is None or int(entry.name) != self.process.pid):
                try:
                    is_of_trial = str(self.directory).encode() in (entry / "cmdline").read_bytes()
                except OSError:
                    continue  # it has ended
                if is_of_trial:
                    found.add(int(entry.name))
        return found

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def trial() -> Iterator[Trial]:
    # Not pytest's folder: PostgreSQL runs as a user of its own, who may not enter it.
    with short_directory() as directory:
        trial = Trial(directory / "try")
        yield trial
        if trial.process is not None and trial.process.poll() is None:
            trial.stop()


def test_a_trial_survives_kills_and_keeps_its_records_until_the_next(trial: Trial) -> None:
    line = trial.start()
    assert line.startswith(f"fencepost cluster is ready: {trial.address(1)}, {trial.address(2)}, {trial.address(3)} (")
    create(trial.bootstrap, "orders")
    until(lambda: set(leaders(trial.bootstrap)) == {1, 2, 3})

    transactions = Transactions(trial.bootstrap, 2)
    try:
        until(lambda: len(transactions.committed) > 30)
        killed = trial.process_of(2)
        os.kill(killed, signal.SIGKILL)
        until(lambda: 2 not in leaders(trial.bootstrap))
        before = len(transactions.committed)
        until(lambda: len(transactions.committed) > before + 30)
        restarted = trial.run("--restart-node", "2")
        assert restarted.stdout.startswith("node 2 is ready"), restarted.stderr
        assert trial.process_of(2) != killed
        until(lambda: 2 in leaders(trial.bootstrap))
    finally:
        transactions.stop()
    transactions.check(read(trial.bootstrap))

    again = trial.run("--restart-node", "2")
    assert again.returncode == 1
    assert again.stderr == f"Error: node 2 runs already, as process {trial.process_of(2)}\n"
    second = trial.run()
    assert (second.returncode, "a trial runs in" in second.stderr) == (1, True)

    check = f". {trial.directory}/environment; exec {sys.executable} -m fencepost cluster check"
    checked = subprocess.run(["sh", "-c", check], capture_output=True, text=True, check=False, timeout=60)
    assert (checked.returncode, checked.stdout[:10]) == (0, "partitions"), checked.stderr

    for store in ("postgres", "objects"):
        os.kill(int((trial.directory / f"{store}.pid").read_text()), signal.SIGKILL)
        assert trial.process is not None
        assert trial.process.stderr is not None
        while f"--restart-store {store}" not in (line := trial.process.stderr.readline()):
            assert line, "it says what has ended"
        assert "has ended by signal 9" in line
        restarted = trial.run("--restart-store", store)
        assert "is ready (process" in restarted.stdout, restarted.stderr

    write(trial.bootstrap, ["kept"])
    assert trial.stop() == 0
    assert trial.processes() == set()
    trial.start()
    assert sorted(read(trial.bootstrap)["kept"]) == list(range(PARTITIONS))
    assert trial.stop(signal.SIGTERM) == 0


def test_nothing_is_left_running_when_the_parent_is_killed(trial: Trial) -> None:
    trial.start()
    assert len(trial.processes()) > NODES
    trial.stop(signal.SIGKILL)
    until(lambda: trial.processes() == set())


def test_a_restart_without_a_trial_is_refused(trial: Trial) -> None:
    refused = trial.run("--restart-node", "1")
    assert refused.returncode == 1
    assert "start the trial first" in refused.stderr
    trial.directory.mkdir()
    for option in (("--restart-node", "1"), ("--restart-store", "objects")):
        assert "no trial runs in" in trial.run(*option).stderr


def test_a_directory_that_cannot_be_used_is_refused_in_words(trial: Trial) -> None:
    trial.directory.write_text("a file stands there")
    trial.directory /= "below"
    refused = trial.run("--nodes", "2")
    assert refused.returncode == 1
    assert refused.stderr == f"Error: {trial.directory} cannot be used: Not a directory; name another directory\n"


def test_a_port_that_is_taken_is_named(trial: Trial) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", trial.port + 1))
        taken.listen()
        refused = trial.run("--nodes", "2")
    assert refused.returncode == 1
    assert "node 2 does not start" in refused.stderr
    assert str(trial.port + 1) in refused.stderr
    assert trial.processes() == set()
