"""Measures this broker, side by side with Apache Kafka.

    .venv/bin/python scripts/bench.py [--headline | --rest | --only NAME] [--rounds N] [--json FILE] [--plot FOLDER]
    .venv/bin/python scripts/bench.py --alone ...            without Apache Kafka
    .venv/bin/python scripts/bench.py --peer HOST:PORT ...   with any other broker that is running
    .venv/bin/python scripts/bench.py --list
    .venv/bin/python scripts/bench.py --page                 docs/performance.md from docs/performance/results.json

Each figure is measured in several rounds, in each on one broker after another; medians, ranges and ratios are printed.
`--small` runs everything through in seconds, to see that it works. Apache Kafka comes from Maven Central into .cache;
what takes long to prepare is kept in .cache/bench for the next run. On a virtual machine, `--fill-memory` has all
brokers work in memory that the host has given already: for figures of many bytes, as it disturbs those of small ones.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.benchmarks.command import main

ENDED_BY_SIGNAL = 128
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end(number: int, _: object) -> None:
    """Ends like an error, so that what was made for brokers is removed; their processes end here and now.

    No object that would stop it owns a broker during its start. All have their own sessions, which
    end with no terminal.
    """
    for ending in ENDING_SIGNALS:
        signal.signal(ending, signal.SIG_IGN)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    sys.exit(ENDED_BY_SIGNAL + number)


if __name__ == "__main__":
    for ending in ENDING_SIGNALS:
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as under nohup
            signal.signal(ending, end)
    sys.exit(main())
