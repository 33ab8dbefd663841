"""Holds the output of a command with `--json` against its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import click
import jsonschema
from click.testing import Result

from scripts.json_outputs import OUTPUTS


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield " ".join(path), command


def command_of(arguments: Sequence[str]) -> str | None:
    """The name of the command that is run, such as `topics list`."""
    return next((name for name in (" ".join(arguments[:2]), arguments[0]) if name in OUTPUTS), None)


@cache
def _validator(command: str) -> Any:
    output = OUTPUTS[command]
    assert output is not None
    return jsonschema.Draft202012Validator(output.schema)


def check_output(command: str, text: str) -> None:
    """Raise AssertionError for output that the schema does not describe, or with a field that it does not name."""
    output = OUTPUTS[command]
    if output is None:
        assert text == "", f"{command} printed {text[:200]!r}: OUTPUTS says that it prints nothing"
        return
    documents = [json.loads(line) for line in text.splitlines()] if output.is_lines else [json.loads(text)]
    for document in documents:
        wrong = jsonschema.exceptions.best_match(_validator(command).iter_errors(document))
        assert wrong is None, (
            f"{command}: {wrong.message} at {wrong.json_path}: if the output is right, "
            f"correct its row in scripts/json_outputs.py. Its output: {json.dumps(document)[:2_000]}"
        )


def check_result(arguments: Sequence[str], result: Result) -> None:
    """As `check_output`, for a command that was run with `--json`; nothing else is checked."""
    command = command_of(arguments) if arguments else None
    is_done = result.exit_code == 0 or result.stdout
    if command is not None and is_done and "--json" in arguments and "--watch" not in arguments:
        check_output(command, result.stdout)
