"""`fencepost soak`: runs real clients with a real broker while processes are killed and frozen."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from click.core import ParameterSource
from rich.console import Console

from fencepost.soak.java_program import NoJavaError, compiled_class_path
from fencepost.soak.plan import KINDS, TWO_PHASE_KINDS, Plan

if TYPE_CHECKING:
    from fencepost.soak.pieces import Pieces
    from fencepost.soak.run import Soak

EXIT_FINDINGS = 1
EXIT_NOT_RUN = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXTRAS: Final = {"psycopg": "soak,check-back"}
"""The extras that install a library; of others it is `soak`."""


def _kinds(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    kinds = None if text is None else list(dict.fromkeys(text.split(",")))
    unknown = [kind for kind in kinds or () if kind not in (*KINDS, *TWO_PHASE_KINDS)]
    if unknown:
        known = ", ".join(dict.fromkeys((*KINDS, *TWO_PHASE_KINDS)))
        raise click.BadParameter(f"no such client: {', '.join(unknown)}; there are {known}")
    return kinds


@dataclass(frozen=True)
class _Choice:
    """The options. kinds: None for all."""

    minutes: float
    seed: int | None
    directory: Path | None
    kinds: list[str] | None
    rate: float
    fault_interval: float
    process_count: int
    machine_count: int | None
    is_two_phase: bool
    is_continued: bool
    is_json: bool


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
    metavar="KIND,…",
    help=f"Any of {', '.join(KINDS)}, with --two-phase of {', '.join(TWO_PHASE_KINDS)}; default: all.",
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
@click.option(
    "--two-phase",
    "is_two_phase",
    is_flag=True,
    help="Services that commit over a database and a topic, in place of the other clients; the database gets faults.",
)
@click.option(
    "--continue",
    "is_continued",
    is_flag=True,
    help="Go on with the soak of --machines that has ended in --directory, as its next piece.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the figures as JSON.")
def soak(**options: Any) -> None:
    """Transact while processes are killed and frozen.

    The broker, with its own port and data directory, and the clients (kafka-python, confluent-kafka, and Kafka's Java
    client if there is a JDK) are processes: transactional producers, consume-transform-produce applications in groups,
    read_committed consumers. At random times, the same for one seed, the broker, or one of its processes, is killed
    (kill -9), restarted, frozen with SIGSTOP, or finds its disk full; clients are killed, frozen, restarted, or wake up
    as zombies whose transactional id another client uses. With --machines the brokers share a PostgreSQL and an object
    store (pip install 'fencepost[cluster,postgres]'), which are restarted, crashed and frozen, too; the object store
    also refuses requests for a while, or does not answer them. All operations of the clients and their results are
    recorded; at the end all records are read, and the history is checked as by `fencepost history check`.

    With --two-phase the clients are services that use fencepost.two_phase with a PostgreSQL of their own (pip install
    'fencepost[check-back,postgres]'), directly and through PgBouncer in transaction mode, if it is installed. The
    database is killed (kill -9), lost and replaced by its synchronous standby, or finds its disk full; connections are
    cut before, after and within the answer to a COMMIT; others hold locks for longer than the services wait. At the
    end rows equal records, each once, and nothing is in doubt.

    A soak of --machines can be done in pieces: with --continue the same brokers, database, objects, topics and clients
    go on where the last piece has ended. The history of all pieces is checked as one, and the figures are of all.

    The exit code is 1 if there is an anomaly, an open transaction, or a client that never committed; 2 if the soak
    could not run.
    """
    choice = _Choice(**options)
    try:
        made = _soak_of(choice)
    except ModuleNotFoundError as error:
        library = (error.name or "fencepost").partition(".")[0]
        if library == "fencepost":
            raise
        extra = EXTRAS.get(library, "soak")
        click.echo(f"the soak needs {library}, which is not installed: pip install 'fencepost[{extra}]'", err=True)
        sys.exit(EXIT_NOT_RUN)
    if choice.machine_count and choice.process_count > 1:
        raise click.UsageError("--machines and --processes exclude each other: each machine has one process")
    # With --json, standard output is for a program, so text for people goes to standard error.
    console = Console(stderr=choice.is_json)
    # SIGTERM unwinds like Ctrl-C, so that the processes started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    earlier = _earlier(choice, console)
    choice = choice if earlier is None else _as_before(choice, earlier)
    directory = _directory(choice, console)
    kinds, java_class_path = _clients(choice, directory, console)
    _require_services(choice, console)
    plan = _plan(choice, kinds)
    console.print(
        f"{choice.minutes:g} minutes, seed {plan.seed}, {', '.join(kinds)}; everything goes to {directory}",
        highlight=False,
        soft_wrap=True,
    )
    running = made(
        plan,
        directory,
        minutes=choice.minutes,
        fault_interval_s=choice.fault_interval,
        java_class_path=java_class_path,
        console=console,
        earlier=earlier,
    )
    try:
        report = running.run()
    except KeyboardInterrupt:
        console.print("stopped")
        sys.exit(EXIT_INTERRUPTED)
    report.show(console)
    if choice.is_json:
        click.echo(json.dumps(report.as_object(), indent=2))
    sys.exit(0 if report.is_good else EXIT_FINDINGS)


def _soak_of(choice: _Choice) -> type[Soak]:
    """Raises ModuleNotFoundError."""
    if choice.is_two_phase:
        from fencepost.soak.two_phase_run import TwoPhaseSoak

        return TwoPhaseSoak
    from fencepost.soak.run import Soak

    return Soak


def _earlier(choice: _Choice, console: Console) -> Pieces | None:
    """The earlier pieces of the soak in the directory, if it is to continue; ends the command if it cannot."""
    if not choice.is_continued:
        return None
    from fencepost.soak.pieces import PiecesError, load_pieces

    if choice.directory is None:
        raise click.UsageError("--continue needs the --directory of the soak to go on with")
    given = click.get_current_context().get_parameter_source
    fixed = {"seed": "--seed", "kinds": "--clients", "rate": "--rate", "process_count": "--processes"}
    for name, option in {**fixed, "is_two_phase": "--two-phase"}.items():
        if given(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} cannot be given with --continue: it is that of the soak in the directory")
    try:
        pieces = load_pieces(choice.directory.resolve())
    except PiecesError as error:
        _refuse(console, str(error))
    if choice.machine_count not in (None, pieces.machine_count):
        _refuse(console, f"{choice.directory} has a soak of {pieces.machine_count} machines")
    return pieces


def _as_before(choice: _Choice, earlier: Pieces) -> _Choice:
    """The options, with those of the pieces before."""
    return replace(
        choice, kinds=earlier.kinds, rate=earlier.rate, seed=earlier.seed, machine_count=earlier.machine_count
    )


def _plan(choice: _Choice, kinds: list[str]) -> Plan:
    return Plan(
        kinds=kinds,
        rate=choice.rate,
        seed=int(time.time()) if choice.seed is None else choice.seed,
        process_count=choice.process_count,
        machine_count=choice.machine_count or 0,
        is_two_phase=choice.is_two_phase,
    )


def _directory(choice: _Choice, console: Console) -> Path:
    """The directory of the soak, which is empty; ends the command otherwise."""
    directory = (choice.directory or Path(tempfile.mkdtemp(prefix="fencepost-soak-"))).resolve()
    if not choice.is_continued and directory.exists() and any(directory.iterdir()):
        _refuse(console, f"{directory} is not empty")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _clients(choice: _Choice, directory: Path, console: Console) -> tuple[list[str], str | None]:
    """The kinds of clients that can run, and the class path of the Java client; ends the command if there are none."""
    of_this_soak = TWO_PHASE_KINDS if choice.is_two_phase else KINDS
    kinds = [kind for kind in choice.kinds or of_this_soak if kind in of_this_soak]
    java_class_path = None
    if "java" in kinds:
        try:
            java_class_path = compiled_class_path(directory / "java")
        except NoJavaError as error:
            console.print(f"the Java client is left out: {error}", style="yellow", highlight=False)
            kinds.remove("java")
    if "aiokafka" in kinds and importlib.util.find_spec("aiokafka") is None:
        console.print("aiokafka is left out: it is not installed", style="yellow", highlight=False)
        kinds.remove("aiokafka")
    if choice.is_continued and choice.kinds is not None and kinds != choice.kinds:
        left_out = [kind for kind in choice.kinds if kind not in kinds]
        _refuse(console, f"{directory} has a soak with {', '.join(left_out)}, which cannot run now")
    if not kinds:
        _refuse(console, f"no clients are left; this soak has {', '.join(of_this_soak)}")
    return kinds, java_class_path


def _require_services(choice: _Choice, console: Console) -> None:
    """End the command if a service that the soak starts beside the brokers is not installed."""
    from fencepost.soak.trial_services import TrialError, check_installed, postgres_programs

    try:
        if choice.machine_count:
            check_installed()
        elif choice.is_two_phase:
            postgres_programs()
    except TrialError as error:
        _refuse(console, str(error))


def _refuse(console: Console, reason: str) -> NoReturn:
    console.print(reason, style="bold red", highlight=False, soft_wrap=True, markup=False)
    sys.exit(EXIT_NOT_RUN)
