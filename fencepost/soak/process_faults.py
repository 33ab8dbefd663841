"""Faults of single processes of a broker of several: killed, frozen for shorter and longer than it may hang, starved of
disk, stopped and drained, while the others serve; and partitions that an operator moves between them.

One process has at most one fault at a time; several processes may have one each, and the whole broker may be killed
meanwhile.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from fencepost.soak.broker import Broker
from fencepost.soak.operating import Operator
from fencepost.soak.plan import Partition

HANG_LIMIT_S = 10.0
"""After this silence a broker's process is killed and started again."""
FROZEN_SHORTLY_S = (0.2, 6.0)
"""Well below HANG_LIMIT_S: on a busy machine a process is silent for longer than it is frozen."""
HEARD_AGAIN_S = 3.0
"""After a short freeze: two that follow each other closely would be one silence, too long for the broker."""
REPLACED_TIMEOUT_S = 60.0
DISK_FULL_S = (0.5, 4.0)
LOOK_S = 0.05


class ProcessFaults:
    """Each method is one fault, which yields the seconds until its next step.

    partitions: those that may move. note: counts and logs a fault. findings: gets failures of the broker.
    """

    def __init__(
        self,
        broker: Broker,
        chance: random.Random,
        *,
        partitions: Sequence[Partition],
        note: Callable[[str, str], None],
        findings: list[str],
    ) -> None:
        self._broker = broker
        self._chance = chance
        self._note = note
        self._findings = findings
        self._operator = Operator(broker, chance, partitions=partitions, note=note, findings=findings)
        self._held: set[int] = set()

    def all(self) -> dict[Callable[[], Iterator[float]], int]:
        """The faults, with their relative frequency."""
        return {
            self.kill: 8,
            self.freeze: 5,
            self.hang: 2,
            self.stop: 3,
            self.fill_disk: 2,
            self._operator.move: 5,
            self.drain: 2,
        }

    def kill(self) -> Iterator[float]:
        """Kill -9; the parent starts another process at once, and others may take over before it is there."""
        for node_id, process_id in self._pick():
            self._note("process_kills", f"node {node_id}: kill -9")
            self._broker.signal_process(process_id, signal.SIGKILL)
            yield from self._until_replaced(node_id, process_id, "kill -9")

    def freeze(self) -> Iterator[float]:
        """SIGSTOP, for so short that the process goes on."""
        for node_id, process_id in self._pick():
            duration_s = self._chance.uniform(*FROZEN_SHORTLY_S)
            starts_count = self._broker.starts_count
            self._note("process_freezes", f"node {node_id}: SIGSTOP for {duration_s:.1f} s")
            self._broker.signal_process(process_id, signal.SIGSTOP)
            yield duration_s
            went_on = self._broker.signal_process(process_id, signal.SIGCONT)
            if not went_on and self._broker.starts_count == starts_count:
                self._findings.append(f"node {node_id} was ended, though it was frozen for {duration_s:.1f} s only")
            yield HEARD_AGAIN_S

    def hang(self) -> Iterator[float]:
        """SIGSTOP, until the parent finds that the process hangs and kills it."""
        for node_id, process_id in self._pick():
            self._note("process_hangs", f"node {node_id}: SIGSTOP for good")
            self._broker.signal_process(process_id, signal.SIGSTOP)
            yield from self._until_replaced(node_id, process_id, f"SIGSTOP, after {HANG_LIMIT_S:.0f} s")

    def stop(self) -> Iterator[float]:
        """SIGTERM of one process; the parent starts another one."""
        for node_id, process_id in self._pick():
            self._note("process_restarts", f"node {node_id}: SIGTERM")
            self._broker.signal_process(process_id, signal.SIGTERM)
            yield from self._until_replaced(node_id, process_id, "SIGTERM")

    def fill_disk(self) -> Iterator[float]:
        """Limit the files of one process: partitions that it cannot write stay offline there until it restarts."""
        sizes = sorted(size for size in (path.stat().st_size for path in self._broker.log_files()) if size)
        for node_id, process_id in self._pick() if sizes else ():
            limit_bytes = self._chance.choice(sizes) + self._chance.randrange(200)
            self._note("disk_full", f"node {node_id}: no file beyond {limit_bytes:,} bytes")
            self._broker.limit_file_size_of(process_id, limit_bytes)
            yield self._chance.uniform(*DISK_FULL_S)
            self._broker.limit_file_size_of(process_id, None)
            if self._chance.random() < 0.5:
                yield self._chance.uniform(0, 1)
            self._note("process_kills", f"node {node_id}: kill -9 after its disk was full")
            self._broker.signal_process(process_id, signal.SIGKILL)
            yield from self._until_replaced(node_id, process_id, "kill -9")

    def drain(self) -> Iterator[float]:
        """A node hands over all that it leads, for a while."""
        for node_id, _ in self._pick():
            yield from self._operator.drain(node_id)

    def _pick(self) -> Iterator[tuple[int, int]]:
        """One node that serves and has no fault, with its process, for as long as the caller has it; or none."""
        if not self._broker.is_running or not self._broker.has_served:
            return
        free = [each for each in self._broker.node_ids if each not in self._held and self._broker.is_node_ready(each)]
        if not free:
            return
        node_id = self._chance.choice(free)
        process_id = self._broker.process_of(node_id)
        if process_id is None:
            return
        self._held.add(node_id)
        try:
            yield node_id, process_id
        finally:
            self._held.discard(node_id)

    def _until_replaced(self, node_id: int, process_id: int, after: str) -> Iterator[float]:
        """Wait until another process serves the node, or the whole broker has been started again."""
        starts_count = self._broker.starts_count
        deadline_s = time.monotonic() + REPLACED_TIMEOUT_S
        while self._broker.starts_count == starts_count and self._broker.is_running:
            if self._broker.process_of(node_id) != process_id and self._broker.is_node_ready(node_id):
                return
            if time.monotonic() > deadline_s:
                self._findings.append(f"node {node_id} did not serve again {REPLACED_TIMEOUT_S:.0f} s after {after}")
                return
            yield LOOK_S
