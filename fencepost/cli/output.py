"""Output of the client commands: tables for people, JSON for programs, progress on standard error."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import click

from fencepost.broker.kernel.printable import printable


def print_rows(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str = "nothing to show"
) -> None:
    """Print rows as a table with these columns, or as one JSON array of objects with these keys."""
    if as_json:
        click.echo(json.dumps([{column: row.get(column) for column in columns} for row in rows], default=str, indent=2))
        return
    if not rows:
        click.echo(empty)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    names = [column.replace("_", " ") for column in columns]
    is_numeric = [all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns]
    if sys.stdout.isatty():
        _print_table(names, cells, is_numeric)
    else:
        _print_lines(names, cells, is_numeric)


class Done(NamedTuple):
    """The outcome of a command: in words for people, and as fields for programs."""

    words: str
    fields: Mapping[str, Any]


def print_done(done: Done, *, as_json: bool) -> None:
    """Print the result in words, or as one JSON object, in which `message` has the words."""
    click.echo(json.dumps({**done.fields, "message": done.words}, default=str) if as_json else printable(done.words))


def _print_table(names: Sequence[str], cells: Sequence[Sequence[str]], is_numeric: Sequence[bool]) -> None:
    """Print for a terminal, folded into its width."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, numeric in zip(names, is_numeric, strict=True):
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    Console(highlight=False).print(table)


def _print_lines(names: Sequence[str], cells: Sequence[Sequence[str]], is_numeric: Sequence[bool]) -> None:
    """Print for a pipe: each row on one line of any length, without a frame."""
    lines = [names, *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
    for line in lines:
        columns = zip(line, widths, is_numeric, strict=True)
        padded = [text.rjust(width) if numeric else text.ljust(width) for text, width, numeric in columns]
        click.echo("   ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple | set):
        return ", ".join(printable(str(item)) for item in value) or "-"
    return printable(str(value))


def format_time(milliseconds: int) -> str | None:
    """Format milliseconds since 1970 as local time; None for Kafka's -1. Times after the year 9999 stay numbers."""
    if milliseconds < 0:
        return None
    try:
        moment = dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds")


class Progress(Protocol):
    def advance(self, count: int) -> None: ...


@contextmanager
def progress(description: str, *, total: int | None, shown: bool = True) -> Iterator[Progress]:
    """Show a progress bar on standard error during long work; nothing unless that is a terminal and `shown`."""
    if not (shown and sys.stderr.isatty()):
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Shown(bar, bar.add_task(description, total=total))


class _Silent:
    def advance(self, count: int) -> None:
        pass


class _Shown:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, count: int) -> None:
        self._bar.advance(self._task, count)
