"""Holds the output of a command with `--json` against its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from scripts.json_outputs import OUTPUTS


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


@pytest.fixture(scope="session", autouse=True)
def outputs_have_their_schemas() -> Iterator[None]:
    """Hold each output with `--json` against its schema, of commands that tests run in their own process."""
    invoke = CliRunner.invoke

    def checked(runner: CliRunner, command: Any, args: Any = None, *more: Any, **options: Any) -> Result:
        result = invoke(runner, command, args, *more, **options)
        if command is fencepost and isinstance(args, list | tuple):
            check_result(args, result)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CliRunner, "invoke", checked)
        yield


def check_result(arguments: Sequence[str], result: Result) -> None:
    """As `check_output`, for a command that was run with `--json`; nothing else is checked."""
    command = command_of(arguments) if arguments else None
    is_done = result.exit_code == 0 or result.stdout
    if command is not None and is_done and "--json" in arguments and "--watch" not in arguments:
        check_output(command, result.stdout)
