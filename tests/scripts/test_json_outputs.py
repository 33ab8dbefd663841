"""Every command with `--json` has a schema, and the page and the file of schemas say the same."""

from __future__ import annotations

import json
from typing import Any

import click
import jsonschema
import pytest

from fencepost.cli.commands import fencepost
from scripts.json_outputs import OUTPUTS, published
from scripts.json_page import PAGE, SCHEMAS, json_page, schema_file
from tests.support.command_tree import commands
from tests.support.json_outputs import check_output, command_of

WITH_JSON = {
    name
    for name, command in commands(fencepost)
    if any("--json" in option.opts for option in command.params if isinstance(option, click.Option))
}
ROW: dict[str, Any] = {"name": "retention.ms", "value": None, "source": "topic"}
VERSION: dict[str, Any] = {"version": "1", "message": "fencepost, version 1"}


def test_every_command_with_json_has_a_row() -> None:
    assert set(OUTPUTS) == WITH_JSON, "describe the output of a new command in scripts/json_outputs.py"


def test_the_page_and_the_schemas_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == json_page(), "run python -m scripts.json_page"
    assert SCHEMAS.read_text(encoding="utf-8") == schema_file(), "run python -m scripts.json_page"


@pytest.mark.parametrize("command", [name for name, output in OUTPUTS.items() if output is not None])
def test_each_schema_is_one(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(published(command))


def test_a_program_may_meet_more_fields_and_the_project_may_not() -> None:
    more = {**VERSION, "commit": "abc"}
    jsonschema.validate(more, published("version"))
    with pytest.raises(AssertionError, match=r"correct its row in scripts/json_outputs\.py"):
        check_output("version", json.dumps(more))


@pytest.mark.parametrize(
    "document",
    [{}, {"version": 1, "message": "x"}, {"version": None, "message": "x"}, [VERSION], None],
)
def test_a_missing_field_and_another_type_are_noticed(document: object) -> None:
    with pytest.raises(AssertionError):
        check_output("version", json.dumps(document))
    check_output("version", json.dumps(VERSION))


def test_lists_may_be_empty_and_fields_null_only_where_the_row_says_so() -> None:
    check_output("topics configs", "[]")
    check_output("topics configs", json.dumps([ROW]))
    with pytest.raises(AssertionError):
        check_output("topics configs", json.dumps([ROW, {**ROW, "name": None}]))


def test_each_line_of_a_command_that_goes_on_is_checked() -> None:
    line = json.dumps({"url": "http://x", "pid": 1, "version": "1"})
    check_output("test-broker", f"{line}\n{line}\n")
    with pytest.raises(AssertionError):
        check_output("test-broker", f"{line}\n{{}}\n")


def test_a_command_without_output_prints_nothing() -> None:
    check_output("produce", "")
    with pytest.raises(AssertionError):
        check_output("produce", "{}")


def test_a_command_is_known_by_its_arguments() -> None:
    assert command_of(["topics", "list", "--json"]) == "topics list"
    assert command_of(["ping", "-b", "x:1"]) == "ping"
    assert command_of(["topics"]) is None
