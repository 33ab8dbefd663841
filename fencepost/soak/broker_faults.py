"""Faults of a broker as a whole: killed, stopped, frozen, starved of disk. One at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from fencepost.soak.broker import Broker, BrokerDiedError

FaultSchedule: TypeAlias = Iterator[float]

LOOK_S = 0.02  # between two checks of a condition
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
DISK_FULL_S = (0.5, 4.0)
BROKER_FROZEN_S = (0.2, 4.0)
PARENT_FROZEN_S = (0.2, 14.0)  # its processes go on meanwhile


class BrokerFaults:
    """Each method is one fault, which yields the seconds until it goes on.

    note: counts and tells a fault. findings: gets failures of the broker.
    """

    def __init__(
        self,
        broker: Broker,
        chance: random.Random,
        *,
        note: Callable[[str, str], None],
        findings: list[str],
    ) -> None:
        self._broker = broker
        self._chance = chance
        self._note = note
        self._findings = findings

    def all(self) -> dict[Callable[[], FaultSchedule], int]:
        """The faults of a broker of one process, with their relative frequency."""
        return {self._kill: 5, self._restart: 2, self._freeze: 3, self._fill_disk: 2}

    def of_several_processes(self) -> dict[Callable[[], FaultSchedule], int]:
        """Those of a broker of several processes, beside faults of single ones."""
        return {self._kill: 1, self._restart: 1, self._freeze: 1}

    def _kill(self) -> FaultSchedule:
        if self._broker.is_held:
            return
        self._broker.is_held = True
        self._note("broker_kills", "broker: kill -9")
        self._broker.kill()
        yield self._chance.uniform(0, 2)
        yield from self._start()
        self._broker.is_held = False

    def _restart(self) -> FaultSchedule:
        if self._broker.is_held:
            return
        self._broker.is_held = True
        self._note("broker_restarts", "broker: SIGTERM")
        yield from self._terminate()
        yield from self._start()
        self._broker.is_held = False

    def _freeze(self) -> FaultSchedule:
        if self._broker.is_held:
            return
        self._broker.is_held = True
        is_parent = self._broker.process_count > 1
        duration_s = self._chance.uniform(*(PARENT_FROZEN_S if is_parent else BROKER_FROZEN_S))
        self._note("broker_freezes", f"broker: SIGSTOP for {duration_s:.1f} s")
        self._broker.freeze()
        yield duration_s
        if self._chance.random() < 0.2:
            self._note("broker_kills", "broker: kill -9 while frozen")
            self._broker.kill()
            yield from self._start()
        else:
            self._broker.thaw()
        self._broker.is_held = False

    def _fill_disk(self) -> FaultSchedule:
        """Limit the broker's files to the current size of one of them: longer files are full, others soon may be. A
        partition without room may stay offline until the broker restarts."""
        sizes = sorted(size for size in (path.stat().st_size for path in self._broker.log_files()) if size)
        if self._broker.is_held or not sizes:
            return
        self._broker.is_held = True
        limit_bytes = self._chance.choice(sizes) + self._chance.randrange(200)
        self._note("disk_full", f"broker: no file beyond {limit_bytes:,} bytes")
        self._broker.limit_file_size(limit_bytes)
        yield self._chance.uniform(*DISK_FULL_S)
        lost = self._broker.written().count(b"partition_went_offline")
        if lost and self._chance.random() < 0.5:
            self._note("broker_kills", f"broker: kill -9 with {lost} partitions offline")
            self._broker.kill()
            yield from self._start()
        elif lost:
            self._broker.limit_file_size(None)
            yield self._chance.uniform(0, 1)
            self._note("broker_restarts", f"broker: SIGTERM with {lost} partitions offline")
            yield from self._terminate()
            yield from self._start()
        else:
            self._broker.limit_file_size(None)
        self._broker.is_held = False

    def _terminate(self) -> FaultSchedule:
        self._broker.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while not self._broker.has_ended():
            if time.monotonic() > deadline_s:
                self._findings.append(f"the broker did not end {STOP_TIMEOUT_S:.0f} s after SIGTERM")
                self._broker.kill()
                return
            yield LOOK_S

    def _start(self) -> FaultSchedule:
        self._broker.spawn()
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self._broker.is_ready:
            if time.monotonic() > deadline_s:
                raise BrokerDiedError(f"the broker was not ready {READY_TIMEOUT_S:.0f} s after its start")
            yield LOOK_S
