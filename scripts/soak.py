#!/usr/bin/env python
"""Real clients transact against a real broker while processes are killed and frozen and the disk is full at times.

    ./.venv/bin/python scripts/soak.py --minutes M [--seed N] [--directory DIR] [--clients KIND,KIND…] [--json]

The broker, on a port and a data directory of its own, and the clients (kafka-python, confluent-kafka, and Kafka's
Java client where there is a JDK) are processes: transactional producers, consume-transform-produce applications in
groups, read_committed consumers. At random moments, for one seed the same, the broker is killed (kill -9), restarted,
frozen with SIGSTOP, or finds its disk full; clients are killed, frozen, restarted, or come back as zombies, whose
transactional id somebody else has. What every client did and was told is recorded; in the end everything is read, and
scripts/check_history.py looks for what must not be.

DIR keeps history.jsonl, nemesis.log, broker.log, data/, clients/. The exit code is 1 on any anomaly, on anything left
open and when somebody never got on; 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402

from scripts.soaking.java_program import NoJavaError, compiled_class_path  # noqa: E402
from scripts.soaking.plan import KINDS, Plan  # noqa: E402
from scripts.soaking.run import Soak  # noqa: E402


def main() -> int:
    options = _options()
    # What is for people goes to standard error where standard output is for a program.
    console = Console(stderr=options.json)
    # SIGTERM unwinds like Ctrl-C, so that the processes started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="fencepost-soak-"))
    if directory.exists() and any(directory.iterdir()):
        console.print(f"{directory} is not empty", style="bold red", highlight=False)
        return 2
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    kinds = list(options.clients)
    java_class_path = None
    if "java" in kinds:
        try:
            java_class_path = compiled_class_path(directory / "java")
        except NoJavaError as error:
            console.print(f"the Java client is left out: {error}", style="yellow", highlight=False)
            kinds.remove("java")
    if not kinds:
        console.print("no clients are left", style="bold red")
        return 2
    plan = Plan(kinds=kinds, rate=options.rate, seed=options.seed)
    console.print(
        f"{options.minutes:g} minutes, seed {options.seed}, {', '.join(kinds)}; everything goes to {directory}",
        highlight=False,
        soft_wrap=True,
    )
    soak = Soak(
        plan,
        directory,
        minutes=options.minutes,
        fault_interval_s=options.fault_interval,
        java_class_path=java_class_path,
        console=console,
    )
    try:
        report = soak.run()
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    report.show(console)
    if options.json:
        print(json.dumps(report.as_object(), indent=2))
    return 0 if report.is_good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/soak.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, required=True, metavar="M", help="for how long there are faults")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="N", help="of what goes wrong, and when")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="must be empty or new; default: a new one in /tmp"
    )
    parser.add_argument(
        "--clients", type=_kinds, default=KINDS, metavar="KIND,…", help=f"of {', '.join(KINDS)}; default: all"
    )
    parser.add_argument(
        "--rate", type=float, default=100, help="transactions a second of all clients together (default: 100)"
    )
    parser.add_argument(
        "--fault-interval",
        type=float,
        default=4.0,
        metavar="S",
        help="seconds between two faults, on average (default: 4)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(text.split(",")))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such client: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return kinds


if __name__ == "__main__":
    sys.exit(main())
