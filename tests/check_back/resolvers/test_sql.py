"""A resolver that claims the outcome in PostgreSQL: after its answer, the local transaction can no longer differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.check_back.question import Answer, Question, ResolverUnreachable
from fencepost.check_back.resolvers.sql import SqlResolver
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase import Fenced, PostgresLog
from fencepost.two_phase.tokens import Token
from tests.support.postgres import PostgresServer

TABLE = "CREATE TABLE fencepost_outcome (token text PRIMARY KEY, outcome text NOT NULL)"
TOKEN = Token(7, 0, "order-1")
QUESTION = Question(TOKEN, 1_764_000_000_000, (("orders", 0),))
INSERT = "INSERT INTO fencepost_outcome VALUES (%s, 'commit')"
CLAIM_WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
PASSWORD = "hunter2-of-the-shop"


class Shop:
    """An application's database, and resolvers that ask it."""

    def __init__(self, postgres: PostgresServer, directory: Path) -> None:
        self.uri = postgres.make_schema()
        self.dsn_file = directory / "shop.dsn"
        self.dsn_file.write_text(f"{self.uri}\n")
        self._resolvers: list[SqlResolver] = []

    def set(self, setting: str) -> None:
        """Let the resolver's connections have another default of a setting, as a database can."""
        options = psycopg.conninfo.conninfo_to_dict(self.uri)["options"]
        self.dsn_file.write_text(psycopg.conninfo.make_conninfo(self.uri, options=f"{options} -c{setting}"))

    async def execute(self, statement: str, *values: object) -> None:
        async with await psycopg.AsyncConnection.connect(self.uri) as connection:
            await connection.execute(statement, values or None)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.uri) as connection:
            return await (await connection.execute(statement)).fetchall()

    async def connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """The connection of a local transaction."""
        return await psycopg.AsyncConnection.connect(self.uri)

    def resolver(self, *, timeout_ms: int = 10_000, **options: str) -> SqlResolver:
        options = {"dsn.file": str(self.dsn_file), **options}
        made = SqlResolver(ResolverSettings("shop", ("order-*",), "sql", options, timeout_ms=timeout_ms))
        self._resolvers.append(made)
        return made

    async def reason(self, asked: SqlResolver, question: Question = QUESTION) -> str:
        """Why there is no answer, in one sentence."""
        with pytest.raises(ResolverUnreachable) as raised:
            await asked.ask(question)
        said = raised.value.reason
        assert "\n" not in said
        assert PASSWORD not in said
        assert self.uri not in said
        prefix = f"resolver shop: the database of {self.dsn_file} "
        assert said.startswith(prefix)
        return said.removeprefix(prefix)

    async def until(self, statement: str, expected: list[tuple[Any, ...]]) -> None:
        """Wait until a statement gives some rows."""
        while await self.rows(statement) != expected:  # noqa: ASYNC110  # the server tells nobody
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        for made in self._resolvers:
            await made.close()


