"""`fencepost log`: checks, shows and repairs the data directory of a stopped broker."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connection import json_option
from fencepost.cli.output import print_rows, progress
from fencepost.cli.repair_documents import is_right, repair_document
from fencepost.cli.restored_offsets import skip_offsets_option

if TYPE_CHECKING:
    from fencepost.broker.config import Settings
    from fencepost.broker.inspection.findings import Finding
    from fencepost.broker.inspection.repair import RepairedPartition
    from fencepost.broker.inspection.verification import Report
    from fencepost.broker.kernel.topic_partition import TopicPartition

EXIT_NOT_RIGHT = 1
MEGABYTE = 1_000_000

data_dir_option = click.option(
    "--data-dir", metavar="DIRECTORY", help="The broker's data directory (log.dirs).  [default: ./data]"
)
config_option = click.option(
    "--config",
    "properties_path",
    metavar="FILE",
    envvar="FENCEPOST_CONFIG",
    show_envvar=True,
    help="The broker's properties file.",
)
partitions_argument = click.argument("partitions", nargs=-1, metavar="[TOPIC-PARTITION]...")


@click.group()
def log() -> None:
    """Check, show and repair a stopped broker's data directory.

    The directory is the one that `serve` uses: --data-dir, else log.dirs of --config or FENCEPOST_LOG_DIRS, else
    ./data.
    """


@log.command()
@data_dir_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@partitions_argument
def verify(data_dir: str | None, properties_path: str | None, as_json: bool, partitions: tuple[str, ...]) -> None:
    """Find damage in a data directory.

    Reads every byte of every log, and simulates the next start; writes nothing into the directory. Each finding
    describes the damage, the repair at the next start, and the cost of each choice.

    The exit code is 0 if there is no damage, 1 if there is, 2 if the options are wrong.
    """
    import asyncio

    from fencepost.broker.inspection.directory_lock import exclusive_use
    from fencepost.broker.inspection.verification import Verification, in_directories
    from fencepost.broker.kernel.clock import SystemClock

    settings, path = broker_settings(data_dir, properties_path)
    names = _names(partitions)
    reports = []
    with _errors_for_people(), exclusive_use(path, may_create=False):
        for directory, wanted in in_directories(path, names):
            looking = Verification(directory, settings, SystemClock())
            with _reading(looking.total_bytes(wanted or looking.partitions())) as advance:
                looking = Verification(directory, settings, SystemClock(), progress=advance)
                reports.append(asyncio.run(looking.run(wanted)))
    if as_json:
        _print_json(path, reports)
    else:
        for number, report in enumerate(reports):
            if number:
                click.echo()
            _print_report(report)
    if not all(report.is_healthy for report in reports):
        sys.exit(EXIT_NOT_RIGHT)


@log.command()
@data_dir_option
@config_option
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Also drop records that cannot be saved. Removed bytes are kept beside the log, as ….log.lost-POSITION.",
)
@click.option(
    "--cut", is_flag=True, help="With --accept-loss: also drop all records after the first loss of a partition."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@json_option
@partitions_argument
def repair(
    data_dir: str | None,
    properties_path: str | None,
    accept_loss: bool,
    cut: bool,
    dry_run: bool,
    as_json: bool,
    partitions: tuple[str, ...],
) -> None:
    """Repair the damage that `fencepost log verify` finds.

    Without --accept-loss, only repairs without loss are made: indexes, snapshots and checksums are rebuilt, fields
    of a batch's header that no checksum covers get the values that the surrounding batches prove, logs that were
    exchanged go back to their places, and metadata get the state of their copy if it is newer.

    With it, records that cannot be saved are dropped as well. Their offsets stay unused: consumers skip them, and
    later records keep their offsets.

    Run an interrupted repair again to finish it. The exit code is 0 if only work of the next start is left, 1 if other
    damage is left, 2 if the options are wrong.
    """
    import asyncio

    from fencepost.broker.inspection.directory_lock import exclusive_use
    from fencepost.broker.inspection.repair import Repair
    from fencepost.broker.inspection.verification import Verification, in_directories
    from fencepost.broker.kernel.clock import SystemClock
    from fencepost.broker.storage.local_disk import LocalDisk

    if cut and not accept_loss:
        raise click.UsageError("--cut goes with --accept-loss")
    settings, path = broker_settings(data_dir, properties_path)
    names = _names(partitions)
    done = []
    with _errors_for_people(), exclusive_use(path, may_create=not dry_run), closing(LocalDisk()) as disk:
        for directory, wanted in in_directories(path, names):
            looking = Verification(directory, settings, SystemClock())
            with _reading(looking.total_bytes(wanted or looking.partitions())) as advance:
                repairing = Repair(
                    directory,
                    disk,
                    settings,
                    SystemClock(),
                    accept_loss=accept_loss,
                    cut=cut,
                    is_dry_run=dry_run,
                    progress=advance,
                )
                done.append(asyncio.run(repairing.run(wanted)))
    if as_json:
        click.echo(json.dumps(repair_document(path, done, is_dry_run=dry_run), indent=2))
    else:
        for report, repaired in done:
            if len(done) > 1:
                click.echo(f"{report.data_directory}:")
            _print_repairs(report, repaired, is_dry_run=dry_run)
    if not all(is_right(report, repaired) for report, repaired in done):
        sys.exit(EXIT_NOT_RIGHT)


@log.command()
@data_dir_option
@config_option
@click.option("--records", is_flag=True, help="Also show records; those of coordinators are decoded.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.argument("what", nargs=-1, required=True, metavar="TOPIC-PARTITION|FILE...")
def dump(
    data_dir: str | None, properties_path: str | None, records: bool, as_json: bool, what: tuple[str, ...]
) -> None:
    """Show the contents of partitions' files.

    A partition's name means all of its files in the data directory. Batches are shown with position, offsets, checksum,
    producer and leader epoch, markers with their outcome; damage is shown and skipped. A broker may run meanwhile: the
    batch that it is writing may look incomplete.
    """
    from fencepost.broker.inspection.dump import dump as rows_of
    from fencepost.broker.inspection.dump import files_of
    from fencepost.broker.inspection.verification import directories_of

    paths: list[str] = []
    for one in what:
        if os.path.isfile(one):
            paths.append(os.path.abspath(one))
            continue
        _, path = broker_settings(data_dir, properties_path)
        name = _names([one])[0]
        with _errors_for_people():
            found = [f"{each}/{name}" for each in directories_of(path) if os.path.isdir(f"{each}/{name}")]
        if not found:
            raise click.UsageError(f"there is neither a file {one} nor a partition {path}/{name}")
        for directory in found:
            paths += files_of(directory)
    with _errors_for_people():
        for path in paths:
            if not as_json:
                click.echo(path)
            for row in rows_of(path, with_records=records):
                if as_json:
                    click.echo(json.dumps({"path": path, **row}))
                else:
                    click.echo(_dumped(row))


@log.command()
@data_dir_option
@config_option
@skip_offsets_option
@json_option
def restored(data_dir: str | None, properties_path: str | None, skip_offsets: int | None, as_json: bool) -> None:
    """Make a restored data directory safe to start.

    Run it once after a copy of a data directory was put in place, before the broker starts. Clients may hold offsets,
    leader epochs, producer ids and sessions of transactional ids from the time after the copy: all of these begin
    far above them.
    """
    import asyncio

    from fencepost.broker.inspection.restored_directory import after_restore
    from fencepost.broker.kernel.clock import SystemClock
    from fencepost.broker.storage.local_disk import LocalDisk

    settings, path = broker_settings(data_dir, properties_path)
    with _errors_for_people(), closing(LocalDisk()) as disk:
        found = asyncio.run(after_restore(path, disk, settings, SystemClock(), skip_offsets))
    print_rows(["data_directory", "topics", "partitions", "skipped_offsets"], [found._asdict()], as_json=as_json)
    if not as_json:
        click.echo("the broker may start")


def broker_settings(data_dir: str | None, properties_path: str | None) -> tuple[Settings, str]:
    """The broker's settings and its data directory, as `serve` finds them. Raises UsageError."""
    from fencepost.broker.config import ConfigurationError, Entry, load_settings

    options = [] if data_dir is None else [Entry("log.dirs", data_dir, "--data-dir")]
    try:
        loaded = load_settings(properties_path=properties_path, environment=os.environ, options=options)
    except ConfigurationError as error:
        raise click.UsageError("\n".join(error.problems)) from None
    path = os.path.abspath(loaded.settings.log_dirs)
    if not os.path.isdir(path):
        raise click.UsageError(f"there is no data directory {path}; name the broker's with --data-dir")
    return loaded.settings, path


