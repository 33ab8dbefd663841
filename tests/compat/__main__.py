"""Runs real clients against a broker of this checkout, as often as asked, and compares with Apache Kafka.

python -m tests.compat                                      every client once
python -m tests.compat --client franz-go --times 10         one client ten times on one broker
python -m tests.compat --client franz-go --against kafka    the same program on an Apache Kafka 4.4, results compared
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path

from tests.compat.brokers import Elsewhere, Nodes, apache_kafka, running, stores
from tests.compat.clients import CLIENTS
from tests.compat.harness import BuildError, Client, NotHereError, Report, differences, run


def show(report: Report) -> None:
    detail = f"  {report.detail.strip()}" if report.detail else ""
    print(f"  {report.outcome:7} {report.seconds:6.1f} s  {report.check}{detail}", flush=True)


def none_failed(reports: dict[str, Report]) -> bool:
    failed = sum(report.outcome == "failed" for report in reports.values())
    total_s = sum(report.seconds for report in reports.values())
    print(f"  {len(reports)} checks, {failed} failed, {total_s:.0f} s", flush=True)
    return not failed


def run_client(client: Client, nodes: Nodes, options: argparse.Namespace) -> bool:
    """All runs of one client on one Fencepost, and one on the other broker when there is one to compare with."""
    good = True
    checks = options.check
    if not checks and (left_out := nodes.left_out(client)):
        checks = [check for check in client.known_checks() if check not in left_out]
    # What the checks create and leave behind stays: every run finds the broker as the one before left it.
    with tempfile.TemporaryDirectory(prefix="fencepost-compat-") as folder:
        reports: dict[str, Report] = {}
        if not options.only_other:
            with running(client, Path(folder), nodes) as ours:
                for number in range(1, options.times + 1):
                    print(f"{client.name}, run {number} of {options.times}", flush=True)
                    reports = run(client, ours, run_name=str(number), checks=checks, on_report=show)
                    good = none_failed(reports) and good
        if not options.against:
            return good
        to_kafka = options.against == "kafka"
        other = apache_kafka(client, Path(folder)) if to_kafka else nullcontext(Elsewhere(options.against))
        with other as target:
            print(f"{client.name}, the other broker", flush=True)
            theirs = run(client, target, run_name=Path(folder).name[-8:], checks=options.check, on_report=show)
            good = none_failed(theirs) and good
    found = [] if options.only_other else differences(reports, theirs)
    for difference in found:
        print(f"  different: {difference}")
    return good and not found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client; can be repeated")
    parser.add_argument("--check", action="append", default=[], help="only this check; can be repeated")
    parser.add_argument("--times", type=int, default=1, help="how often each program runs on its broker")
    parser.add_argument("--processes", type=int, default=1, help="how many processes the broker has (1)")
    parser.add_argument("--machines", type=int, default=1, help="how many brokers a cluster of machines has (1)")
    parser.add_argument(
        "--against",
        metavar="BROKER",
        help="compare with a broker: 'kafka' starts one, HOST:PORT is there",
    )
    parser.add_argument("--only-other", action="store_true", help="with --against: not against this checkout's broker")
    options = parser.parse_args()
    if options.only_other and not options.against:
        parser.error("--only-other needs --against")
    if options.processes > 1 and options.machines > 1:
        parser.error("--processes and --machines exclude each other")
    with ExitStack() as cleanup:
        nodes = Nodes(options.processes)
        names = options.client or list(CLIENTS)
        if options.machines > 1:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-compat-"))
            nodes = Nodes(options.machines, cleanup.enter_context(stores(Path(folder))))
        failed = [name for name in names if not _is_good(CLIENTS[name], nodes, options)]
        return 1 if failed else 0


def _is_good(client: Client, nodes: Nodes, options: argparse.Namespace) -> bool:
    try:
        return run_client(client, nodes, options)
    except NotHereError as reason:
        print(reason)
        return True
    except BuildError as failure:
        print(f"{client.name} could not be built: {failure}", file=sys.stderr)
        return False


if __name__ == "__main__":
    # SIGTERM unwinds like Ctrl-C, so that brokers and programs started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