@pytest.fixture
async def shop(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(postgres, tmp_path)
    await made.execute(TABLE)
    yield made
    await made.close()


# The claim of a row for each transaction.


async def test_a_local_transaction_that_has_committed_says_commit(shop: Shop) -> None:
    await shop.execute(INSERT, str(TOKEN))
    assert await shop.resolver().ask(QUESTION) is Answer.COMMIT


async def test_a_claim_before_the_local_transaction_says_abort_and_the_late_one_conflicts(shop: Shop) -> None:
    asked = shop.resolver()
    assert await asked.ask(QUESTION) is Answer.ABORT
    late = await shop.connect()
    with pytest.raises(psycopg.errors.UniqueViolation):
        await late.execute(INSERT, (str(TOKEN),))
    await late.close()
    assert await asked.ask(QUESTION) is Answer.ABORT
    assert await shop.rows("SELECT * FROM fencepost_outcome") == [(str(TOKEN), "abort")]


async def test_a_running_local_transaction_is_unknown_until_it_has_committed(shop: Shop) -> None:
    asked = shop.resolver(timeout_ms=1000)
    local = await shop.connect()
    await local.execute(INSERT, (str(TOKEN),))
    assert await asked.ask(QUESTION) is Answer.UNKNOWN
    await local.commit()
    await local.close()
    assert await asked.ask(QUESTION) is Answer.COMMIT


async def test_a_local_transaction_that_was_rolled_back_says_abort(shop: Shop) -> None:
    asked = shop.resolver(timeout_ms=1000)
    local = await shop.connect()
    await local.execute(INSERT, (str(TOKEN),))
    assert await asked.ask(QUESTION) is Answer.UNKNOWN
    await local.rollback()
    await local.close()
    assert await asked.ask(QUESTION) is Answer.ABORT


async def test_a_claim_that_waits_answers_what_the_local_transaction_did(shop: Shop) -> None:
    for commits, answer in ((True, Answer.COMMIT), (False, Answer.ABORT)):
        token = Token(7, int(commits), "order-1")
        local = await shop.connect()
        await local.execute(INSERT, (str(token),))
        asking = asyncio.create_task(shop.resolver(timeout_ms=60_000).ask(Question(token, 0, ())))
        await shop.until(CLAIM_WAITS, [(1,)])
        await (local.commit() if commits else local.rollback())
        await local.close()
        assert await asking is answer


async def test_300_races_of_writer_and_claim_never_differ(shop: Shop) -> None:
    chance, asked = random.Random(7), shop.resolver()
    answers = set()
    writer = await shop.connect()

    async def write(token: Token) -> bool:
        await asyncio.sleep(chance.random() * 0.003)
        try:
            await writer.execute(INSERT, (str(token),))
            await writer.commit()
        except psycopg.errors.UniqueViolation:
            await writer.rollback()
            return False
        return True

    async def claim(token: Token) -> Answer:
        await asyncio.sleep(chance.random() * 0.003)
        return await asked.ask(Question(token, 0, ()))

    for epoch in range(300):
        token = Token(7, epoch, "order-1")
        has_committed, answer = await asyncio.gather(write(token), claim(token))
        answers.add(answer)
        assert answer is (Answer.COMMIT if has_committed else Answer.ABORT)
        stands = await shop.rows(f"SELECT outcome FROM fencepost_outcome WHERE token = '{token}'")
        assert stands == [(answer.value,)]
    await writer.close()
    assert answers == {Answer.COMMIT, Answer.ABORT}, "one side has won all races"


async def test_transactions_whose_token_repeats_have_a_row_each_if_the_key_says_so(shop: Shop) -> None:
    asked = shop.resolver(key="{token}@{started_ms}")
    await shop.execute(INSERT, f"{TOKEN}@1")
    assert await asked.ask(Question(TOKEN, 1, ())) is Answer.COMMIT
    assert await asked.ask(Question(TOKEN, 2, ())) is Answer.ABORT


async def test_a_claim_is_durable_though_the_database_commits_without_waiting(shop: Shop) -> None:
    shop.set("synchronous_commit=off")
    await shop.execute(
        "CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN "
        "CREATE TABLE noted AS SELECT current_setting('synchronous_commit') AS found; "
        "RETURN NEW; END $$ LANGUAGE plpgsql"
    )
    await shop.execute("CREATE TRIGGER note BEFORE INSERT ON fencepost_outcome FOR EACH ROW EXECUTE FUNCTION note()")
    assert await shop.resolver().ask(QUESTION) is Answer.ABORT
    assert await shop.rows("SELECT found FROM noted") == [("on",)]


async def test_a_stricter_isolation_of_the_database_changes_nothing(shop: Shop) -> None:
    shop.set("default_transaction_isolation=serializable")
    asked = shop.resolver()
    await shop.execute(INSERT, str(TOKEN))
    assert await asked.ask(QUESTION) is Answer.COMMIT
    assert await asked.ask(Question(Token(8, 0, "order-1"), 0, ())) is Answer.ABORT


# The claim of a session of fencepost.two_phase.


def claimed(uri: str) -> tuple[Any, PostgresLog, int]:
    """A connection of a session that has claimed its id, with its log and its generation."""
    connection, log = psycopg.connect(uri), PostgresLog(weak="accept")
    log.create(connection)
    connection.commit()
    generation, _ = log.claim(connection, TOKEN.transactional_id)
    connection.commit()
    return connection, log, generation


def record(connection: Any, log: PostgresLog, generation: int, token: Token) -> None:
    """What a session does in its local transaction; the commit is still to come."""
    log.begin(connection, generation, token.transactional_id)
    log.record(connection, generation, token)


async def test_the_token_of_a_session_says_commit_and_the_session_can_go_no_further(shop: Shop) -> None:
    connection, log, generation = claimed(shop.uri)
    record(connection, log, generation, TOKEN)
    connection.commit()
    asked = shop.resolver(claim="session")
    assert await asked.ask(QUESTION) is Answer.COMMIT
    assert await asked.ask(QUESTION) is Answer.COMMIT
    # Else a late commit of the check-back could meet the session's next transaction, which may have the same pair.
    with pytest.raises(Fenced):
        log.clear(connection, generation, TOKEN.transactional_id)
    connection.close()


async def test_a_session_without_the_token_says_abort_and_cannot_record_it_any_more(shop: Shop) -> None:
    connection, log, generation = claimed(shop.uri)
    connection.execute("CREATE TABLE orders (name text)")
    connection.commit()
    log.begin(connection, generation, TOKEN.transactional_id)
    connection.execute("INSERT INTO orders VALUES ('tea')")
    assert await shop.resolver(claim="session").ask(QUESTION) is Answer.ABORT
    with pytest.raises(Fenced, match="another session has claimed order-1"):
        log.record(connection, generation, TOKEN)
    connection.rollback()
    connection.close()
    assert await shop.rows("SELECT * FROM orders") == []


async def test_a_token_of_another_transaction_says_abort(shop: Shop) -> None:
    connection, log, generation = claimed(shop.uri)
    record(connection, log, generation, Token(7, 1, "order-1"))
    connection.commit()
    connection.close()
    assert await shop.resolver(claim="session").ask(QUESTION) is Answer.ABORT


async def test_a_session_that_is_recording_is_unknown_until_it_has_committed(shop: Shop) -> None:
    connection, log, generation = claimed(shop.uri)
    record(connection, log, generation, TOKEN)
    asked = shop.resolver(claim="session", timeout_ms=1000)
    assert await asked.ask(QUESTION) is Answer.UNKNOWN
    connection.commit()
    connection.close()
    assert await asked.ask(QUESTION) is Answer.COMMIT


async def test_an_id_that_no_session_has_claimed_is_unknown(shop: Shop) -> None:
    connection, _, _ = claimed(shop.uri)
    connection.close()
    other = Question(Token(7, 0, "order-2"), 0, ())
    assert await shop.resolver(claim="session").ask(other) is Answer.UNKNOWN


async def test_races_of_sessions_and_claims_never_differ(shop: Shop) -> None:
    chance, asked, answers = random.Random(7), shop.resolver(claim="session"), set()
    connection, log, _ = claimed(shop.uri)

    def write(generation: int) -> bool:
        try:
            record(connection, log, generation, TOKEN)
            connection.commit()
        except Fenced:
            connection.rollback()
            return False
        return True

    async def claim(pause_s: float) -> Answer:
        await asyncio.sleep(pause_s)
        return await asked.ask(QUESTION)

    for _ in range(100):
        generation, _ = log.claim(connection, TOKEN.transactional_id)
        connection.commit()
        log.clear(connection, generation, TOKEN.transactional_id)
        connection.commit()
        asking = asyncio.create_task(claim(chance.random() * 0.003))
        await asyncio.sleep(chance.random() * 0.003)
        has_committed = await asyncio.to_thread(write, generation)
        answer = await asking
        answers.add(answer)
        assert answer is (Answer.COMMIT if has_committed else Answer.ABORT)
    connection.close()
    assert answers == {Answer.COMMIT, Answer.ABORT}, "one side has won all races"


# A query of the application's own.


async def test_a_query_says_what_its_row_says_and_no_row_is_unknown(shop: Shop) -> None:
    asked = shop.resolver(query="SELECT outcome FROM fencepost_outcome WHERE token = {token} AND token NOT LIKE '%x%'")
    assert await asked.ask(QUESTION) is Answer.UNKNOWN
    assert await shop.rows("SELECT * FROM fencepost_outcome") == []
    await shop.execute(INSERT, str(TOKEN))
    assert await asked.ask(QUESTION) is Answer.COMMIT
    for outcome in ("abort", "unknown"):
        await shop.execute("UPDATE fencepost_outcome SET outcome = %s", outcome)
        assert await asked.ask(QUESTION) is Answer(outcome)


async def test_all_parts_of_the_question_can_stand_in_a_query(shop: Shop) -> None:
    asked = shop.resolver(
        query="SELECT CASE WHEN {transactional_id} = 'order-1' AND {producer_id} = 7 AND {producer_epoch} = 0"
        " AND {started_ms} = 1764000000000 AND '{}' = '{' || '}' THEN 'commit' END"
    )
    assert await asked.ask(QUESTION) is Answer.COMMIT


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT 'commit' FROM pg_class a, pg_class b, pg_class c",
            "answered the query with more than one row or column",
        ),
        ("SELECT 'commit', 1", "answered the query with more than one row or column"),
        ("SELECT true", "has another outcome for it than 'commit', 'abort', 'unknown'; correct the row"),
        ("SELECT NULL", "has another outcome for it than 'commit', 'abort', 'unknown'; correct the row"),
        ("SELECT outcome FROM nowhere", "has no table the query's table"),
        ("SELECT", "answered the query with more than one row or column"),
        ("SELEC 1", "refused the statement (SyntaxError, SQLSTATE 42601); look at its log"),
        ("SELECT 'commit'; DROP TABLE fencepost_outcome", "refused the statement (SyntaxError, SQLSTATE 42601)"),
        ("DELETE FROM fencepost_outcome RETURNING 'commit'", "refused the statement (SyntaxError, SQLSTATE 42601)"),
        ("SELECT pg_sleep(60)::text", "did not"),
    ],
)
async def test_a_query_that_gives_no_outcome_is_no_answer(shop: Shop, query: str, said: str) -> None:
    await shop.execute(INSERT, "other")
    timeout_ms = 1000 if "sleep" in query else 10_000
    assert (await shop.reason(shop.resolver(query=query, timeout_ms=timeout_ms))).startswith(said)
    assert await shop.rows("SELECT token FROM fencepost_outcome") == [("other",)]


