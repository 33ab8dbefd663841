"""How the hands-on commands print: a table for people, JSON for programs, progress on standard error."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click


def print_rows(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str = "nothing to show"
) -> None:
    """Rows as a table with these columns in this order, or as one JSON array of objects with the same keys."""
    if as_json:
        click.echo(json.dumps([{column: row.get(column) for column in columns} for row in rows], default=str, indent=2))
        return
    if not rows:
        click.echo(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float) or row.get(column) is None for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        # Piped into grep or awk, a row must stay on one line.
        console = Console(highlight=False, width=max(200, console.width))
    console.print(table)


def _cell(value: Any) -> str:
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple | set):
        return ", ".join(str(item) for item in value)
    return escape(str(value))


def format_time(milliseconds: int) -> str | None:
    """Milliseconds since 1970 as local time with milliseconds; None for Kafka's -1."""
    if milliseconds < 0:
        return None
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


class Progress(Protocol):
    def advance(self, count: int) -> None: ...


@contextmanager
def progress(description: str, *, total: int | None) -> Iterator[Progress]:
    """A progress bar on standard error while long work runs; silent when standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    with RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=total)

        class _Progress:
            def advance(self, count: int) -> None:
                bar.advance(task, count)

        yield _Progress()
