"""The web console's client of a cluster, for commands: it reads the console's data, without a page or its extra.

Its errors become one line, as those of kafka-python do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.client_security import current_security
from fencepost.cli.connection import kafka_errors
from fencepost.cli.probe import parse_address

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

T = TypeVar("T")

CLIENT_ID: Final = "fencepost-console"


def ask_cluster(bootstrap: str, ask: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run `ask` with a client of the cluster and return its result. Raises ClickException."""
    from fencepost.client.cluster import Cluster
    from fencepost.client.errors import ClusterError
    from fencepost.client.log_in import Credentials
    from fencepost.client.session import ClientOptions

    security = current_security()
    credentials = None
    if security.mechanism is not None:
        secret = security.password if security.token is None else security.token()
        credentials = Credentials(security.mechanism, security.username, secret)

    async def run() -> T:
        addresses = [parse_address(address) for address in bootstrap.split(",")]
        cluster = Cluster(addresses, ClientOptions(security.tls, credentials, CLIENT_ID))
        try:
            return await ask(cluster)
        finally:
            cluster.close()

    with kafka_errors(bootstrap):
        try:
            return asyncio.run(run())
        except ClusterError as error:
            raise click.ClickException(printable(str(error))) from None
