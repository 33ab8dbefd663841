"""Questions before a change: one option answers them beforehand, and without a terminal the change is refused.

A program, a schedule or a pipe has nobody who could answer: a question there would read the data that was meant for the
command, or wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
YES: Final = ("-y", "--yes")
HELP: Final = "Answer yes to the question."


def yes_option(question: str, *more_names: str) -> Callable[[Command], Command]:
    """Add `--yes`, also as `-y` and `more_names`; without it, the command asks the question before it begins."""

    def confirm(context: click.Context, _parameter: click.Parameter, is_sure: bool) -> None:
        if not is_sure and not context.resilient_parsing:
            ask(question)

    return click.option(*YES, *more_names, "is_sure", is_flag=True, expose_value=False, callback=confirm, help=HELP)


def sure_option(*more_names: str) -> Callable[[Command], Command]:
    """Add `--yes`, also as `-y` and `more_names`, for a command that asks by itself; it gets `is_sure`."""
    return click.option(*YES, *more_names, "is_sure", is_flag=True, help=HELP)


def ask(question: str) -> None:
    """Ask on standard error, and end the command unless the answer is yes. Raises UsageError without a terminal."""
    _check_terminal(question, "--yes")
    while True:
        word = answer_to(f"{question} [y/N]").lower()
        if word in ("y", "yes"):
            return
        if word in ("", "n", "no"):
            raise click.Abort
        click.echo("Error: answer y or n", err=True)


def typed(question: str) -> str:
    """Ask for a word or a number, and return it. Raises UsageError without a terminal."""
    _check_terminal(f"{question}.", "--expect")
    return answer_to(question)


def check_answerable(is_sure: bool) -> None:
    """Raise UsageError, before any work, if a question will be asked and nobody can answer it."""
    if not is_sure:
        _check_terminal("This asks before it changes anything.", "--yes")


def _check_terminal(question: str, option: str) -> None:
    if not is_answerable():
        raise click.UsageError(f"{question} There is no terminal to answer at; {option} answers beforehand")


def answer_to(question: str) -> str:
    """Ask on standard error and return the line that is answered. Raises Abort if the input ends.

    click's own prompts write a space to standard output, which a program may read.
    """
    click.echo(f"{question}: ", err=True, nl=False)
    line = sys.stdin.readline()
    if not line:
        raise click.Abort
    return line.strip()


def is_answerable() -> bool:
    """Whether a person can answer: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
