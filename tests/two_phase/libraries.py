"""Each library's connection to a database of orders, with PostgreSQL or SQLite behind it."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

from fencepost.two_phase.client_calls import run_blocking
from tests.two_phase.databases import Database

INSERT = "INSERT INTO orders VALUES ('{}')"


class Library(ABC):
    """One library's connection. is_awaited: whether it is used on an event loop."""

    kind = "postgres"
    is_awaited = False
    connection: Any

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def fields(self) -> dict[str, Any]:
        """The parts of the address of PostgreSQL."""
        from psycopg.conninfo import conninfo_to_dict

        return dict(conninfo_to_dict(self.database.address))

    def run(self, steps: Coroutine[Any, Any, Any]) -> Any:
        return run_blocking(steps)

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def execute(self, statement: str) -> None: ...

    async def insert(self, name: str) -> None:
        await self.execute(INSERT.format(name))

    @abstractmethod
    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        """Insert an order inside a savepoint, which is rolled back if it fails."""

    @abstractmethod
    async def commit(self) -> None:
        """Commit as a service does that should not."""


class DbApi(Library):
    async def open(self) -> None:
        self.connection = self.database.connect()

    async def close(self) -> None:
        self.connection.close()

    async def execute(self, statement: str) -> None:
        self.connection.cursor().execute(statement)

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        await self.execute("SAVEPOINT mine")
        await self.insert(name)
        await self.execute("ROLLBACK TO SAVEPOINT mine" if fails else "RELEASE SAVEPOINT mine")

    async def commit(self) -> None:
        self.connection.commit()


class PsycopgDicts(DbApi):
    async def open(self) -> None:
        import psycopg
        from psycopg.rows import dict_row

        self.connection = psycopg.connect(self.database.address, row_factory=dict_row)


class SqliteRows(DbApi):
    kind = "sqlite"

    async def open(self) -> None:
        await super().open()
        self.connection.row_factory = sqlite3.Row


class PsycopgPool(DbApi):
    async def open(self) -> None:
        from psycopg_pool import ConnectionPool

        self._stack = ExitStack()
        pool = self._stack.enter_context(ConnectionPool(self.database.address, min_size=1, max_size=2))
        self.connection = self._stack.enter_context(pool.connection())

    async def close(self) -> None:
        self._stack.close()

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        import psycopg

        with self.connection.transaction():
            await self.insert(name)
            if fails:
                raise psycopg.Rollback


