"""`--skip-offsets`: its default is said as it is, and what no log can leave out is refused."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fencepost.broker.log.append.skipped_offsets import MOST_SKIPPED, SKIPPED_OFFSETS, SKIPPED_PER_SECOND
from fencepost.cli.restored_offsets import MOST_OFFSETS, skip_offsets_option


@click.command()
@skip_offsets_option
def command(skip_offsets: int | None) -> None:
    click.echo(str(skip_offsets))


def test_its_help_has_the_numbers_of_the_broker() -> None:
    told = CliRunner().invoke(command, ["--help"]).stdout
    assert f"default: {SKIPPED_OFFSETS}" in told
    assert f"or {SKIPPED_PER_SECOND} for each second" in " ".join(told.split())
    assert MOST_OFFSETS == MOST_SKIPPED


@pytest.mark.parametrize("number", ["-1", str(MOST_SKIPPED + 1), "many"])
def test_a_number_that_no_log_can_leave_out_is_refused(number: str) -> None:
    assert CliRunner().invoke(command, ["--skip-offsets", number]).exit_code == 2


def test_none_is_a_number() -> None:
    assert CliRunner().invoke(command, ["--skip-offsets", "0"]).stdout == "0\n"
    assert CliRunner().invoke(command, []).stdout == "None\n"
