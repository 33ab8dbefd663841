"""The clients that run on a JVM, and how their programs are built."""

from __future__ import annotations

from tests.compat.harness import Client

JVM_CLIENTS: tuple[Client, ...] = ()
