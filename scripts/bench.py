"""Measures this broker.

    .venv/bin/python scripts/bench.py [--only NAME]... [--rounds N] [--json FILE]
    .venv/bin/python scripts/bench.py --list

Each figure is measured in several rounds; medians and ranges are printed. `--small` runs everything through in seconds,
to see that it works. What takes long to prepare is kept in .cache/bench for the next run.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
