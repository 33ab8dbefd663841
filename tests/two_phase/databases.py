"""Databases for the tests of two-phase commits: PostgreSQL and SQLite, each with the log's table and one of orders."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from fencepost.two_phase import PostgresLog, SqliteLog
from tests.support.postgres import PostgresServer

KINDS = ("sqlite", "postgres")


class Database:
    """One database. address: a path for SQLite, a URI for PostgreSQL, by which another process finds it, too."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address
        self.log: Any = SqliteLog() if kind == "sqlite" else PostgresLog(weak="accept")  # tests do not sync
        self.mark = "?" if kind == "sqlite" else "%s"
        """The driver's mark of a parameter."""
        self._connections: list[Any] = []

    def create(self) -> Database:
        """Create the tables."""
        connection = self.connect()
        self.log.create(connection)
        connection.cursor().execute("CREATE TABLE orders (name text PRIMARY KEY)")
        connection.commit()
        return self

    def connect(self) -> Any:
        if self.kind == "sqlite":
            connection: Any = sqlite3.connect(self.address, timeout=10, check_same_thread=False)
        else:
            import psycopg

            connection = psycopg.connect(self.address)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        """Close its connections. It can be used again."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def insert(self, connection: Any, name: str) -> None:
        connection.cursor().execute(f"INSERT INTO orders VALUES ({self.mark})", (name,))

    def query(self, statement: str, connection: Any = None) -> list[Any]:
        """The rows, on a connection of its own unless one is given; no transaction stays open."""
        used = connection or self.connect()
        cursor = used.cursor()
        cursor.execute(statement)
        rows = cursor.fetchall()
        used.rollback()
        if connection is None:
            used.close()
            self._connections.remove(used)
        return list(rows)

    def orders(self) -> list[str]:
        return [name for (name,) in self.query("SELECT name FROM orders ORDER BY name")]

    def tokens(self) -> list[str]:
        """The tokens of transactions that are not known to have ended."""
        return [token for (token,) in self.query("SELECT token FROM fencepost_prepared WHERE token IS NOT NULL")]


def sqlite_database(directory: Path) -> Database:
    return Database("sqlite", str(directory / "orders.sqlite")).create()


def postgres_database(server: PostgresServer) -> Database:
    return Database("postgres", server.make_schema()).create()
