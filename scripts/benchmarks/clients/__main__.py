"""Runs one client program: `python -m scripts.benchmarks.clients NAME JSON`.

`client_process.py` describes its input and output.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from scripts.benchmarks.clients.programs import PROGRAMS


def main() -> None:
    name, parameters = sys.argv[1:3]
    # What libraries print by the way goes with the errors.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    program = PROGRAMS[name](**json.loads(parameters))
    next(program)  # up to where everything is prepared
    gc.collect()
    gc.freeze()
    print("ready", flush=True, file=answers)
    if sys.stdin.readline().strip() != "go":
        return
    print(json.dumps(next(program)), flush=True, file=answers)
    program.close()


if __name__ == "__main__":
    main()