def _names(texts: Sequence[str]) -> list[TopicPartition]:
    from fencepost.broker.inspection.verification import UnknownPartitionError, names_of

    try:
        return names_of(texts)
    except UnknownPartitionError as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def _errors_for_people() -> Iterator[None]:
    from fencepost.broker.inspection.verification import UnknownPartitionError
    from fencepost.broker.storage.disk import StorageError

    try:
        yield
    except UnknownPartitionError as error:
        raise click.UsageError(str(error)) from None
    except StorageError as error:
        raise click.ClickException(str(error)) from None


@contextmanager
def _reading(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of megabytes. Yields a function that adds the number of bytes just read."""
    with progress("reading (MB)", total=total_bytes // MEGABYTE) as bar:
        read_bytes = 0

        def advance(count: int) -> None:
            nonlocal read_bytes
            before = read_bytes // MEGABYTE
            read_bytes += count
            bar.advance(read_bytes // MEGABYTE - before)

        yield advance


# Printing


def _print_json(path: str, reports: Sequence[Report]) -> None:
    nodes = [_document(report) for report in reports]
    healthy = all(report.is_healthy for report in reports)
    document = nodes[0] if len(nodes) == 1 else {"data_directory": path, "healthy": healthy, "nodes": nodes}
    click.echo(json.dumps(document, indent=2))


def _document(report: Report) -> dict[str, Any]:
    return {
        "data_directory": report.data_directory,
        "was_clean": report.was_clean,
        "healthy": report.is_healthy,
        "partitions": [
            {
                "partition": str(one.name),
                "log_start_offset": one.scan.start_offset,
                "log_end_offset": one.scan.end_offset,
                "bytes": one.scan.size_bytes,
                "batches": one.scan.batches_count,
                "records": one.scan.records_count,
            }
            for one in report.partitions
        ],
        "findings": [one.as_row() for one in report.findings],
    }


def _print_report(report: Report) -> None:
    from fencepost.broker.inspection.findings import Severity

    stop = "the last stop was clean" if report.was_clean else "the last stop was not clean, or there was none"
    read_bytes = sum(one.scan.size_bytes for one in report.partitions)
    records_count = sum(one.scan.records_count for one in report.partitions)
    click.echo(
        f"{report.data_directory}: {_count(len(report.partitions), 'partition')}, {_count(records_count, 'record')}, "
        f"{read_bytes:,} bytes read; {stop}"
    )
    for found in report.findings:
        click.echo()
        _print_finding(report, found)
    click.echo()
    counts = {severity: sum(one.severity is severity for one in report.findings) for severity in Severity}
    if report.is_healthy:
        notes = counts[Severity.NOTE]
        click.echo("nothing is wrong" + (f" ({_count(notes, 'note')})" if notes else ""))
        return
    parts = [f"{count} {severity}" for severity, count in counts.items() if count]
    click.echo(f"something is wrong: {', '.join(parts)}")


def _print_finding(report: Report, found: Finding) -> None:
    where = os.path.relpath(found.path, report.data_directory)
    click.echo(f"{str(found.severity).upper()}  {where}{_place(found.position, found.size_bytes)}")
    _print_field("what", found.what)
    if found.first_offset is not None:
        _print_field("offsets", _offsets(found.first_offset, found.end_offset))
    _print_field("next start", found.at_next_start)
    for number, choice in enumerate(found.choices):
        _print_field("choices" if number == 0 else "", f"{choice.action}")
        _print_field("", f"  costs: {choice.cost}")


def _place(position: int | None, size_bytes: int) -> str:
    if position is None:
        return ""
    return f", at position {position}" + (f", {_count(size_bytes, 'byte')}" if size_bytes else "")


def _offsets(first: int, end: int | None) -> str:
    if end is None:
        return f"{first} and what followed"
    if end - first == 1:
        return f"{first} (1 record)"
    return f"{first} to {end - 1} (at most {_count(end - first, 'record')})"


def _print_field(name: str, text: str) -> None:
    click.echo(f"  {name:<11}{text}")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _print_repairs(report: Report, repaired: Sequence[RepairedPartition], *, is_dry_run: bool) -> None:
    """Print the repairs, and the damage that is left."""
    from fencepost.broker.inspection.findings import Severity
    from fencepost.broker.inspection.problems import Kind
    from fencepost.broker.inspection.repair_plan import LOSING

    did = "would be repaired" if is_dry_run else "repaired"
    for move in report.moves:
        where, place = (os.path.relpath(path, report.data_directory) for path in (move.source, move.target))
        click.echo(f"{did}: {place}")
        _print_field("what", f"it was in the place of {where}: put back, nothing is lost")
    for found in report.of_metadata:
        click.echo(f"{did}: {os.path.relpath(found.path, report.data_directory)}")
        _print_field("what", found.what)
    for one in repaired:
        done = one.failed is None and bool(one.plan.repaired)
        for problem in one.plan.repaired:
            where = os.path.relpath(problem.path, report.data_directory)
            click.echo(f"{did if done else 'left as it is'}: {where}{_place(problem.position, problem.size_bytes)}")
            _print_field("what", problem.what)
            if problem.first_offset is not None:
                _print_field("offsets", _offsets(problem.first_offset, problem.end_offset))
        for problem, reason in one.plan.left:
            where = os.path.relpath(problem.path, report.data_directory)
            click.echo(f"left as it is: {where}{_place(problem.position, problem.size_bytes)}")
            _print_field("what", problem.what)
            _print_field("why left", reason)
        if done:
            lost = one.plan.lost_offsets
            outcome = f"{_count(lost, 'offset')} given up" if lost else "nothing is lost"
            if not lost and any(
                problem.kind in LOSING and problem.kind is not Kind.FOREIGN for problem in one.plan.repaired
            ):
                outcome = "the files are taken as they are"
            click.echo(f"{one.name}: {outcome}")
            for path in one.kept:
                _print_field("kept", path)
        if one.failed is not None:
            click.echo(f"{one.name}: {one.failed}", err=True)
    for found in report.findings:
        if found.partition is None and found.severity is not Severity.NOTE:
            click.echo(f"left as it is: {os.path.relpath(found.path, report.data_directory)}")
            _print_field("what", found.what)
            _print_field("next start", found.at_next_start)
    if not repaired and not report.of_metadata and not report.moves and is_right(report, repaired):
        click.echo("nothing is wrong: nothing was done")


def _dumped(row: dict[str, Any]) -> str:
    """Format a row as one line: its kind, then names and values; control characters are escaped."""
    indent = "    " if row["kind"] == "record" else "  "
    fields = " ".join(
        f"{name}={_printable(value)}"
        for name, value in row.items()
        if name != "kind" and value is not False and value != {} and (value != -1 or name not in _HIDDEN_WHEN_ABSENT)
    )
    return f"{indent}{row['kind']}: {fields}"


_HIDDEN_WHEN_ABSENT = frozenset({"producer_id", "producer_epoch", "base_sequence", "transaction_first_offset"})


def _printable(value: Any) -> str:
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(value))
