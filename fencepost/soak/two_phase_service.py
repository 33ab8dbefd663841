"""A service of the soak that commits over its database and a topic: it moves money from an account to a topic.

A process is one session, from `start_session` to the first error after which its producer or its connection cannot go
on; the soak starts another one then. After each other error nothing is on either side, and the session goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import psycopg

from fencepost.soak.plan import TRANSFERS_TOPIC
from fencepost.soak.roles import Counters, FencedError, Pace, SessionLostError
from fencepost.two_phase import (
    AsyncCoordinator,
    Commit,
    Coordinator,
    Fenced,
    HeuristicOutcome,
    InDoubtError,
    MisuseError,
    NeedsRecovery,
    PostgresLog,
    Superseded,
    Token,
    confluent_producer,
    start_session,
    start_session_async,
    transaction,
    transaction_async,
)

LOCK_TIMEOUT_MS: Final = 500
STATEMENT_TIMEOUT_MS: Final = 800
IDLE_TIMEOUT_MS: Final = 3_000
ROLES: Final = {
    "lock_limited": {"lock_timeout": LOCK_TIMEOUT_MS, "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS},
    "time_limited": {"statement_timeout": STATEMENT_TIMEOUT_MS, "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS},
}
"""Users of the services, with settings of their sessions. Behind PgBouncer a session could not set its own."""
TABLES: Final = """
CREATE TABLE accounts (name text PRIMARY KEY, balance bigint NOT NULL, transfers bigint NOT NULL);
CREATE TABLE transfers (commit_id text PRIMARY KEY, service text NOT NULL, number bigint NOT NULL,
    amount bigint NOT NULL, UNIQUE (service, number));
