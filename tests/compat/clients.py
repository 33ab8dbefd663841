"""The clients that are run as tests: the one table, which the command line and pytest read."""

from __future__ import annotations

from tests.compat.harness import Client
from tests.compat.jvm import JVM_CLIENTS

CLIENTS: dict[str, Client] = {client.name: client for client in JVM_CLIENTS}
