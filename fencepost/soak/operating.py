"""An operator's work on a broker of several nodes during a soak, by `fencepost cluster`: moves, drains."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from fencepost.soak.plan import Partition

COMMAND_TIMEOUT_S = 30.0
COMMAND_PAUSE_S = 0.5
RESUMED_TIMEOUT_S = 120.0
DRAINED_S = (0.5, 6.0)
LOOK_S = 0.05


class Nodes(Protocol):
    """The broker, with its nodes."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def node_ids(self) -> range: ...


class Operator:
    """Each method is one fault, which yields the seconds until its next step.

    partitions: those that may move. note: counts and logs a fault. findings: gets failures of the broker.
    """

    def __init__(
        self,
        nodes: Nodes,
        chance: random.Random,
        *,
        partitions: Sequence[Partition],
        note: Callable[[str, str], None],
        findings: list[str],
    ) -> None:
        self._nodes = nodes
        self._chance = chance
        self._partitions = partitions
        self._note = note
        self._findings = findings

    def move(self) -> Iterator[float]:
        """An operator has another node lead a partition, or leaves that to the cluster again. It may be refused."""
        partition = self._chance.choice(self._partitions)
        target = self._chance.choice(["any", *map(str, self._nodes.node_ids)])
        self._note("moves", f"{partition.topic}-{partition.number}: move to {target}")
        yield from self._command("move", partition.topic, str(partition.number), "--to", target)

    def drain(self, node_id: int) -> Iterator[float]:
        """A node hands over all that it leads, for a while."""
        self._note("drains", f"node {node_id}: drain")
        yield from self._command("drain", str(node_id))
        yield self._chance.uniform(*DRAINED_S)
        deadline_s = time.monotonic() + RESUMED_TIMEOUT_S
        while not (yield from self._command("drain", str(node_id), "--resume")):
            if time.monotonic() > deadline_s:
                self._findings.append(f"node {node_id} could not be resumed within {RESUMED_TIMEOUT_S:.0f} s")
                return
            yield COMMAND_PAUSE_S

    def _command(self, *arguments: str) -> Generator[float, None, bool]:
        """Run `fencepost cluster …`; return whether it succeeds. Its broker may be killed during the call."""
        return (yield from finished([*COMMAND, *arguments, "-b", self._nodes.bootstrap_servers]))


COMMAND = (sys.executable, "-m", "fencepost", "cluster")


def finished(command: Sequence[str], **how: Any) -> Generator[float, None, bool]:
    """Run a command; returns whether it succeeds within COMMAND_TIMEOUT_S. Yields the seconds until it goes on.

    how: arguments of Popen, such as its user.
    """
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    running = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the soak, which ends it
        **how,
    )
    try:
        while running.poll() is None and time.monotonic() < deadline_s:
            yield LOOK_S
    finally:
        running.kill()
        running.wait()
    return running.returncode == 0
