"""Processes are frozen with their children, and thawed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.soak.process_family import freeze_family, thaw

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate(b"\\n")
"""


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        parent.communicate("\n")


def state_of(process_id: int) -> str:
    return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_a_frozen_process_and_its_child_stand_still_until_they_are_thawed(
    family: tuple[subprocess.Popen[str], int],
) -> None:
    parent, child = family
    frozen = freeze_family(parent.pid)
    try:
        assert frozen == [parent.pid, child]
        while {state_of(each) for each in frozen} != {"T"}:
            time.sleep(0.001)
    finally:
        thaw(frozen)
    while "T" in {state_of(each) for each in frozen}:
        time.sleep(0.001)


def test_processes_that_have_ended_are_left_out() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert freeze_family(ended.pid) == []
    thaw([ended.pid])
