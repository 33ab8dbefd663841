"""A cluster's data in PostgreSQL and in its object store, for `fencepost cluster`: a check, an import of a data
directory, an export, and steps that make a restored cluster safe.

All of them ask the stores themselves: no broker has to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fencepost.cli.output import print_rows

if TYPE_CHECKING:
    from fencepost.broker.cluster.machines.check import CheckReport
    from fencepost.broker.cluster.machines.export import ExportedPartition
    from fencepost.broker.cluster.objects.location import ObjectLocation
    from fencepost.broker.cluster.objects.store import ObjectStore
    from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress
    from fencepost.broker.cluster.postgres.restored import RestoredCluster
    from fencepost.broker.config import Settings
    from fencepost.broker.inspection.cluster_import import ImportedCluster

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
Work = Callable[["Connection", "ObjectStore", str, "PostgresAddress"], Awaitable[T]]
DatabaseWork = Callable[["Connection", "PostgresAddress"], Awaitable[T]]

LONGEST_STATEMENT_S: Final = 600.0
CLOSE_TIMEOUT_S: Final = 5.0


# The variables are those of `serve`: brokers and commands share one environment.
cluster_option = click.option(
    "--cluster",
    "cluster_url",
    metavar="URL",
    required=True,
    envvar="FENCEPOST_CLUSTER_URL",
    show_envvar=True,
    help="Its PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
)
objects_option = click.option(
    "--objects",
    "objects_url",
    metavar="URL",
    required=True,
    envvar="FENCEPOST_CLUSTER_OBJECTS",
    show_envvar=True,
    help="Its object store: s3://BUCKET/PREFIX, with ?endpoint=URL for another server than Amazon's.",
)


def stores_options(command: Command) -> Command:
    """Add `--cluster` and `--objects`."""
    return cluster_option(objects_option(command))


def check(cluster_url: str, objects_url: str, *, is_deep: bool, bytes_per_s: float, as_json: bool) -> None:
    """Check all rows against all objects, and print the findings; problems end the command with an error.

    is_deep: read all objects, too, at most `bytes_per_s`.
    """

    async def work(
        connection: Connection, store: ObjectStore, cluster_id: str, address: PostgresAddress
    ) -> CheckReport:
        from fencepost.broker.cluster.machines.check import check_cluster

        return await check_cluster(
            connection, store, cluster_id, is_deep=is_deep, bytes_per_s=bytes_per_s, shown=address.shown
        )

    report = _with_stores(cluster_url, objects_url, work)
    document = dataclasses.asdict(report)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        counts = {name: value for name, value in document.items() if name not in ("problems", "warnings")}
        print_rows(list(counts), [counts], as_json=False)
        for found in (*report.warnings, *report.problems):
            click.echo(found)
    if report.problems:
        raise click.ClickException(
            f"{len(report.problems)} problems: acknowledged records may not be read. Do what they say, or restore the "
            "database and the bucket to one moment"
        )


def export(cluster_url: str, objects_url: str, topics: Sequence[str] | None, directory: str, *, as_json: bool) -> None:
    """Export topics, or all with the metadata, into a directory, and print their partitions."""

    async def work(
        connection: Connection, store: ObjectStore, cluster_id: str, _: PostgresAddress
    ) -> tuple[int, list[ExportedPartition]]:
        from fencepost.broker.cluster.machines.export import ExportError, export_topics

        running = await connection.fetchval(
            "SELECT count(*) FROM nodes WHERE state <> 'gone' AND lease_until > clock_timestamp()"
        )
        try:
            return running, await export_topics(connection, store, cluster_id, topics, directory)
        except ExportError as error:
            raise click.ClickException(str(error)) from error

    running, exported = _with_stores(cluster_url, objects_url, work)
    columns = ["topic", "partition", "log_start_offset", "end_offset", "segments", "sealed_bytes", "tail_bytes"]
    print_rows(columns, [one._asdict() for one in exported], as_json=as_json)
    if running and topics is None:
        click.echo(
            f"brokers run on the cluster ({running}): their later writes are not in {directory}. To move, stop "
            "them, and export again into another directory",
            err=True,
        )


def import_directory(cluster_url: str, objects_url: str, directory: str, settings: Settings, *, as_json: bool) -> None:
    """Import the data directory of a broker that does not run, and print counts. Raises ClickException."""
    with _packages_of_a_cluster():
        from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket, remedy
        from fencepost.broker.cluster.objects.s3 import S3Objects
        from fencepost.broker.cluster.objects.store import ObjectStoreError
    location = _location(objects_url)

    async def work(connection: Connection, address: PostgresAddress) -> ImportedCluster:
        from fencepost.broker.inspection import cluster_import
        from fencepost.broker.kernel.clock import SystemClock
        from fencepost.broker.storage.local_disk import LocalDisk

        store = S3Objects(location)
        try:
            await check_bucket(store, location)
            with contextlib.closing(LocalDisk()) as disk:
                return await cluster_import.import_directory(
                    directory, disk, settings, SystemClock(), connection=connection, address=address, store=store
                )
        except ObjectStoreError as error:
            raise click.ClickException(f"{error}. {remedy(error, 's3:PutObject')}; then import again") from error
        except UnusableBucketError as error:
            raise click.ClickException(str(error)) from error

    imported = _with_database(cluster_url, work)
    print_rows(list(imported._fields), [imported._asdict()], as_json=as_json)
    if not as_json:
        if imported.is_repeated:
            click.echo("it had been imported before: nothing was done")
        click.echo("brokers may start; this directory is a copy from now on: start no broker on it beside them")


def restored(cluster_url: str, skipped_offsets: int | None) -> RestoredCluster:
    """Make the tables of a cluster safe that were restored to an earlier moment. Raises ClickException.

    skipped_offsets: see `after_restore`.
    """

    async def work(connection: Connection, address: PostgresAddress) -> RestoredCluster:
        from fencepost.broker.cluster.postgres.restored import after_restore
        from fencepost.broker.kernel.clock import SystemClock
        from fencepost.broker.transaction import producer_ids

        return await after_restore(
            connection,
            address,
            producer_ids.after_restore,
            skipped_offsets=skipped_offsets,
            now_ms=SystemClock().now_ms(),
        )

    return _with_database(cluster_url, work)


def _with_stores(cluster_url: str, objects_url: str, work: Work[T]) -> T:
    """Run work with a connection and a store, and turn an error into one line."""
    with _packages_of_a_cluster():
        from fencepost.broker.cluster.objects.bucket_check import remedy
        from fencepost.broker.cluster.objects.s3 import S3Objects
        from fencepost.broker.cluster.objects.store import ObjectStoreError
        from fencepost.broker.cluster.postgres.schema import FORMAT, IMPORTING, unfinished_import
    location = _location(objects_url)

    async def on_connection(connection: Connection, address: PostgresAddress) -> T:
        row = None
        if await connection.fetchval("SELECT to_regclass('cluster')") is not None:
            row = await connection.fetchrow("SELECT cluster_id, format FROM cluster")
        if row is None:
            raise click.ClickException(
                f"PostgreSQL at {address.shown} has no tables of a cluster; name the database, and with search_path "
                "the schema, that the brokers have in fencepost.cluster.url"
            )
        if row["format"] == IMPORTING:
            raise click.ClickException(unfinished_import(address))
        if row["format"] != FORMAT:
            raise click.ClickException(
                f"the tables of PostgreSQL at {address.shown} have format {row['format']}, this command reads format "
                f"{FORMAT}; use the command of the version that the brokers have"
            )
        try:
            return await work(connection, S3Objects(location), row["cluster_id"], address)
        except ObjectStoreError as error:
            raise click.ClickException(f"{error}. {remedy(error, 's3:ListBucket and s3:GetObject')}") from error

    return _with_database(cluster_url, on_connection)


def _location(objects_url: str) -> ObjectLocation:
    """Raises BadParameter."""
    with _packages_of_a_cluster():
        from fencepost.broker.cluster.objects.location import UnusableLocationError, read_location
    try:
        return read_location(objects_url)
    except UnusableLocationError as error:
        raise click.BadParameter(str(error), param_hint="--objects") from None


def _with_database(cluster_url: str, work: DatabaseWork[T]) -> T:
    """Run work with a connection to PostgreSQL, and turn an error into one line."""
    with _packages_of_a_cluster():
        from fencepost.broker.cluster.postgres.connections import connect, parse_address, translated
    from fencepost.broker.cluster.tail.tail_store import StoreUnavailableError
    from fencepost.broker.storage.disk import StorageError

    try:
        address = parse_address(cluster_url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cluster") from None

    async def run() -> T:
        connection = await connect(
            address, application_name="fencepost cluster", statement_timeout_s=LONGEST_STATEMENT_S
        )
        try:
            with translated(address):
                return await work(connection, address)
        finally:
            await connection.close(timeout=CLOSE_TIMEOUT_S)

    try:
        return asyncio.run(run())
    except (StorageError, StoreUnavailableError) as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _packages_of_a_cluster() -> Iterator[None]:
    """Raises ClickException where an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise click.ClickException(
            f"{error}; install the packages of a cluster: pip install 'fencepost[cluster]'"
        ) from error
