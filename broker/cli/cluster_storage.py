"""What a cluster has in PostgreSQL and in its object store, for `fencepost cluster`: a check, and an export of topics.

Both read the stores themselves: no broker has to run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.broker.cli.output import print_rows

if TYPE_CHECKING:
    from fencepost.broker.cluster.exporting import ExportedPartition
    from fencepost.broker.cluster.objects.checking import CheckReport
    from fencepost.broker.cluster.objects.store import ObjectStore
    from fencepost.broker.cluster.postgres.connections import Connection

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
Work = Callable[["Connection", "ObjectStore", str], Awaitable[T]]


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


def check(cluster_url: str, objects_url: str, *, as_json: bool) -> None:
    """Check all rows against all objects, and print what is found; problems end the command with an error."""

    async def work(connection: Connection, store: ObjectStore, cluster_id: str) -> CheckReport:
        from fencepost.broker.cluster.objects.checking import check_cluster

        return await check_cluster(connection, store, cluster_id)

    report = _with_stores(cluster_url, objects_url, work)
    document = dataclasses.asdict(report)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        counts = {name: value for name, value in document.items() if name != "problems"}
        print_rows(list(counts), [counts], as_json=False)
        for problem in report.problems:
            click.echo(problem)
    if report.problems:
        raise click.ClickException(
            f"{len(report.problems)} problems: acknowledged records cannot be read. Restore the database and the "
            "bucket to one moment"
        )


def export(cluster_url: str, objects_url: str, topics: tuple[str, ...], directory: str, *, as_json: bool) -> None:
    """Export topics into a directory, and print their partitions."""

    async def work(connection: Connection, store: ObjectStore, cluster_id: str) -> list[ExportedPartition]:
        from fencepost.broker.cluster.exporting import ExportError, export_topics

        try:
            return await export_topics(connection, store, cluster_id, list(dict.fromkeys(topics)), directory)
        except ExportError as error:
            raise click.ClickException(str(error)) from error

    exported = _with_stores(cluster_url, objects_url, work)
    columns = ["topic", "partition", "log_start_offset", "end_offset", "segments", "sealed_bytes", "tail_bytes"]
    print_rows(columns, [one._asdict() for one in exported], as_json=as_json)


def _with_stores(cluster_url: str, objects_url: str, work: Work[T]) -> T:
    """Run work with a connection and a store, and turn what fails into one line."""
    try:
        from fencepost.broker.cluster.objects.location import UnusableLocationError, read_location
        from fencepost.broker.cluster.objects.s3 import S3Objects
        from fencepost.broker.cluster.objects.store import ObjectStoreError
        from fencepost.broker.cluster.postgres.connections import connect, parse_address
        from fencepost.broker.cluster.tail_store import StoreUnavailableError
    except ImportError as error:
        raise click.ClickException(
            f"{error}; install the packages of a cluster: pip install 'fencepost[cluster]'"
        ) from error
    from fencepost.broker.storage.disk import StorageError

    try:
        location = read_location(objects_url)
    except UnusableLocationError as error:
        raise click.BadParameter(str(error), param_hint="--objects") from None
    try:
        address = parse_address(cluster_url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cluster") from None

    async def run() -> T:
        store = S3Objects(location)
        connection = await connect(address, application_name="fencepost cluster", statement_timeout_s=600)
        try:
            cluster_id = await connection.fetchval("SELECT cluster_id FROM cluster")
            return await work(connection, store, cluster_id)
        finally:
            await connection.close()

    import asyncpg

    try:
        return asyncio.run(run())
    except (StorageError, ObjectStoreError, StoreUnavailableError) as error:
        raise click.ClickException(str(error)) from error
    except asyncpg.UndefinedTableError as error:
        raise click.ClickException(f"PostgreSQL at {address.shown} has no tables of a cluster: {error}") from error