async def test_a_query_can_change_nothing(shop: Shop) -> None:
    await shop.execute(
        "CREATE FUNCTION spoil() RETURNS text AS $$ DELETE FROM fencepost_outcome; SELECT 'abort' $$ LANGUAGE sql"
    )
    await shop.execute(INSERT, str(TOKEN))
    said = await shop.reason(shop.resolver(query="SELECT spoil()"))
    assert said.startswith("is read-only")
    assert await shop.rows("SELECT outcome FROM fencepost_outcome") == [("commit",)]


# What goes wrong.


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            ["DROP TABLE fencepost_outcome"],
            "has no table fencepost_outcome; create it as docs/check-back.md says, or correct table",
        ),
        (
            ["ALTER TABLE fencepost_outcome RENAME outcome TO result"],
            "lacks a column of fencepost_outcome; create it as docs/check-back.md says",
        ),
        (
            ["ALTER TABLE fencepost_outcome DROP CONSTRAINT fencepost_outcome_pkey"],
            "has no unique index on the tokens of fencepost_outcome; make the column the primary key",
        ),
        (
            ["ALTER TABLE fencepost_outcome ALTER token TYPE uuid USING gen_random_uuid()"],
            "has a column of another type in fencepost_outcome; make it text",
        ),
        (
            ["ALTER TABLE fencepost_outcome ALTER outcome TYPE boolean USING true"],
            "has a column of another type in fencepost_outcome; make it text",
        ),
        (
            ["ALTER TABLE fencepost_outcome ADD shop text NOT NULL"],
            "needs values for other columns of fencepost_outcome; give them defaults",
        ),
        (
            ["ALTER TABLE fencepost_outcome ADD CHECK (outcome = 'commit')"],
            "refuses the claim's row by a check of fencepost_outcome; allow the outcome 'abort'",
        ),
        (
            ["INSERT INTO fencepost_outcome VALUES ('7:0:order-1', 'COMMIT')"],
            "has another outcome for it than 'commit', 'abort'; correct the row",
        ),
        (
            ["INSERT INTO fencepost_outcome VALUES ('7:0:order-1', 'unknown')"],
            "has another outcome for it than 'commit', 'abort'; correct the row",
        ),
        (
            [
                "CREATE FUNCTION drop_row() RETURNS trigger AS $$ BEGIN RETURN NULL; END $$ LANGUAGE plpgsql",
                "CREATE TRIGGER d BEFORE INSERT ON fencepost_outcome FOR EACH ROW EXECUTE FUNCTION drop_row()",
            ],
            "did not keep the claim's row; look for triggers and row-level policies of fencepost_outcome",
        ),
        (
            [
                "ALTER TABLE fencepost_outcome ALTER token TYPE char(20)",
            ],
            "takes different tokens for the same; make fencepost_outcome.token text, and the primary key",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_table_of_another_form_is_no_answer(shop: Shop, statements: list[str], said: str) -> None:
    for statement in statements:
        await shop.execute(statement)
    before = [] if "DROP TABLE" in statements[0] else await shop.rows("SELECT * FROM fencepost_outcome")
    assert await shop.reason(shop.resolver()) == said
    if "DROP TABLE" not in statements[0]:
        assert await shop.rows("SELECT * FROM fencepost_outcome") == before


async def test_an_id_that_the_column_cannot_hold_is_unknown_and_says_nothing_of_the_database(shop: Shop) -> None:
    asked = shop.resolver()
    for name in ("a\0b", "".join(map(chr, range(256, 12_000)))):
        assert await asked.ask(Question(Token(7, 0, name), 0, ())) is Answer.UNKNOWN
    await shop.execute("ALTER TABLE fencepost_outcome ALTER token TYPE varchar(12)")
    assert await asked.ask(Question(Token(7, 0, "order-1234567890"), 0, ())) is Answer.UNKNOWN
    assert await asked.ask(QUESTION) is Answer.ABORT


async def test_a_user_without_the_right_gets_the_grant_that_is_missing(shop: Shop) -> None:
    role = shop.dsn_file.parent.name.replace("-", "_")
    await shop.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD '{PASSWORD}'")
    ((schema,),) = await shop.rows("SELECT current_schema()")
    await shop.execute(f'GRANT USAGE ON SCHEMA {schema} TO "{role}"')
    try:
        shop.dsn_file.write_text(psycopg.conninfo.make_conninfo(shop.uri, user=role, password=PASSWORD))
        said = await shop.reason(shop.resolver())
        assert said == "refuses this user the right; GRANT SELECT, INSERT ON fencepost_outcome TO it"
        await shop.execute(f'GRANT SELECT, INSERT ON fencepost_outcome TO "{role}"')
        assert await shop.resolver().ask(QUESTION) is Answer.ABORT
        connection, _, _ = claimed(shop.uri)
        connection.close()
        said = await shop.reason(shop.resolver(claim="session"))
        assert said == "refuses this user the right; GRANT SELECT, UPDATE ON fencepost_prepared TO it"
    finally:
        await shop.close()
        await shop.execute(f'DROP OWNED BY "{role}"')
        await shop.execute(f'DROP ROLE "{role}"')


async def test_a_database_that_only_reads_is_no_answer(shop: Shop) -> None:
    shop.set("default_transaction_read_only=on")
    said = await shop.reason(shop.resolver())
    assert said == "is read-only, as a standby is; name the primary in dsn.file, or ask by query"


async def test_no_server_is_no_answer_and_nothing_of_the_dsn_is_shown(shop: Shop, unused_tcp_port: int) -> None:
    shop.dsn_file.write_text(f"postgresql://shopkeeper:{PASSWORD}@127.0.0.1:{unused_tcp_port}/shop?connect_timeout=2")
    said = await shop.reason(shop.resolver())
    assert said == "cannot be connected to (Connection refused); start it, or correct dsn.file"


async def test_a_database_that_is_not_there_is_no_answer(shop: Shop) -> None:
    shop.dsn_file.write_text(psycopg.conninfo.make_conninfo(shop.uri, dbname="warehouse", password=PASSWORD))
    said = await shop.reason(shop.resolver())
    assert said == 'cannot be connected to (FATAL:  database "…" does not exist); start it, or correct dsn.file'


async def test_a_server_that_does_not_answer_is_left_when_the_time_is_over(shop: Shop) -> None:
    has_closed = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        has_closed.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        shop.dsn_file.write_text(f"host=127.0.0.1 port={port} user=shop password={PASSWORD} sslmode=disable")
        said = await shop.reason(shop.resolver(timeout_ms=300))
        await has_closed.wait()
    assert said == "did not answer within 0.3 s; look whether it is overloaded, or raise timeout.ms"


@pytest.mark.parametrize("text", ["", PASSWORD, f"host=127.0.0.1 {PASSWORD}", f"mysql://a:{PASSWORD}@b/c"])
def test_a_file_without_a_dsn_is_refused_at_the_start_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.dsn"
    file.write_text(text)
    with pytest.raises(ValueError, match="holds no DSN; write one line such as postgresql://") as raised:
        SqlResolver(ResolverSettings("shop", ("order-*",), "sql", {"dsn.file": str(file)}))
    assert PASSWORD not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_a_restart_of_the_server_is_survived_and_a_claim_is_not_lost(
    shop: Shop, postgres: PostgresServer
) -> None:
    asked = shop.resolver()
    assert await asked.ask(QUESTION) is Answer.ABORT
    await shop.execute(INSERT, "7:1:order-1")
    await asyncio.to_thread(postgres.restart)
    # On a connection that the server has closed: it is replaced.
    assert await asked.ask(QUESTION) is Answer.ABORT
    assert await asked.ask(Question(Token(7, 1, "order-1"), 0, ())) is Answer.COMMIT


async def test_a_restart_in_the_middle_of_a_claim_is_no_answer(shop: Shop, postgres: PostgresServer) -> None:
    asked = shop.resolver(timeout_ms=60_000)
    local = await shop.connect()
    await local.execute(INSERT, (str(TOKEN),))
    asking = asyncio.create_task(shop.reason(asked))
    await shop.until(CLAIM_WAITS, [(1,)])
    await asyncio.to_thread(postgres.restart)
    assert await asking == "closed the connection; look whether it was restarted"
    await local.close()
    # The local transaction was lost with the server, and now cannot come back.
    assert await asked.ask(QUESTION) is Answer.ABORT


async def test_connections_are_kept_for_the_next_question_and_closed_at_the_end(shop: Shop) -> None:
    asked = shop.resolver()
    await asyncio.gather(*(asked.ask(Question(Token(7, epoch, "order-1"), 0, ())) for epoch in range(20)))
    kept = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await shop.until(kept, [(8,)])
    await asked.close()
    await shop.until(kept, [(0,)])
