"""Simulated worlds from the command line.

    python -m tests.simulation --seed 17            one world again; its trace where it fails
    python -m tests.simulation --seed 17 --trace    with its trace in any case
    python -m tests.simulation --minutes 60         look for seeds that fail
    python -m tests.simulation --seeds 1-500        these seeds
    python -m tests.simulation --known              those that ever failed, see seeds.txt
    ... --require-situations                      fail when something that matters never came up

Exit code 0: all is well; 1: a seed failed, or a situation is missing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterable

HASH_SEED = "0"
FAILURES_SHOWN = 20


def main() -> int:
    """Read the command line, and do it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulated worlds.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="live through one world again")
    what.add_argument("--seeds", metavar="A-B", help="live through these, both included")
    what.add_argument("--known", action="store_true", help="live through those that ever failed")
    what.add_argument("--minutes", type=float, help="look for seeds that fail, for so long")
    parser.add_argument("--trace", action="store_true", help="print the trace of --seed in any case")
    parser.add_argument("--digest", action="store_true", help="print only a digest of all that happened in --seed")
    parser.add_argument(
        "--require-situations", action="store_true", help="fail when something that matters never came up"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, is_trace_wanted=options.trace, is_digest_wanted=options.digest)
    seeds: Iterable[int]
    if options.known:
        from tests.simulation.search import known_seeds

        seeds, deadline_s = list(known_seeds()), None
    elif options.seeds is not None:
        first, _, last = options.seeds.partition("-")
        seeds, deadline_s = range(int(first), int(last or first) + 1), None
    else:
        seeds, deadline_s = itertools.count(secrets.randbelow(2**40)), time.monotonic() + options.minutes * 60
    return search(seeds, deadline_s, requires_situations=options.require_situations)


def replay(seed: int, *, is_trace_wanted: bool, is_digest_wanted: bool) -> int:
    """Live through one world again."""
    from tests.simulation.story import run_seed

    outcome = run_seed(seed, keeps_trace=True)
    if is_digest_wanted:
        print(outcome.digest)
        return 1 if outcome.reason else 0
    if outcome.reason or is_trace_wanted:
        print("\n".join(outcome.lines))
        print()
    print(f"seed {seed}: {outcome.reason or 'all is well'}")
    return 1 if outcome.reason else 0


def search(seeds: Iterable[int], deadline_s: float | None, *, requires_situations: bool) -> int:
    """Live through many worlds."""
    from tests.simulation.search import live_through
    from tests.simulation.story import Outcome

    done = itertools.count(1)
    shown: set[int] = set()
    started_s = time.monotonic()

    def note(outcome: Outcome) -> None:
        count = next(done)
        if outcome.reason and len(shown) < FAILURES_SHOWN:
            shown.add(outcome.seed)
            print(f"seed {outcome.seed} failed: {outcome.headline}", flush=True)
        if count % 100 == 0:
            print(f"{count} seeds in {time.monotonic() - started_s:.0f} s", flush=True)

    total = live_through(seeds, note, deadline_s=deadline_s)
    print(total.table())
    print(total.text())
    for outcome in total.failures[:FAILURES_SHOWN]:
        print(f"  python -m tests.simulation --seed {outcome.seed}   # {outcome.headline}")
    missing = total.missing()
    if requires_situations and missing:
        print("never came up: " + "; ".join(missing))
    return 1 if total.failures or (requires_situations and missing) else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # The order of sets would differ from run to run.
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    sys.exit(main())
