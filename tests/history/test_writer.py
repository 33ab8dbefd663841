"""Histories that are written by threads, and by processes that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from fencepost.history.checker import check_history
from fencepost.history.writer import HistoryWriter

ROOT = Path(__file__).resolve().parents[2]


def test_threads_write_whole_lines_in_the_order_of_their_clock(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryWriter.open(path)

    def work(name: str) -> None:
        client = history.client(name)
        for number in range(200):
            client.send("t", f"{name}-{number}", 0).unknown("not sent at all")

    threads = [threading.Thread(target=work, args=(f"client-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history.close()
    times_ms = [json.loads(one)["time_ms"] for one in path.read_bytes().splitlines()]
    assert times_ms == sorted(times_ms)
    report = check_history(path.read_bytes().splitlines(keepends=True))
    assert report.counts["records_sent"] == 800
    assert report.counts["lines"] == 4 * 401


def test_a_recorder_killed_with_kill_9_has_kept_every_line_that_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    program = (
        "import os, signal, sys\n"
        "from fencepost.history.writer import HistoryWriter\n"
        "client = HistoryWriter.open(sys.argv[1]).client('c', transactional_id='c')\n"
        "client.begin()\n"
        "client.send('t', 'a', 0).ok(offset=0)\n"
        "client.commit()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, check=False)
    report = check_history(path.read_bytes().splitlines(keepends=True))
    assert report.counts["lines"] == 5
    assert report.counts["transactions_of_unknown_outcome"] == 1
