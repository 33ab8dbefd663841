"""A process of `pytest --numprocesses` that ends in the middle of a test costs that test alone.

A hang in a library's C code hears no signal, so pytest-timeout cannot end it: `HardLimit` ends the process, and writes
where each of its threads was. `GoesOnAfterACrash` gives the tests that were left to the other processes. Without it,
pytest-xdist 3.8 gives them units without a test, after which they wait for ever.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

GRACE_S = 120.0
"""How long after its time-out a test may still run: pytest-timeout has to end it, and its fixtures clean up."""


class GoesOnAfterACrash(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Does not run the test again in which a process crashed, nor hand out units whose tests have all run."""

    def remove_node(self, node: WorkerController) -> str | None:
        units = self.assigned_work[node]
        left = [(scope, test) for scope, unit in units.items() for test, has_run in unit.items() if not has_run]
        del self.assigned_work[node]
        if not left:
            return None
        # It runs its units in their order.
        crashed: str = left.pop(0)[1]
        for scope, test in left:
            self.workqueue.setdefault(scope, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it is new, and still collects
        try:
            self._hand_out(node)
        except OSError:
            pass  # it has crashed, too: when that is noticed, `remove_node` gives its units to the others

    def _hand_out(self, node: WorkerController) -> None:
        # A process runs a test when it knows the next one, or that there is none.
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class HardLimit:
    """Ends this process if a test runs on for `GRACE_S` after its time-out."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        # Tests replace the standard error by a file.
        self._output = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        limit_s = timeout_of(item)
        if limit_s:
            faulthandler.dump_traceback_later(limit_s + self._grace_s, exit=True, file=self._output)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def timeout_of(item: pytest.Item) -> float:
    """The time-out of a test in seconds; 0 if it has none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0] or 0)
    return float(item.config.getini("timeout") or 0)
