"""Requests that no client library has, over the client of our own, with the configuration of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli.client_security import current_security
from fencepost.cli.connection import CLIENT_ID, kafka_errors

if TYPE_CHECKING:
    from fencepost.client.blocking import BlockingCluster

TIMEOUT_S: Final = 30.0
"""How long a coordinator may be missing."""


@contextmanager
def brokers(bootstrap: str) -> Iterator[BlockingCluster]:
    """A client of the cluster. Raises ClickException: no broker answers, or the broker refused."""
    with kafka_errors(bootstrap):
        from fencepost.client.blocking import BlockingCluster
        from fencepost.client.options import addresses_of

        cluster = BlockingCluster(addresses_of(bootstrap), current_security().own_options(CLIENT_ID))
        try:
            yield cluster
        finally:
            cluster.close()


def send_to_coordinator(cluster: BlockingCluster, group: str, message: Any) -> Any:
    """Send a request about one group to its coordinator and return the reply. Raises ClusterError."""
    from fencepost.client.view import CoordinatorKind

    plan = cluster.routes.to_coordinator(
        CoordinatorKind.GROUP, group, message, lambda reply: int(reply.groups[0].error_code)
    )
    return cluster.run(plan, TIMEOUT_S)