CREATE TABLE papers (number bigint NOT NULL, text text NOT NULL);
INSERT INTO papers SELECT number, repeat(md5(number::text), 30) FROM generate_series(1, 1400) AS number;
"""
"""papers: grows by a thousand bytes with each transfer, and is larger than a segment of the write-ahead log."""
GROWING: Final = "papers"
LOCKS: Final = "SET lock_timeout = '2s'; UPDATE accounts SET balance = balance"
BALANCE: Final = 1_000_000_000
TRANSACTION_TIMEOUT_MS: Final = 60_000
START_TIMEOUT_S: Final = 20.0
CALL_TIMEOUT_S: Final = 10.0
DAWDLING_SHARE: Final = 0.01
DAWDLING_S: Final = (0.0, IDLE_TIMEOUT_MS / 1000 * 1.5)
COMMITTED: Final = """
SELECT extract(epoch FROM pg_xact_commit_timestamp(transfers.xmin))
FROM transfers JOIN fencepost_prepared ON transactional_id = service
WHERE service = %s AND token IS NOT NULL ORDER BY number DESC LIMIT 1
"""


def amount_of(number: int) -> int:
    """Of each transfer another one, so that a lost one and a doubled one do not add up."""
    return 1 + number * number % 997


@dataclass(frozen=True)
class Setting:
    """kind: the client library. name: of the account, and the transactional id. log: file of events, as JSON.

    life: number of the process, by which it takes one of the URLs. is_last: it only starts a session.
    """

    kind: str
    name: str
    bootstrap_servers: str
    database_urls: list[str]
    life: int
    log: Path
    rate: float
    is_last: bool


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """doubt_s: time from the last commit to the next statement. With a log, that is its `clear`, when both sides have
    committed."""

    doubt_s = 0.0
    _committed_at_s = 0.0

    def commit(self) -> None:
        super().commit()
        self._committed_at_s = time.monotonic()

    def cursor(self, *about: Any, **options: Any) -> Any:
        if self._committed_at_s:
            self.doubt_s = time.monotonic() - self._committed_at_s
            self._committed_at_s = 0.0
        return super().cursor(*about, **options)


class TimedCoordinator(Coordinator):
    """completed_at_s: time since 1970 of the commit of a transaction that an earlier session had left."""

    completed_at_s = 0.0

    def complete(self, token: Token, *, commit: bool, timeout_s: float = 60, reason: str | None = None) -> None:
        super().complete(token, commit=commit, timeout_s=timeout_s, reason=reason)
        if commit:
            self.completed_at_s = time.time()


class TimedAsyncCoordinator(AsyncCoordinator):
    """As `TimedCoordinator`."""

    completed_at_s = 0.0

    async def complete(self, token: Token, *, commit: bool, timeout_s: float = 60, reason: str | None = None) -> None:
        await super().complete(token, commit=commit, timeout_s=timeout_s, reason=reason)
        if commit:
            self.completed_at_s = time.time()


Write = Callable[[Commit], str]
"""Makes the changes of a commit in the database, and returns the record that belongs to them."""


class _Blocking:
    """A session with confluent-kafka or kafka-python."""

    def __init__(self, setting: Setting, connection: TimedConnection) -> None:
        self.coordinator: Any = TimedCoordinator(setting.bootstrap_servers)
        self._connection = connection
        self._log = PostgresLog(weak="accept")  # right after a promotion there is no standby yet that commits wait for
        self._is_confluent = setting.kind == "confluent"
        if self._is_confluent:
            self._producer = confluent_producer(
                {
                    "bootstrap.servers": setting.bootstrap_servers,
                    "transactional.id": setting.name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "reconnect.backoff.max.ms": 1_000,
                }
            )
            return
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=setting.bootstrap_servers,
            transactional_id=setting.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=int(START_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=1_000,
        )

    def start(self) -> None:
        self._generation = start_session(
            self._producer, self.coordinator, self._log, self._connection, timeout_s=START_TIMEOUT_S
        )

    def transfer(self, write: Write) -> None:
        with transaction(
            self._producer,
            self.coordinator,
            self._log,
            self._connection,
            generation=self._generation,
            timeout_s=CALL_TIMEOUT_S,
        ) as commit:
            value = write(commit).encode()
            if self._is_confluent:
                self._producer.produce(TRANSFERS_TOPIC, value, headers=commit.headers)
            else:
                self._producer.send(TRANSFERS_TOPIC, value, headers=commit.headers)


class _OnLoop:
    """A session with aiokafka, on an event loop that runs while one of the methods does."""

    def __init__(self, setting: Setting, connection: TimedConnection) -> None:
        self.coordinator: Any = TimedAsyncCoordinator(setting.bootstrap_servers)
        self._setting = setting
        self._connection = connection
        self._log = PostgresLog(weak="accept")  # as above
        self._loop = asyncio.new_event_loop()

    def start(self) -> None:
        async def start() -> None:
            import aiokafka

            self._producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._setting.bootstrap_servers,
                transactional_id=self._setting.name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            self._generation = await start_session_async(
                self._producer, self.coordinator, self._log, self._connection, timeout_s=START_TIMEOUT_S
            )

        self._run(start())

    def transfer(self, write: Write) -> None:
        async def transfer() -> None:
            async with transaction_async(
                self._producer,
                self.coordinator,
                self._log,
                self._connection,
                generation=self._generation,
                timeout_s=CALL_TIMEOUT_S,
            ) as commit:
                await self._producer.send(TRANSFERS_TOPIC, write(commit).encode(), headers=commit.headers)

        self._run(transfer())

    def _run(self, steps: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(steps)


class TransferService:
    """counters: the figures that the process reports. stop: set when it is to end."""

    def __init__(self, setting: Setting, chance: random.Random, counters: Counters, stop: threading.Event) -> None:
        self._setting = setting
        self._chance = chance
        self._counters = counters
        self._stop = stop

    def run(self) -> None:
        """Transfer until it is stopped. Raises FencedError, SessionLostError; any other exception is a bug."""
        urls = self._setting.database_urls
        url = urls[self._setting.life % len(urls)]
        with self._told("start"):
            # A prepared statement belongs to a session of PostgreSQL, and PgBouncer changes that with each transaction.
            self._connection = TimedConnection.connect(url, prepare_threshold=None)
            committed_at_s = self._left_in_doubt()
            session = (_OnLoop if self._setting.kind == "aiokafka" else _Blocking)(self._setting, self._connection)
            session.start()
            if committed_at_s is not None and session.coordinator.completed_at_s:
                self._note(doubt_s=session.coordinator.completed_at_s - committed_at_s, was_left=True)
            number = self._last()
            self._connection.rollback()
        self._counters.steps += 1
        pace = Pace(self._setting.rate, self._chance)
        while not self._stop.is_set() and not self._setting.is_last:
            pace.wait(self._stop)
            if self._transfer(session, number + 1):
                number += 1

    def _transfer(self, session: _Blocking | _OnLoop, number: int) -> bool:
        """Make a transfer; returns whether it is on both sides. Raises FencedError, SessionLostError."""
        with self._told("transfer") as told:
            session.transfer(lambda commit: self._write(commit, number))
            self._counters.sent += 1
            self._counters.committed += 1
            self._note(doubt_s=self._connection.doubt_s, number=number)
        self._counters.steps += 1
        return not told

    def _write(self, commit: Commit, number: int) -> str:
        name, amount = self._setting.name, amount_of(number)
        changed = self._connection.execute(
            "UPDATE accounts SET balance = balance - %s, transfers = %s WHERE name = %s AND transfers = %s",
            (amount, number, name, number - 1),
        )
        if changed.rowcount != 1:
            self._refuse(number)
        self._connection.execute("INSERT INTO papers VALUES (%s, repeat(md5(%s), 30))", (number, commit.id))
        if self._chance.random() < DAWDLING_SHARE:
            self._stop.wait(self._chance.uniform(*DAWDLING_S))
        self._connection.execute("INSERT INTO transfers VALUES (%s, %s, %s, %s)", (commit.id, name, number, amount))
        return f"{commit.id} {name} {number} {amount}"

    def _refuse(self, number: int) -> NoReturn:
        """Raise FencedError if a later session has made the transfer; AssertionError if the one before is lost."""
        last = self._last()
        if last >= number:
            raise FencedError(f"another session has made transfer {number}")
        raise AssertionError(f"transfer {number - 1} of {self._setting.name} was acknowledged, the last one is {last}")

    def _left_in_doubt(self) -> float | None:
        """When the database has committed a transfer whose records are not known to be; None if there is none."""
        row = self._connection.execute(COMMITTED, (self._setting.name,)).fetchone()
        self._connection.rollback()
        return None if row is None else float(row[0])

    def _last(self) -> int:
        selected = self._connection.execute("SELECT transfers FROM accounts WHERE name = %s", (self._setting.name,))
        (last,) = selected.fetchone() or (0,)
        return int(last)

    @contextmanager
    def _told(self, doing: str) -> Iterator[list[str]]:
        """Note an exception; raise one that ends the session, and add any other one to the list."""
        told: list[str] = []
        try:
            yield told
        except (AssertionError, FencedError, HeuristicOutcome, Superseded):
            raise
        except Exception as error:
            told.append(type(error).__name__)
            self._note(raised=told[0], doing=doing, text=str(error)[:200])
            self._counters.aborted += 1
            if isinstance(error, Fenced):
                raise FencedError(str(error)) from error
            is_lost = self._is_closed() or isinstance(error, (InDoubtError, NeedsRecovery))
            if isinstance(error, MisuseError) and not is_lost:
                raise
            if is_lost or doing == "start":
                raise SessionLostError(f"{told[0]}: {error}") from error

    def _is_closed(self) -> bool:
        with suppress(AttributeError):
            return bool(self._connection.closed)
        return True

    def _note(self, **what: object) -> None:
        """Append a line to the log, in one write."""
        with self._setting.log.open("ab", buffering=0) as log:
            line = {"at_s": time.time(), "service": self._setting.name, "process": os.getpid(), **what}
            log.write(json.dumps(line).encode() + b"\n")
