"""Who is who in a simulated world: a client is the principal that its host is named after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from fencepost.broker.network.connection import Connection

OFFICER: Final = "officer"
"""Changes rights; a super user."""
TENANT: Final = "tenant"
"""A client whose rights change; also the names of its topic and its group."""
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def principal_of(host: str) -> str:
    """All lives of an application are one principal."""
    return f"User:{host.partition('#')[0]}"


def security_settings(*super_users: str) -> dict[str, str]:
    """Settings of a broker with an authorizer. super_users: hosts."""
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(principal_of(host) for host in (OFFICER, *super_users)),
    }


@contextmanager
def principals_by_host() -> Iterator[None]:
    """Connections have the principals of their hosts, as if they had authenticated."""
    connection_made = Connection.connection_made

    def made(connection: Connection, transport: Any) -> None:
        connection_made(connection, transport)
        connection.principal = principal_of(connection.client_host)

    with mock.patch.object(Connection, "connection_made", made):
        yield
