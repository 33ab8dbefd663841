"""Questions before a change of several things: a preview, the answer, and guards against a pattern that means more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

import click

from fencepost.cli import questions
from fencepost.cli.output import print_rows
from fencepost.cli.questions import sure_option

Command = TypeVar("Command", bound=Callable[..., Any])


def asking_options(command: Command) -> Command:
    """Add `--yes`, `--expect` and `--dry-run`."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing."),
        click.option(
            "--expect", type=click.IntRange(min=0), metavar="N", help="Change nothing unless it is N of them."
        ),
        sure_option(),
    ):
        command = option(command)
    return command


@contextmanager
def to_standard_error() -> Iterator[None]:
    """Print tables to standard error: a preview is no result."""
    with redirect_stdout(sys.stderr):
        yield


def preview(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows to standard error."""
    with to_standard_error():
        print_rows(columns, rows, as_json=False)


def counted(count: int, thing: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


def check_count(count: int, expected: int | None, things: str) -> None:
    """Raise ClickException if it is another number than `--expect` says. things: their plural."""
    if expected is not None and count != expected:
        raise click.ClickException(f"nothing was changed: it is {count} {things}, and --expect says {expected}")


def check_choice(names: Sequence[str], patterns: Sequence[Any], things: str, *, is_asked: bool = False) -> None:
    """Raise UsageError if there is neither a name nor a pattern, or if nobody can answer a question that is asked."""
    if not names and not patterns:
        raise click.UsageError(f"name the {things}, or choose them with --pattern")
    questions.check_answerable(not is_asked)


def confirm(
    question: str, count: int, *, is_sure: bool, of_everything: str | None = None, expected: int | None = None
) -> None:
    """Ask, unless `is_sure`. Raises Abort for a no, ClickException if `--yes` is not enough.

    question:      text, without its question mark.
    of_everything: a pattern that chooses nothing, for which the number must be typed or expected.
    """
    if of_everything is not None and expected is None:
        if is_sure:
            raise click.ClickException(
                f"nothing was changed: {of_everything!r} matches every name, and --yes is not enough for that; "
                f"add --expect {count} if you mean all {count}"
            )
        typed = questions.typed(f"{question}? {of_everything!r} matches every name. Type their number")
        if typed != str(count):
            raise click.ClickException(f"nothing was changed: it is {count}, not {typed}")
        return
    if not is_sure:
        questions.ask(f"{question}?")
