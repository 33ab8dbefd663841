"""`fencepost soak`: runs real clients with a real broker while processes are killed and frozen."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from fencepost.soak.java_program import NoJavaError, compiled_class_path
from fencepost.soak.plan import KINDS, Plan

EXIT_FINDINGS = 1
EXIT_NOT_RUN = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def _kinds(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    kinds = list(dict.fromkeys(text.split(",")))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise click.BadParameter(f"no such client: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return kinds


@click.command()
@click.option(
    "--minutes",
    type=float,
    required=True,
    metavar="M",
    help="Minutes of faults. Longer on a busy machine, until there were some of all kinds.",
)
@click.option("--seed", type=int, metavar="N", help="Seed of the faults and their times; default: the time of day.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Empty or new; gets history.jsonl, nemesis.log, broker.log, data/, clients/. Default: a new one in /tmp.",
)
@click.option(
    "--clients",
    "kinds",
    callback=_kinds,
    default=",".join(KINDS),
    metavar="KIND,…",
    help=f"Any of {', '.join(KINDS)}; default: all.",
)
@click.option(
    "--rate", type=float, default=100, show_default=True, help="Transactions per second of all clients together."
)
@click.option(
    "--fault-interval", type=float, default=4.0, show_default=True, metavar="S", help="Mean seconds between faults."
)
@click.option(
    "--processes",
    "process_count",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes of the broker, which are also killed, frozen and stopped one by one.",
)
@click.option(
    "--machines",
    "machine_count",
    type=click.IntRange(2, 16),
    metavar="N",
    help="Brokers of a cluster of machines, which are also killed, frozen and stopped one by one, and what they share.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the figures as JSON.")
def soak(
    minutes: float,
    seed: int | None,
    directory: Path | None,
    kinds: list[str],
    rate: float,
    fault_interval: float,
    process_count: int,
    machine_count: int | None,
    is_json: bool,
) -> None:
    """Transact while processes are killed and frozen.

    The broker, with its own port and data directory, and the clients (kafka-python, confluent-kafka, and Kafka's Java
    client if there is a JDK) are processes: transactional producers, consume-transform-produce applications in groups,
    read_committed consumers. At random times, the same for one seed, the broker, or one of its processes, is killed
    (kill -9), restarted, frozen with SIGSTOP, or finds its disk full; clients are killed, frozen, restarted, or wake up
    as zombies whose transactional id another client uses. With --machines the brokers share a PostgreSQL and an object
    store (pip install 'fencepost[cluster,postgres]'), which are restarted, crashed and frozen, too; the object store
    also refuses requests for a while, or does not answer them. All operations of the clients and their results are
    recorded; at the end all records are read, and the history is checked as by `fencepost history check`.

    The exit code is 1 if there is an anomaly, an open transaction, or a client that never committed; 2 if the soak
    could not run.
    """
    try:
        from fencepost.soak.run import Soak
    except ModuleNotFoundError as error:
        library = (error.name or "fencepost").partition(".")[0]
        if library == "fencepost":
            raise
        click.echo(f"the soak needs {library}, which is not installed: pip install 'fencepost[soak]'", err=True)
        sys.exit(EXIT_NOT_RUN)
    if machine_count and process_count > 1:
        raise click.UsageError("--machines and --processes exclude each other: each machine has one process")
    # With --json, standard output is for a program, so text for people goes to standard error.
    console = Console(stderr=is_json)
    # SIGTERM unwinds like Ctrl-C, so that the processes started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    directory = (directory or Path(tempfile.mkdtemp(prefix="fencepost-soak-"))).resolve()
    if directory.exists() and any(directory.iterdir()):
        console.print(f"{directory} is not empty", style="bold red", highlight=False, soft_wrap=True)
        sys.exit(EXIT_NOT_RUN)
    directory.mkdir(parents=True, exist_ok=True)
    java_class_path = None
    if "java" in kinds:
        try:
            java_class_path = compiled_class_path(directory / "java")
        except NoJavaError as error:
            console.print(f"the Java client is left out: {error}", style="yellow", highlight=False)
            kinds.remove("java")
    if not kinds:
        console.print("no clients are left", style="bold red")
        sys.exit(EXIT_NOT_RUN)
    if machine_count:
        from fencepost.soak.trial_services import TrialError, check_installed

        try:
            check_installed()
        except TrialError as error:
            console.print(str(error), style="bold red", highlight=False, markup=False)
            sys.exit(EXIT_NOT_RUN)
    plan = Plan(
        kinds=kinds,
        rate=rate,
        seed=int(time.time()) if seed is None else seed,
        process_count=process_count,
        machine_count=machine_count or 0,
    )
    console.print(
        f"{minutes:g} minutes, seed {plan.seed}, {', '.join(kinds)}; everything goes to {directory}",
        highlight=False,
        soft_wrap=True,
    )
    running = Soak(
        plan,
        directory,
        minutes=minutes,
        fault_interval_s=fault_interval,
        java_class_path=java_class_path,
        console=console,
    )
    try:
        report = running.run()
    except KeyboardInterrupt:
        console.print("stopped")
        sys.exit(EXIT_INTERRUPTED)
    report.show(console)
    if is_json:
        click.echo(json.dumps(report.as_object(), indent=2))
    sys.exit(0 if report.is_good else EXIT_FINDINGS)
