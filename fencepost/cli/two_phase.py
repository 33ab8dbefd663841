"""`fencepost two-phase`: looks at both sides of commits over a database and topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli.committed_records import reader, records_of
from fencepost.cli.completion import topic_names
from fencepost.cli.connection import bootstrap_option, coordinator_options, json_option, kafka_errors
from fencepost.cli.output import format_time, print_rows
from fencepost.cli.times import TimeType

if TYPE_CHECKING:
    from fencepost.two_phase.comparison import Comparison

EXIT_DIFFERENCES: Final = 1
UNDER_WAY_MS: Final = 60_000
MOST_COMMITS: Final = 5_000_000
ROWS_PER_FETCH: Final = 5_000
COLUMNS: Final = ["difference", "commit_id", "began", "first_record"]
ROW_ALONE: Final = "row without records"
RECORDS_ALONE: Final = "records without a row"
_Query = Callable[[str], Generator[tuple[Any, ...], None, None]]


@click.group("two-phase")
def two_phase() -> None:
    """Compare the two sides of commits over a database and topics."""


@two_phase.command()
@bootstrap_option
@json_option
@click.option(
    "--database",
    "-d",
    required=True,
    metavar="URL|FILE",
    help="The service's database: postgresql://… or key=value pairs of libpq, or the file of an SQLite database.",
)
@click.option("--query", "-q", required=True, metavar="SQL", help="A query of one column: the commit ids of the rows.")
@click.option(
    "--topic", "-t", "topics", required=True, multiple=True, shell_complete=topic_names, help="Read it; repeatable."
)
@click.option("--since", "since_ms", type=TimeType(), help="Leave out commits that began earlier.")
@click.option(
    "--until", "until_ms", type=TimeType(), help="Leave out commits that began later; a minute ago if left out."
)
@click.option("--table", default="fencepost_prepared", show_default=True, help="The table of the log.")
def compare(
    bootstrap: str,
    as_json: bool,
    database: str,
    query: str,
    topics: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    table: str,
) -> None:
    """List rows without records, and records without rows.

    The rows have the id of their commit in a column, the records in the header fencepost-commit-id: `transaction` of
    fencepost.two_phase gives both. Nothing is changed. The exit code is 1 if the sides differ.
    """
    import time

    from fencepost.two_phase.comparison import Comparison, TooManyCommits

    now_ms = int(time.time() * 1000)
    compared = Comparison(since_ms or 0, now_ms - UNDER_WAY_MS if until_ms is None else until_ms, MOST_COMMITS)
    with kafka_errors(bootstrap), _database(database) as ask:
        try:
            with closing(ask(query)) as rows_found:
                compared.add_rows(commit_id for (commit_id, *_) in rows_found)
            _add_records(compared, bootstrap, topics, since_ms)
        except TooManyCommits:
            raise click.ClickException(
                f"there are more than {MOST_COMMITS} commits, which would take more than a gigabyte of memory: name a "
                "range with --since and --until"
            ) from None
        tokens = _tokens(ask, table, bootstrap)
    rows = _differences(compared)
    print_rows(COLUMNS, rows, as_json=as_json, empty="the sides do not differ")
    counted = f"{compared.rows} commits with rows, {compared.records} with records"
    click.echo(f"{counted}; {compared.without_id} rows and records without an id were left out", err=True)
    for text in tokens:
        click.echo(text, err=True)
    sys.exit(EXIT_DIFFERENCES if rows else 0)


def _add_records(compared: Comparison, bootstrap: str, topics: Sequence[str], since_ms: int | None) -> None:
    from fencepost.two_phase.commit_ids import HEADER
    from fencepost.two_phase.comparison import Place

    with reader(bootstrap) as consumer:
        existing = consumer.topics()
        for topic in topics:
            if topic not in existing:
                raise click.ClickException(f"there is no topic {topic}; `fencepost topics list` shows which there are")
        for record in records_of(consumer, topics, from_ms=since_ms):
            found = [content for name, content in record.headers if name == HEADER]
            text = found[-1].decode("ascii", "replace") if found and found[-1] is not None else None
            compared.add_record(text, Place(record.topic, record.partition, record.offset))


def _differences(compared: Comparison) -> list[dict[str, Any]]:
    def row(difference: str, commit_id: str, place: object) -> dict[str, Any]:
        from fencepost.two_phase.commit_ids import time_of

        began = format_time(time_of(commit_id) or 0)
        return {"difference": difference, "commit_id": commit_id, "began": began, "first_record": place}

    return [
        *(row(ROW_ALONE, one, None) for one in compared.rows_without_records()),
        *(row(RECORDS_ALONE, one, str(place)) for one, place in compared.records_without_rows()),
    ]


def _tokens(ask: _Query, table: str, bootstrap: str) -> list[str]:
    """A sentence for each token in the log: its transaction is not known to have ended. None without the table."""
    from fencepost.two_phase import Coordinator, Token, TwoPhaseError

    try:
        found = [str(text) for (text,) in ask(f"SELECT token FROM {table} WHERE token IS NOT NULL")]
    except click.ClickException:
        return [f"no table {table} in this database: tokens were not looked at (--table names it)"]
    sentences = []
    with Coordinator(bootstrap, **coordinator_options(bootstrap)) as coordinator:
        for text in found:
            try:
                outcome = coordinator.outcome(Token.parse(text)).value
            except (ValueError, TwoPhaseError, TimeoutError) as error:
                outcome = f"unknown ({error})"
            sentences.append(
                f"token {text}: the database has committed, its records' transaction is {outcome}; the next "
                "start_session of the id goes on with it"
            )
    return sentences


@contextmanager
def _database(address: str) -> Iterator[_Query]:
    """Opens a database for reading; gives a function that runs a query. Raises ClickException."""
    is_postgres = address.startswith(("postgresql://", "postgres://")) or (
        "=" in address and not Path(address).exists()
    )
    with _postgres(address) if is_postgres else _sqlite(address) as ask:
        yield ask


@contextmanager
def _postgres(address: str) -> Iterator[_Query]:
    try:
        import psycopg
    except ImportError:
        raise click.ClickException("psycopg is not installed: pip install 'psycopg[binary]'") from None

    def ask(query: str) -> Generator[tuple[Any, ...], None, None]:
        try:
            with connection.transaction(), connection.cursor(name="fencepost_compare") as cursor:
                cursor.itersize = ROWS_PER_FETCH
                cursor.execute(query.encode())
                yield from cursor
        except psycopg.Error as error:
            raise click.ClickException(f"the database refuses the query: {error}") from None

    try:
        connection = psycopg.connect(address, autocommit=True)
    except psycopg.Error as error:
        raise click.ClickException(f"the database cannot be reached: {error}") from None
    with connection:
        connection.read_only = True
        yield ask


@contextmanager
def _sqlite(address: str) -> Iterator[_Query]:
    import sqlite3

    if not Path(address).is_file():
        raise click.ClickException(f"{address} is no file, and no URL such as postgresql://host/database")

    def ask(query: str) -> Generator[tuple[Any, ...], None, None]:
        try:
            yield from connection.execute(query)
        except sqlite3.Error as error:
            raise click.ClickException(f"the database refuses the query: {error}") from None

    with closing(sqlite3.connect(f"{Path(address).resolve().as_uri()}?mode=ro", uri=True)) as connection:
        yield ask