class AsyncPsycopg(Library):
    is_awaited = True

    async def open(self) -> None:
        import psycopg

        self.connection = await psycopg.AsyncConnection.connect(self.database.address)

    async def close(self) -> None:
        await self.connection.close()

    async def execute(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        import psycopg

        async with self.connection.transaction():
            await self.insert(name)
            if fails:
                raise psycopg.Rollback

    async def commit(self) -> None:
        await self.connection.commit()


class Asyncpg(Library):
    is_awaited = True

    async def open(self) -> None:
        import asyncpg

        fields = self.fields
        schema = fields["options"].partition("=")[2]
        self._pool = await asyncpg.create_pool(
            host=fields["host"],
            port=fields.get("port", 5432),
            user=fields["user"],
            password=fields.get("password"),
            database=fields["dbname"],
            server_settings={"search_path": schema},
            min_size=1,
            max_size=2,
        )
        self.connection = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.connection)
        await self._pool.close()

    async def execute(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        savepoint = self.connection.transaction()
        await savepoint.start()
        await self.insert(name)
        await (savepoint.rollback() if fails else savepoint.commit())

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")


class SqlAlchemy(Library):
    """A Session. driver: the part of the URL after the `+`."""

    driver = "psycopg"

    @property
    def url(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite+{self.driver}:///{self.database.address}"
        fields = self.fields
        where = f"{quote(fields['user'])}:{quote(fields.get('password') or '')}@{{}}/{fields['dbname']}"
        options, _, schema = fields["options"].partition("=")
        if fields["host"].startswith("/"):
            where, host = where.format(""), f"host={quote(fields['host'])}"
        else:
            where, host = where.format(f"{fields['host']}:{fields.get('port', 5432)}"), ""
        settings = "" if self.driver == "asyncpg" else f"&options={quote(f'{options}={schema}')}"
        port = f"&port={fields['port']}" if host and "port" in fields else ""
        return f"postgresql+{self.driver}://{where}?{host}{port}{settings}"

    @property
    def engine_options(self) -> dict[str, Any]:
        if self.driver != "asyncpg":
            return {}
        return {"connect_args": {"server_settings": {"search_path": self.fields["options"].partition("=")[2]}}}

    async def open(self) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        self._engine = create_engine(self.url, **self.engine_options)
        self.connection = Session(self._engine)

    async def close(self) -> None:
        self.connection.close()
        self._engine.dispose()

    async def execute(self, statement: str) -> None:
        from sqlalchemy import text

        self.connection.execute(text(statement))

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        savepoint = self.connection.begin_nested()
        await self.insert(name)
        (savepoint.rollback if fails else savepoint.commit)()

    async def commit(self) -> None:
        self.connection.commit()


class SqlAlchemySqlite(SqlAlchemy):
    kind = "sqlite"
    driver = "pysqlite"


class SqlAlchemyScoped(SqlAlchemy):
    async def open(self) -> None:
        from sqlalchemy.orm import scoped_session, sessionmaker

        await super().open()
        self.connection.close()
        self.connection = scoped_session(sessionmaker(self._engine))


class SqlAlchemyConnection(SqlAlchemy):
    async def open(self) -> None:
        await super().open()
        self.connection.close()
        self.connection = self._engine.connect()


class AsyncSqlAlchemy(SqlAlchemy):
    is_awaited = True
    driver = "asyncpg"

    async def open(self) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        self._engine = create_async_engine(self.url, **self.engine_options)
        self.connection = AsyncSession(self._engine)

    async def close(self) -> None:
        await self.connection.close()
        await self._engine.dispose()

    async def execute(self, statement: str) -> None:
        from sqlalchemy import text

        await self.connection.execute(text(statement))

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        savepoint = await self.connection.begin_nested()
        await self.insert(name)
        await (savepoint.rollback() if fails else savepoint.commit())

    async def commit(self) -> None:
        await self.connection.commit()


class AsyncSqlAlchemyPsycopg(AsyncSqlAlchemy):
    driver = "psycopg_async"


class AsyncSqlAlchemySqlite(AsyncSqlAlchemy):
    kind = "sqlite"
    driver = "aiosqlite"


class AsyncSqlAlchemyConnection(AsyncSqlAlchemy):
    async def open(self) -> None:
        await super().open()
        await self.connection.close()
        self.connection = await self._engine.connect()


class Django(Library):
    alias = "orders"

    @property
    def settings(self) -> dict[str, Any]:
        if self.kind == "sqlite":
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.database.address}
        fields = self.fields
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": fields["dbname"],
            "USER": fields["user"],
            "PASSWORD": fields.get("password") or "",
            "HOST": fields["host"],
            "PORT": fields.get("port", ""),
            "OPTIONS": {"options": fields["options"]},
        }

    async def open(self) -> None:
        import django
        from django.conf import settings

        if not settings.configured:
            settings.configure(DATABASES={})
            django.setup()
        from django.db import connections

        made = connections.configure_settings({"default": {}, self.alias: self.settings, "other": self.other})
        connections.settings = made
        self.connection = connections[self.alias]

    @property
    def other(self) -> dict[str, Any]:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}

    async def close(self) -> None:
        from django.db import connections

        for alias in (self.alias, "other"):
            connections[alias].close()
            del connections[alias]

    async def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    async def insert_in_savepoint(self, name: str, *, fails: bool) -> None:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            await self.insert(name)
            if fails:
                transaction.set_rollback(True, using=self.alias)

    async def commit(self) -> None:
        self.connection.commit()


class DjangoSqlite(Django):
    kind = "sqlite"


LIBRARIES: dict[str, Callable[[Database], Library]] = {
    "psycopg-dict-rows": PsycopgDicts,
    "psycopg-pool": PsycopgPool,
    "psycopg-async": AsyncPsycopg,
    "sqlite3-rows": SqliteRows,
    "asyncpg-pool": Asyncpg,
    "sqlalchemy-session": SqlAlchemy,
    "sqlalchemy-session-sqlite": SqlAlchemySqlite,
    "sqlalchemy-scoped": SqlAlchemyScoped,
    "sqlalchemy-connection": SqlAlchemyConnection,
    "sqlalchemy-async-asyncpg": AsyncSqlAlchemy,
    "sqlalchemy-async-psycopg": AsyncSqlAlchemyPsycopg,
    "sqlalchemy-async-sqlite": AsyncSqlAlchemySqlite,
    "sqlalchemy-async-connection": AsyncSqlAlchemyConnection,
    "django": Django,
    "django-sqlite": DjangoSqlite,
}
