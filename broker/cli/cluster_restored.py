"""`fencepost cluster restored`: makes the tables of a cluster safe after they were restored to an earlier moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fencepost.broker.cluster.postgres.restored import RestoredCluster


def make_safe(cluster_url: str) -> RestoredCluster:
    """Raises ClickException."""
    try:
        from fencepost.broker.cluster.postgres.connections import connect, parse_address
        from fencepost.broker.cluster.postgres.restored import after_restore
    except ImportError as error:
        raise click.ClickException(
            f"{error}; install the packages of a cluster: pip install 'fencepost[cluster]'"
        ) from error
    from fencepost.broker.storage.disk import StorageError
    from fencepost.broker.transaction import producer_ids

    try:
        address = parse_address(cluster_url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cluster") from None

    async def run() -> RestoredCluster:
        connection = await connect(address, application_name="fencepost cluster restored", statement_timeout_s=600)
        try:
            return await after_restore(connection, address, producer_ids.after_restore)
        finally:
            await connection.close(timeout=5)

    try:
        return asyncio.run(run())
    except StorageError as error:
        raise click.ClickException(str(error)) from error
