"""Runs one client program: `python -m scripts.benchmarks.clients NAME JSON`.

What it says and is told is in `client_process.py`.
"""

from __future__ import annotations

import gc
import json
import sys

from scripts.benchmarks.clients.programs import PROGRAMS


def main() -> None:
    name, parameters = sys.argv[1:3]
    program = PROGRAMS[name](**json.loads(parameters))
    next(program)  # up to where everything is prepared
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        return
    print(json.dumps(next(program)), flush=True)
    program.close()


if __name__ == "__main__":
    main()
