"""The web console's client of a cluster, for commands: it reads the console's data, without a page or its extra.

Its errors become one line, as those of kafka-python do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from fencepost.cli.client_security import current_security
from fencepost.cli.connection import kafka_errors

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

T = TypeVar("T")

CLIENT_ID: Final = "fencepost-console"


def ask_cluster(bootstrap: str, ask: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run `ask` with a client of the cluster and return its result. Raises ClickException."""
    import asyncio  # not for `--help`

    from fencepost.client.cluster import Cluster
    from fencepost.client.options import addresses_of

    async def run() -> T:
        cluster = Cluster(addresses_of(bootstrap), current_security().own_options(CLIENT_ID))
        try:
            return await ask(cluster)
        finally:
            cluster.close()

    with kafka_errors(bootstrap):
        return asyncio.run(run())
