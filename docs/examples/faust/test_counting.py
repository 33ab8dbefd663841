"""The worker runs in a process of its own, as in production, and the broker in the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def worker(fencepost, tmp_path: Path) -> Iterator[subprocess.Popen]:
    fencepost.topic("words")
    fencepost.topic("counts")
    process = subprocess.Popen(
        [sys.executable, "-m", "faust", "--datadir", str(tmp_path), "-A", "counting", "worker", "--without-web"],
        cwd=Path(__file__).parent,
        env={**os.environ, "KAFKA": fencepost.bootstrap_servers},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.wait()


def test_words_are_counted(fencepost, worker: subprocess.Popen) -> None:
    fencepost.produce("words", "tea", "tea", "milk")
    counted = fencepost.records("counts", count=3, timeout=60)
    assert [(record.key, record.value) for record in counted] == [(b"tea", b"1"), (b"tea", b"2"), (b"milk", b"1")]


def test_the_worker_outlives_a_restart_of_the_broker(fencepost, worker: subprocess.Popen) -> None:
    fencepost.produce("words", "tea")
    fencepost.records("counts", count=1, timeout=60)
    fencepost.crash()
    fencepost.restart()
    fencepost.produce("words", "tea")
    assert [record.value for record in fencepost.records("counts", count=2, timeout=60)] == [b"1", b"2"]
    assert worker.poll() is None
