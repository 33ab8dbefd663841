"""Processor time and memory of a measured broker, fine enough for short runs."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from scripts.benchmarks.broker_process import cpu_s

ROUNDING_S = 0.03
"""More than what user and system time of a process are rounded by in the system's own figures, in all."""


def test_processor_time_of_a_moment_is_seen() -> None:
    before_s = cpu_s(os.getpid())
    assert cpu_s(os.getpid()) > before_s


def test_processor_time_is_that_of_a_process_and_of_those_it_has_started() -> None:
    program = "import sys; sum(range(10_000_000)); print(); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        times = [one.cpu_times() for one in processes]
        total_s = sum(one.user + one.system for one in times)
        assert len(processes) == 2
        assert cpu_s(process.pid) == pytest.approx(total_s, abs=2 * ROUNDING_S)
        process.communicate(b"")
